"""Tests of protein domains with SCOPe classes."""

import gzip

import numpy as np
import pytest

from molslice.data.text.fasta import Fasta
from molslice.types import MolsliceError

DOMAINS = [
    (">d1ux8a_ a.1.1.1 (A:) Hemoglobin {Bacillus subtilis [TaxId: 1423]}", "mgqsfnapye\naigeells\n"),
    (">d1dlwa_ a.1.1.1 (A:) Protozoan hemoglobin", "slfeqlgg"),
    (">d2gkma_ a.1.2.1 (A:) other superfamily", "xlfa"),
    (">d1kr7a_ a.3.1.1 (A:) other fold", "MVNW"),
    (">d3a0bt_ b.1.1.1 (T:) other class", "akdw"),
]


def write(path, domains=DOMAINS, copies=8):
    text = "".join(f"{header}\n{sequence}\n" for header, sequence in domains * copies)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("class", ("a", "b")),
        ("fold", ("a.1", "a.3", "b.1")),
        ("superfamily", ("a.1.1", "a.1.2", "a.3.1", "b.1.1")),
        ("family", ("a.1.1.1", "a.1.2.1", "a.3.1.1", "b.1.1.1")),
    ],
)
def test_the_levels_of_the_classification(tmp_path, level, names):
    data = Fasta(path=write(tmp_path / "scope.fa"), level=level)
    assert (data.kind, data.target_names, data.class_names) == ("multiclass", (level,), names)
    assert len(data) == 40
    numbers = {"class": [0, 0, 0, 0, 1], "fold": [0, 0, 0, 1, 2]}.get(level, [0, 0, 1, 2, 3])
    assert data.labels[:5, 0].tolist() == numbers


def test_residues_are_tokens(tmp_path):
    data = Fasta(path=write(tmp_path / "scope.fa.gz"), max_tokens=15)
    spelt = "".join(chr(64 + number) for number in data.sequences[0].tolist())
    assert spelt == "MGQSFNAPYEAIGEE"
    assert (data.spec.vocabulary_size, data.spec.max_tokens, data.row_name) == (27, 15, "proteins")
    assert data.collate([3]).tokens.tolist() == [[13, 22, 14, 23]]
    assert {len(rows) for rows in data.splits.values()} == {32, 4}


def test_rare_folds_lose_their_label(tmp_path):
    lone = (">d9xyza_ z.9.9.9 (A:) alone", "aaaa")
    data = Fasta(path=write(tmp_path / "a.fa", [*DOMAINS * 8, lone], copies=1), min_members=2)
    assert "z.9" not in data.class_names
    assert np.isnan(data.labels[-1, 0])
    assert 40 not in np.concatenate([data.labeled_rows(split) for split in data.splits])
    assert "z.9" in Fasta(path=tmp_path / "a.fa").class_names


def test_a_file_to_test_on_and_folds(tmp_path):
    path, test = write(tmp_path / "a.fa"), write(tmp_path / "b.fa", copies=1)
    assert Fasta(path=path, test_path=test).splits["test"].tolist() == list(range(40, 45))
    tested = [Fasta(path=path, folds=4, fold=fold).splits["test"] for fold in range(4)]
    assert sorted(np.concatenate(tested).tolist()) == list(range(40))


def test_sequences_that_cannot_be_read_keep_their_rows(tmp_path):
    odd = [(">d0aaaa_ a.1.1.1 x", "mk-l"), (">d0bbba_ a.1.1.1 x", ""), (">d0ccca_ a.1.1.1 x", "mkl*")]
    odd.append((">d0ddda_ a.1.1.1 x", "mk\xdf"))  # two letters in upper case
    data = Fasta(path=write(tmp_path / "a.fa", [*DOMAINS * 8, *odd], copies=1))
    assert data.errors == {
        40: "invalid residue '-' at position 2 (from 0)",
        41: "no text",
        43: "invalid residue '\xdf' at position 2 (from 0)",
    }
    assert data.num_tokens[40:].tolist() == [0, 0, 3, 0]


def test_mistakes_are_named(tmp_path):
    path = write(tmp_path / "a.fa")
    (tmp_path / "plain.fa").write_text(">sp|P69905|HBA_HUMAN Hemoglobin\nMVLS\n")
    (tmp_path / "headless.fa").write_text("MVLS\n>d a.1.1.1\nA\n")
    (tmp_path / "empty.fa").write_text("\n")
    for options, message in [
        ({"path": tmp_path / "plain.fa"}, r"plain\.fa, line 1: expected `>sid sccs"),
        ({"path": tmp_path / "headless.fa"}, r"headless\.fa, line 1: sequence before the first header"),
        ({"path": tmp_path / "empty.fa"}, "has no sequence header"),
        ({"path": tmp_path / "none.fa"}, "no such file"),
        ({"level": "folds"}, "did you mean 'fold'"),
        ({"min_members": 0}, "min_members must be at least 1"),
        ({"min_members": 99}, "no fold has 99 rows or more"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            Fasta(**{"path": path, **options})
