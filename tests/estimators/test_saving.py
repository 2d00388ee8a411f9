import numpy as np
import pytest

from molslice.estimators import MolsliceRegressor
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


def test_a_model_is_saved_to_a_new_or_empty_folder(tmp_path):
    smiles = embedded_smiles(24)
    model = MolsliceRegressor(encoder=None, members=2).fit(smiles, np.array([len(text) for text in smiles]))
    (tmp_path / "model").mkdir()
    model.save(tmp_path / "model")
    before = sorted(file.name for file in (tmp_path / "model").iterdir())
    assert "fit.json" in before
    with pytest.raises(MolsliceError, match="model: it exists; choose another folder, or remove it"):
        model.save(tmp_path / "model")
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == before
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
