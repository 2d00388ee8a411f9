"""Measure how many mutants the tests catch. A mutant is the code with one small change.

    python scripts/mutate.py --sample 40 --out mutants.json             # from the folders in FOLDERS
    python scripts/mutate.py --sample 10 molslice/ops/sorting.py        # from one file

A seed determines the sample. Each mutant is written to a copy of the working tree. `pytest -x` runs on it in
three stages: the test file that mirrors the changed file, the test files of the same folder that contain its
module name, and the other test files of the folder. pytest runs in a process that is forked after the imports
of torch and RDKit. A stage that exceeds the time limit counts as a failed test, because a mutant may never
end. The JSON lists the surviving mutants with file, line and change. Some of them are equivalent to the code.

Two existing tools do not fit. mutmut skips decorated functions and module-level code, and runs the whole
suite before the first mutant. cosmic-ray changes the files in place, uses one test command for all files, and
imports torch again for each mutant. Neither can draw a random sample with a seed.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ops", "model", "chem", "data", "tasks", "training")
MEMORY_BYTES = 24 << 30  # limit of the address space of a test process
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: Path relative to the root.
        line: Line number, from 1.
        operator: Kind of the change.
        before: Code that is replaced.
        after: Code that replaces it.
        span: First byte and end of `before` in the file.
    """

    file: str
    line: int
    operator: str
    before: str
    after: str
    span: tuple[int, int]

    def apply(self, content: bytes) -> bytes:
        """Return the content of the file with this change."""
        begin, end = self.span
        return content[:begin] + self.after.encode() + content[end:]


def find_mutants(content: bytes, file: str) -> list[Mutant]:
    """Return all mutants of a file, sorted by position.

    Docstrings, annotations, assertions and `raise` statements are not changed.
    """
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _nodes(ast.parse(content)):
        for operator, target, after in _changes(node):
            assert target.end_lineno is not None
            assert target.end_col_offset is not None
            begin = starts[target.lineno - 1] + target.col_offset
            end = starts[target.end_lineno - 1] + target.end_col_offset
            before = content[begin:end].decode()
            found.append(Mutant(file, target.lineno, operator, before, after, (begin, end)))
    return sorted(found, key=lambda mutant: (mutant.span, mutant.operator, mutant.after))


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes whose change a test can detect."""
    if isinstance(node, ast.Raise | ast.Assert):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the operator, the node to replace, and the text that replaces it."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        flipped = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
        yield "comparison", node, f"({ast.unparse(flipped)})"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "number", node, str(node.value + 1)
        yield "number", node, f"({node.value - 1})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.BoolOp):
        other = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield "and or", node, f"({ast.unparse(other)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        changed = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        yield "arithmetic", node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and node.value.args:
        first = node.value.args[0]
        if not isinstance(first, ast.Starred | ast.GeneratorExp):
            yield "first argument", node.value, ast.unparse(first)
    elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.AugAssign):
        yield "statement", node, "pass"
    elif isinstance(node, ast.If) and not node.orelse:
        yield "statement", node.test, "False"


def sample_mutants(root: Path, paths: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw random lines without replacement, and one random mutant of each."""
    files = sorted(file for path in paths for file in _python_files(root / path))
    places: dict[tuple[str, int], list[Mutant]] = {}
    for file in files:
        name = str(file.relative_to(root))
        for mutant in find_mutants(file.read_bytes(), name):
            places.setdefault((name, mutant.line), []).append(mutant)
    generator = random.Random(seed)
    chosen = generator.sample(sorted(places), min(count, len(places)))
    return [generator.choice(places[place]) for place in chosen]


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def stages_of(root: Path, file: str) -> list[list[str]]:
    """Return the test files of a module: its own, those that contain its name, the rest of the folder."""
    path = Path(file)
    folder = Path("tests", *path.parts[1:-1])
    while not (root / folder).is_dir():
        folder = folder.parent
    own = folder / f"test_{path.stem}.py"
    files = [test.relative_to(root) for test in sorted((root / folder).rglob("test_*.py"))]
    module = ".".join(path.with_suffix("").parts)
    naming = [test for test in files if test != own and module in (root / test).read_text(encoding="utf-8")]
    rest = [test for test in files if test != own and test not in naming]
    stages = [[own] if own in files else [], naming, rest]
    return [[str(test) for test in stage] for stage in stages if stage]


class Runner:
    """Copy of the working tree in which one file at a time is changed.

    Args:
        root: Root of the repository.
        copy: Empty folder for the copy.
        limit: Time limit of each stage, in seconds.
    """

    def __init__(self, root: Path, copy: Path, limit: float) -> None:
        self.copy, self.limit, self.clock = copy, limit, 1_500_000_000
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)

    def run(self, mutant: Mutant | None, stages: Sequence[Sequence[str]]) -> str | None:
        """Run the stages of tests on a mutant, or on the unchanged code if `mutant` is None.

        Returns:
            The first stage that failed or exceeded the time limit; None if all stages passed.
        """
        if mutant is None:
            return self._first_failure(stages)
        file = self.copy / mutant.file
        content = file.read_bytes()
        self._write(file, mutant.apply(content))
        try:
            return self._first_failure(stages)
        finally:
            self._write(file, content)

    def _write(self, file: Path, content: bytes) -> None:
        """Write a file with a new modification time in whole seconds, so that Python recompiles it."""
        file.write_bytes(content)
        self.clock += 1
        os.utime(file, (self.clock, self.clock))

    def _first_failure(self, stages: Sequence[Sequence[str]]) -> str | None:
        for tests in stages:
            if not self._passes(tests):
                return " ".join(tests[:3]) + (" ..." if len(tests) > 3 else "")
        return None

    def _passes(self, tests: Sequence[str]) -> bool:
        child = os.fork()
        if child == 0:
            self._test(tests)
        end = time.monotonic() + self.limit
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self._kill(child)  # kill processes that the tests left running
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.05)
        self._kill(child)
        os.waitpid(child, 0)
        return False

    @staticmethod
    def _kill(group: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def _test(self, tests: Sequence[str]) -> None:
        """Run pytest and exit. This runs in the forked process and never returns."""
        status = 1
        try:
            os.setsid()
            os.chdir(self.copy)
            log = os.open(self.copy / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            sys.path.insert(0, str(self.copy))
            os.environ["PYTHONPATH"] = str(self.copy)
            import pytest

            status = int(pytest.main(["-x", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(status)


def measure(root: Path, mutants: Sequence[Mutant], limit: float) -> list[dict[str, object]]:
    """Run the tests on each mutant, and print the progress to standard error.

    Args:
        root: Root of the repository.
        mutants: Mutants to test.
        limit: Time limit of each stage, in seconds.

    Returns:
        The fields of each mutant, `caught_by` (the stage that failed, None for a survivor) and `seconds`.
    """
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        runner = Runner(root, Path(folder).resolve(), limit)
        for number, mutant in enumerate(mutants, 1):
            begin = time.monotonic()
            caught = runner.run(mutant, stages_of(root, mutant.file))
            seconds = round(time.monotonic() - begin, 1)
            results.append({**asdict(mutant), "caught_by": caught, "seconds": seconds})
            verdict = "survived" if caught is None else "caught"
            place = f"{mutant.file}:{mutant.line}"
            line = f"{number}/{len(mutants)} {verdict} {place} {mutant.before!r} -> {mutant.after!r}"
            print(f"{line} ({seconds} s)", file=sys.stderr, flush=True)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a sample, test it, and report caught and surviving mutants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="files or folders of the package (default: all of FOLDERS)")
    parser.add_argument("--sample", type=int, default=40, help="number of mutants (default: 40)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300.0, help="time limit of each stage, in seconds")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args(arguments)
    for name in ("torch", "numpy", "rdkit.Chem", "lightning.fabric", "hypothesis", "pytest"):
        with contextlib.suppress(ImportError):
            __import__(name)
    paths = options.paths or [f"molslice/{folder}" for folder in FOLDERS]
    mutants = sample_mutants(ROOT, paths, options.sample, options.seed)
    results = measure(ROOT, mutants, options.limit)
    survivors = [result for result in results if result["caught_by"] is None]
    report = {
        "seed": options.seed,
        "paths": paths,
        "mutants": len(results),
        "caught": len(results) - len(survivors),
        "survivors": survivors,
        "results": results,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{report['caught']} of {report['mutants']} mutants caught")


if __name__ == "__main__":
    main()
