"""Prepare data once, so that training starts at once: fetch them if asked, read them, keep what was made."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import add_json, positive
from molslice.cli.console import say, text_table, write, write_json

if TYPE_CHECKING:
    from molslice.data import Dataset

SUMMARY = "fetch and prepare data"
EXAMPLE = """\
  molslice prepare --config configs/molecule/quickstart.yaml
  molslice prepare --config configs/vision/mnist.yaml --download
  molslice prepare --dataset pcqm4m-v2 --root data/pcqm4m-v2 --download"""
TAKES_OVERRIDES = True
DOWNLOADS = ("pcqm4m", "pcqm4m-v2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `prepare`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="prepare the data of this YAML file")
    what.add_argument("--dataset", choices=DOWNLOADS, help="prepare this data set")
    parser.add_argument("--root", type=Path, metavar="DIR", help="the folder of --dataset")
    parser.add_argument("--download", action="store_true", help="fetch the data if they are not there")
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes (default: all cores where it pays)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare, and print what there is."""
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
        say(f"the store is {store.path or 'in memory, as no folder can be written'}")
    return 0


def _of_config(args: argparse.Namespace) -> "Dataset":
    from molslice.config import load_config
    from molslice.data import build_dataset

    if args.root is not None:
        args.usage_error("--root goes with --dataset; a configuration takes --data.root")
    workers = [("data.workers", str(args.workers))] if args.workers else []
    data = load_config(args.config, [*args.overrides, *workers]).data
    if args.download:
        _download(data.name, dict(data.options))
    return build_dataset(data.name, dict(data.options))


def _download(name: str, options: dict[str, Any]) -> None:
    """What the data set's classmethod `download(options)` does: fetch what its options name.

    Raises:
        MolsliceError: a data set without one, an option that is missing, or whatever `download` says.
    """
    from molslice.data import DATASETS, require_options
    from molslice.types import MolsliceError

    found = DATASETS.find(name)
    download = getattr(found, "download", None)
    if download is None:
        fetched = [other for other in DATASETS.names() if hasattr(DATASETS.find(other), "download")]
        raise MolsliceError(
            f"the data set {name!r} reads files that are there. {found.how_to_get or 'They are your own'}; "
            f"--download fetches those of {', '.join(fetched)}, and pcqm4m by --dataset"
        )
    require_options(name, options)
    try:
        download(options)
    except MolsliceError as error:
        raise MolsliceError(f"{error}. {found.how_to_get}" if found.how_to_get else str(error)) from error


def _of_name(args: argparse.Namespace) -> "Dataset":
    from molslice.data.download import download
    from molslice.data.pcqm4m import Pcqm4m
    from molslice.types import MolsliceError

    given: Path | None = args.root
    if given is None:
        return args.usage_error("--dataset needs --root, the folder of the data")
    if args.overrides:
        args.usage_error("settings go with --config")
    root = download(args.dataset, given) if args.download else given
    if not root.exists():
        raise MolsliceError(f"{root}: no such folder; --download fetches {args.dataset} into it")
    dataset = Pcqm4m(root=root, workers=args.workers)
    expected = "v2" if args.dataset == "pcqm4m-v2" else "v1"
    if dataset.version != expected:
        raise MolsliceError(
            f"{dataset.source} has the splits of PCQM4M {dataset.version}, not those of {args.dataset}"
        )
    return dataset
