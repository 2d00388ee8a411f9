"""Train and compare attentions: parameters and error for the same budget, over seeds or folds."""

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from molslice.config import RunConfig, config_to_yaml, load_config
from molslice.config.entries import Entry, folder_name, labels_of, parse_entries
from molslice.data import DATASETS, build_dataset
from molslice.data.base import Dataset
from molslice.files.atomic import write_atomically
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.folders.ensemble import is_ensemble
from molslice.folders.fitted import is_fitted_folder
from molslice.folders.results import results_folder
from molslice.folders.run import CONFIG, DATA, SUMMARY, read_summary
from molslice.training.comparison import Comparison, Result
from molslice.training.continuation import check_data
from molslice.training.run import train
from molslice.training.start import load_run_config
from molslice.types import MolsliceError

FOUR = "softmax,slice_sort,flow,singular"
PLAN = "plan.json"
MAX_RUNS = 10_000  # of one entry
FAILURES = (ValueError, RuntimeError, OSError, ArithmeticError, MemoryError)  # of one run
WHOLE = {"rows": "rows", "targets": "targets"}  # parts of the data that all runs must share
PARTS = {"split valid": "validation rows", "split test": "test rows"}  # that runs on one fold must share


class _Planned(NamedTuple):
    """One run of a comparison."""

    label: str  # of the entry
    config: RunConfig
    run: Path  # the folder
    name: str  # in messages, such as `seed 0`
    fold: int | None  # the test fold


def compare_attentions(
    config_path: Path | str,
    attention: str,
    out: Path | str,
    *,
    seeds: int = 1,
    folds: int | None = None,
    minutes: float | None = None,
    curves: bool = False,
    overrides: Sequence[tuple[str, str]] = (),
    quiet: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> Comparison:
    """Train each entry with each seed or on each fold, and write the table and the plot to `out`.

    Finished runs in `out` are kept, and stopped runs continue. If an entry fails, the others are still
    trained.

    Args:
        config_path: The YAML file that all entries share.
        attention: Entries as in `parse_entries`: names separated by commas, with options after colons.
        out: The folder. Runs are in `runs/<entry>/seed<k>` or `runs/<entry>/fold<k>`.
        seeds: Number of runs of each entry, with seeds counted from the configuration's.
        folds: Number of folds of a cross-validation. Each entry is trained once for each test fold, always
            with the configuration's seed.
        minutes: Training time of each run. None takes the length from the configuration.
        curves: Whether to also write the training curves of all runs to `curves.png`, `.svg` and `.csv`.
        overrides: Dotted settings, as in `load_config`.
        quiet: Whether to hide progress bars.
        tell: Receives a line before each run.

    Returns:
        The finished runs, and the reasons of the entries that failed.

    Raises:
        MolsliceError: A configuration or entry is invalid (checked before training), the data do not support
            folds, `out` holds another comparison, or every run failed.
        KeyboardInterrupt: Stopped by Ctrl-C or a signal. The same call continues.
    """
    folder = Path(out)
    settings = list(overrides)
    if minutes is not None:
        settings.append(("training.max_minutes", str(minutes)))
    base = load_run_config(config_path, settings)
    if base.trainer.devices > 1 or base.trainer.num_nodes > 1:
        # each process would run the whole comparison and read files that another one is writing
        raise MolsliceError("a comparison trains each run on one device; trainer.devices must be 1")
    for name, number in (("seeds", seeds), ("folds", folds)):
        if number is not None and not 1 <= number <= MAX_RUNS:
            raise MolsliceError(f"{name} is {number}, expected 1 to {MAX_RUNS:,}")
    if folds is not None:
        if seeds > 1:
            raise MolsliceError("a comparison is over seeds or over folds: give only one of them")
        base = _on_fold(base, folds, 0)
    entries = parse_entries(attention, base)
    runs = [planned for entry in entries for planned in _plan(entry, folder, seeds, folds)]
    with results_folder(folder), lock_folder(folder):
        _keep_plan(folder, entries)
        _check_data(runs)
        planned = {run.run for run in runs}
        others = sum(file.parent not in planned for file in (folder / "runs").glob(f"*/*/{SUMMARY}"))
        if others:
            tell(f"not in the table, because they are not asked for: {others} finished runs in {folder}")
        comparison = _compare(folder, runs, quiet, tell)
        _write(comparison, folder, curves)
        return comparison


def _check_data(runs: Iterable[_Planned]) -> None:
    """Refuse, before training, to add runs on changed data to earlier ones."""
    datasets: dict[str, Dataset] = {}
    for planned in runs:
        data = planned.config.data
        if (planned.run / DATA).is_file():
            key = repr(data)
            if key not in datasets:
                datasets = {key: build_dataset(data.name, dict(data.options))}  # one at a time in memory
            check_data(planned.run, datasets[key])


def _compare(folder: Path, runs: Sequence[_Planned], quiet: bool, tell: Callable[[str], None]) -> Comparison:
    """Train the runs that are not finished."""
    comparison = Comparison()
    for number, planned in enumerate(runs, start=1):
        kept = ": finished, kept" if (planned.run / SUMMARY).is_file() else ""
        tell(f"{number} of {len(runs)}: {planned.label}, {planned.name}{kept}")
        try:
            if kept:
                summary = read_summary(planned.run)
            else:
                begun = planned.run.is_dir() and any(planned.run.iterdir())
                summary = train(planned.config, planned.run, resume=begun, quiet=quiet)
        except FAILURES as error:  # the other runs continue
            reason = f"{planned.name}: {' '.join(str(error).split()) or type(error).__name__}"
            comparison.failed[planned.label] = reason
            tell(f"{planned.label} failed, {reason}")
            continue
        except KeyboardInterrupt as stop:  # the message of training refers to `train --resume`
            stopped = f"stopped in {planned.label}, {planned.name}; the same command continues in {folder}"
            raise KeyboardInterrupt(stopped) from stop
        comparison.results.append(
            Result.of_run(planned.label, planned.run, planned.config.data.name, summary, planned.fold)
        )
    if not comparison.results:
        label, reason = next(iter(comparison.failed.items()))
        raise MolsliceError(f"every run of the comparison failed; {label}: {reason}")
    return comparison


def _write(comparison: Comparison, folder: Path, curves: bool) -> None:
    from molslice.training import comparison_figure  # matplotlib takes long to import

    comparison.write(folder)
    for suffix in ("png", "svg"):
        write_atomically(folder / f"compare.{suffix}", comparison_figure.draw_comparison(comparison, suffix))
    if curves:
        columns = comparison_figure.read_curves(comparison)
        write_atomically(folder / "curves.csv", comparison_figure.curves_table(columns))
        for suffix in ("png", "svg"):
            write_atomically(folder / f"curves.{suffix}", comparison_figure.draw_curves(columns, suffix))


def compare_runs(runs: Sequence[Path | str], out: Path | str, *, curves: bool = False) -> Comparison:
    """Write the table and the plot of finished runs. Runs that differ only in seed or fold share a line.

    Args:
        runs: The run folders.
        out: The folder for the files.
        curves: Whether to also write the training curves, as `compare_attentions` does.

    Raises:
        MolsliceError: A run is not finished or is named twice, or runs have other targets, rows, splits or
            folds, or the metrics of a run cannot be read.
    """
    folder = Path(out)
    known: dict[Path, Path | str] = {}
    for run in runs:
        place = Path(run).resolve()
        if place in known:
            raise MolsliceError(f"{known[place]} and {run} are the same run folder; name each run once")
        known[place] = run
    finished = [_read_finished(Path(run)) for run in runs]
    folds = [config.data.options.get("fold") for config, _ in finished]
    _check_same_data([Path(run) for run in runs], folds)
    labels = labels_of([_on_any_fold(config) for config, _ in finished], folds)
    _check_folds(runs, labels, [config for config, _ in finished])
    comparison = Comparison()
    for run, label, fold, (config, summary) in zip(runs, labels, folds, finished, strict=True):
        comparison.results.append(Result.of_run(label, Path(run), config.data.name, summary, fold))
    comparison.check()
    with results_folder(folder), lock_folder(folder):
        _write(comparison, folder, curves)
    return comparison


def _check_same_data(runs: Sequence[Path], folds: Sequence[int | None]) -> None:
    """Refuse runs on different rows or targets, or with other validation or test rows; features may differ.

    The fold of a run decides about its validation and test rows.
    """
    first: tuple[Path, dict[str, Any]] | None = None
    first_of_fold: dict[int | None, tuple[Path, dict[str, Any]]] = {}
    for run, fold in zip(runs, folds, strict=True):
        if not (run / DATA).is_file():
            continue
        identity = read_json_object(run / DATA)
        first = first or (run, identity)
        first_of_fold.setdefault(fold, (run, identity))
        for words, (other, expected) in ((WHOLE, first), (PARTS, first_of_fold[fold])):
            different = [word for key, word in words.items() if identity.get(key) != expected.get(key)]
            if different:
                raise MolsliceError(
                    f"{run} and {other} were trained on data with different {' and '.join(different)}; only "
                    "runs on the same data can be compared"
                )


def _check_folds(runs: Sequence[Path | str], labels: Sequence[str], configs: Sequence[RunConfig]) -> None:
    """Refuse runs with another number of folds, and labels that were tested on different folds."""
    run_of_number: dict[int, Path | str] = {}
    tested: dict[str, set[int]] = {}
    for run, label, config in zip(runs, labels, configs, strict=True):
        options = config.data.options
        if options.get("fold") is not None:
            run_of_number.setdefault(options["folds"], run)
            tested.setdefault(label, set()).add(options["fold"])
    if len(run_of_number) > 1:
        (number, run), (other_number, other) = list(run_of_number.items())[:2]
        raise MolsliceError(
            f"data.folds is {number} in {run} and {other_number} in {other}; only runs with the same number "
            "of folds can be compared"
        )
    for (first, expected), (label, folds) in itertools.pairwise(tested.items()):
        if folds != expected:
            raise MolsliceError(
                f"{first} was tested on {_fold_names(expected)} and {label} on {_fold_names(folds)}; a mean "
                "over folds needs the same folds"
            )


def _fold_names(folds: Collection[int]) -> str:
    return f"{'fold' if len(folds) == 1 else 'folds'} {', '.join(map(str, sorted(folds)))}"


def _plan(entry: Entry, folder: Path, seeds: int, folds: int | None) -> Iterator[_Planned]:
    """Yield the runs of an entry."""
    label, config, runs = entry.label, entry.config, folder / "runs" / folder_name(entry.label)
    if folds is None:
        for seed in range(config.seed, config.seed + seeds):
            yield _Planned(label, replace(config, seed=seed), runs / f"seed{seed}", f"seed {seed}", None)
        return
    for fold in range(folds):
        yield _Planned(label, _on_fold(config, folds, fold), runs / f"fold{fold}", f"fold {fold}", fold)


def _on_fold(config: RunConfig, folds: int, fold: int) -> RunConfig:
    """Return the configuration with fold `fold` of `folds` as its test split, if the data support folds."""
    if folds < 2:
        raise MolsliceError(f"a cross-validation needs at least 2 folds, got {folds}")
    if "folds" not in DATASETS.options(config.data.name):
        able = [name for name in DATASETS.names() if "folds" in DATASETS.options(name)]
        raise MolsliceError(
            f"data set {config.data.name!r} does not support folds; those that do: {', '.join(able)}"
        )
    options = {**config.data.options, "folds": folds, "fold": fold}
    return replace(config, data=replace(config.data, options=options))


def _on_any_fold(config: RunConfig) -> RunConfig:
    """Return a configuration that is equal for runs that differ only in their fold."""
    if config.data.options.get("fold") is None:
        return config
    return _on_fold(config, config.data.options["folds"], 0)


def _keep_plan(folder: Path, entries: Iterable[Entry]) -> None:
    """Store the configuration of each label, and refuse a label with another configuration.

    The configuration of a label without runs is replaced, because its first run may have failed on it.
    """
    file = folder / PLAN
    known = read_json_object(file) if file.is_file() else {}
    for entry in entries:
        asked = config_to_yaml(entry.config)
        runs = folder / "runs" / folder_name(entry.label)
        if not any(runs.glob(f"*/{CONFIG}")):
            known[entry.label] = asked
        elif known.setdefault(entry.label, asked) != asked:
            raise MolsliceError(
                f"{folder} holds a comparison in which {entry.label!r} has another configuration "
                f"(see {file}); choose another folder"
            )
    write_atomically(file, json.dumps(known, indent=2) + "\n")


def _read_finished(run: Path) -> tuple[RunConfig, dict[str, Any]]:
    if not run.is_dir():
        raise MolsliceError(f"{run}: no such run folder")
    for is_other, command in ((is_fitted_folder, "molslice fit"), (is_ensemble, "molslice train --members")):
        if is_other(run):
            raise MolsliceError(
                f"{run} was written by {command}; a comparison takes runs of one network each"
            )
    for name in (CONFIG, SUMMARY):
        if not (run / name).is_file():
            raise MolsliceError(f"{run} is not a finished run: it holds no {name}")
    return load_config(run / CONFIG), read_summary(run)
