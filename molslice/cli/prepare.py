"""Prepare data before training: download them if asked, read them, and cache the result."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import add_json, file_path, worker_count
from molslice.cli.console import say, text_table, write, write_json

if TYPE_CHECKING:
    from molslice.data import Dataset

SUMMARY = "download and prepare data"
EXAMPLE = """\
  molslice prepare --config configs/molecule/quickstart.yaml
  molslice prepare --config configs/vision/mnist.yaml --download
  molslice prepare --dataset pcqm4m-v2 --root data/pcqm4m-v2 --download"""
TAKES_OVERRIDES = True
DOWNLOADS = ("pcqm4m", "pcqm4m-v2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=file_path, metavar="FILE", help="prepare the data of this YAML file")
    what.add_argument("--dataset", choices=DOWNLOADS, help="prepare this data set")
    parser.add_argument("--root", type=file_path, metavar="DIR", help="the folder of --dataset")
    parser.add_argument("--download", action="store_true", help="download the data if they are missing")
    parser.add_argument(
        "--workers",
        type=worker_count,
        metavar="N",
        help="worker processes (default: all cores for large data)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare the data and print the splits."""
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


def _of_config(args: argparse.Namespace) -> "Dataset":
    from molslice.config import load_config
    from molslice.data import build_dataset

    if args.root is not None:
        args.usage_error("--root goes with --dataset; with --config use --data.root")
    workers = [("data.workers", str(args.workers))] if args.workers else []
    data = load_config(args.config, [*args.overrides, *workers]).data
    if args.download:
        _download(data.name, dict(data.options))
    return build_dataset(data.name, dict(data.options))


def _download(name: str, options: dict[str, Any]) -> None:
    """Call the data set's classmethod `download(options)`, which downloads the files that its options name.

    Raises:
        MolsliceError: The data set has no `download`, an option is missing, or the download failed.
    """
    from molslice.data import DATASETS, require_options
    from molslice.types import MolsliceError

    found = DATASETS.find(name)
    download = getattr(found, "download", None)
    if download is None:
        fetched = [other for other in DATASETS.names() if hasattr(DATASETS.find(other), "download")]
        raise MolsliceError(
            f"data set {name!r} reads existing files. {found.instructions or 'They are your own'}; "
            f"--download works for {', '.join(fetched)}, and for pcqm4m with --dataset"
        )
    require_options(name, options)
    try:
        download(options)
    except MolsliceError as error:
        raise MolsliceError(f"{error}. {found.instructions}" if found.instructions else str(error)) from error


def _of_name(args: argparse.Namespace) -> "Dataset":
    from molslice.data.molecules.ogb_download import download
    from molslice.data.molecules.pcqm4m import Pcqm4m
    from molslice.types import MolsliceError

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
