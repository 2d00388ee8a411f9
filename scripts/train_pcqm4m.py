"""Train on PCQM4M-LSC. Same as `molslice train` with the configuration of PCQM4Mv2 (default) or PCQM4M.

    python scripts/train_pcqm4m.py --download --out runs/pcqm4m --trainer.devices 8
    python scripts/train_pcqm4m.py --version v1 --out runs/pcqm4m --attention.name slice_sort

--version v1|v2 chooses the data, and --download downloads them to data.root first, unless they are there. The
other options are listed by `molslice train --help`.
"""

import argparse
import sys
from pathlib import Path

from molslice.cli import main
from molslice.cli.arguments import split_overrides

CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "molecule"


def calls(words: list[str]) -> list[list[str]]:
    """Return the arguments of each call of `molslice`: `prepare` for the data if asked for, then `train`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--version", choices=("v1", "v2"))
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--config")
    args, others = parser.parse_known_args(words)
    if args.config is not None and args.version is not None:
        parser.error("give --version or --config")
    if "--resume" in others:
        if args.download:
            parser.error("--download: not with --resume, because a run that is resumed has its data")
        return [["train", *([] if args.config is None else ["--config", args.config]), *others]]
    config = args.config or str(CONFIGS / f"pcqm4m_{args.version or 'v2'}.yaml")
    settings = [
        f"--{key}" if value is None else f"--{key}={value}"
        for key, value in split_overrides(others)[1]
        if key.startswith("data.")
    ]
    prepare = ["prepare", "--config", config, "--download", *settings]
    return [*([prepare] if args.download else []), ["train", "--config", config, *others]]


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
    for call in calls(sys.argv[1:]):
        if code := main(call):
            sys.exit(code)
