"""The page about a trained model."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import sklearn.metrics
from scipy.stats import spearmanr

from molslice.chem.scaffold import scaffolds
from molslice.cli import main
from molslice.cli.datasets import find_model_data
from molslice.fitting.card import STANDARD_ERROR
from molslice.fitting.fit import fit
from molslice.folders.fitted import CARD, HELD_OUT, ROWS, TABLE_ROWS
from molslice.inference.domain import TrainingDomain
from molslice.inference.load import load_model
from molslice.inference.network import NetworkPredictor
from molslice.model.count import parameters_by_part
from molslice.report import charts, sections, training
from molslice.report.measure import MeasuredModel, SplitPredictions, measure
from molslice.tasks.metrics import format_metric
from molslice.tasks.target_types import TargetType
from molslice.types import MolsliceError
from molslice.uncertainty.scores import calibration_error
from molslice.uncertainty.similarity_rule import Group, SimilarityRule
from tests.inference.models import CLASSES, TWO, checkpoint_folder, embedded_smiles

VOID = {
    "meta",
    "br",
    "img",
    "use",
    "path",
    "rect",
    "line",
    "circle",
    "polyline",
    "polygon",
    "ellipse",
    "stop",
}
SECTIONS = ["Errors", "Predictions", "Uncertainty", "Errors by group", "Molecules"]
SECTIONS += ["Data", "Training", "Parameters", "Reproduction"]


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects text and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.addresses, self.tags = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data.strip())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Write molecules with two targets, one of them with gaps, and a trained model of them."""
    folder = tmp_path_factory.mktemp("report")
    with (folder / "molecules.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "a<b>", "size", "part"])
        for row, text in enumerate(embedded_smiles(60)):
            writer.writerow(
                [text, "" if row % 7 == 0 else row / 10, len(text), ("train", "test")[row % 3 == 0]]
            )
        writer.writerow(["no molecule", 1.0, 2.0, "test"])
        writer.writerow(["CCO", 3.0, 2.0, "valid"])
    settings = {
        "data": {
            "name": "csv",
            "path": str(folder / "molecules.csv"),
            "target_columns": ["a<b>", "size"],
            "units": ["eV", ""],
            "split": {"kind": "column", "column": "part"},
        },
        "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
        "training": {"max_steps": 4, "valid_every_steps": 2, "batch_size": 16, "token_budget": 1024},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
    }
    (folder / "config.yaml").write_text(json.dumps(settings))
    assert (
        main(["train", "--config", str(folder / "config.yaml"), "--out", str(folder / "run"), "--quiet"]) == 0
    )
    return folder / "run"


def report(model, path, *options):
    assert main(["report", str(model), "--out", str(path), "--quiet", *options]) == 0
    return path.read_text(encoding="utf-8")


def test_the_page_needs_nothing_from_outside(run, tmp_path):
    text = report(run, tmp_path / "page.html")
    page = Page(text)
    assert all(address.startswith("#") for address in page.addresses)
    assert "script" not in page.tags
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert [word for word in page.words if word in SECTIONS][: len(SECTIONS)] == SECTIONS


def test_names_of_targets_are_text(run, tmp_path):
    text = report(run, tmp_path / "page.html")
    assert "a&lt;b&gt;" in text
    assert "a<b>" not in text


def test_the_same_model_gives_the_same_page(run, tmp_path):
    assert report(run, tmp_path / "a.html") == report(run, tmp_path / "b.html")


def test_errors_are_those_of_evaluate(run, tmp_path, capsys):
    words = Page(report(run, tmp_path / "page.html")).words
    assert main(["evaluate", str(run), "--json", "--quiet"]) == 0
    for target in json.loads(capsys.readouterr().out)["targets"]:
        assert f"{target['mae']:.4g}" in [word[:6].rstrip("0") for word in words] + words


def test_rows_that_cannot_be_read_are_named(run, tmp_path):
    words = " ".join(Page(report(run, tmp_path / "page.html")).words)
    assert "1 of 62 molecules cannot be read" in words


def test_a_large_split_is_sampled(run, tmp_path):
    words = " ".join(Page(report(run, tmp_path / "page.html", "--rows", "5")).words)
    assert "test: 5 of 20 molecules, drawn at random." in words


def measured_of(run, rows=10_000):
    predictor = load_model(run)
    data = find_model_data(predictor, predictor.data_config, None, [], None, whole="test")
    return measure(predictor, data, rows)


def words_of(part):
    return Page(part).words


def test_the_data_card_describes_all_rows_of_a_sampled_split(run):
    lengths = [len(text) for row, text in enumerate(embedded_smiles(60)) if row % 3 == 0]
    words = words_of(sections.data(measured_of(run, 5)))
    place = words.index("size")
    split, mean, _, minimum, *_, maximum = words[place + 1 : place + 9]
    rows = {"train": [len(text) for row, text in enumerate(embedded_smiles(60)) if row % 3]}
    assert (split, mean) == ("train", format_metric(float(np.mean(rows["train"]))))
    assert (float(minimum), float(maximum)) == (min(rows["train"]), max(rows["train"]))
    table = " ".join(words)
    assert f" test {format_metric(float(np.mean(lengths)))} " in table
    assert "Molecules of test with each element (5 drawn at random): C 5 of 5, " in table
    assert "drawn at random" not in " ".join(words_of(sections.data(measured_of(run))))


def test_molecules_without_a_finite_prediction_are_counted(run):
    measured = measured_of(run)
    place = [split.name for split in measured.splits].index("test")
    split = measured.splits[place]
    predicted = split.predicted.copy()
    predicted[[1, 2], 1] = [np.nan, np.inf]
    some = (*measured.splits[:place], replace(split, predicted=predicted), *measured.splits[place + 1 :])
    words = words_of(sections.errors(replace(measured, splits=some)))
    note = "test: 2 of 20 molecules with a value of size have no finite prediction and are left out."
    assert [word for word in words if "left out" in word] == [note]
    errors = np.abs(split.predicted - split.truth)[:, 1]
    assert format_metric(np.delete(errors, [1, 2]).mean()) in words
    assert not any("left out" in word for word in words_of(sections.errors(measured)))


def test_errors_of_training_molecules_say_so(run):
    measured = measured_of(run)
    train = tuple(split for split in measured.splits if split.name == "train")
    note = "train: the model was trained on these molecules; its error for new ones is larger."
    assert note in words_of(sections.errors(replace(measured, splits=train)))
    for other in (measured, replace(measured, splits=train, is_own=False)):
        assert note not in words_of(sections.errors(other))
    unseen = (replace(train[0], is_unseen=True),)  # of a fit
    assert note not in words_of(sections.errors(replace(measured, splits=unseen)))


def test_the_values_of_a_run_are_not_called_measured(run, tmp_path):
    page = report(run, tmp_path / "page.html")
    assert "predicted minus reference" in page
    assert "Reference values" in page
    assert (
        re.findall(r"[^.<>]*\bmeasured\b[^.<>]*", page.partition("<main")[2].replace(str(tmp_path), "")) == []
    )


def test_molecules_that_a_chart_does_not_show_are_counted(run, monkeypatch):
    monkeypatch.setattr(sections, "MOST_POINTS", 19)
    monkeypatch.setattr(charts, "MOST_POINTS", 19)
    page = sections.predictions(measured_of(run))
    about = "size: predictions against reference values; 19 of 40 train molecules, 19 of 20 test molecules,"
    assert f"{about} drawn at random." in words_of(page)
    monkeypatch.undo()
    assert "size: predictions against reference values." in words_of(sections.predictions(measured_of(run)))


def test_intervals_say_how_many_molecules_have_no_prediction(run, monkeypatch):
    target = {"name": "size", "unit": "", "count": 0, "levels": [{"width": 1.0}]}
    found = {"rows": 18, "targets": [target], "calibration": "valid rows"}
    monkeypatch.setattr("molslice.report.measure.evaluate_uncertainty", lambda *_, **__: found)
    words = words_of(sections.uncertainty(measured_of(run)))
    assert "2 of 20 test molecules have no prediction." in words


def test_a_run_says_how_its_validation_errors_depend_on_the_similarity(run, monkeypatch):
    target = {"name": "size", "unit": "", "count": 0, "levels": [{"width": 1.0}]}
    result = {"rows": 20, "targets": [target], "calibration": "valid rows"}
    monkeypatch.setattr("molslice.report.measure.evaluate_uncertainty", lambda *_, **__: result)
    domain = TrainingDomain.of_smiles(embedded_smiles(20))
    monkeypatch.setattr(NetworkPredictor, "known_domain", lambda _: domain)
    assert "A molecule is like" not in "".join(words_of(sections.uncertainty(measured_of(run))))
    domain.rule = SimilarityRule(0.25, 0.5, (Group(0.125, 0.5, 70, 1.75, 0.8),))
    text = " ".join(words_of(sections.uncertainty(measured_of(run))))
    assert "A molecule is like the training molecules from a similarity of 0.50 to the nearest one" in text
    assert "Errors of validation rows by similarity to the nearest training molecule" in text
    assert "0.12 to 0.50 70 1.75 80%" in text


def test_the_coverage_of_each_target_and_group_is_listed(run, monkeypatch):
    def entry(level, count, coverage, **others):
        return {"level": level, "count": count, "coverage": coverage, "standard_error": 0.06, **others}

    def target(name, unit, **others):
        levels = [entry(0.8, 20, 0.75, width=1.25), entry(0.9, 20, 0.85, width=2.5)]
        groups = [{"group": "no rings", **entry(0.9, 4, 1.0, width=3.0)}]
        bins = [{"uncertainty": 0.1, "error": 0.2}, {"uncertainty": 0.3, "error": 0.4}]
        by_level = [{"level": 0.5, "coverage": 0.4}]
        ranks = {"spread": None, "width": 0.31}
        common = {
            "name": name,
            "unit": unit,
            "count": 20,
            "levels": levels,
            "groups": groups,
            "bins": bins,
            "logarithmic": False,
        }
        return {
            **common,
            "by_level": by_level,
            "miscalibration_area": 0.0456,
            "rank_correlation": ranks,
            **others,
        }

    constant = {"spread": None, "width": None}
    targets = [target("a<b>", "eV"), target("size", "", rank_correlation=constant)]
    found = {"rows": 20, "targets": targets, "calibration": "valid rows"}
    monkeypatch.setattr("molslice.report.measure.evaluate_uncertainty", lambda *_, **__: found)
    words = [word for word in words_of(sections.uncertainty(measured_of(run))) if word]
    place = words.index("width")
    lines = [
        "all molecules",
        "20",
        "80%",
        "75.0% ± 6.0%",
        "1.250",
        "all molecules",
        "20",
        "90%",
        "85.0% ± 6.0%",
    ]
    lines += ["2.500", "no rings", "4", "90%", "4 of 4", "3.000"]
    assert words[place + 1 : place + 33] == ["a<b>", *lines, "size", *lines]
    assert words[0] == "Intervals are computed from valid rows. They hold for molecules like these."
    text = "\n".join(words)
    assert "a<b>: covered test molecules; miscalibration area 0.04560." in text
    assert "a<b>: error against uncertainty; rank correlation of the error with width 0.31." in text
    assert "size: all intervals have the same width, so they do not tell which errors are large." in text
    assert "have no prediction" not in text


def test_parameters_are_those_of_the_network(run):
    predictor = load_model(run)
    assert isinstance(predictor, NetworkPredictor)
    words, model = [word for word in words_of(training.parameters(predictor)) if word], predictor.model
    total = sum(weights.numel() for weights in model.parameters())
    assert words[words.index("total") + 1] == f"{total:,}"
    counts = parameters_by_part(model)
    assert words[2:] == [word for name, count in counts.items() for word in (name, f"{count:,}")]


def test_a_curve_has_the_members_that_measured_it():
    metrics = {"1": {"step": [1.0, 2.0], "valid_mae": [5.0, 4.0]}, "2": {"step": [1.0]}}
    curves = training._curves(metrics, "valid_mae")
    assert curves == {"1": ([1.0, 2.0], [5.0, 4.0])}


def test_the_worst_predictions_come_first(run, tmp_path):
    text = report(run, tmp_path / "page.html")
    errors = [abs(float(found)) for found in re.findall(r"error ([+-][\d.e+-]+)", text)]
    worst, best = errors[:6], errors[6:12]
    assert worst == sorted(worst, reverse=True)
    assert best == sorted(best)
    assert best[0] <= worst[-1]
    worst, best = errors[12:18], errors[18:24]  # of the second target
    assert worst == sorted(worst, reverse=True)
    assert best == sorted(best)


def test_a_card_has_the_row_and_the_sign_of_the_error(run):
    measured = measured_of(run, 10)
    smiles = embedded_smiles(60)
    captions = re.findall(r"<figcaption>(reference.*?)</figcaption>", sections.examples(measured))
    assert len(captions) == 24
    for number, caption in enumerate(captions):
        found = re.match(
            r"reference (\S+), predicted (\S+?)(?: eV)?<br>error (\S+?)(?: eV)?, row (\d+)<br>(.*)", caption
        )
        assert found is not None
        truth, predicted, error, row = map(float, found.groups()[:4])
        assert error == pytest.approx(predicted - truth, rel=0.01, abs=0.02)
        own = int(row) - 1
        assert own % 3 == 0  # of the test split
        assert truth == pytest.approx(len(smiles[own]) if number >= 12 else own / 10)
        assert scaffolds([found.group(5)]) == scaffolds([smiles[own]])


def test_errors_of_numbers_are_those_of_scikit_learn(run):
    measured = measured_of(run)
    words = words_of(sections.errors(measured))
    split = measured.judged
    truth, predicted = split.truth[:, 1], split.predicted[:, 1]
    expected = [
        sklearn.metrics.mean_absolute_error(truth, predicted),
        sklearn.metrics.root_mean_squared_error(truth, predicted),
        sklearn.metrics.r2_score(truth, predicted),
        float(np.asarray(spearmanr(truth, predicted))[0]),
    ]
    place = len(words) - 1 - words[::-1].index("test")
    assert [word for word in words[place + 1 :] if word][:5] == ["20", *map(format_metric, expected)]


@pytest.fixture
def figures(monkeypatch):
    """Return the charts that are drawn."""
    drawn = []
    monkeypatch.setattr(
        charts, "to_picture", lambda figure, _: drawn.append(figure.axes[0]) or b"<svg></svg>"
    )
    return drawn


def test_charts_show_what_their_labels_say(figures):
    truth = np.array([[1.0], [0.0], [0.0], [0.0], [0.0], [1.0], [1.0], [1.0], [1.0], [0.0]])
    predicted = np.array([[0.1]] * 5 + [[0.8]] * 5)
    split = SplitPredictions("test", True, 10, np.arange(10), truth, predicted, [slice(0, 1)], np.arange(10))
    charts.draw_calibration(truth[:, 0] == 1, predicted[:, 0], np.arange(10), "1")
    points = [line.get_xydata()[0].tolist() for line in figures[0].lines if line.get_marker() == "o"]
    assert points == [pytest.approx([0.1, 0.2]), pytest.approx([0.8, 0.8])]
    numbers = replace(split, truth=truth * 0 + 1.0, predicted=np.full((10, 1), 100.0))
    for logarithmic, error in ((False, 99.0), (True, 2.0)):
        charts.draw_errors(numbers, 0, "m", logarithmic=logarithmic)
        bars = [bar for bar in figures[-1].patches if bar.get_height() > 0]
        assert [bar.get_height() for bar in bars] == [10]
        assert bars[0].get_x() - 1e-9 <= error <= bars[0].get_x() + bars[0].get_width() + 1e-9
    charts.draw_errors(replace(numbers, name="train"), 0, "m")
    assert figures[-1].get_ylabel() == "cross-validated rows"
    charts.draw_parity([replace(split, predicted=predicted + 1)], 0, "m")
    line = figures[-1].lines[0].get_xydata()
    assert line[:, 0].tolist() == truth[:, 0].tolist()
    assert line[:, 1].tolist() == (predicted[:, 0] + 1).tolist()
    assert figures[-1].get_xlabel() == "measured (m)"


def test_classes_have_a_calibration(tmp_path):
    rows = "".join(f"{text},{row % 2}\n" for row, text in enumerate(embedded_smiles(50)))
    (tmp_path / "mine.csv").write_text("smiles,toxic\n" + rows)
    checkpoint_folder(tmp_path / "model", CLASSES)
    data = ["--data.path", str(tmp_path / "mine.csv"), "--data.kind", "classification"]
    listed = [word for word in Page(report(tmp_path / "model", tmp_path / "page.html", *data)).words if word]
    place = listed.index("Brier score")
    chances = load_model(tmp_path / "model").predict(embedded_smiles(50)).astype(np.float64)
    labels = np.arange(50) % 2
    errors = [
        sklearn.metrics.roc_auc_score(labels, chances),
        sklearn.metrics.brier_score_loss(labels, chances),
    ]
    assert listed[place - 4 : place + 1] == ["target", "split", "molecules", "ROC-AUC", "Brier score"]
    assert listed[place + 1 : place + 6] == ["toxic", "test", "50", *map(format_metric, errors)]
    words = " ".join(listed)
    assert "share of class 1" in words
    assert re.search(r"Not measured: .* has no calibration.json", words)


def test_both_of_two_classes_have_the_same_calibration_error():
    class Model:
        types, target_names, target_units = (TargetType("classification"),), ("toxic",), ("",)

    generator = np.random.default_rng(0)
    chances, truth = generator.random((97, 1)), generator.integers(0, 2, (97, 1)).astype(float)
    split = SplitPredictions("test", True, 97, np.arange(97), truth, chances, [slice(0, 1)], np.arange(97))
    words = words_of(sections.predictions(MeasuredModel(cast("Any", Model()), cast("Any", None), (split,))))
    words = words[words.index("calibration error") + 1 :]
    expected = format_metric(calibration_error(chances[:, 0], truth[:, 0]))
    assert [word for word in words if word][:12][5::6] == [expected] * 2


def test_a_fit_is_measured_on_predictions_of_models_that_have_not_seen_the_rows(tmp_path):
    rows = "".join(f"{text},{len(text) + row % 3}\n" for row, text in enumerate(embedded_smiles(60)))
    (tmp_path / "mine.csv").write_text("smiles,logS\n" + rows)
    words = [
        "fit",
        str(tmp_path / "mine.csv"),
        "--target",
        "logS",
        "--out",
        str(tmp_path / "fit"),
        "--no-refit",
        "--quiet",
    ]
    assert main([*words, "--no-encoder", "--members", "2"]) == 0
    with (tmp_path / "fit" / ROWS).open(newline="") as file:
        lines = list(csv.DictReader(file))
    kept = [row for row in lines if row["split"] == "train"]
    for split in measured_of(tmp_path / "fit", 5).splits:
        assert len(split.rows) == 5
        assert all(lines[row]["split"] == split.name for row in split.rows)
        assert split.predicted[:, 0] == pytest.approx(
            [float(lines[row]["logS_predicted"]) for row in split.rows]
        )
        assert split.truth[:, 0] == pytest.approx([float(lines[row]["logS"]) for row in split.rows])
    error = np.mean([abs(float(row["logS"]) - float(row["logS_predicted"])) for row in kept])
    page = Page(report(tmp_path / "fit", tmp_path / "page.html")).words
    assert STANDARD_ERROR in page
    assert "cross-validated" in page
    assert "Worst predictions of logS, test" in page
    assert f"{error:.3f}" in [word[:5] for word in page]
    shown = " ".join(page)
    assert "SMILES: column 'smiles'." in shown
    assert "gaussian process" in shown
    assert "Intervals are computed from out-of-fold predictions of the training rows." in shown
    assert "rank correlation of the error" in shown


def test_the_cards_of_a_fit_have_the_rows_of_its_table(tmp_path):
    smiles = ["C1CC", *embedded_smiles(30)]  # the first one cannot be read
    lines = [f"m{row},{text},{len(text)},{row % 2}" for row, text in enumerate(smiles, 1)]
    lines[9:9] = [f"again,{smiles[4]},99,"]
    (tmp_path / "mine.csv").write_text("\n".join(["name,smiles,size,odd", *lines]) + "\n")
    options = {"members": 2, "encoder": None, "quality": "fast", "scale": "linear", "quiet": True}
    fit(tmp_path / "mine.csv", ["size", "odd"], tmp_path / "fit", split="all", **options)
    captions = captions_of(tmp_path / "fit")
    assert len(captions) == 24
    for number, caption in enumerate(captions):
        row = int(re.findall(r"^m(\d+)", caption)[0])
        if row == 5:
            assert (
                "rows 5, 10, mean of 2 measurements<br>" in caption if number < 12 else "row 5<br>" in caption
            )
        else:
            assert f", row {row + (row > 9)}<br>" in caption
    assert captions[0].startswith("m5; again<br>")
    (tmp_path / "fit" / TABLE_ROWS).unlink()  # as of an earlier version
    older = captions_of(tmp_path / "fit")
    assert older[0].startswith("m5; again<br>")
    assert "row" not in "".join(older)


def captions_of(folder):
    return re.findall(r"<figcaption>(.*?)</figcaption>", sections.examples(measured_of(folder)))


def test_predictions_are_not_mistaken_for_a_target_of_their_name(tmp_path):
    lines = [f"{text},{len(text)},{1000 + row}" for row, text in enumerate(embedded_smiles(60))]
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,a,a_predicted", *lines]))
    words = ["fit", str(tmp_path / "mine.csv"), "--target", "a", "--target", "a_predicted", "--no-encoder"]
    assert main([*words, "--members", "2", "--out", str(tmp_path / "fit"), "--no-refit", "--quiet"]) == 0
    for split in measured_of(tmp_path / "fit").splits:
        assert np.abs(split.predicted - split.truth).mean(0).max() < 40
        assert np.abs(split.predicted - split.truth).min() > 0


def test_all_rows_of_another_table_are_test_rows(tmp_path, capsys):
    rows = [f"{text},{len(text) + row % 3}" for row, text in enumerate(embedded_smiles(60))]
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,split", *rows]))
    words = ["fit", str(tmp_path / "mine.csv"), "--target", "split", "--out", str(tmp_path / "fit")]
    assert main([*words, "--no-encoder", "--members", "2", "--split", "all", "--quiet"]) == 0
    (tmp_path / "other.csv").write_text("\n".join(["smiles,split", *rows[:9], "c1cc[se]c1,4"]))
    other = ["--data.path", str(tmp_path / "other.csv")]
    words = Page(report(tmp_path / "fit", tmp_path / "page.html", *other)).words
    note = "the model was trained on at least 9 of these molecules; its error for new ones is larger."
    assert f"test: {note}" in words
    assert "cross-validated" not in words
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "fit"), "--split", "all", "--json", "--quiet", *other]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["trained"]) == (10, 9)
    own = report(tmp_path / "fit", tmp_path / "own.html")
    page = Page(own).words
    suspects = (
        "To list measured values that may be wrong, and pairs of similar molecules: molslice suspects fit"
    )
    assert suspects in page
    assert suspects not in words
    assert "Parameters" not in page  # without a network
    assert page.count("train") == 2  # rows and values of the data
    assert "Errors on cross-validated molecules. A molecule" in " ".join(page)
    assert "Worst predictions of split, cross-validated" in page
    assert "the model was trained on" not in own
    assert str(tmp_path) not in own
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "fit"), "--split", "train"]) == 0
    assert (
        "all 60 measured rows are of training molecules; the error for new molecules is larger\n"
        in capsys.readouterr().err
    )


def test_a_target_without_held_out_values_has_no_coverage(tmp_path, capsys):
    lines = ["smiles,size,rare,part"]
    for row, text in enumerate(embedded_smiles(60)):
        part, rare = ("test", "") if row % 6 == 0 else ("train", row % 7)
        lines.append(f"{text},{len(text)},{rare},{part}")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    words = ["fit", str(tmp_path / "mine.csv"), "--target", "size", "--target", "rare", "--split", "part"]
    assert main([*words, "--no-encoder", "--members", "2", "--out", str(tmp_path / "fit"), "--quiet"]) == 0
    words = Page(report(tmp_path / "fit", tmp_path / "page.html")).words
    assert "rare: no test molecule has a value." in words
    assert not any("nan%" in word or "same width" in word for word in words)
    command = ["evaluate", str(tmp_path / "fit"), "--uncertainty", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "rare: no molecule has a value" in captured.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"uncertainty.json", "uncertainty_1.png"}


@pytest.mark.parametrize(("refits", "few"), [(True, 100), (False, 100), (False, 1)])
def test_held_out_rows_without_a_logarithm_are_not_counted_in_the_fold_error(
    refits, few, tmp_path, monkeypatch
):
    monkeypatch.setattr("molslice.report.verdict.FEW_HELD_OUT", few)
    lines = ["smiles,dose,part"]
    for row, text in enumerate(embedded_smiles(120)):
        dose = 10 ** (len(text) / 12) if row else 0
        lines.append(f"{text},{dose},{'train' if row % 10 else 'test'}")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    words = ["fit", str(tmp_path / "mine.csv"), "--target", "dose", "--split", "part", "--scale", "log"]
    words += ["--refit"] * refits
    assert main([*words, "--no-encoder", "--members", "2", "--out", str(tmp_path / "fit"), "--quiet"]) == 0
    card = (tmp_path / "fit" / CARD).read_text()
    assert "dose: 1 held-out value without a logarithm, left out of the mean fold error" in card
    page = report(tmp_path / "fit", tmp_path / "page.html")
    (verdict,) = re.findall("<p>(dose: mean fold error .*?)</p>", page)
    said = " on 11 held-out molecules (1 without a logarithm left out)"
    assert f"{said} is " in verdict if few == 100 else f"{said}, " in verdict
    assert ("<td>test</td>" in page) != refits  # the page is about the rows that the model learned
    if refits:
        (tmp_path / "fit" / HELD_OUT).unlink()  # as in a published folder
        page = report(tmp_path / "fit", tmp_path / "page.html")
        assert "The mean fold error on 12 held-out molecules is" in page


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_charts_of_a_target_whose_logarithm_is_learned_are_logarithmic(scale, tmp_path):
    lines = ["smiles,dose,part"]
    for row, text in enumerate(embedded_smiles(60)):
        dose = 10 ** (len(text) / 12) if row else 0  # a held-out value without a logarithm
        lines.append(f"{text},{dose},{'train' if row % 10 else 'test'}")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    words = ["fit", str(tmp_path / "mine.csv"), "--target", "dose", "--split", "part", "--scale", scale]
    assert main([*words, "--no-encoder", "--members", "2", "--out", str(tmp_path / "fit"), "--quiet"]) == 0
    page = report(tmp_path / "fit", tmp_path / "page.html")
    assert "reference" not in page
    assert "dose: predictions against measurements" in page
    assert ("log10 of predicted / measured" in page) == (scale == "log")
    assert ("predicted minus measured" in page) == (scale == "linear")
    left_out = "; not shown: 1 with a value or a prediction that is not positive."
    assert page.count(f"{left_out}</figcaption>") == (2 if scale == "log" else 0)


def test_an_ensemble_is_reported_with_the_coverage_of_its_intervals(run, tmp_path):
    config = str(run.parent / "config.yaml")
    code = main(
        ["train", "--config", config, "--members", "2", "--out", str(tmp_path / "two"), "--quiet"]
        + ["--data.split", '{"kind": "random", "fractions": [0.4, 0.3, 0.3]}']
    )
    assert code == 0
    words = " ".join(Page(report(tmp_path / "two", tmp_path / "page.html")).words)
    assert "The model has 2 networks, each with these parameters." in words
    assert "molslice train --config config.yaml --members 2 --out two" in words
    assert "Intervals are computed from valid rows of" in words


def test_other_targets_are_refused(run, tmp_path, capsys):
    checkpoint_folder(tmp_path / "model", TWO)
    data = ["--data.path", str(run.parent / "molecules.csv"), "--data.target_columns", "size"]
    code = main(["report", str(tmp_path / "model"), "--out", str(tmp_path / "page.html"), "--quiet", *data])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert re.search(r"the model predicts gap \[eV\], logp, but the targets of \S+ are size;", line)
    assert not (tmp_path / "page.html").exists()


def test_data_without_labels_are_refused(run, tmp_path, capsys):
    (tmp_path / "blank.csv").write_text("smiles,a<b>,size,part\nCCO,,,train\nCCN,,,valid\nCCC,,,test\n")
    data = ["--data.name", "csv", "--data.path", str(tmp_path / "blank.csv")]
    data += ["--data.target_columns", '["a<b>", "size"]', "--data.units", '["eV", ""]']
    code = main(["report", str(run), "--out", str(tmp_path / "page.html"), "--quiet", *data])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert "has no value in any row" in line
    assert not (tmp_path / "page.html").exists()


def test_other_rows_than_molecules_are_refused():
    class Sentences:
        source, row_name = "words.txt", "sentences"

    with pytest.raises(
        MolsliceError, match="a report is about molecules; the rows of words.txt are sentences"
    ):
        measure(cast("Any", None), cast("Any", Sentences()), 10)


def test_the_worst_and_the_best_predictions_of_a_logarithm_are_by_the_factor():
    measured = SimpleNamespace(predictor=SimpleNamespace(is_logarithmic=lambda target: target == 1))
    predicted, truth = np.array([10.0, 2e5, 3.0, 0.0]), np.array([1.0, 1e5, 3.0, 2.0])
    assert np.argsort(sections._distances(measured, 0, predicted, truth)).tolist() == [2, 3, 0, 1]
    factors = sections._distances(measured, 1, predicted, truth)
    assert factors[:3] == pytest.approx([1.0, np.log10(2.0), 0.0])
    assert factors[3] == np.inf
