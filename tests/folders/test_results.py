import pytest

from molslice.errors import MolsliceError
from molslice.folders.results import OTHERS, results_folder


def test_other_files_of_a_folder_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with results_folder(tmp_path):
        (tmp_path / "table.csv").write_text("new")
    assert {file.name for file in tmp_path.iterdir()} == {"notes.txt", "table.csv"}


@pytest.mark.parametrize("name", OTHERS)
def test_the_folder_of_a_model_is_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(MolsliceError, match=f"is the folder of {OTHERS[name]}"), results_folder(tmp_path):
        pass


def test_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with (
        pytest.raises(MolsliceError, match="taken is a file; choose another folder"),
        results_folder(tmp_path / "taken"),
    ):
        pass


def test_a_folder_without_results_is_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), results_folder(tmp_path / "new" / "inner"):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
