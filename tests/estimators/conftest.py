import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def small_fits():
    """Fit few trees, to few rows, in one thread, to save time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("molslice.learners.extra_trees.NUM_TREES", 5)
        patch.setattr("molslice.fitting.table.MIN_ROWS", 5)
        patch.setattr("molslice.fitting.target_checks.MIN_ROWS", 5)
        patch.setattr("molslice.fitting.target_checks.MIN_OF_CLASS", 1)
        yield
    torch.set_num_threads(threads)
