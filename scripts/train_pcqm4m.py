"""Train on PCQM4M-LSC. Same as `molslice train` with the configuration of PCQM4Mv2 (default) or PCQM4M.

    python scripts/train_pcqm4m.py --out runs/pcqm4m --data.root data/pcqm4m-v2 --trainer.devices 8
    python scripts/train_pcqm4m.py --version v1 --out runs/pcqm4m --attention.name slice_sort

All other options are those of `molslice train --help`. `molslice prepare` downloads the data.
"""

import sys
from pathlib import Path

from molslice.cli import main

CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "molecule"
VERSIONS = ("v1", "v2")


def arguments(words: list[str]) -> list[str]:
    """Return the arguments of `molslice`, with the `--config` of the chosen version unless one is given."""
    words, version = list(words), "v2"
    if "--version" in words:
        place = words.index("--version")
        version = words[place + 1] if place + 1 < len(words) else ""
        if version not in VERSIONS:
            sys.exit(f"invalid --version {version!r}; choices: {', '.join(VERSIONS)}")
        del words[place : place + 2]
    named = any(word == "--config" or word.startswith("--config=") for word in words)
    if named or "--resume" in words:
        return ["train", *words]
    return ["train", "--config", str(CONFIGS / f"pcqm4m_{version}.yaml"), *words]


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
    sys.exit(main(arguments(sys.argv[1:])))
