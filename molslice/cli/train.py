"""Train a model. Any setting of the configuration can be given as --any.dotted.key VALUE."""

import argparse
import json
from typing import Any

from molslice.cli.arguments import add_run_options, file_path, model_name, positive
from molslice.cli.console import tell, text_table, write, write_json
from molslice.number_text import counted

SUMMARY = "train a model from a configuration file"
EXAMPLE = """\
  molslice train --config configs/molecule/quickstart.yaml --out runs/first --training.max_minutes 1
  molslice train --config configs/molecule/gap_xtb.yaml --out runs/slices --attention.name slice_sort
  molslice train --config configs/molecule/gap_xtb_100k.yaml --from encoder-small --out runs/tuned
  molslice train --config configs/molecule/quickstart.yaml --out runs/five --members 5
  molslice train --resume --out runs/first        # continue a stopped run"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`."""
    parser.add_argument(
        "--config", type=file_path, metavar="FILE", help="YAML file (default with --resume: the run's)"
    )
    parser.add_argument("--out", type=file_path, required=True, metavar="RUN", help="run folder to write")
    parser.add_argument(
        "--from",
        dest="start",
        type=model_name,
        metavar="MODEL",
        help="start from the weights of this run folder or shipped model, with its settings",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in RUN")
    parser.add_argument(
        "--members", type=positive, metavar="K", help="train an ensemble of K networks from K seeds"
    )
    parser.add_argument("--seed", metavar="N", help="same as setting seed in the configuration")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Train and print the errors."""
    from molslice.config import load_config
    from molslice.folders.ensemble import is_ensemble, member_folders
    from molslice.folders.run import CONFIG
    from molslice.training.ensemble import train_ensemble
    from molslice.training.processes import OtherProcessError
    from molslice.training.run import train
    from molslice.training.start import load_run_config

    path, read = args.config, load_run_config
    if path is None:
        if not args.resume:
            args.usage_error("--config is required unless --resume continues a run")
        path, read = args.out / CONFIG, load_config  # complete, whatever became of the model it started from
    overrides = list(args.overrides)
    if args.start is not None:
        overrides.append(("start.model", json.dumps(args.start)))
    if args.seed is not None:
        overrides.append(("seed", args.seed))
    config, members = read(path, overrides), args.members
    if members is None and args.resume and is_ensemble(args.out):
        members = len(member_folders(args.out))
    options = {"resume": args.resume, "quiet": args.quiet}
    try:
        if members is None:
            summary, text = train(config, args.out, **options), summary_text
        else:
            summary, text = train_ensemble(config, args.out, members, **options), ensemble_text
    except (OtherProcessError, KeyboardInterrupt) as error:
        if _is_first_process():  # one of several processes reports
            raise
        return 1 if isinstance(error, OtherProcessError) else 130
    if not _is_first_process():
        return 0
    if args.json:
        write_json(summary)
    else:
        write(text(summary))
    what = "run" if members is None else f"ensemble of {members} runs"
    tell(f"the {what} is in {args.out}; next: molslice evaluate {args.out}")
    return 0


def _is_first_process() -> bool:
    from lightning.fabric.utilities.rank_zero import rank_zero_only

    return getattr(rank_zero_only, "rank", 0) == 0


def ensemble_text(summary: dict[str, Any]) -> str:
    """Format the mean error of the members on each split."""
    from molslice.tasks.metrics import METRIC_LABELS, format_metric

    first = summary["members"][0]
    label = METRIC_LABELS[first["metric"]]
    splits = [split for split, errors in summary["mean"].items() if errors]
    rows = [
        [name, *(format_metric(summary["mean"][split][name]) for split in splits), unit or "-"]
        for name, unit in first["units"].items()
    ]
    return text_table(["mean of the members", *(f"{split} {label}" for split in splits), "unit"], rows)


def summary_text(summary: dict[str, Any]) -> str:
    """Format the errors of each target on each split, then the cost."""
    from molslice.tasks.metrics import METRIC_LABELS, format_metric

    label, steps = METRIC_LABELS[summary["metric"]], summary["steps"]
    splits = [split for split in ("train", "valid", "test") if summary[split][summary["metric"]]]
    header = ["target", *(f"{split} {label}" for split in splits), "unit"]
    rows = [
        [name, *(format_metric(summary[split][summary["metric"]][name]) for split in splits), unit or "-"]
        for name, unit in summary["units"].items()
    ]
    return "\n".join(
        [
            text_table(header, rows),
            "",
            f"parameters  {summary['parameters']:,} "
            f"({summary['parameters_without_embeddings']:,} without embeddings)",
            f"training    {counted(steps, 'step')}, {summary['epochs']:.1f} epochs, "
            f"{summary['seconds']:.0f} s, {summary['rows_per_second']:,.0f} {summary['noun']}/s",
        ]
    )
