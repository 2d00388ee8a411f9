"""Record the outputs of the quickstart that the README and the documentation show.

Reads the finished run and the finished comparison of `bash scripts/quickstart.sh` and writes
`benchmarks/results/quickstart.json`. Nothing is trained. Times are only meaningful if the quickstart ran on a
machine without other work.
"""

import subprocess
import sys

from record import ROOT, make_parser, record

CAFFEINE = "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"


def run_verb(*arguments: str) -> str:
    """Run a verb of `molslice` and return its standard output."""
    command = [sys.executable, "-m", "molslice", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def main() -> None:
    """Run the verbs and write the JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--run", default="runs/quickstart")
    parser.add_argument("--compare", default="runs/quickstart-compare")
    options = parser.parse_args()
    outputs = {
        "train": run_verb("train", "--resume", "--quiet", "--out", options.run),  # finished: prints only
        "evaluate": run_verb("evaluate", options.run),
        "predict": run_verb("predict", options.run, "--smiles", "CCO", "c1ccccc1", CAFFEINE),
        "compare": (ROOT / options.compare / "table.md").read_text(encoding="utf-8").strip(),
    }
    print(record("quickstart", {"outputs": outputs}, options.out))


if __name__ == "__main__":
    main()
