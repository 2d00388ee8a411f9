"""Model folders and stores made to harm: refused with the file and the reason, without running anything.

`tests/folders/test_run.py` has forged descriptions and weights of run folders, `tests/files/test_parsing.py`
hostile YAML and JSON, and `scripts/fuzz.py` searches for more.
"""

import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from molslice import load_model
from molslice.chem import DESCRIPTORS_VERSION
from molslice.chem.featurize import molecule_arrays
from molslice.config import config_from_mapping, load_config
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.verify import verify_store
from molslice.types import DataSpec, MolsliceError
from tests.forging import put
from tests.real_data import REPOSITORY
from tests.saving import SIZES, TWO, save_network

SAVED = REPOSITORY / "tests" / "saved_models"
WEIGHTS = {  # every file of tensors, by the saved model that has it
    "model.safetensors": "softmax",
    "learners.safetensors": "fit",
    "encoder/model.safetensors": "fit_encoder",
    "networks/fold1/model.safetensors": "fit_encoder",
}
JSON_FILES = {"fit.json": "fit", "summary.json": "trained"}


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def mark(tmp_path):
    """A path that exists if something has run."""
    return str(tmp_path / "it-ran")


def copy_of(name, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(SAVED / name, folder)
    return folder


def refusal(folder, file, mark=None):
    """Load a folder, and return why it was refused."""
    with pytest.raises(MolsliceError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert mark is None or not os.path.exists(mark)
    assert "\n" not in message
    assert len(message) < 1000
    assert file.rpartition("/")[2] in message
    return message


def with_header(header, content=b""):
    return len(header).to_bytes(8, "little") + header + content


def write_zip(file, mark):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(mark)))


PICKLES = {
    "pickle": lambda file, mark: file.write_bytes(pickle.dumps(Evil(mark))),
    "old pickle": lambda file, mark: file.write_bytes(pickle.dumps(Evil(mark), 2)),
    "torch": lambda file, mark: torch.save({"a": Evil(mark)}, file),
    "old torch": lambda file, mark: torch.save({"a": Evil(mark)}, file, _use_new_zipfile_serialization=False),
    "zip": write_zip,
}


@pytest.mark.parametrize("disguise", PICKLES)
@pytest.mark.parametrize("file", WEIGHTS)
def test_a_pickle_in_disguise_is_not_opened(file, disguise, tmp_path, mark):
    folder = copy_of(WEIGHTS[file], tmp_path)
    PICKLES[disguise](folder / file, mark)
    assert "not a safetensors file but a pickle" in refusal(folder, file, mark)


HEADERS = {
    "huge": (2**63).to_bytes(8, "little") + b"{",
    "larger than any": (90_000_000).to_bytes(8, "little") + b"{" + b" " * 100,
    "longer than the file": (1000).to_bytes(8, "little") + b"{}",
    "more data than there are": with_header(b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'),
    "a terabyte": with_header(
        b'{"a":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}}'
    ),
    "a shape that overflows": with_header(
        b'{"a":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,0]}}'
    ),
    "overlapping tensors": with_header(
        b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
        bytes(6),
    ),
    "deep": with_header(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "empty": b"",
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("file", WEIGHTS)
def test_a_header_that_lies_is_refused(file, header, tmp_path):
    folder = copy_of(WEIGHTS[file], tmp_path)
    (folder / file).write_bytes(HEADERS[header])
    assert "truncated or not a safetensors file" in refusal(folder, file)


def rewrite(file, change):
    """Change the tensors of a file."""
    with safe_open(file, "numpy") as opened:
        about = opened.metadata()
    save_file({name: change(tensor) for name, tensor in load_file(file).items()}, file, metadata=about)


CHANGES = {
    "shape": lambda tensor: np.zeros((3, 5, 1), tensor.dtype),
    "no rows": lambda tensor: tensor[:0],
    "complex": lambda tensor: tensor.astype(np.complex64),
    "integers": lambda tensor: np.zeros(tensor.shape, np.int16),
    "NaN": lambda tensor: np.full_like(tensor, np.nan) if tensor.dtype.kind == "f" else tensor,
    "infinity": lambda tensor: np.full_like(tensor, np.inf) if tensor.dtype.kind == "f" else tensor,
    "large indices": lambda tensor: (
        np.full(tensor.shape, 2**31 - 1, np.int32) if tensor.dtype.kind == "i" else tensor * np.nan
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("file", WEIGHTS)
def test_tensors_that_do_not_fit_are_refused(file, change, tmp_path):
    folder = copy_of(WEIGHTS[file], tmp_path)
    with np.errstate(all="ignore"):
        rewrite(folder / file, CHANGES[change])
    refusal(folder, file)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.complex64, np.bool_, np.float32])
def test_one_array_of_another_type_is_refused_or_predicts(kind, tmp_path):
    arrays = load_file(SAVED / "fit" / "learners.safetensors")
    for name in arrays:
        with np.errstate(all="ignore"):
            changed = {**arrays, name: np.nan_to_num(arrays[name]).astype(kind)}
        folder = copy_of("fit", tmp_path / name)
        save_file(changed, folder / "learners.safetensors", metadata={"format": "molslice-fit-1"})
        reason = ""
        try:
            found = load_model(folder).predict_with_errors(["CCO"])
        except MolsliceError as error:
            found, reason = None, str(error)
        assert "learners.safetensors" in reason if found is None else found.errors == [None], name


@pytest.mark.parametrize("file", [*WEIGHTS, *JSON_FILES])
def test_a_link_out_of_the_folder_is_refused(file, tmp_path):
    folder = copy_of({**WEIGHTS, **JSON_FILES}[file], tmp_path)
    outside = tmp_path / "secret"
    shutil.move(folder / file, outside)
    (folder / file).symlink_to(outside)
    assert "is a link to" in refusal(folder, file)
    assert "outside of" in refusal(folder, file)
    shutil.move(outside, folder / "inside")
    (folder / file).unlink()
    (folder / file).symlink_to(folder / "inside")
    if "/" not in file:
        load_model(folder)


@pytest.mark.parametrize("part", ["encoder", "networks/fold0", "networks"])
def test_a_part_that_is_a_link_to_another_folder_is_refused(part, tmp_path):
    folder = copy_of("fit_encoder", tmp_path)
    shutil.move(folder / part, tmp_path / "elsewhere")
    (folder / part).symlink_to(tmp_path / "elsewhere")
    assert "outside of" in refusal(folder, part.partition("/")[0])


def test_the_links_of_the_cache_of_the_hub_are_followed(tmp_path):
    snapshot = tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    shutil.copytree(SAVED / "softmax", snapshot)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    shutil.move(snapshot / "model.safetensors", tmp_path / "models--a--b" / "blobs" / "5a17")
    (snapshot / "model.safetensors").symlink_to("../../blobs/5a17")
    load_model(snapshot)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../../secret")
    (tmp_path / "secret").write_text("password")
    assert "outside of" in refusal(snapshot, "model.safetensors")


@pytest.mark.parametrize("file", ["learners.safetensors", "fit.json", "model.safetensors"])
def test_a_pipe_or_a_folder_is_not_read(file, tmp_path):
    folder = copy_of("softmax" if file.startswith("model") else "fit", tmp_path)
    (folder / file).unlink()
    os.mkfifo(folder / file)  # reading it would wait for a writer
    refusal(folder, "" if file == "fit.json" else "model")
    (folder / file).unlink()
    (folder / file).mkdir()
    refusal(folder, "" if file == "fit.json" else "model")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "recursion"),
        ('{"a": ' * 60 + "1" + "}" * 60, "more than 50 levels"),
        ("[]", "does not hold a JSON object"),
        ("\0", "Expecting value"),
        ('{"a": ' + "9" * 5000 + "}", "limit"),
        (" " * (1 << 24) + "{}", "bytes are more than"),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("file", JSON_FILES)
def test_hostile_json_is_refused(file, text, words, tmp_path):
    folder = copy_of(JSON_FILES[file], tmp_path)
    (folder / file).write_text(text)
    assert words in refusal(folder, file)


FORGED = [
    (["networks"], 10**9, "networks"),
    (["networks"], "../..", "invalid networks"),
    (["options", "members"], 10**9, "networks"),
    (["assignments"], 3, "invalid assignments"),
    (["assignments"], True, "invalid assignments"),
    (["options", "relations"], [1], "invalid relations"),
    (["options", "unit_columns"], [], "invalid unit_columns"),
    (["stacks", 0, "names", 0], "../../x", "'../../x'"),
    (["stacks", 0, "names", 0], "os", "'os'"),
    (["stacks", 0, "weights", 0], float("nan"), "weights"),
    (["stacks", 0], [], "invalid stacks"),
    (["stacks"], [], "weighs 0 targets"),
    (["targets", "names"], ["a"] * 100_000, "as many names"),
    (["targets"], "x", "targets"),
    (["format"], "molslice-fit-9", "molslice-fit-9"),
]


@pytest.mark.parametrize(("path", "value", "words"), FORGED, ids=str)
def test_a_forged_description_of_a_fit_is_refused(path, value, words, tmp_path):
    folder = copy_of("fit_encoder", tmp_path)
    about = json.loads((folder / "fit.json").read_text())
    put(path, value)(about)
    (folder / "fit.json").write_text(json.dumps(about))
    assert words in refusal(folder, "")


def test_a_model_reads_no_file_that_its_configuration_names(tmp_path):
    """The path of the data, the start and the cache stay text: a pipe there would block."""
    folder = copy_of("trained", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with safe_open(folder / "model.safetensors", "numpy") as opened:
        about = json.loads(opened.metadata()["molslice"])
    about["config"]["data"] |= {"path": str(tmp_path / "pipe"), "cache_dir": "/etc"}
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder / "model.safetensors", metadata={"molslice": json.dumps(about)})
    (folder / "config.yaml").write_text("a: &a [*a]")
    assert load_model(folder).predict_with_errors(["CCO"]).errors == [None]


def test_a_model_of_another_number_of_descriptors_is_refused(tmp_path):
    section = {"name": "csv", "path": "x.csv", "target_columns": ["gap", "logp"], "descriptors": True}
    config = config_from_mapping({"data": section, "model": SIZES, "attention": {"name": "softmax"}})
    about = {"descriptors_version": DESCRIPTORS_VERSION}
    save_network(tmp_path / "model", config, TWO, DataSpec(2, num_descriptors=3), about)
    with pytest.raises(MolsliceError, match="takes 3 descriptors, but this version"):
        load_model(tmp_path / "model").predict(["CCO"])


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("text", [BOMB, "a: &a [*a]", "[" * 5000, "!!python/object/apply:os.mkdir [MARK]"])
def test_a_configuration_that_grows_or_runs_is_refused(text, tmp_path, mark):
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("MARK", mark))
    with pytest.raises(MolsliceError, match=r"config\.yaml"):
        load_config(file)
    assert not os.path.exists(mark)


@pytest.fixture
def store(tmp_path):
    molecules = [molecule_arrays("CCO"), "not valid SMILES", molecule_arrays("c1ccccc1")]
    memory = MoleculeStore.in_memory(molecules, np.ones((3, 1), np.float32))
    MoleculeStore.write(tmp_path / "store", [memory], target_names=["gap"], target_units=["eV"])
    return tmp_path / "store"


def store_refusal(store, file):
    with pytest.raises(MolsliceError) as caught:
        MoleculeStore.open(store)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)
    problems = verify_store(store).problems
    assert problems
    assert any(file in problem for problem in problems)


@pytest.mark.parametrize("file", ["atoms.npy", "targets.npy", "header.json"])
def test_a_store_with_links_pipes_or_pickles_is_refused(file, store, tmp_path, mark):
    place, content = store / file, (store / file).read_bytes()
    (tmp_path / "outside").write_bytes(content)
    place.unlink()
    place.symlink_to(tmp_path / "outside")
    store_refusal(store, file)
    place.unlink()
    os.mkfifo(place)
    store_refusal(store, file)
    place.unlink()
    place.write_bytes(pickle.dumps(Evil(mark)))
    store_refusal(store, file)
    with place.open("wb") as stream:
        np.save(stream, np.array([Evil(mark)], object), allow_pickle=True)
    store_refusal(store, file)
    place.write_bytes(content[: len(content) // 2])
    store_refusal(store, file)
    assert not os.path.exists(mark)


@pytest.mark.parametrize("descr", [b"'<04'", b"'|O'", b"'<f9'", b"'<f3'", b"'<Zs'"])
def test_a_store_with_values_of_an_invalid_type_is_refused(descr, store):
    content = (store / "targets.npy").read_bytes()
    (store / "targets.npy").write_bytes(content.replace(b"'<f4'", descr))
    store_refusal(store, "targets.npy")


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(rows=10**12),
        lambda header: header["arrays"]["atoms"].update(shape=[10**12, 9]),
        lambda header: header["arrays"].update({"../../etc/passwd": {"shape": [1], "sha256": ""}}),
        lambda header: header.update(target_names=["a"] * 1000),
        lambda header: header.update(errors={"x": 1}),
        lambda header: header.update(schema_version=10**9),
    ],
    ids=range(6),
)
def test_a_store_with_a_header_that_lies_is_refused(change, store):
    header = json.loads((store / "header.json").read_text())
    change(header)
    (store / "header.json").write_text(json.dumps(header))
    store_refusal(store, "store")
