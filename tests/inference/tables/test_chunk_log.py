"""Chunks of an unfinished prediction: damage to any byte of them is noticed, and costs no value."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from molslice.data.molecules.conditions import Conditioned
from molslice.files.tables import Unreadable
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.inference.predictions import TableRows
from molslice.inference.tables.chunk_log import CHECKSUM_BYTES, LENGTH_BYTES, ChunkLog, smiles_checksum
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

KINDS = {"classification": lambda smiles: len(smiles) % 2, "regression": len}
FLIPS = 250  # of each prediction, besides those of the first checksum and length


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory, few_trees):
    """A model with intervals or sets, spread and domain, which remembers the predictions of a chunk."""
    folder = tmp_path_factory.mktemp(request.param)
    rows = "".join(f"{text},{KINDS[request.param](text)}\n" for text in embedded_smiles(60))
    (folder / "rows.csv").write_text(f"smiles,y\n{rows}")
    fit(folder / "rows.csv", "y", folder / "model", members=2, encoder=None, refit=False, quiet=True)
    model = load_model(folder / "model")
    known, compute = {}, model.predict_chunks

    def remembered(chunks, options, workers):
        for chunk in chunks:
            if tuple(chunk) not in known:
                (known[tuple(chunk)],) = compute([chunk], options, workers)
            yield known[tuple(chunk)]

    model.predict_chunks, model.chunk_rows = remembered, 6
    return model


@pytest.fixture(scope="module")
def options(model):
    return model.find_options(0.8, domain=True)


def written_rows(folder):
    smiles = embedded_smiles(20, start=1)
    smiles[2], smiles[9] = "oops", "[Xe][Xe][Xe"
    source = folder / "in.csv"
    source.write_text("smiles,n\n" + "".join(f"{text},{row}\n" for row, text in enumerate(smiles)))
    return source


def interrupt(model, options, source, target):
    """Stop a prediction after three of its four chunks."""
    compute = model.predict_chunks

    def interrupted(chunks, options, workers):
        for place, predictions in enumerate(compute(chunks, options, workers)):
            if place == 3:
                raise KeyboardInterrupt
            yield predictions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "predict_chunks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            predict_table(model, source, target, options)


def test_a_flipped_bit_anywhere_costs_no_value(model, options, tmp_path):
    source, target, folder = written_rows(tmp_path), tmp_path / "out.csv", tmp_path / "out.csv.partial"
    predict_table(model, source, tmp_path / "whole.csv", options)
    whole = (tmp_path / "whole.csv").read_bytes()
    assert b"oops" in whole
    assert b"at the edge" in whole or b"outside" in whole
    interrupt(model, options, source, target)
    saved = {path.name: path.read_bytes() for path in folder.iterdir()}
    draw, length = random.Random(0), len(saved["chunks"])
    places = [*range(CHECKSUM_BYTES + LENGTH_BYTES), *draw.sample(range(length), FLIPS)]
    for place in places:
        damaged = bytearray(saved["chunks"])
        damaged[place] ^= 1 << draw.randrange(8)
        folder.mkdir(exist_ok=True)
        for name, content in {**saved, "chunks": damaged}.items():
            (folder / name).write_bytes(content)
        predict_table(model, source, target, options, resume=True)
        assert target.read_bytes() == whole, f"byte {place}"


def with_attribute(name, value):
    def change(model, options, patch):
        patch.setattr(model, name, value)
        return options

    return change


def other_calibration(model, options, patch):
    first, *others = options.calibration.targets
    changed = replace(first, predicted=first.predicted * 1.0001)
    return replace(options, calibration=replace(options.calibration, targets=(changed, *others)))


def other_library(model, options, patch):
    patch.setattr("molslice.inference.tables.table.current_versions", lambda: {"rdkit": "1"})
    return options


CHANGES = {
    "level of the interval": lambda model, options, patch: replace(options, level=0.7),
    "calibration": other_calibration,
    "treatment of mixtures": with_attribute("fragment", "largest"),
    "number of rows in a chunk": with_attribute("chunk_rows", 5),
    "version of molslice or a library": other_library,
    "model": with_attribute("checksum", lambda: "of another one"),
    "choice of columns": lambda model, options, patch: replace(options, domain=None),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_prediction_with_other_options_is_not_resumed(model, options, tmp_path, monkeypatch, changed):
    source, target = written_rows(tmp_path), tmp_path / "out.csv"
    interrupt(model, options, source, target)
    words = f"is an unfinished prediction with another {changed}; delete it"
    with monkeypatch.context() as patch:
        others = CHANGES[changed](model, options, patch)
        with pytest.raises(MolsliceError, match=re.escape(words)):
            predict_table(model, source, target, others, resume=True)
    assert predict_table(model, source, target, options, resume=True).rows == 20


ROWS = [
    TableRows(np.arange(6, dtype=np.float32).reshape(3, 2), [None, "why\n", None], [["a\n"], [""], ["é"]], 1),
    TableRows(np.full((1, 2), np.nan, np.float32), ["no"], [["b"]]),
    TableRows(np.zeros((2, 2), np.float32), [None, None], [["c"], ["d"]]),
]


def log_of(folder):
    return ChunkLog(folder / "out.csv", {"model": "m"}, resume=True)


def test_two_processes_do_not_write_the_chunks_of_one_output(tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.files.lock.PATIENCE_SECONDS", 0.0)
    with log_of(tmp_path) as log:
        for rows in ROWS:
            log.add(["CCO"], rows)
        with pytest.raises(MolsliceError, match=r"out\.csv\.partial"), log_of(tmp_path):
            pass
    with log_of(tmp_path) as log:
        assert len(finished(log)) == 3


def finished(log):
    """Return the chunks as plain values."""
    return [
        (rows.values.tolist(), list(rows.errors), [list(texts) for texts in rows.texts], rows.replaced)
        for _, rows in log.finished()
    ]


def test_records_before_the_damage_are_kept_and_the_others_are_written_again(tmp_path):
    chunks = tmp_path / "out.csv.partial" / "chunks"
    with log_of(tmp_path) as log:
        for rows in ROWS:
            log.add(["CCO"], rows)
    with log_of(tmp_path) as log:
        whole = finished(log)
        assert [row[1:] for row in whole] == [
            ([None, "why\n", None], [["a\n"], [""], ["é"]], 1),
            (["no"], [["b"]], 0),
            ([None, None], [["c"], ["d"]], 0),
        ]
        assert whole[0][0] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    content = chunks.read_bytes()
    second = content.index(b'"no"')
    chunks.write_bytes(content[:second] + b"'" + content[second + 1 :])
    with log_of(tmp_path) as log:
        assert finished(log) == whole[:1]
        for rows in ROWS[1:]:
            log.add(["CCO"], rows)
    assert chunks.read_bytes() == content


def test_the_checksum_of_a_chunk_depends_on_all_that_its_rows_have():
    rows = [
        "",
        "C",
        Unreadable("T is missing"),
        Unreadable("T 9 is far outside"),
        Conditioned("C", (1.0,)),
        Conditioned("C", (2.0,)),
        Conditioned("C", (1.0,), "O"),
    ]
    chunks = [*([row] for row in rows), ["C", "C"], ["C\nC"], ["C\n", "C"]]
    assert len(set(map(smiles_checksum, chunks))) == len(chunks)
    assert smiles_checksum(["C", Conditioned("C", (float("nan"),))]) == smiles_checksum(
        ["C", Conditioned("C", (float("nan"),))]
    )
