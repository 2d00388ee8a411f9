"""Compare attentions on the embedded data: parameters, test error, and dependence on the order of atoms.

Each entry is trained with each seed for the same number of steps. Each run has one thread, and `--jobs` runs
are active at a time. Each model is evaluated on the test split with the canonical order of atoms and with
shuffled atoms. Finished runs in `--runs` are not trained again. With `--add`, the entries of the recorded
JSON stay, and only others are measured:

    python benchmarks/compare_gap_xtb.py --steps 4500 --seeds 3 --jobs 2
    python benchmarks/compare_gap_xtb.py --add --entries softmax,linear

Writes `benchmarks/results/NAME.json` and plots of error against parameters, NAME.png and NAME.svg. `--draw`
only draws the plots of the recorded JSON.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from record import ROOT, make_parser, record, run_all, spread

from molslice.config import RunConfig, load_config
from molslice.config.entries import folder_name, parse_entries
from molslice.data import build_dataset
from molslice.files.parsing import read_json_object
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.tasks.metrics import format_metric
from molslice.training.comparison import Comparison, Result
from molslice.training.comparison_figure import draw_comparison
from molslice.training.run import train

ENTRIES = "softmax,key_sort,slice_sort,flow,singular,gin_virtual"
SHUFFLES = 5


def measure(label: str, config: RunConfig, run: Path) -> dict[str, Any]:
    """Train one run unless it is finished, and evaluate it with canonical and with shuffled atoms."""
    summary = train(config, run, resume=run.exists(), quiet=True)
    predictor = load_model(str(run))
    dataset = build_dataset(config.data.name, dict(config.data.options))
    errors = [
        evaluate(predictor, dataset, "test", atom_permutation=seed, progress=False)["targets"][0]["mae"]
        for seed in (None, *range(SHUFFLES))
    ]
    return {"label": label, "summary": summary, "canonical": errors[0], "shuffled": errors[1:]}


def summarize(label: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard deviations over the seeds of one entry."""
    target = next(iter(runs[0]["summary"]["units"]))

    summaries = [run["summary"] for run in runs]
    return {
        "label": label,
        "seeds": len(runs),
        "parameters": summaries[0]["parameters"],
        "parameters_without_embeddings": summaries[0]["parameters_without_embeddings"],
        "steps": summaries[0]["steps"],
        "seconds": spread([summary["seconds"] for summary in summaries]),
        "valid_mae": spread([summary["valid"]["mae"][target] for summary in summaries]),
        "test_mae": spread([run["canonical"] for run in runs]),
        "test_mae_shuffled": spread([statistics.fmean(run["shuffled"]) for run in runs]),
    }


def draw(runs: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the plots of the runs as PNG and SVG."""
    results = []
    for run in runs:
        # Older results have `molecules_per_second` instead of `rows_per_second`.
        summary = {
            "rows_per_second": run["summary"].get("molecules_per_second"),
            "noun": "molecules",
            **run["summary"],
        }
        results.append(Result.of_run(run["label"], options.runs, "pcqm4m", summary))
    for suffix in ("png", "svg"):
        file = options.out / f"{options.name}.{suffix}"
        file.write_bytes(draw_comparison(Comparison(results), suffix))


def main(argv: list[str] | None = None) -> None:
    """Train and evaluate all entries, then write the JSON and the plots."""
    parser = make_parser(__doc__)
    parser.add_argument("--config", default=str(ROOT / "configs" / "molecule" / "gap_xtb.yaml"))
    parser.add_argument("--entries", default=ENTRIES)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "compare_gap_xtb")
    parser.add_argument("--name", default="compare_gap_xtb")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all entries")
    parser.add_argument("--add", action="store_true", help="keep the recorded JSON, and add other entries")
    parser.add_argument("--draw", action="store_true", help="only draw the recorded JSON")
    options = parser.parse_args(argv)
    file = options.out / f"{options.name}.json"
    recorded: dict[str, Any] = {"entries": [], "runs": []}
    if options.add or options.draw:
        recorded = read_json_object(file)
    if options.draw:
        draw(recorded["runs"], options)
        return
    settings = {
        "training.max_steps": options.steps,
        "trainer.num_threads": 1,
        "data.root": ROOT / "data" / "gap_xtb",
    }
    settings |= dict(setting.split("=", 1) for setting in options.set)
    base = load_config(options.config, [(key, str(value)) for key, value in settings.items()])
    build_dataset(base.data.name, dict(base.data.options))  # prepare the store once
    measured = {
        "steps": options.steps,
        "optimizer": base.optimizer.name,
        "lr": base.optimizer.lr,
        "set": options.set,
        "shuffles": SHUFFLES,
    }
    if options.add and not measured.items() <= recorded["settings"].items():
        raise SystemExit(f"{file} was measured with other settings: {recorded['settings']}")
    known = {entry["label"] for entry in recorded["entries"]}
    entries = [entry for entry in parse_entries(options.entries, base) if entry.label not in known]
    runs: dict[str, list[dict[str, Any]]] = {entry.label: [] for entry in entries}
    calls = [
        (
            entry.label,
            replace(entry.config, seed=seed),
            options.runs / folder_name(entry.label) / f"seed{seed}",
        )
        for seed in range(options.seeds)
        for entry in entries
    ]
    for (label, _, folder), run in run_all(measure, calls, options.jobs):
        runs[label].append(run)
        error = format_metric(run["canonical"])
        print(f"{folder}: {error} eV, {run['summary']['seconds']:.0f} s", flush=True)
    for group in runs.values():
        group.sort(key=lambda run: run["summary"]["seed"])
    payload = {
        "question": "test MAE in eV on data/gap_xtb, and with the atoms of each molecule shuffled",
        "settings": {**measured, "threads_a_run": 1, "runs_at_a_time": options.jobs},
        "entries": recorded["entries"] + [summarize(label, group) for label, group in runs.items()],
        "runs": recorded["runs"] + [run for group in runs.values() for run in group],
    }
    print(record(options.name, payload, options.out))
    draw(payload["runs"], options)


if __name__ == "__main__":
    main()
