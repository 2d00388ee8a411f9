import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def few_epochs():
    """Fine-tune networks for one epoch, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("molslice.training.duration.MIN_EPOCHS", 1)
        patch.setattr("molslice.training.duration.MAX_EPOCHS", 1)
        yield
