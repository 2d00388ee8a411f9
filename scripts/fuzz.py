"""Search for inputs that crash or stall molslice, guided by the coverage of its code.

    python scripts/fuzz.py 10                           # ten minutes, divided among all targets
    python scripts/fuzz.py 10 --targets smiles store    # only these
    python scripts/fuzz.py 60 --record                  # also write benchmarks/results/fuzzing.json

A target takes any bytes and checks what molslice makes of them: a result that is sound, or a `MolsliceError`
of one line. Any other error, a call of more than a minute, or more than 4 GB of memory is a finding. The
targets are in `fuzz_targets.py`. Each runs in its own process under atheris (libFuzzer); after a finding it
is started again until its time is over. The input of a finding is kept in the folder `--keep`; to run it
again: `python scripts/fuzz.py --input FILE --targets NAME`.

Exit code: 0 nothing was found, 1 something was.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from fuzz_mutate import mutate_tokens
from fuzz_targets import TARGETS, prepare

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "fuzzing.json"
STALLED_SECONDS = 60
MEMORY_MB = 4096
LONGEST = 200_000  # bytes of an input; the largest seed has 140,000
MEMORY_FOLDER = Path("/dev/shm")  # files in memory, if the system has them


def main() -> int:
    """Run the targets and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minutes", nargs="?", type=float, default=1.0, help="time of all targets together")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="NAME")
    parser.add_argument("--keep", type=Path, default=ROOT / "fuzzing", help="folder for inputs of findings")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--input", type=Path, help="run the targets on this file only")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # a target and its folder, in a process
    args, rest = parser.parse_known_args()
    if args.run:
        return _run(args.run[0], Path(args.run[1]), rest)
    if args.input:
        content = args.input.read_bytes()
        for name in args.targets:
            with tempfile.TemporaryDirectory() as folder:
                prepare(name, Path(folder))(content)
        return 0
    seconds = 60 * args.minutes / len(args.targets)
    results = [_fuzz(name, seconds, args.keep) for name in args.targets]
    for result in results:
        print(
            "{target}: {executions:,} executions in {minutes:.1f} minutes, {covered} edges".format(**result)
        )
        for finding in result["findings"]:
            print(f"  {finding['reason']}: {finding['file']}")
    if args.record:
        about = {
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {
                name: importlib.metadata.version(name) for name in ("atheris", "rdkit", "torch", "numpy")
            },
            "targets": results,
        }
        RESULTS.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return int(any(result["findings"] for result in results))


def _fuzz(name: str, seconds: float, keep: Path) -> dict[str, Any]:
    """Run a target for a time, in as many processes as it takes."""
    start, executions, covered = time.monotonic(), 0, 0
    before = _processor_seconds()
    findings: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None) as folder:
        while (left := seconds - (time.monotonic() - start)) > 0:
            command = [
                sys.executable,
                __file__,
                "--run",
                name,
                folder,
                f"-max_total_time={max(1, int(left))}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
            text = done.stdout + done.stderr
            executions += sum(map(int, re.findall(r"stat::number_of_executed_units: (\d+)", text)[-1:]))
            covered = max([covered, *map(int, re.findall(r"cov: (\d+)", text))])
            if done.returncode == 0:
                break
            finding = _finding(name, text, Path(folder), keep)
            if "timeout" in finding["reason"] and not _stalls(name, finding["file"]):
                continue  # the machine was busy with something else
            print(f"{name}: {finding['reason']}: {finding['file']}", flush=True)
            again = any(finding == earlier for earlier in findings)
            findings += [] if again else [finding]
            if again or not finding["file"]:
                break  # an input to start from, which would be found again
    minutes = (time.monotonic() - start) / 60
    return {
        "target": name,
        "minutes": round(minutes, 2),
        "processor_minutes": round((_processor_seconds() - before) / 60, 2),
        "executions": executions,
        "covered": covered,
        "findings": findings,
    }


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _stalls(name: str, file: str) -> bool:
    """Return whether an input takes too long also by the processor time of a process of its own."""
    command = [sys.executable, __file__, "--input", file, "--targets", name]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (STALLED_SECONDS, STALLED_SECONDS))
    done = subprocess.run(command, capture_output=True, check=False, preexec_fn=limit)
    if done.returncode == 0:
        Path(file).unlink()
        Path(f"{file}.log").unlink()
    return done.returncode != 0


def _finding(name: str, text: str, folder: Path, keep: Path) -> dict[str, str]:
    """Keep the input and the output of a process that failed."""
    reasons = re.findall(r"^(?:[\w.]*(?:Error|Exception|Interrupt)\b.*|.*ERROR: libFuzzer: .*)$", text, re.M)
    inputs = sorted(folder.glob("found/*"), key=lambda file: file.stat().st_mtime)
    keep.mkdir(parents=True, exist_ok=True)
    file = ""
    if inputs:
        target = keep / f"{name}-{inputs[-1].name}"
        target.write_bytes(inputs[-1].read_bytes())
        target.with_name(target.name + ".log").write_text(text[-20_000:], encoding="utf-8")
        for input_file in inputs:
            input_file.unlink()
        file = str(target)
    return {"reason": (reasons[0] if reasons else text[-300:])[:300], "file": file}


def _run(name: str, folder: Path, options: list[str]) -> int:
    """Fuzz in this process, which ends with the code of libFuzzer."""
    import atheris

    with atheris.instrument_imports(include=["molslice"]):  # pyright: ignore[reportAttributeAccessIssue]
        check = prepare(name, folder / "work")
    corpus = folder / "corpus"
    if not corpus.exists():
        corpus.mkdir()
        for number, seed in enumerate(TARGETS[name].seeds()):
            (corpus / f"seed{number:04d}").write_bytes(seed)
    (folder / "found").mkdir(exist_ok=True)
    words = folder / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in TARGETS[name].words))
    arguments = [
        *(sys.argv[0], str(corpus), f"-dict={words}", f"-artifact_prefix={folder}/found/"),
        *(f"-timeout={STALLED_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={LONGEST}"),
        *("-print_final_stats=1", "-len_control=20", *options),
    ]
    skipped = TARGETS[name].chosen_bytes
    more = {} if skipped is None else {"custom_mutator": partial(_mutate, skipped)}
    atheris.Setup(arguments, check, **more)
    atheris.Fuzz()
    return 0


def _mutate(skipped: int, content: bytes, longest: int, seed: int) -> bytes:
    """Change an input: as libFuzzer does, or in half of the cases with the structure of the file kept."""
    import atheris

    if seed % 2:
        return atheris.Mutate(content, longest)  # pyright: ignore[reportAttributeAccessIssue]
    return (content[:skipped] + mutate_tokens(content[skipped:], seed))[:longest]


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode())


if __name__ == "__main__":
    sys.exit(main())
