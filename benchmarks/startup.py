"""Measure the time from a shell to the first prediction and to the help.

    python benchmarks/startup.py
    python benchmarks/startup.py --other ../another-checkout

Each command is a new process. The commands run in turn, so that other work on the machine affects all of
them. Times are medians of the rounds: wall-clock time, and processor time of the process, which other work
affects less. `python` and `torch` are what the interpreter and the import of PyTorch need at least. With
`--other`, the same commands of another checkout run in turn too.

Writes `benchmarks/results/startup.json`.
"""

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from record import ROOT, child_seconds, make_parser, record, take_turns

COMMANDS = {
    "python": ["-c", "pass"],
    "torch": ["-c", "import torch"],
    "help": ["-m", "molslice", "--help"],
    "predict": ["-m", "molslice", "predict", "gap-xtb", "--smiles", "CCO"],
}


def run(arguments: list[str], checkout: Path) -> dict[str, float]:
    """Run Python in a new process with the package of a checkout, and return its seconds."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    before, start = child_seconds(), time.monotonic()
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=checkout, env=environment, capture_output=True, check=True)
    return {"wall_seconds": time.monotonic() - start, "processor_seconds": child_seconds() - before}


def count_modules(arguments: list[str], checkout: Path) -> int:
    """Return the number of modules that a command imports."""
    program = f"import sys; from molslice.cli import main; main({arguments!r}); print(len(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", program]
    options: dict[str, Any] = {"cwd": checkout, "env": environment, "text": True}
    done = subprocess.run(command, capture_output=True, check=True, **options)
    return int(done.stdout.split()[-1])


def measure(checkouts: dict[str, Path], rounds: int) -> list[dict[str, Any]]:
    """Time all commands of all checkouts in turn.

    Returns:
        For each command of each checkout: medians over the rounds, and the number of imported modules.
    """
    calls = {
        (checkout, name): partial(run, arguments, path)
        for name, arguments in COMMANDS.items()
        for checkout, path in checkouts.items()
    }
    results = []
    for (checkout, name), (_, *runs) in take_turns(calls, rounds + 1).items():  # the first round warms up
        columns = {key: [run[key] for run in runs] for key in runs[0]}
        medians = {key: statistics.median(values) for key, values in columns.items()}
        least = {f"least_{key}": min(values) for key, values in columns.items()}
        result = {"checkout": checkout, "command": name, **medians, **least}
        if COMMANDS[name][0] == "-m":
            result["modules"] = count_modules(COMMANDS[name][2:], checkouts[checkout])
        results.append(result)
    return results


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--other", type=Path, help="another checkout to compare with")
    options = parser.parse_args(argv)
    checkouts = {"this": ROOT, **({} if options.other is None else {"other": options.other.resolve()})}
    load = os.getloadavg()[0]
    payload = {
        "question": "time from a shell to the first prediction",
        "rounds": options.rounds,
        "load_of_the_machine": load,
        "results": measure(checkouts, options.rounds),
    }
    print(record("startup", payload, options.out))
    for result in payload["results"]:
        print(
            f"{result['checkout']:6} {result['command']:8} {result['wall_seconds']:6.2f} s  "
            f"{result['processor_seconds']:6.2f} s of processor time  {result.get('modules', '')}"
        )


if __name__ == "__main__":
    main()
