"""Tests that the splits of every data set stay the same, bit by bit."""

import hashlib
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from molslice.data import build_dataset
from molslice.data.text.aan import FILES as AAN_FILES
from tests.data.episodes.recordings import random_episodes, write_d4rl
from tests.data.images.pictures import encoded, pixels, records, write_idx, write_table

PINNED = Path(__file__).with_name("pinned_splits.json")
FOLDS = [{"folds": 5, "fold": 3, "fold_over": over} for over in ("all", "train")]
SMILES = ["C" * 3, "c1ccccc1CC", "C1CCCC1C", "CCO", "c1ccncc1N", "C1CCNC1CC", "c1ccccc1C(=O)O", "unreadable"]
DRAWS = [{}, {"seed": 5}, {"valid_fraction": 0.25}, {"test_fraction": 0.3, "valid_fraction": 0.45}]
PICTURE_DRAWS = [{}, {"split_seed": 4}, {"valid_fraction": 0.3}]
FOLDER_DRAWS = [*PICTURE_DRAWS, {"valid_fraction": 0.3, "test_fraction": 0.25, "split_seed": 2}]
ROW_DRAWS = [
    None,
    {"seed": 3},
    {"fractions": [0.34, 0.33, 0.33]},
    {"fractions": [0.7, 0.2, 0.1], "seed": 1},
    {"fractions": {"train": 0.5, "test": 0.5}},
    {"fractions": {"train": 1}},
]
SCAFFOLDS = [None, {"fractions": [0.34, 0.33, 0.33]}, {"fractions": {"train": 0.4, "test": 0.6}}]
TRAIN_AND_VALID = [
    None,
    {"seed": 3},
    {"fractions": [0.34, 0.66]},
    {"kind": "scaffold", "fractions": [0.5, 0.5]},
]


def molecules(folder):
    draw = np.random.default_rng(0)
    for name, count in (("train", 75), ("valid", 9), ("test", 12)):
        rows = [
            (SMILES[k] if n % 2 else f"C1C{'C' * (n % 23)}C1", n)
            for n, k in enumerate(draw.integers(0, len(SMILES), count))
        ]
        words = draw.choice(["train", "val", "Test"], count)
        lines = [f"{text},{n},{word}" for (text, n), word in zip(rows, words, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["smiles,y,set", *lines, ""]))
    options = {"path": folder / "train.csv", "target_columns": "y"}
    files = {f"{name}_path": folder / f"{name}.csv" for name in ("valid", "test")}
    for split in ROW_DRAWS:
        yield "csv", options | {"split": split}
    for split in SCAFFOLDS:
        yield "csv", options | {"split": {"kind": "scaffold", **(split or {})}}
    yield "csv", options | {"split": {"kind": "column", "column": "set"}}
    for split in TRAIN_AND_VALID:
        yield "csv", options | {"split": split, "test_path": files["test_path"]}
    yield "csv", options | {"valid_path": files["valid_path"]}
    yield "csv", options | files


def episodes(folder):
    lengths = np.random.default_rng(0).integers(3, 12, 75).tolist()
    path = write_d4rl(folder / "steps.hdf5", random_episodes(lengths))
    for split in ROW_DRAWS:
        yield "d4rl", {"path": path, "context": 4, "split": split}


def texts(folder):
    draw = np.random.default_rng(0)
    sizes = {"train": 83, "valid": 17, "test": 31}
    words = {name: draw.choice(["acq", "earn", "crude"], n, p=[0.6, 0.3, 0.1]) for name, n in sizes.items()}
    files, lists, proteins = {}, {}, {}
    for name, labels in words.items():
        rows = [{"text": f"item {n} of {label}", "label": str(label)} for n, label in enumerate(labels)]
        several = [row | {"label": ";".join([row["label"], "x"][: 1 + n % 2])} for n, row in enumerate(rows)]
        files[name], lists[name] = folder / f"{name}.jsonl", folder / f"lists-{name}.jsonl"
        files[name].write_text("".join(json.dumps(row) + "\n" for row in rows))
        lists[name].write_text("".join(json.dumps(row) + "\n" for row in several))
        proteins[name] = folder / f"{name}.fa"
        heads = {"acq": "a.1.1.1", "earn": "a.2.1.1", "crude": "b.1.1.1"}
        proteins[name].write_text("".join(f">d{n} {heads[k]} x\nmkv\n" for n, k in enumerate(labels)))
        (folder / f"{name}.tsv").write_text("".join(f"{label}\titem {n}\n" for n, label in enumerate(labels)))
        for part, split in (("whole", ""), ("split", name)):
            for n, label in enumerate(labels):
                (place := folder / part / split / label).mkdir(parents=True, exist_ok=True)
                (place / f"{name}{n:03}.txt").write_text(f"item {n}")
        reviews = "".join(
            json.dumps({"text": f"film {n}", "label": n % 2}) + "\n" for n in range(len(labels))
        )
        (folder / "imdb").mkdir(exist_ok=True)
        (folder / "imdb" / f"{name}.jsonl").write_text(reviews)
        (folder / "news").mkdir(exist_ok=True)
        groups = [
            json.dumps({"text": f"post {n}", "label": ["sci.med", "sci.space"][n % 3 % 2]})
            for n in range(len(labels))
        ]
        (folder / "news" / f"20news-bydate-{name}.jsonl").write_text("\n".join(groups))
        pairs = "".join(f"{n % 2}\tP1\tP2\tone {n}\ttwo {n}\n" for n in range(len(labels)))
        (folder / AAN_FILES[name]).write_text(pairs)
    yield "aan", {"root": folder}
    tested = [{}, *DRAWS[1:3], *FOLDS]
    for path in (files["train"], lists["train"]):
        separator = ";" if path == lists["train"] else None
        for options in [*DRAWS, *FOLDS]:
            yield "text_table", {"path": path, "separator": separator} | options
    for options in tested:
        yield "text_table", {"path": files["train"], "test_path": files["test"]} | options
        together = {f"{name}_path": files[name] for name in ("valid", "test")}
        yield "text_table", {"path": files["train"]} | together | options
        yield "fasta", {"path": proteins["train"], "test_path": proteins["test"]} | options
        yield "r8", {"root": folder} | options
        yield "imdb", {"root": folder / "imdb"} | options
        yield "newsgroups20", {"root": folder / "news"} | options
        yield "text_folder", {"root": folder / "split"} | options
    for options in [*DRAWS, *FOLDS]:
        yield "text_table", {"path": files["train"], "valid_path": files["valid"]} | options
        yield "fasta", {"path": proteins["train"], "min_members": 20} | options
        yield "text_folder", {"root": folder / "whole"} | options


def series(folder):
    draw = np.random.default_rng(0)
    for problem, kind in (("Toy", "@classLabel true a b c"), ("Numbers", "@targetlabel true")):
        for part, count in (("TRAIN", 67), ("TEST", 20)):
            values = draw.choice(["a", "b", "c"], count, p=[0.7, 0.2, 0.1])
            if problem == "Numbers":
                values = [f"{value:.2f}" if value > -1 else "?" for value in draw.normal(size=count)]
            rows = "".join(f"{n},1:{value}\n" for n, value in enumerate(values))
            (folder / f"{problem}_{part}.ts").write_text(f"{kind}\n@data\n{rows}")
        for options in [*PICTURE_DRAWS, {"valid_fraction": 0}, {"valid_fraction": 0.05, "split_seed": 9}]:
            yield "uea", {"root": folder, "problem": problem} | options


def synthetic(folder):
    (folder / "imgs").mkdir()
    (folder / "metadata").mkdir()
    for n in range(35):
        (folder / "imgs" / f"{n}.png").write_bytes(encoded(pixels(1, colors=1, seed=n)[0]))
    table = "".join(f"imgs {n}.png {n} {n % 2} 1.0 14 4 2 0.5 1 1\n" for n in range(35))
    (folder / "metadata" / "0.npy").write_text(table)
    for name, count in (("basic_train", 45), ("basic_val", 7), ("basic_test", 9), ("basic_more", 95)):
        rows = "".join(f"( [MAX {n % 10} {n // 10} ] )\t{max(n % 10, n // 10)}\n" for n in range(count))
        (folder / f"{name}.tsv").write_text("Source\tTarget\n" + rows)
    for seed in (0, 6):
        drawn = {"counts": (20, 6, 4), "seed": seed}
        yield "listops", {"min_length": 8, "max_length": 40, "max_depth": 4} | drawn
        yield "listops", {"root": folder, "seed": seed}
        yield "listops", {"path": folder / "basic_more.tsv", "seed": seed}
        files = {"path": folder / "basic_more.tsv", "test_path": folder / "basic_test.tsv"}
        yield "listops", files | {"seed": seed}
        yield "pathfinder", {"size": 16, "workers": 0} | drawn
        yield "pathfinder", {"root": folder, "seed": seed}


def image_files(folder):
    for part, count in (("train", 45), ("t10k", 12)):
        write_idx(folder / f"{part}-images-idx3-ubyte", pixels(count, 28, 28)[..., 0])
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)
    images, labels = pixels(9), np.arange(9)
    for part in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        (folder / f"{part}.bin").write_bytes(records(images, labels))
    for part in ("train", "test"):
        (folder / f"{part}.bin").write_bytes(
            records(np.tile(images, (5, 1, 1, 1)), np.tile(labels, 5) % 3, np.tile(labels, 5))
        )
    for options in PICTURE_DRAWS:
        for name in ("mnist", "cifar10", "cifar100"):
            yield name, {"root": folder} | options


def user_images(folder):
    counts = {"train": 45, "valid": 7, "test": 9}
    kinds = {"one": ("train",), "two": ("train", "test"), "dev": ("train", "valid"), "all": tuple(counts)}
    for kind, splits in kinds.items():
        for split in splits:
            images = [encoded(image) for image in pixels(counts[split], 8, 8)]
            write_table(
                folder / "tables" / kind / f"{split}.parquet", images, [n % 2 for n in range(len(images))]
            )
            for n, image in enumerate(images):
                (place := folder / kind / split / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
                (place / f"{n:03}.png").write_bytes(image)
        tests = [{"valid_as_test": True}] if "valid" in splits else []
        for options in [*FOLDER_DRAWS, *tests]:
            yield "image_folder", {"root": folder / kind, "patch": 4} | options
            yield "image_parquet", {"root": folder / "tables" / kind, "patch": 4} | options


def checksum(splits):
    total = hashlib.sha256()
    for name, rows in splits.items():
        assert rows.dtype == np.int64
        total.update(f"{name} {len(rows)} ".encode() + rows.tobytes())
    return total.hexdigest()[:12]


def checksums(write, folder):
    """Checksums of the splits of each case that `write` yields, by data set."""
    found = {}
    for name, options in write(folder):
        found.setdefault(name, []).append(checksum(build_dataset(name, options).splits))
    return found


WRITERS = (molecules, episodes, texts, series, synthetic, image_files, user_images)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_splits_stay(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))
    pinned = json.loads(PINNED.read_text())
    found = checksums(write, tmp_path)
    assert found == {name: pinned[name] for name in found}


if __name__ == "__main__":  # writes the checksums of the present splits
    with TemporaryDirectory() as place:
        os.environ["MOLSLICE_CACHE"] = place + "/cache"
        parts = []
        for write in WRITERS:
            (folder := Path(place) / write.__name__).mkdir()
            parts.append(checksums(write, folder))
        together = {name: sums for part in parts for name, sums in sorted(part.items())}
        lines = [f"{json.dumps(name)}: {json.dumps(sums)}" for name, sums in together.items()]
        PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
