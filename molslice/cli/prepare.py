"""Convert files of molecules to a store, or download and cache the data of a configuration.

With files, the rows become a folder from which `train` reads without RDKit (`data.name: prepared`). Finished
rows are kept beside it until it is complete, so that the same command continues after an interruption.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import (
    INPUT_HELP,
    add_fragment,
    add_options,
    add_run_options,
    add_strict,
    check_delimiter,
    file_or_url,
    file_path,
    flag,
    positive,
    worker_count,
)
from molslice.cli.console import (
    describe_replaced,
    escaped,
    refusal_lines,
    say,
    tell,
    text_table,
    write,
    write_json,
)
from molslice.number_text import counted

if TYPE_CHECKING:
    from molslice.data import Dataset
    from molslice.data.molecules.prepare_files import PreparedStore

SUMMARY = "convert files of molecules to a store; download and prepare data"
EXAMPLE = """\
  molslice prepare parts/*.csv.gz --out data/mine --target logS
  molslice prepare 's3://bucket/parts/*.csv.gz' --out data/mine --engine ray
  molslice prepare --config configs/molecule/quickstart.yaml
  molslice prepare --config configs/vision/mnist.yaml --download
  molslice prepare --dataset pcqm4m-v2 --root data/pcqm4m-v2 --download"""
TAKES_OVERRIDES = True
DOWNLOADS = ("pcqm4m", "pcqm4m-v2")
SHOWN = 12  # elements in the printed report
NOT_WITH_FILES = ("root", "download")
ONLY_FILES = (
    *("out", "target", "smiles_column", "delimiter", "decimal", "missing_value", "max_atoms", "atom_order"),
    *("descriptors", "geometry", "fragment", "wildcards", "strict", "engine", "quiet"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare`."""
    parser.add_argument("files", type=file_or_url, nargs="*", metavar="FILE", help=INPUT_HELP)
    parser.add_argument("--out", type=file_path, metavar="STORE", help="the new folder, for files")
    parser.add_argument(
        "--target",
        action="append",
        metavar="COLUMN",
        help="column of numbers to keep as a target; may be repeated",
    )
    add_options(parser, "--smiles-column", "--delimiter", "--decimal", "--missing-value")
    parser.add_argument(
        "--max-atoms", type=positive, metavar="N", help="refuse larger molecules (default: 256)"
    )
    parser.add_argument(
        "--atom-order",
        choices=("canonical", "input"),
        help="order of the atoms (default: canonical, the same for all SMILES of a molecule)",
    )
    parser.add_argument(
        "--descriptors", action="store_true", help="compute RDKit's descriptors too, which takes much longer"
    )
    parser.add_argument(
        "--geometry",
        action="store_true",
        help="compute a conformer too, from which a model learns distances; it takes much longer",
    )
    add_fragment(parser, "keep")
    add_strict(parser)
    parser.add_argument("--config", type=file_path, metavar="FILE", help="prepare the data of this YAML file")
    parser.add_argument("--dataset", choices=DOWNLOADS, help="prepare this data set")
    parser.add_argument("--root", type=file_path, metavar="DIR", help="the folder of --dataset")
    parser.add_argument("--download", action="store_true", help="download the data if they are missing")
    parser.add_argument(
        "--workers",
        type=worker_count,
        metavar="N",
        help="worker processes (default: all cores for large data)",
    )
    add_options(parser, "--engine")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare the data, and print what they contain."""
    _check_usage(args)
    if args.files:
        return _of_files(args)
    dataset = _of_config(args) if args.config is not None else _of_name(args)
    counts = {split: len(rows) for split, rows in dataset.splits.items()}
    failed, store = len(dataset.errors), getattr(dataset, "store", None)
    if args.json:
        fields = {"source": dataset.source, "store": getattr(store, "path", None), "rows": len(dataset)}
        write_json({**fields, "failed": failed, "splits": counts, "targets": dataset.target_names})
        return 0
    write(text_table(("split", "rows"), [(split, f"{count:,}") for split, count in counts.items()]))
    if failed:
        say(dataset.failures)
    if store is not None:
        say(f"the store is {store.path or 'in memory, because no cache folder is writable'}")
    return 0


def _check_usage(args: argparse.Namespace) -> None:
    given = [name for name in ("files", "config", "dataset") if getattr(args, name)]
    if len(given) != 1:
        args.usage_error("give one of: FILE..., --config, --dataset")
    names, where = (NOT_WITH_FILES, "not with FILE") if args.files else (ONLY_FILES, "needs FILE")
    for name in names:
        if getattr(args, name):
            args.usage_error(f"{flag(name)}: {where}")
    if args.files and args.out is None:
        args.usage_error("FILE needs --out, the folder of the store")
    if args.files and args.overrides:
        args.usage_error("settings need --config")


def _of_files(args: argparse.Namespace) -> int:
    from molslice.data.molecules.prepare import Featurizing
    from molslice.data.molecules.prepare_files import convert_on_cluster, partial_folder, prepare_files

    check_delimiter(args, args.files)
    given = {
        name: getattr(args, name)
        for name in ("max_atoms", "atom_order", "fragment", "wildcards")
        if getattr(args, name)
    }
    how = Featurizing(workers=args.workers, descriptors=args.descriptors, geometry=args.geometry, **given)
    try:
        prepared = prepare_files(
            args.files,
            args.out,
            smiles_column=args.smiles_column,
            delimiter=args.delimiter,
            targets=args.target or (),
            decimal=args.decimal,
            missing_values=args.missing_value,
            how=how,
            engine=convert_on_cluster if args.engine else None,
            strict=args.strict,
        )
    except SystemExit:  # a signal other than Ctrl-C
        if partial_folder(args.out).exists():
            say("interrupted; finished rows are kept, and the same command continues after them")
        raise
    for sentence in prepared.notices:
        say(sentence)
    if args.json:
        fields = {"store": prepared.path, "continued": prepared.continued, "seconds": prepared.seconds}
        fields |= {"rows_per_second": prepared.rows_per_second, "notices": prepared.notices}
        write_json({**fields, **prepared.report})
        return 0
    write(_report_text(prepared))
    for sentence in prepared.findings:
        tell(sentence)
    tell(f"the store is {prepared.path}")
    return 0


def _report_text(prepared: "PreparedStore") -> str:
    """Format the report: counts, then the failed rows by reason with their first examples."""
    report = prepared.report
    new = report["rows"] - prepared.continued
    sizes = ", ".join(f"{name} {size}" for name, size in report["atoms_per_molecule"].items())
    shown = [f"{symbol} {count:,}" for symbol, count in report["elements"].items()]
    rare = len(shown) - SHOWN
    more = [f"and {counted(rare, 'other')}"] if rare > 0 else []
    elements = ", ".join([*shown[:SHOWN], *more])
    lines = [
        *((name, f"{report[name]:,}") for name in ("rows", "molecules", "failed", "atoms", "bonds")),
        *((f"target {name}", _target_text(target)) for name, target in report["targets"].items()),
        ("atoms per molecule", sizes),
        ("elements", elements),
        *([("finished before", f"{prepared.continued:,} rows")] if prepared.continued else []),
        *([("rate", f"{prepared.rows_per_second:,.0f} rows/s for {prepared.seconds:,.1f} s")] if new else []),
    ]
    width = max(len(name) for name, _ in lines)
    text = [escaped(f"{name.ljust(width)}  {value}") for name, value in lines]
    if report["replaced"]:
        text.append(describe_replaced(report["replaced"]))
    return "\n".join([*text, *refusal_lines(report["refusals"])])


def _target_text(target: dict[str, Any]) -> str:
    count = f"{target['values']:,} values"
    if not target["values"]:
        return f"{count}: it cannot be trained on"
    mean, std, least, most = (f"{target[name]:.4g}" for name in ("mean", "std", "min", "max"))
    return f"{count}, mean {mean}, spread {std}, {least} to {most}"


def _of_config(args: argparse.Namespace) -> "Dataset":
    from molslice.data import build_dataset
    from molslice.training.start import load_run_config

    if args.root is not None:
        args.usage_error("--root goes with --dataset; with --config use --data.root")
    workers = [("data.workers", str(args.workers))] if args.workers else []
    data = load_run_config(args.config, [*args.overrides, *workers]).data
    if args.download:
        _download(data.name, dict(data.options))
    return build_dataset(data.name, dict(data.options))


def _download(name: str, options: dict[str, Any]) -> None:
    """Call the data set's classmethod `download(options)`, which downloads the files that its options name.

    Raises:
        MolsliceError: The data set reads files and has no `download`, an option is missing, or the download
            failed.
    """
    from molslice.data import DATASETS, path_options, require_options
    from molslice.errors import MolsliceError

    dataset = DATASETS.find(name)
    download = getattr(dataset, "download", None)
    if download is None:
        if not dataset.instructions and not any(options.get(option) for option in path_options(name)):
            say(f"nothing to download: data set {name!r} reads no files")
            return
        fetched = [other for other in DATASETS.names() if hasattr(DATASETS.find(other), "download")]
        raise MolsliceError(
            f"data set {name!r} reads existing files. {dataset.instructions or 'They are your own'}; "
            f"--download works for {', '.join(fetched)}"
        )
    require_options(name, options)
    try:
        download(options)
    except MolsliceError as error:
        raise MolsliceError(
            f"{error}. {dataset.instructions}" if dataset.instructions else str(error)
        ) from error


def _of_name(args: argparse.Namespace) -> "Dataset":
    from molslice.data.molecules.ogb_download import download
    from molslice.data.molecules.pcqm4m import Pcqm4m
    from molslice.errors import MolsliceError

    given: Path | None = args.root
    if given is None:
        return args.usage_error("--dataset needs --root, the folder of the data")
    if args.overrides:
        args.usage_error("settings need --config")
    root = download(args.dataset, given) if args.download else given
    if not root.exists():
        raise MolsliceError(f"{root}: no such folder; --download downloads {args.dataset} into it")
    dataset = Pcqm4m(root=root, workers=args.workers or None)
    dataset.check_version(args.dataset)
    return dataset
