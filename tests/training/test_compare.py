import csv
import json
import math
import statistics
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from molslice.model.build import build_model
from molslice.model.count import parameters_by_part
from molslice.model.spec import HierarchicalSpec
from molslice.training import compare
from molslice.training.compare import compare_attentions, compare_runs
from molslice.training.comparison import Comparison, Result
from molslice.training.entries import attention_label, folder_name, labels_of, parse_entries
from molslice.training.figure import draw_comparison
from molslice.types import DataSpec, MolsliceError

FILES = {"table.csv", "table.md", "comparison.json", "compare.png", "compare.svg"}


def summary_of(mae, seed=0, parameters=100, units=None, test=True):
    """What a run's summary.json holds, as far as a comparison reads it."""
    units = units or {"gap": "eV"}
    errors = {name: mae + place for place, name in enumerate(units)}
    return {
        "metric": "mae",
        "units": units,
        "valid": {"mae": errors},
        "test": {"mae": {name: value + 0.1 for name, value in errors.items()} if test else None, "of": 7},
        "parameters": parameters,
        "parameters_without_embeddings": parameters // 2,
        "seconds": 2.0,
        "steps": 10,
        "rows_per_second": 50.0,
        "noun": "molecules",
        "seed": seed,
    }


@pytest.fixture
def comparison(tmp_path):
    runs = [
        ("softmax", 0.5, 0, 4000),
        ("softmax", 0.3, 1, 4000),
        ("softmax", 0.4, 2, 4000),
        ("flow", 0.9, 0, 50),
    ]
    results = [
        Result.of_run(label, tmp_path / f"{label}{seed}", "csv", summary_of(mae, seed, parameters))
        for label, mae, seed, parameters in runs
    ]
    return Comparison(results)


@pytest.fixture
def config_file(build_config, write_config, tmp_path):
    return write_config(
        build_config(training={"max_steps": 3}, attention={"name": "softmax"}), tmp_path / "c.yaml"
    )


def test_each_entry_is_trained_with_each_seed(config_file, tmp_path):
    entries = "slice_sort:form=mix_plus_sort:placement=aligned,gin_virtual:dim=12"
    result = compare_attentions(config_file, entries, tmp_path / "out", seeds=2, quiet=True)
    assert FILES | {"plan.json", "runs"} == {path.name for path in (tmp_path / "out").iterdir()}
    assert [(r.label, r.seed) for r in result.results] == [
        (label, seed) for label in entries.split(",") for seed in (5, 6)
    ]
    for run in result.results:
        summary = json.loads((Path(run.run) / "summary.json").read_text())
        assert run.test == summary["test"]["mae"]
        assert run.parameters == summary["parameters"]
    first, second = result.lines()
    assert first.seeds == 2
    assert first.test["gap"] == pytest.approx(statistics.fmean(r.test["gap"] for r in result.results[:2]))
    assert first.test_sd["gap"] == pytest.approx(statistics.stdev(r.test["gap"] for r in result.results[:2]))
    assert first.parameters != second.parameters
    assert not result.failed


def test_a_second_call_goes_on_where_the_first_stopped(config_file, tmp_path, monkeypatch):
    out, asked = tmp_path / "out", []
    real = compare.train

    def train(config, run, *, resume, quiet):
        asked.append((config.attention.name, config.seed, resume))
        if len(asked) == 2:
            run.mkdir(parents=True)
            (run / "checkpoints").mkdir()  # stopped while it measured its speed
            raise KeyboardInterrupt
        return real(config, run, resume=resume, quiet=quiet)

    monkeypatch.setattr(compare, "train", train)
    with pytest.raises(KeyboardInterrupt):
        compare_attentions(config_file, "softmax,flow", out, quiet=True)
    result = compare_attentions(config_file, "softmax,flow", out, quiet=True)
    assert asked == [("softmax", 5, False), ("flow", 5, False), ("flow", 5, True)]
    again = compare_attentions(config_file, "softmax,flow", out, quiet=True)
    assert len(asked) == 3
    assert again == result


def test_a_failure_does_not_stop_the_others(config_file, tmp_path, monkeypatch):
    real, told = compare.train, []

    def train(config, run, **options):
        if config.attention.name == "flow":
            raise RuntimeError("not enough\nmemory")
        return real(config, run, **options)

    monkeypatch.setattr(compare, "train", train)
    result = compare_attentions(config_file, "flow,softmax", tmp_path / "out", quiet=True, tell=told.append)
    assert [run.label for run in result.results] == ["softmax"]
    assert result.failed == {"flow": "seed 5: not enough memory"}
    assert "flow failed, seed 5: not enough memory" in told
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["failed"] == result.failed
    with pytest.raises(MolsliceError, match="flow: seed 5: not enough memory"):
        compare_attentions(config_file, "flow", tmp_path / "other", quiet=True)


def test_another_comparison_in_the_folder_is_refused(config_file, tmp_path):
    compare_attentions(config_file, "softmax", tmp_path / "out", quiet=True)
    before = (tmp_path / "out" / "table.csv").read_text()
    with pytest.raises(MolsliceError, match=r"'softmax' has another configuration.*choose another folder"):
        compare_attentions(
            config_file, "softmax", tmp_path / "out", overrides=[("optimizer.lr", "1e-4")], quiet=True
        )
    assert (tmp_path / "out" / "table.csv").read_text() == before


def test_minutes_are_the_budget_of_each(config_file, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        compare, "train", lambda config, run, **_: asked.append(config.training) or summary_of(1.0)
    )
    compare_attentions(config_file, "softmax,flow", tmp_path / "out", minutes=0.5)
    assert [(training.max_minutes, training.max_steps) for training in asked] == [(0.5, None)] * 2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("softmax,sotfmax", "did you mean 'softmax'"),
        ("slice_sort:order=upward", "upward"),
        ("slice_sort:ordr=half", "did you mean 'order'"),
        ("slice_sort:order", "'order' is not of the form option=value"),
        ("flow:pair_bias=sum", "pair_bias"),
        ("gin_virtual:num_head=3", "did you mean 'num_heads'"),
        ("softmax,softmax", "stands twice"),
        (" , ", "at least one entry"),
    ],
)
def test_entries_that_cannot_be_built_show_before_training(
    config_file, tmp_path, monkeypatch, entries, message
):
    monkeypatch.setattr(compare, "train", pytest.fail)
    with pytest.raises(MolsliceError, match=message):
        compare_attentions(config_file, entries, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_comparison_is_for_one_device(config_file, tmp_path):
    with pytest.raises(MolsliceError, match="one device"):
        compare_attentions(config_file, "softmax", tmp_path / "out", overrides=[("trainer.devices", "2")])


def test_an_entry_says_all_of_its_attention(build_config):
    base = build_config(attention={"name": "slice_sort", "order": "half"})
    plain, mixed, gin = parse_entries("slice_sort,flow:clamp=5:pair_bias=mix,gin_virtual:dim=12", base)
    assert dict(plain.config.attention.options) == {}  # not the options of the base
    assert (mixed.config.attention.pair_bias, dict(mixed.config.attention.options)) == ("mix", {"clamp": 5})
    assert (gin.config.model.name, gin.config.model.dim) == ("gin_virtual", 12)
    for entry in (plain, mixed):
        assert attention_label(entry.config) == entry.label
        assert replace(entry.config, attention=base.attention) == base
    (back,) = parse_entries("softmax", gin.config)
    assert back.config.model.name == "graphormer"


def test_runs_that_exist(build_config, write_config, tmp_path):
    runs = []
    for number, (attention, seed, dim) in enumerate(
        [("softmax", 0, 16), ("flow", 0, 16), ("softmax", 1, 16), ("softmax", 0, 32)]
    ):
        run = tmp_path / f"run{number}"
        run.mkdir()
        config = build_config(attention={"name": attention}, seed=seed, model={"dim": dim})
        write_config(config, run / "config.yaml")
        counts = parameters_by_part(build_model(config.model, config.attention, DataSpec(1)))
        (run / "summary.json").write_text(json.dumps(summary_of(0.1 + number, seed, counts["total"])))
        runs.append(run)
    result = compare_runs(runs, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert [(line.label, line.seeds) for line in result.lines()] == [
        ("softmax 2x16", 2),
        ("flow", 1),
        ("softmax 2x32", 1),
    ]


def test_runs_that_cannot_be_drawn(build_config, write_config, tmp_path):
    for name, units in (("a", {"gap": "eV"}), ("b", {"logp": ""})):
        (tmp_path / name).mkdir()
        write_config(build_config(), tmp_path / name / "config.yaml")
        (tmp_path / name / "summary.json").write_text(json.dumps(summary_of(1.0, units=units)))
    (tmp_path / "open").mkdir()
    write_config(build_config(), tmp_path / "open" / "config.yaml")
    (tmp_path / "odd").mkdir()
    write_config(build_config(), tmp_path / "odd" / "config.yaml")
    (tmp_path / "odd" / "summary.json").write_text('{"metric": "mae"}')
    for runs, message in [
        (["a", "b"], "only runs with the same targets compare"),
        (["a", "open"], "open is not a finished run: it holds no summary.json"),
        (["a", "none"], "none: no such run folder"),
        (["odd"], "the summary of .*odd lacks"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            compare_runs([tmp_path / run for run in runs], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_labels_tell_runs_apart(build_config):
    one = build_config()
    other = build_config(optimizer={"lr": 1e-4})
    assert labels_of([one, replace(one, seed=9)]) == ["softmax", "softmax"]
    assert labels_of([one, other, one]) == ["softmax 2x16 #1", "softmax 2x16 #2", "softmax 2x16 #1"]
    stages = replace(one, model=HierarchicalSpec((8, 16), (2, 1), 2))
    assert labels_of([stages, one]) == ["softmax 2x8-1x16", "softmax 2x16"]
    labels = ["slice_sort:order=half", "flow:pair_bias=mix"]
    assert len({folder_name(label) for label in labels}) == 2
    assert "/" not in folder_name("a/b:c d")


def test_the_tables_hold_mean_and_spread(comparison, tmp_path):
    comparison.write(tmp_path)
    with (tmp_path / "table.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first["attention"] == "softmax"
    assert float(first["valid_mae_gap_eV"]) == pytest.approx(0.4)
    assert float(first["valid_mae_gap_eV_sd"]) == pytest.approx(0.1)
    assert float(first["test_mae_gap_eV"]) == pytest.approx(0.5)
    assert (first["seeds"], first["parameters"]) == ("3", "4000")
    assert second["test_mae_gap_eV_sd"] == ""  # one seed has no spread
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "test MAE (eV)" in lines[0]
    assert "0.5000 ± 0.1000" in lines[2]
    assert [cell.strip() for cell in lines[3].split("|")][4:6] == ["0.9000", "1.0000"]
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert [entry["label"] for entry in content["entries"]] == ["softmax", "flow"]
    assert len(content["runs"]) == 4


def test_the_plot_shows_every_entry(comparison):
    svg = draw_comparison(comparison, "svg")
    texts = {
        "".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if "text" in node.tag
    }
    assert {"softmax", "flow", "parameters", "test MAE of gap (eV)"} <= texts
    assert draw_comparison(comparison, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_comparison_gives_the_same_picture(comparison, suffix):
    picture = draw_comparison(comparison, suffix)
    assert picture == draw_comparison(comparison, suffix)
    comparison.results.pop()
    assert picture != draw_comparison(comparison, suffix)


def test_several_targets_and_no_test_labels(tmp_path):
    summary = summary_of(0.5, units={"gap": "eV", "logp": ""}, test=False)
    comparison = Comparison([Result.of_run("softmax", tmp_path, "csv", summary)])
    comparison.write(tmp_path)
    svg = (tmp_path / "compare.svg").read_text()
    assert "valid MAE of gap (eV)" in svg
    assert "valid MAE of logp<" in svg
    header, row = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    assert dict(zip(header, row, strict=True))["valid_mae_logp"] == "1.5"
    assert dict(zip(header, row, strict=True))["test_mae_gap_eV"] == ""


@pytest.mark.parametrize("undefined", [math.nan, None])  # of a run that has just ended, and as JSON keeps it
def test_an_undefined_error_leaves_the_others(undefined, tmp_path):
    summaries = [summary_of(mae, seed) for seed, mae in enumerate((0.5, 0.3, 0.7))]
    summaries[1]["valid"]["mae"]["gap"] = undefined
    for summary in summaries:
        summary["test"]["mae"]["gap"] = undefined
    comparison = Comparison([Result.of_run("flow", tmp_path, "csv", summary) for summary in summaries])
    comparison.write(tmp_path)
    (line,) = comparison.lines()
    assert (line.valid["gap"], line.valid_runs["gap"], line.test["gap"]) == (pytest.approx(0.6), 2, None)
    assert "0.6000 ± 0.1414 (2 of 3) |" in (tmp_path / "table.md").read_text()
    (row,) = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert (row["valid_mae_gap_eV_runs"], row["test_mae_gap_eV"]) == ("2", "")


@pytest.mark.parametrize(("data", "rows"), [("mnist", 7), ("csv", 8)])
def test_runs_on_other_data_are_refused(data, rows, comparison, tmp_path):
    summary = summary_of(0.5)
    summary["test"]["of"] = rows
    comparison.results.append(Result.of_run("flow", tmp_path, data, summary))
    with pytest.raises(MolsliceError, match=f"was tested on {rows} rows of {data}, .* on 7 of csv"):
        comparison.check()
