import csv
import json
import math
import os
import re
import shutil
import statistics
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from molslice.files.lock import lock_folder
from molslice.model import build_model
from molslice.model.count import parameters_by_part
from molslice.training import compare, comparison_figure
from molslice.training.compare import compare_attentions, compare_runs
from molslice.training.comparison import Comparison, Result
from molslice.training.comparison_figure import curves_table, draw_comparison, draw_curves, read_curves
from molslice.types import DataSpec, MolsliceError

FILES = {"table.csv", "table.md", "comparison.json", "compare.png", "compare.svg"}


def summary_of(mae, seed=0, parameters=100, units=None, test=True):
    """Return the part of a summary.json that a comparison reads."""
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
def config_file(build_config, write_config, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_figure, "draw_comparison", lambda comparison, suffix: b"drawn elsewhere")
    return write_config(
        build_config(training={"max_steps": 3}, attention={"name": "softmax"}), tmp_path / "c.yaml"
    )


def test_each_entry_is_trained_with_each_seed(config_file, tmp_path):
    entries = "slice_sort:form=mix_plus_sort:placement=aligned,gin_virtual:dim=12"
    result = compare_attentions(config_file, entries, tmp_path / "out", seeds=2, curves=True, quiet=True)
    curves = {"curves.csv", "curves.png", "curves.svg"}
    assert FILES | curves | {"plan.json", "runs"} == {path.name for path in (tmp_path / "out").iterdir()}
    assert [(r.label, r.seed) for r in result.results] == [
        (label, seed) for label in entries.split(",") for seed in (5, 6)
    ]
    for run in result.results:
        summary = json.loads((Path(run.run) / "summary.json").read_text())
        assert run.test == summary["test"]["mae"]
        assert run.parameters == summary["parameters"]
    first, second = result.lines()
    assert first.seeds == 2
    errors = [run.test["gap"] or 0.0 for run in result.results[:2]]
    assert first.test["gap"] == pytest.approx(statistics.fmean(errors))
    assert first.test_sd["gap"] == pytest.approx(statistics.stdev(errors))
    assert first.parameters != second.parameters
    assert not result.failed


def test_a_second_call_continues_where_the_first_stopped(config_file, tmp_path, monkeypatch):
    out, asked = tmp_path / "out", []
    real = compare.train

    def train(config, run, *, resume, quiet):
        asked.append((config.attention.name, config.seed, resume))
        if len(asked) == 2:
            run.mkdir(parents=True)
            (run / "checkpoints").mkdir()  # stopped while it measured its speed
            raise KeyboardInterrupt(
                "stopped at step 1 of 2; the same command with --resume continues the run"
            )
        return real(config, run, resume=resume, quiet=quiet)

    monkeypatch.setattr(compare, "train", train)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped in flow, seed 5; the same command continues in "):
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


def test_a_corrected_command_may_follow_one_that_failed_at_once(
    build_config, write_config, molecules, tmp_path
):
    config = build_config(data={"path": str(molecules)}, training={"max_steps": 1})
    file, out = write_config(config, tmp_path / "c.yaml"), tmp_path / "out"
    with pytest.raises(MolsliceError, match="every run of the comparison failed"):
        compare_attentions(file, "softmax", out, overrides=[("data.target_columns", "absent")], quiet=True)
    assert compare_attentions(file, "softmax", out, quiet=True).results
    with pytest.raises(MolsliceError, match="has another configuration"):
        compare_attentions(file, "softmax", out, overrides=[("training.max_steps", "2")], quiet=True)


@pytest.mark.parametrize("kept", ["{", "[]", "3", "[" * 50_000])
def test_a_damaged_plan_is_one_line(config_file, tmp_path, kept):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(kept)
    with pytest.raises(MolsliceError, match=r"^cannot read .*plan\.json: .*$"):
        compare_attentions(config_file, "softmax", tmp_path / "out", quiet=True)
    assert (tmp_path / "out" / "plan.json").read_text() == kept


def test_changed_data_are_refused_before_anything_is_trained(
    build_config, write_config, molecules, tmp_path, monkeypatch
):
    path, out = tmp_path / "molecules.csv", tmp_path / "out"
    path.write_text(molecules.read_text())
    config = build_config(data={"path": str(path)}, training={"max_steps": 1})
    file = write_config(config, tmp_path / "c.yaml")
    compare_attentions(file, "softmax", out, quiet=True)
    path.write_text("\n".join(molecules.read_text().splitlines()[:-1]) + "\n")
    monkeypatch.setattr(compare, "train", pytest.fail)
    with pytest.raises(MolsliceError, match=r"of the run in .*seed5 have changed .*\(149, was 150\)"):
        compare_attentions(file, "softmax,flow", out, quiet=True)


def test_a_second_comparison_in_the_folder_is_refused(config_file, tmp_path):
    with lock_folder(tmp_path):
        before = sorted(tmp_path.iterdir())
        with pytest.raises(MolsliceError, match=rf"in use by process {os.getpid()} on "):
            compare_attentions(config_file, "softmax", tmp_path, quiet=True)
        assert sorted(tmp_path.iterdir()) == before


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
        ("softmax,softmax", "occurs twice"),
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


@pytest.mark.parametrize("how", ["same", "link", "copy"])
def test_a_run_counts_once(build_config, write_config, tmp_path, how):
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    write_config(build_config(), run / "config.yaml")
    (run / "summary.json").write_text(json.dumps(summary_of(0.1)))
    if how == "link":
        other.symlink_to(run)
    elif how == "copy":
        shutil.copytree(run, other)
    words = "both softmax with seed 0; a mean over seeds" if how == "copy" else "are the same run folder"
    with pytest.raises(MolsliceError, match=words):
        compare_runs([run, run / ".." / "run" if how == "same" else other], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["rows", "targets", "inputs", "split test"])
def test_runs_on_other_rows_or_targets_are_refused(build_config, write_config, tmp_path, part):
    for seed, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        write_config(build_config(seed=seed), tmp_path / name / "config.yaml")
        (tmp_path / name / "summary.json").write_text(json.dumps(summary_of(1.0, seed)))
        identity = {"rows": "7", "targets": "1", "inputs": "2", "split test": "3"}
        (tmp_path / name / "data.json").write_text(json.dumps({**identity, part: str(seed)}))
    runs = [tmp_path / "a", tmp_path / "b"]
    if part == "inputs":
        assert compare_runs(runs, tmp_path / "out").lines()[0].seeds == 2
        return
    words = part.replace("split test", "test rows")
    with pytest.raises(MolsliceError, match=rf"b and .*a were trained on data with different {words}; only"):
        compare_runs(runs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_finished_runs_that_are_not_asked_for_are_counted(config_file, tmp_path):
    told = []
    compare_attentions(config_file, "softmax,flow", tmp_path / "out", quiet=True, tell=told.append)
    assert not any("not asked for" in line for line in told)
    compare_attentions(config_file, "flow", tmp_path / "out", quiet=True, tell=told.append)
    line = "not in the table, because they are not asked for: 1 finished runs in"
    assert sum(line in text for text in told) == 1


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
    (tmp_path / "bad").mkdir()
    write_config(build_config(), tmp_path / "bad" / "config.yaml")
    (tmp_path / "bad" / "summary.json").write_text('{"metric": "mae", "units": 3}')
    for name, file in (("fitted", "fit.json"), ("members", "ensemble.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    for runs, message in [
        (["a", "fitted"], "fitted was written by molslice fit; a comparison takes runs of one network each"),
        (["members"], "members was written by molslice train --members; a comparison takes runs"),
        (["a", "b"], "only runs with the same targets can be compared"),
        (["a", "open"], "open is not a finished run: it holds no summary.json"),
        (["a", "none"], "none: no such run folder"),
        (["odd"], "cannot read the summary of .*odd: missing or invalid"),
        (["bad"], "cannot read .*bad/summary.json: units is 3"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            compare_runs([tmp_path / run for run in runs], tmp_path / "out")
        assert not (tmp_path / "out").exists()


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
    assert "0.50 ± 0.10" in lines[2]
    assert [cell.strip() for cell in lines[3].split("|")][4:6] == ["0.9000", "1.000"]
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert [entry["label"] for entry in content["entries"]] == ["softmax", "flow"]
    assert [(run["seed"], run["noun"]) for run in content["runs"][:2]] == [(0, "molecules"), (1, "molecules")]
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


def test_the_curves_of_all_runs_are_in_one_figure_and_table(comparison, tmp_path):
    """Each run has one color; a column that a run lacks, or a number that it did not measure, is empty."""
    for index, result in enumerate(comparison.results):
        metric = "" if index == 1 else f"{0.5 - index / 10}"
        Path(result.run).mkdir()
        (Path(result.run) / "metrics.csv").write_text(
            "step,epoch,seconds,learning_rate,train_loss,valid_mae_gap_eV,rows_per_second\n"
            f"5,1,0.5,0.001,{1 + index},{metric},10\n10,2,1.0,0.001,{0.01 * (1 + index)},0.25,10\n"
        )
    curves = read_curves(comparison)
    assert list(curves) == ["softmax, seed 0", "softmax, seed 1", "softmax, seed 2", "flow, seed 0"]
    rows = list(csv.DictReader(curves_table(curves).splitlines()))
    assert len(rows) == 8
    assert rows[1] == {
        "run": "softmax, seed 0",
        "step": "10",
        "train_loss": "0.01",
        "epoch": "2",
        "seconds": "1",
        "learning_rate": "0.001",
        "valid_mae_gap_eV": "0.25",
        "rows_per_second": "10",
    }
    assert rows[2]["valid_mae_gap_eV"] == ""
    svg = draw_curves(curves, "svg").decode()
    assert svg == draw_curves(curves, "svg").decode()
    texts = {
        "".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if "text" in node.tag
    }
    assert {*curves, "train loss", "valid mae gap eV", "step"} <= texts
    lines = set(re.findall(r"stroke: (#[0-9a-f]{6}); stroke-width: 1.2", svg))
    assert len(lines) == 4
    assert draw_curves({f"run {k}": curves["flow, seed 0"] for k in range(30)}, "png").startswith(b"\x89PNG")
    (Path(comparison.results[3].run) / "metrics.csv").unlink()
    with pytest.raises(MolsliceError, match=r"cannot read .*flow0.metrics\.csv"):
        read_curves(comparison)


def test_an_axis_of_curves_is_logarithmic_only_where_needed(monkeypatch):
    scaled = []
    monkeypatch.setattr(
        comparison_figure, "set_log_scale", lambda axes, axis, values: scaled.append(axes.get_ylabel())
    )
    columns = {
        "step": [1.0, 2.0],
        "train_loss": [100.0, 1.0],
        "valid_mae_gap": [3.0, 1.0],
        "valid_r2": [-1.0, 90.0],
    }
    draw_curves({"softmax, seed 0": columns}, "svg")
    assert scaled == ["train loss"]


def test_several_targets_and_no_test_labels(tmp_path):
    summary = summary_of(0.5, units={"gap": "eV", "logp": ""}, test=False)
    comparison = Comparison([Result.of_run("softmax", tmp_path, "csv", summary)])
    comparison.write(tmp_path)
    svg = draw_comparison(comparison, "svg").decode()
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
    assert "0.60 ± 0.14 (2 of 3) |" in (tmp_path / "table.md").read_text()
    (row,) = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert (row["valid_mae_gap_eV_runs"], row["test_mae_gap_eV"]) == ("2", "")


@pytest.mark.parametrize(("data", "rows"), [("mnist", 7), ("csv", 8)])
def test_runs_on_other_data_are_refused(data, rows, comparison, tmp_path):
    summary = summary_of(0.5)
    summary["test"]["of"] = rows
    comparison.results.append(Result.of_run("flow", tmp_path, data, summary))
    with pytest.raises(MolsliceError, match=f"was tested on {rows} rows of {data}, .* on 7 of csv"):
        comparison.check()
