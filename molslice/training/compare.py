"""Compare attentions: parameters against error, each trained for the same budget, over seeds or folds."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from molslice.config import RunConfig, config_to_yaml, load_config
from molslice.data import DATASETS
from molslice.inference.run_folder import CONFIG, SUMMARY, write_atomically
from molslice.training.comparison import Comparison, Result
from molslice.training.entries import Entry, folder_name, labels_of, parse_entries
from molslice.training.run import train
from molslice.types import MolsliceError

__all__ = ["FOUR", "compare_attentions", "compare_runs"]

FOUR = "softmax,slice_sort,flow,singular"
PLAN = "plan.json"


class _Planned(NamedTuple):
    """One run: `place` is its folder below that of its label, `name` what messages call it."""

    label: str
    config: RunConfig
    place: str
    name: str
    fold: int | None


def compare_attentions(
    config_path: Path | str,
    attention: str,
    out: Path | str,
    *,
    seeds: int = 1,
    folds: int | None = None,
    minutes: float | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    quiet: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> Comparison:
    """Train each entry with each seed or on each fold, and write the table and the plot into `out`.

    What is finished in `out` is not trained again, what was stopped goes on. An entry that fails is
    told in the result and does not stop the others.

    Args:
        config_path: the YAML file that all entries share.
        attention: what `parse_entries` takes: names with a comma between, options behind colons.
        out: the folder; runs go to `runs/<entry>/seed<k>` in it, or to `fold<k>`.
        seeds: runs of each entry, seeds counted from the configuration's.
        folds: K of a K-fold cross-validation: K runs of each entry, each tested on another fold of the data,
            all with the configuration's seed.
        minutes: training time of each run; by default what the configuration says.
        overrides: dotted settings, as `load_config` takes them.
        quiet: no progress bars.
        tell: receives a line before each run.

    Raises:
        MolsliceError: a configuration or entry that cannot be built (before anything is trained), data that
            know no folds, another comparison in `out`, or not one run that could be trained.
    """
    folder = Path(out)
    settings = list(overrides)
    if minutes is not None:
        settings.append(("training.max_minutes", str(minutes)))
    base = load_config(config_path, settings)
    if base.trainer.devices > 1 or base.trainer.num_nodes > 1:
        # each process would walk through the whole comparison, and find what another is writing
        raise MolsliceError("a comparison trains each run on one device; trainer.devices must be 1")
    if folds is not None:
        if seeds > 1:
            raise MolsliceError("a comparison is over seeds or over folds: leave one of them out")
        base = _on_fold(base, folds, 0)
    entries = parse_entries(attention, base)
    folder.mkdir(parents=True, exist_ok=True)
    _keep_plan(folder, entries)
    comparison = Comparison()
    runs = [planned for entry in entries for planned in _plan(entry, seeds, folds)]
    for number, planned in enumerate(runs, start=1):
        run = folder / "runs" / folder_name(planned.label) / planned.place
        tell(f"{number} of {len(runs)}: {planned.label}, {planned.name}")
        try:
            summary = _train_or_find(planned.config, run, quiet)
        except (
            ValueError,
            RuntimeError,
            OSError,
            ArithmeticError,
            MemoryError,
        ) as error:  # the others still run
            reason = f"{planned.name}: {' '.join(str(error).split()) or type(error).__name__}"
            comparison.failed[planned.label] = reason
            tell(f"{planned.label} failed, {reason}")
            continue
        comparison.results.append(Result.of_run(planned.label, run, base.data.name, summary, planned.fold))
    if not comparison.results:
        label, reason = next(iter(comparison.failed.items()))
        raise MolsliceError(f"no run of the comparison could be trained; {label}: {reason}")
    comparison.write(folder)
    return comparison


def compare_runs(runs: Sequence[Path | str], out: Path | str) -> Comparison:
    """Write the table and the plot of finished runs; those that differ in seed or fold alone share a line.

    Raises:
        MolsliceError: a run that is not finished, or runs with other targets than the first.
    """
    folder = Path(out)
    found = [_read_finished(Path(run)) for run in runs]
    folds = [config.data.options.get("fold") for config, _ in found]
    labels = labels_of([_on_any_fold(config) for config, _ in found])
    comparison = Comparison()
    for run, label, fold, (config, summary) in zip(runs, labels, folds, found, strict=True):
        comparison.results.append(Result.of_run(label, Path(run), config.data.name, summary, fold))
    comparison.check()
    folder.mkdir(parents=True, exist_ok=True)
    comparison.write(folder)
    return comparison


def _plan(entry: Entry, seeds: int, folds: int | None) -> list[_Planned]:
    """The runs of an entry."""
    label, config = entry.label, entry.config
    if folds is not None:
        return [
            _Planned(label, _on_fold(config, folds, fold), f"fold{fold}", f"fold {fold}", fold)
            for fold in range(folds)
        ]
    chosen = range(config.seed, config.seed + seeds)
    return [
        _Planned(label, replace(config, seed=seed), f"seed{seed}", f"seed {seed}", None) for seed in chosen
    ]


def _on_fold(config: RunConfig, folds: int, fold: int) -> RunConfig:
    """The configuration with fold `fold` of `folds` as its test split.

    Raises:
        MolsliceError: fewer than two folds, or data that know none.
    """
    if folds < 2:
        raise MolsliceError(f"a cross-validation needs at least 2 folds, got {folds}")
    if "folds" not in DATASETS.options(config.data.name):
        able = [name for name in DATASETS.names() if "folds" in DATASETS.options(name)]
        raise MolsliceError(f"data set {config.data.name!r} knows no folds; those that do: {', '.join(able)}")
    options = {**config.data.options, "folds": folds, "fold": fold}
    return replace(config, data=replace(config.data, options=options))


def _on_any_fold(config: RunConfig) -> RunConfig:
    """The same for runs that differ in their fold alone."""
    if config.data.options.get("fold") is None:
        return config
    return _on_fold(config, config.data.options["folds"], 0)


def _keep_plan(folder: Path, entries: Iterable[Entry]) -> None:
    """Remember what each label means here; a folder never mixes two meanings of one."""
    file = folder / PLAN
    known: dict[str, str] = {}
    if file.is_file():
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MolsliceError(f"{file} does not read: {error}") from error
    for entry in entries:
        asked = config_to_yaml(entry.config)
        if known.setdefault(entry.label, asked) != asked:
            raise MolsliceError(
                f"{folder} holds a comparison in which {entry.label!r} has another configuration "
                f"(see {file}); choose another folder"
            )
    write_atomically(file, json.dumps(known, indent=2) + "\n")


def _train_or_find(config: RunConfig, run: Path, quiet: bool) -> dict[str, Any]:
    if (run / SUMMARY).is_file():
        return _read_summary(run)
    begun = run.is_dir() and any(run.iterdir())
    return train(config, run, resume=begun, quiet=quiet)


def _read_finished(run: Path) -> tuple[RunConfig, dict[str, Any]]:
    if not run.is_dir():
        raise MolsliceError(f"{run}: no such run folder")
    for name in (CONFIG, SUMMARY):
        if not (run / name).is_file():
            raise MolsliceError(f"{run} is not a finished run: it holds no {name}")
    return load_config(run / CONFIG), _read_summary(run)


def _read_summary(run: Path) -> dict[str, Any]:
    try:
        return json.loads((run / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MolsliceError(f"{run / SUMMARY} does not read: {error}") from error
