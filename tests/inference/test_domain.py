"""Whether a molecule is like the training molecules: reasons, threshold, file, tables."""

import csv
import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from molslice.chem.neighbors import describe
from molslice.cli import main
from molslice.inference import domain as module
from molslice.inference.domain import ARRAYS, DOMAIN, TrainingDomain
from molslice.inference.load import load_model
from molslice.inference.network import NetworkPredictor
from molslice.inference.tables.table import predict_table
from molslice.types import MolsliceError
from molslice.uncertainty.similarity_rule import EDGE, LIKE, OUTSIDE, SimilarityRule
from tests.chem.test_neighbors import slow_similarity
from tests.inference.models import checkpoint_folder, embedded_smiles


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(80)


@pytest.fixture(scope="module")
def known(smiles):
    return TrainingDomain.of_smiles([*smiles, "not a molecule", smiles[0]])


def test_training_molecules_are_found_in_any_form_of_their_smiles(known, smiles):
    mixture = TrainingDomain.of_smiles(["CCO.Cl", "c1ccccc1"], "largest")
    np.testing.assert_array_equal(
        known.contains([smiles[3], "[Ru]", "C1CC", ""]), [True, False, False, False]
    )
    np.testing.assert_array_equal(mixture.contains(["C(O)C", "Cl.OCC", "C1=CC=CC=C1"], "largest"), [True] * 3)
    np.testing.assert_array_equal(mixture.contains(["OCC", "Cl.OCC"]), [True, False])


def leave_one_out(smiles):
    """The similarity of each molecule to its nearest other, by all pairs."""
    counts = [describe(text).counts for text in smiles]
    return [
        max(slow_similarity(one, other) for j, other in enumerate(counts) if j != i)
        for i, one in enumerate(counts)
    ]


def test_the_threshold_is_a_quantile_of_the_nearest_other_molecules(known, smiles):
    distinct = [smiles[i] for i in range(0, 80, 4)]
    found = TrainingDomain.of_smiles([*distinct, *distinct])  # copies are no neighbors
    nearest = sorted(leave_one_out(distinct))
    assert found.threshold == nearest[int(0.05 * (len(nearest) - 1))]
    assert len(known.smiles) == 80
    assert not known.is_sample


def test_stereoisomers_do_not_raise_the_threshold():
    pairs = [text for i in range(1, 21) for text in (f"C[C@H](N){'C' * i}O", f"C[C@@H](N){'C' * i}O")]
    one = TrainingDomain.of_smiles(pairs[::2])
    both = TrainingDomain.of_smiles(pairs)
    assert len(both.smiles) == 40
    assert both.threshold == one.threshold < 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[Ru]", "no training molecule contains Ru"),
        ("[Xe].[Ru]C", "no training molecule contains Ru, Xe"),
        ("C" * 200, "200 heavy atoms; training molecules have"),
        ("C1CC2CC1C1C3CC4CC(C21)C34", "similarity 0."),
    ],
)
def test_a_molecule_outside_has_one_reason(known, text, reason):
    (found,) = known.compare([text], [None])
    assert found.place == OUTSIDE
    assert found.reason.startswith(reason)


def test_a_molecule_between_two_similarities_is_at_the_edge(smiles):
    (found,) = TrainingDomain.of_smiles(smiles).compare(["CCOC(=O)c1ccccc1N"], [None])
    similarity, domain = found.nearest_similarity, TrainingDomain.of_smiles(smiles)
    for edge, like, place in ((0.0, 0.01, LIKE), (0.01, 0.99, EDGE), (0.98, 0.99, OUTSIDE)):
        domain.rule = SimilarityRule(edge, like)
        (found,) = domain.compare(["CCOC(=O)c1ccccc1N"], [None])
        start = {LIKE: None, EDGE: like, OUTSIDE: edge}[place]
        reason = (
            f"similarity {similarity:.2f} to the nearest training molecule, below {start:.2f}"
            if start
            else ""
        )
        assert (found.place, found.reason) == (place, reason)
    domain.rule = SimilarityRule(0.0, similarity + 1e-4)  # two digits would say that it is below itself
    shown, limit = (
        domain.compare(["CCOC(=O)c1ccccc1N"], [None])[0].reason.split(word)[1].split()[0]
        for word in ("similarity ", "below ")
    )
    assert 2 < len(shown.partition(".")[2]) <= 4
    assert float(shown) < float(limit)


def test_the_similarity_has_two_digits_in_a_table_of_the_terminal(capsys):
    assert main(["predict", "solubility", "--smiles", "CCO", "--domain", "--quiet"]) == 0
    assert re.search(r" 0\.\d\d +outside", capsys.readouterr().out)


@pytest.mark.parametrize(("size", "place"), [(30, LIKE), (31, EDGE), (45, EDGE), (46, OUTSIDE)])
def test_a_larger_molecule_is_at_the_edge_and_a_much_larger_one_outside(size, place):
    known = TrainingDomain.of_smiles(["C" * 20, "C" * 30])
    (found,) = known.compare(["C" * size], [None])
    reason = "" if place == LIKE else f"{size} heavy atoms; training molecules have 20 to 30"
    assert (found.place, found.reason) == (place, reason)


def test_a_training_molecule_is_in_the_domain_and_its_own_nearest(known, smiles):
    found = known.compare(smiles[:5], [None, None, "failed", None, None])
    assert found[2] is None
    for each, text in zip(found, smiles[:5], strict=True):
        if each is not None:
            assert (each.place, each.reason, each.nearest_similarity) == (LIKE, "", 1.0)
            assert describe(each.nearest_smiles).smiles == describe(text).smiles


def test_the_nearest_molecule_is_found_among_all(known, smiles):
    for text in ("CCOC(=O)c1ccccc1N", "CC(C)Cc1ccc(cc1)C(C)C(=O)O"):
        (found,) = known.compare([text], [None])
        counts = describe(text).counts
        best = max(slow_similarity(describe(each).counts, counts) for each in smiles)
        assert found.nearest_similarity == best


def test_many_molecules_are_a_sample(smiles, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MOST", 30)
    found = TrainingDomain.of_smiles(smiles)
    assert len(found.smiles) == 30
    assert found.is_sample
    assert found.smiles == TrainingDomain.of_smiles(smiles).smiles
    found.write(tmp_path)
    assert TrainingDomain.read(tmp_path).is_sample


def test_mixtures_are_treated_as_by_the_model():
    found = TrainingDomain.of_smiles(["CCO.[Na+]", "CCN"], "largest")
    assert found.elements == {"C", "O", "N"}
    with pytest.raises(MolsliceError, match="none of the training molecules can be read"):
        TrainingDomain.of_smiles(["CCO.[Na+]"], "refuse")


def test_the_file_reads_back(known, tmp_path):
    assert TrainingDomain.read(tmp_path) is None
    known.write(tmp_path)
    found = TrainingDomain.read(tmp_path)
    assert (found.smiles, found.elements, found.sizes, found.threshold) == (
        known.smiles, known.elements, known.sizes, known.threshold
    )  # fmt: skip
    for row in range(80):
        np.testing.assert_array_equal(found.index.dense(row), known.index.dense(row))
    assert (tmp_path / ARRAYS).stat().st_size < 250 * 80


@pytest.mark.parametrize(
    "change",
    [
        {"bins": np.full(5, 3, np.uint16)},
        {"starts": np.zeros(3, np.int64)},
        {"counts": np.zeros((2, 2), np.uint8)},
        {"text": np.array([255], np.uint8)},
        {"starts": None},
    ],
)
def test_damaged_arrays_are_refused(known, tmp_path, change):
    known.write(tmp_path)
    arrays = {**load_file(tmp_path / ARRAYS), **change}
    save_file({name: array for name, array in arrays.items() if array is not None}, tmp_path / ARRAYS)
    with pytest.raises(MolsliceError, match=f"{DOMAIN} is damaged|{ARRAYS} is truncated"):
        TrainingDomain.read(tmp_path)


@pytest.mark.parametrize("change", [{"format": "x"}, {"threshold": 2}, {"sizes": [1]}, {"molecules": 3}])
def test_a_damaged_description_is_refused(known, tmp_path, change):
    known.write(tmp_path)
    about = json.loads((tmp_path / DOMAIN).read_text())
    (tmp_path / DOMAIN).write_text(json.dumps({**about, **change}))
    with pytest.raises(MolsliceError, match="is damaged"):
        TrainingDomain.read(tmp_path)


@pytest.fixture(scope="module")
def folder(known, tmp_path_factory):
    folder = checkpoint_folder(tmp_path_factory.mktemp("model") / "run")
    known.write(folder)
    return folder


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_tables_have_columns_of_the_domain(folder, known, smiles, tmp_path, workers, ending):
    source, target = tmp_path / "in.smi", tmp_path / f"out{ending}"
    texts = [smiles[3], "[Ru]", "C1CC", "CCO"]
    source.write_text("\n".join(texts) + "\n")
    model = load_model(folder)
    predict_table(model, source, target, model.find_options(domain=True), workers=workers, progress=False)
    expected = known.compare(texts, [None, None, "failed", None])
    with target.open(newline="") as stream:
        rows = [json.loads(line) for line in stream] if ending == ".jsonl" else list(csv.DictReader(stream))
    for row, domain in zip(rows, expected, strict=True):
        empty = None if ending == ".jsonl" else ""
        if domain is None:
            assert (row["domain"], row["domain_reason"], row["nearest_smiles"]) == (empty,) * 3
            continue
        assert row["domain"] == domain.place
        assert (row["domain_reason"] or "") == domain.reason
        assert row["nearest_smiles"] == domain.nearest_smiles
        assert float(row["nearest_similarity"]) == pytest.approx(domain.nearest_similarity, abs=1e-6)


def test_python_and_the_command_compare_too(folder, smiles, capsys):
    found = load_model(folder).predict_with_errors([smiles[0], "[Ru]"], domain=True)
    assert [each.place for each in found.domain] == [LIKE, OUTSIDE]
    assert load_model(folder).predict_with_errors([], domain=True).domain == []
    assert load_model(folder).predict_with_errors(smiles[:1]).domain is None
    assert main(["predict", str(folder), "--smiles", "[Ru]", "--domain", "--json", "--quiet"]) == 0
    row = json.loads(capsys.readouterr().out)["predictions"][0]
    assert row["domain"] == OUTSIDE
    assert row["domain_reason"] == "no training molecule contains Ru"


def test_a_model_without_training_molecules_says_how_to_get_them(tmp_path):
    model = load_model(checkpoint_folder(tmp_path / "run"))
    with pytest.raises(MolsliceError, match=f"has no {DOMAIN}.*--split valid --calibrate"):
        model.predict_with_errors(["C"], domain=True)


def test_the_three_most_similar_molecules_are_named_with_their_values(smiles, tmp_path):
    values = np.arange(82, dtype=np.float64)[:, None] * [1.0, 10.0]
    values[3, 0] = values[5, 1] = np.nan
    domain = TrainingDomain.of_smiles([*smiles, smiles[3], smiles[3]], values=values)
    domain.write(tmp_path)
    wanted = {text: values[row].tolist() for row, text in enumerate(domain.smiles)}
    wanted[domain.smiles[3]] = [80.5, (30 + 800 + 810) / 3]  # of three rows, one without a value
    queries = ["CCOc1ccccc1", smiles[5], smiles[3]]
    for query, found in zip(queries, TrainingDomain.read(tmp_path).compare(queries, [None] * 3), strict=True):
        counts = describe(query).counts
        similar = [slow_similarity(counts, describe(text).counts) for text in domain.smiles]
        best = sorted(range(80), key=lambda row: -similar[row])[:3]
        assert [each.smiles for each in found.neighbors] == [domain.smiles[row] for row in best]
        assert [each.similarity for each in found.neighbors] == pytest.approx([similar[row] for row in best])
        for each in found.neighbors:
            np.testing.assert_allclose(each.measured, np.float32(wanted[each.smiles]), equal_nan=True)
        assert (found.nearest_smiles, found.nearest_similarity) == (
            found.neighbors[0].smiles,
            found.neighbors[0].similarity,
        )
    assert TrainingDomain.of_smiles(smiles).compare(["CCO"], [None])[0].neighbors[0].measured is None
    assert len(TrainingDomain.of_smiles(["CCO"]).compare(["CCO"], [None])[0].neighbors) == 1


def test_values_that_do_not_fit_are_damage(smiles, tmp_path):
    model = checkpoint_folder(tmp_path / "model")
    TrainingDomain.of_smiles(smiles, values=np.zeros((80, 2))).write(model)
    with pytest.raises(MolsliceError, match=r"domain.json is damaged: values of 2 targets; the model has 1"):
        load_model(model).find_options(domain=True)
    arrays = load_file(model / ARRAYS)
    save_file({**arrays, "values": np.zeros((79, 1), np.float32)}, model / ARRAYS)
    with pytest.raises(MolsliceError, match=r"values are float32 \[79, 1\] for 80 molecules"):
        load_model(model).find_options(domain=True)


def test_the_command_says_how_many_measured_molecules_it_was_trained_on(
    folder, smiles, tmp_path, capsys, monkeypatch
):
    source = tmp_path / "in.csv"
    name = load_model(folder).target_names[0]
    source.write_text(f"smiles,{name}\n" + "".join(f"{text},1.5\n" for text in [*smiles[:3], "[Ru]"]))
    command = [
        "predict",
        str(folder),
        "--input",
        str(source),
        "--output",
        str(tmp_path / "out.csv"),
        "--metrics",
    ]
    assert main(command) == 0
    line = "at least 3 of 4 measured rows are of training molecules; the error for new molecules is larger\n"
    assert line in capsys.readouterr().err
    sample = TrainingDomain.of_smiles(smiles[:1])
    sample.is_sample = True
    monkeypatch.setattr(NetworkPredictor, "known_domain", lambda predictor: sample)
    assert main(command) == 0
    assert "at least 1 of 4 measured rows are of training molecules (compared with a sample of 1); " in (
        capsys.readouterr().err
    )
    monkeypatch.undo()
    source.write_text(f"smiles,{name}\n[Ru],1.5\n")
    assert main(command) == 0
    assert "training molecules" not in capsys.readouterr().err
    source.write_text(f"smiles,{name}\n{smiles[0]},1.5\n{smiles[1]},2\n")
    assert main(command) == 0
    assert "all 2 measured rows are of training molecules; " in capsys.readouterr().err
