"""Measure how many mutants the tests catch. A mutant is the code with one small change.

    python scripts/mutate.py --out mutants.jsonl                                         # from FOLDERS
    python scripts/mutate.py --sample 10 --out sorting.jsonl molslice/ops/sorting.py     # from one file

A seed determines the sample. Each mutant is written to a copy of the working tree. `pytest -x` runs the test
files of the same folder on it, in this order: the test file that mirrors the changed file, the test files
that contain its module name, tests whose names contain the file name, and the others. pytest runs in a
process that is forked after the imports of torch and RDKit. A test that fails runs once more on the unchanged
code, where it must pass.

The output file receives one JSON line per mutant as soon as its result is known. A second run with the same
output file continues: it runs only the mutants without a line. Delete a line to run its mutant again. If a
survivor does not change what the code does, add the field `"equivalent": "REASON"` to its line; it then does
not count. `--record` also writes the results to `benchmarks/results/mutants.json`.

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
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ops", "attention", "model", "chem", "data", "tasks", "training", "fitting", "folders")
FOLDERS += ("inference", "serve", "estimators", "uncertainty", "explanation", "report", "export")
VERDICTS = ("caught", "survived", "timeout")
MEMORY_BYTES = 24 << 30  # limit of the address space of a test process
_PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
COMPARISONS = dict([*_PAIRS, *((other, one) for one, other in _PAIRS)])
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

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Mutant":
        """Return the mutant of a line of results."""
        names = ("file", "line", "operator", "before", "after")
        return cls(*(line[name] for name in names), span=tuple(line["span"]))

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
    mutants = []
    for node in _nodes(ast.parse(content)):
        for operator, target, after in _changes(node):
            assert target.end_lineno is not None
            assert target.end_col_offset is not None
            begin = starts[target.lineno - 1] + target.col_offset
            end = starts[target.end_lineno - 1] + target.end_col_offset
            before = content[begin:end].decode()
            mutants.append(Mutant(file, target.lineno, operator, before, after, (begin, end)))
    return sorted(mutants, key=lambda mutant: (mutant.span, mutant.operator, mutant.after))


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


def tests_of(root: Path, file: str) -> list[list[str]]:
    """Return the test files of a module: its own, those that contain its name, the rest of the folder.

    The name is searched in all tests of the top folder, such as `tests/data`.
    """
    path = Path(file)
    folder = Path("tests", *path.parts[1:-1])
    while not (root / folder).is_dir():
        folder = folder.parent
    own_file = folder / f"test_{path.stem}.py"
    files = [test.relative_to(root) for test in sorted((root / folder).rglob("test_*.py"))]
    module = ".".join(path.with_suffix("").parts)
    top = [
        test.relative_to(root) for test in sorted((root / Path("tests", path.parts[1])).rglob("test_*.py"))
    ]
    naming = [
        test for test in top if test != own_file and module in (root / test).read_text(encoding="utf-8")
    ]
    rest = [test for test in files if test != own_file and test not in naming]
    return [
        [str(test) for test in group] for group in ([own_file] if own_file in files else [], naming, rest)
    ]


class Outcome(NamedTuple):
    """Result of the tests on a mutant.

    Attributes:
        verdict: One of `VERDICTS`.
        test: First test that failed, or the test file that could not be imported; None for a survivor.
    """

    verdict: str
    test: str | None = None


class _Order:
    """Pytest plugin that runs the most relevant tests first and records the first failure."""

    def __init__(self, tests: Sequence[Sequence[str]], word: str, report: Path) -> None:
        self.tests, self.word, self.report = tests, word, report

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Sort the tests by relevance. Tests of one file stay in order."""
        rest = len(self.tests)

        def rank(item: Any) -> int:  # noqa: ANN401
            file = item.nodeid.partition("::")[0]
            place = next(place for place, files in enumerate([*self.tests, [file]]) if file in files)
            return rest if place == rest - 1 and self.word not in item.nodeid else place

        items.sort(key=rank)

    def pytest_runtest_logreport(self, report: Any) -> None:  # noqa: ANN401
        """Record the first failure."""
        if report.failed and not self.report.exists():
            self.report.write_text(report.nodeid, encoding="utf-8")

    pytest_collectreport = pytest_runtest_logreport


class Runner:
    """Copy of the working tree in which one file at a time is changed.

    Args:
        root: Root of the repository.
        copy: Empty folder for the copy.
        limit: Limit of processor time for the tests of one mutant, in seconds. The limit of elapsed time is
            ten times as long.
    """

    def __init__(self, root: Path, copy: Path, limit: float) -> None:
        self.copy, self.limit, self.clock = copy, limit, 1_500_000_000
        self.sound: set[str] = set()  # tests that pass on the code itself
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)

    def run(self, mutant: Mutant) -> Outcome:
        """Run the tests on a mutant.

        Raises:
            RuntimeError: The test that fails on the mutant also fails on the unchanged code, or exceeds the
                limit there.
        """
        tests = tests_of(self.copy, mutant.file)
        file = self.copy / mutant.file
        content = file.read_bytes()
        self._write(file, mutant.apply(content))
        try:
            outcome = self._test(tests, Path(mutant.file).stem)
        finally:
            self._write(file, content)
        if outcome.test is not None and outcome.test not in self.sound:
            options = [] if "::" in outcome.test else ["--collect-only"]
            verdict = self._test([[outcome.test]], "", options).verdict
            if verdict == "timeout":
                raise RuntimeError(f"{outcome.test} exceeds {self.limit:g} s without a mutant; raise --limit")
            if verdict != "survived":
                log = (self.copy / "pytest.log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"{outcome.test} fails without a mutant:\n{log[-3000:]}")
            self.sound.add(outcome.test)
        return outcome

    def _write(self, file: Path, content: bytes) -> None:
        """Write a file with a new modification time in whole seconds, so that Python recompiles it."""
        file.write_bytes(content)
        self.clock += 1
        os.utime(file, (self.clock, self.clock))

    def _test(self, tests: Sequence[Sequence[str]], word: str, options: Sequence[str] = ()) -> Outcome:
        report = self.copy / "first_failure"
        report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            self._run_pytest(tests, word, report, options)
        end = time.monotonic() + 10 * self.limit
        ended, status = 0, 0
        while not ended and time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with processes that the tests left running
        if not ended:
            os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if not ended or code == -signal.SIGXCPU:
            return Outcome("timeout")
        if code in (0, 5):  # 5: no test was selected
            return Outcome("survived")
        return Outcome("caught", report.read_text(encoding="utf-8") if report.exists() else None)

    def _run_pytest(
        self, tests: Sequence[Sequence[str]], word: str, report: Path, options: Sequence[str]
    ) -> None:
        """Run pytest and exit. This runs in the forked process and never returns."""
        status = 1
        try:
            os.setsid()
            os.chdir(self.copy)
            log = os.open(self.copy / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (int(self.limit), int(self.limit) + 5))
            sys.path.insert(0, str(self.copy))
            os.environ["PYTHONPATH"] = str(self.copy)
            import pytest

            names = [test for group in tests for test in group]
            arguments = ["-x", "-p", "no:cacheprovider", "--rootdir", str(self.copy), *options, *names]
            status = int(pytest.main(arguments, plugins=[_Order(tests, word, report)]))
        finally:
            os._exit(status)


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read the lines of an output file. An incomplete last line is removed from the file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines[-1]:
        path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")
    return [json.loads(line) for line in lines[:-1] if line]


def measure(root: Path, mutants: Sequence[Mutant], limit: float, out: Path) -> list[dict[str, Any]]:
    """Run the tests on each mutant without a line in `out`, append its line, and print to standard error.

    Returns:
        One line per mutant: its fields, `verdict`, `test`, and `seconds` (elapsed time).
    """
    known = {Mutant.of(line): line for line in read_results(out)}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        runner = Runner(root, Path(folder).resolve(), limit)
        for number, mutant in enumerate(mutants, 1):
            if mutant in known:
                continue
            begin = time.monotonic()
            outcome = runner.run(mutant)
            seconds = round(time.monotonic() - begin, 1)
            fields = {**asdict(mutant), "span": list(mutant.span)}
            known[mutant] = {**fields, **outcome._asdict(), "seconds": seconds}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[mutant]) + "\n")
            place = f"{mutant.file}:{mutant.line} {mutant.before!r} -> {mutant.after!r}"
            text = f"{number}/{len(mutants)} {outcome.verdict} {place} ({seconds} s)"
            print(text, file=sys.stderr, flush=True)
    return [known[mutant] for mutant in mutants]


def summarize(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count the verdicts. `rate` is the share of caught mutants among those that are not equivalent."""
    equivalent = [line for line in results if line.get("equivalent")]
    counted = [line for line in results if not line.get("equivalent")]
    counts = {verdict: sum(line["verdict"] == verdict for line in counted) for verdict in VERDICTS}
    return {
        "mutants": len(results),
        **counts,
        "equivalent": len(equivalent),
        "rate": round(counts["caught"] / max(1, len(counted)), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a sample, test it, and report caught and surviving mutants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="files or folders of the package (default: all of FOLDERS)")
    parser.add_argument("--sample", type=int, default=40, help="number of mutants (default: 40)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=300.0, help="limit of processor time per mutant, in seconds"
    )
    parser.add_argument("--out", type=Path, required=True, help="output file, one JSON line per mutant")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/mutants.json")
    options = parser.parse_args(arguments)
    for name in ("torch", "numpy", "rdkit.Chem", "lightning.fabric", "hypothesis", "pytest"):
        with contextlib.suppress(ImportError):
            __import__(name)
    paths = options.paths or [f"molslice/{folder}" for folder in FOLDERS]
    mutants = sample_mutants(ROOT, paths, options.sample, options.seed)
    results = measure(ROOT, mutants, options.limit, options.out)
    summary = summarize(results)
    if options.record:
        sys.path.insert(0, str(ROOT))
        from benchmarks.record import record

        sampled = {"seed": options.seed, "paths": paths}
        payload = {**sampled, **summary, "results": results}
        print(record("mutants", payload, ROOT / "benchmarks" / "results"))
    print(", ".join(f"{summary[verdict]} {verdict}" for verdict in VERDICTS), end="; ")
    print(f"{summary['equivalent']} equivalent; rate {summary['rate']:.1%}")


if __name__ == "__main__":
    main()
