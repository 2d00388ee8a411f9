"""Tests of images in Parquet files, and of their download from the Hub."""

import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from molslice.data import build_dataset
from molslice.data.images.image_parquet import ImageParquet
from molslice.types import MolsliceError
from tests.data.images.pictures import encoded, pixels, write_table

IMAGES = pixels(12, 8, 8)
FILES = [encoded(image) for image in IMAGES]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))


def test_tables_of_several_files(tmp_path):
    root = tmp_path / "data"
    write_table(root / "train-00000-of-00002.parquet", FILES[:5], [0, 1, 0, 1, 0], ("cat", "dog"))
    write_table(root / "train-00001-of-00002.parquet", FILES[5:8], [1, 0, 1], ("cat", "dog"))
    write_table(root / "validation-00000-of-00001.parquet", FILES[8:10], [0, 1], ("cat", "dog"))
    write_table(root / "test-00000-of-00001.parquet", FILES[10:], [-1, None], ("cat", "dog"))
    data = build_dataset("image_parquet", {"root": str(root), "patch": 4})
    sizes = {name: len(rows) for name, rows in data.splits.items()}
    assert sizes == {"train": 8, "valid": 2, "test": 2}
    np.testing.assert_array_equal(data.images[data.splits["train"]], IMAGES[:8])
    np.testing.assert_array_equal(data.images[data.splits["valid"]], IMAGES[8:10])
    assert data.targets[data.splits["train"], 0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert np.isnan(data.targets[data.splits["test"]]).all()
    assert data.class_names == ("cat", "dog")


def test_the_split_may_be_in_the_folder(tmp_path):
    write_table(tmp_path / "default" / "train" / "0000.parquet", FILES[:8], [0, 2] * 4)
    write_table(tmp_path / "default" / "valid" / "0000.parquet", FILES[8:], [0, 1, 2, 0])
    data = ImageParquet(root=tmp_path, patch=4, valid_as_test=True, valid_fraction=0.25)
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 6, "valid": 2, "test": 4}
    assert data.class_names == ("0", "1", "2")


def test_one_file(tmp_path):
    path = write_table(
        tmp_path / "birds.parquet", FILES, [0, 1] * 6, image_column="photo", label_column="kind"
    )
    data = ImageParquet(root=path, patch=4, label_column="kind", valid_fraction=0.25, test_fraction=0.25)
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 6, "valid": 3, "test": 3}


def test_images_that_are_missing_or_damaged_keep_their_rows(tmp_path):
    path = write_table(tmp_path / "train.parquet", [*FILES[:10], None, b"torn"], [0, 1] * 6)
    data = ImageParquet(root=path, patch=4)
    assert data.errors[10] == "the table holds no image in this row"
    assert "cannot identify image file" in data.errors[11]
    np.testing.assert_array_equal(data.images[:10], IMAGES[:10])


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(MolsliceError, match="no Parquet file in .*--download` downloads me/birds"):
        ImageParquet(root=tmp_path / "none", hub="me/birds")
    (tmp_path / "train.parquet").write_text("PAR1 not")
    with pytest.raises(MolsliceError, match="cannot read .*train.parquet as Parquet"):
        ImageParquet(root=tmp_path)
    write_table(tmp_path / "train.parquet", FILES, [0, 1] * 6, label_column="kind")
    with pytest.raises(MolsliceError, match="no column 'label'; set label_column .*choices: image, kind"):
        ImageParquet(root=tmp_path)
    with pytest.raises(MolsliceError, match="no column of images 'kind'; choices: image"):
        ImageParquet(root=tmp_path, image_column="kind", label_column="kind")
    write_table(tmp_path / "more.parquet", FILES, [0, 1] * 6, label_column="kind")
    with pytest.raises(MolsliceError, match="unknown split of .*more.parquet"):
        ImageParquet(root=tmp_path, label_column="kind")
    write_table(tmp_path / "more.parquet", FILES, [0, 1] * 6)
    (tmp_path / "more.parquet").rename(tmp_path / "valid.parquet")
    with pytest.raises(MolsliceError, match="valid.parquet has no column 'kind'"):
        ImageParquet(root=tmp_path, label_column="kind")
    (tmp_path / "valid.parquet").unlink()
    write_table(tmp_path / "train.parquet", FILES, [0, 2] * 6, ("cat", "dog"))
    with pytest.raises(MolsliceError, match="invalid class 2 in .*row 2; choices: 0 to 1"):
        ImageParquet(root=tmp_path, patch=4)
    write_table(tmp_path / "train.parquet", FILES, [0, 1] * 6, ("cat", "dog"))
    write_table(tmp_path / "test.parquet", FILES, [0, 1] * 6)  # a file without names has any
    assert ImageParquet(root=tmp_path, patch=4).class_names == ("cat", "dog")
    write_table(tmp_path / "test.parquet", FILES, [0, 1] * 6, ("dog", "cat"))
    with pytest.raises(MolsliceError, match="classes in .*train.parquet differ from those in .*test.parquet"):
        ImageParquet(root=tmp_path, patch=4)


def test_a_description_of_classes_that_is_too_deep_is_ignored(tmp_path):
    path = write_table(tmp_path / "train.parquet", FILES, [0, 1] * 6)
    table = pq.read_table(path).replace_schema_metadata({"huggingface": '{"info":' + "[" * 100_000})
    pq.write_table(table, path)
    assert len(ImageParquet(root=path, patch=4).class_names) == 2


def test_images_of_which_none_can_be_read(tmp_path):
    path = write_table(tmp_path / "train.parquet", [b"torn", None] * 6, [0, 1] * 6)
    with pytest.raises(MolsliceError, match="none of the 12 images can be read; the first: cannot identify"):
        ImageParquet(root=path, patch=4)
    with pytest.raises(MolsliceError, match="has no split 'valid'"):  # found before they are decoded
        ImageParquet(root=path, patch=4, valid_as_test=True)


def test_fetching_from_the_hub(tmp_path, monkeypatch):
    """Uses the real library with prepared files: images in the table, and paths of images."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    paths = []
    for number, content in enumerate(FILES):
        paths.append(str(tmp_path / f"{number}.png"))
        (tmp_path / f"{number}.png").write_bytes(content)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    cells = {"train": [{"bytes": content, "path": None} for content in FILES], "test": paths}
    tables = {
        split: datasets.Dataset.from_dict({"image": column, "label": [0, 1] * 6}, features=features)
        for split, column in cells.items()
    }
    asked = []
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name: asked.append(name) or datasets.DatasetDict(tables)
    )
    options = {"root": str(tmp_path / "data"), "hub": "me/pets", "patch": 4}
    ImageParquet.download(options)
    for path in tmp_path.glob("*.png"):
        path.unlink()
    data = ImageParquet(**options)
    assert asked == ["me/pets"]
    assert data.class_names == ("cat", "dog")
    np.testing.assert_array_equal(data.images, np.concatenate([IMAGES, IMAGES]))
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "SOURCE.json",
        "test-00000-of-00001.parquet",
        "train-00000-of-00001.parquet",
    ]
    ImageParquet.download(options)
    assert asked == ["me/pets"]  # it was there
    with pytest.raises(MolsliceError, match="data holds me/pets, not me/birds; give another data.root"):
        ImageParquet.download({**options, "hub": "me/birds"})
    (tmp_path / "data" / "train-00000-of-00001.parquet").unlink()  # as if it had been interrupted
    ImageParquet.download(options)
    assert asked == ["me/pets"] * 2
    assert (tmp_path / "data" / "train-00000-of-00001.parquet").is_file()


@pytest.mark.parametrize("file", ["default/train/0000.parquet", "birds.parquet"])
def test_tables_that_are_there_are_not_fetched(tmp_path, monkeypatch, file):
    monkeypatch.setitem(sys.modules, "datasets", None)
    path = write_table(tmp_path / "data" / file, FILES, [0, 1] * 6)
    for root in (tmp_path / "data", path):
        ImageParquet.download({"root": root, "hub": "me/birds"})
    assert not list(tmp_path.rglob("SOURCE.json"))


def test_what_goes_wrong_with_the_hub(tmp_path, monkeypatch):
    with pytest.raises(MolsliceError, match="needs the option hub, a data set"):
        ImageParquet.download({"root": tmp_path})
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MolsliceError, match=r"downloading me/pets needs the library datasets"):
        ImageParquet.download({"root": tmp_path, "hub": "me/pets"})


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint64"])
def test_classes_of_any_whole_type(kind, tmp_path):
    import pyarrow as pa

    path = write_table(tmp_path / "train.parquet", FILES, [0, 1] * 6)
    table = pq.read_table(path)
    labels = pa.array([None, 1, *[0, 1] * 5], getattr(pa, kind)())
    pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", labels), path)
    data = ImageParquet(root=path, patch=4)
    assert data.targets[1:, 0].tolist() == [1, *[0, 1] * 5]
    assert np.isnan(data.targets[0, 0])
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(MolsliceError, match="train.parquet and the other files have no rows"):
        ImageParquet(root=path, patch=4)


def test_parts_of_a_killed_download_are_not_read(tmp_path):
    write_table(tmp_path / "train.parquet", FILES, [0, 1] * 6)
    (tmp_path / ".valid.7.tmp.parquet").write_bytes(b"PAR1 half")
    assert set(ImageParquet(root=tmp_path, patch=4).splits) >= {"train"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"PAR1" + bytes(100) + b"PAR1",
        lambda data: data.replace(b"image", b"im\xcbge"),
        lambda data: data[:-8] + bytes([255] * 4) + data[-4:],
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, damage):
    path = write_table(tmp_path / "train.parquet", FILES, [0, 1] * 6)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MolsliceError, match=r"cannot read .*train\.parquet as Parquet") as caught:
        ImageParquet(root=path, patch=4)
    assert "\n" not in str(caught.value)
