"""Measure how much there is to understand in the package.

    python scripts/code_measures.py                         # a table
    python scripts/code_measures.py --json measures.json    # also a file, for a later comparison
    python scripts/code_measures.py --before measures.json  # the table with the earlier numbers

Frames are the functions of the package on the stack when the model computes, from the entry of the command
line, for one SMILES in prediction and one batch in training. Keys are counted in docs/config.schema.json.
"""

import argparse
import ast
import contextlib
import io
import json
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "molslice"
VAGUE_NAMES = {"found", "part", "own", "each", "mine", "theirs", "about"}
VAGUE_WORDS = re.compile(r"\b(that of|those of|is told|what is known of|that it has)\b", re.IGNORECASE)
SHORT = 25  # lines of a module that holds one short function


def count_lines(folder: Path) -> int:
    """Return the number of lines of all Python files below a folder."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in folder.rglob("*.py"))


def parsed_files() -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield the files of the package with their text and syntax tree."""
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        yield file, text, ast.parse(text)


def definitions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Return the functions and classes at the top level of a module."""
    return [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


def local_names(tree: ast.Module) -> list[str]:
    """Return the name of each assignment to a local variable."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assigned = {  # once, also in a function inside another
        node
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return [node.id for node in assigned]


def measure_sources() -> dict[str, float]:
    """Return the numbers that can be counted in the files."""
    names: list[str] = []
    counts = dict.fromkeys(("files", "public", "raises", "short", "words", "code"), 0)
    for file, text, tree in parsed_files():
        counts["files"] += 1
        tops = definitions(tree)
        counts["public"] += sum(not top.name.startswith("_") for top in tops)
        counts["raises"] += sum(isinstance(node, ast.Raise) for node in ast.walk(tree))
        counts["short"] += len(tops) == 1 and file.name != "__init__.py" and len(text.splitlines()) <= SHORT
        counts["words"] += len(VAGUE_WORDS.findall(text))
        counts["code"] += sum(bool(line.strip()) for line in text.splitlines())
        names += local_names(tree)
    lines = count_lines(PACKAGE)
    return {
        "lines": lines,
        "files": counts["files"],
        "lines in benchmarks": count_lines(ROOT / "benchmarks"),
        "lines in tests": count_lines(ROOT / "tests"),
        "public functions and classes": counts["public"],
        "raise per 1,000 lines": round(1000 * counts["raises"] / counts["code"], 1),
        f"modules with one function, at most {SHORT} lines": counts["short"],
        "'that of', 'those of' and the like per 10,000 lines": round(1e4 * counts["words"] / lines, 1),
        "locals with a vague name (%)": round(100 * sum(n in VAGUE_NAMES for n in names) / len(names), 1),
    }


def count_keys(schema: Any) -> int:  # noqa: ANN401
    """Return the number of properties in a JSON schema, nested ones included."""
    if isinstance(schema, list):
        return sum(count_keys(item) for item in schema)
    if not isinstance(schema, dict):
        return 0
    properties = schema.get("properties", {})
    return (
        len(properties)
        + sum(count_keys(value) for key, value in schema.items() if key != "properties")
        + sum(count_keys(value) for value in properties.values())
    )


def count_flags() -> tuple[int, int]:
    """Return the number of commands, and of their different options."""
    from molslice.cli import build_parser, find_verbs

    parsers = [build_parser()]
    flags = set()
    for parser in parsers:
        for action in parser._actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                parsers += action.choices.values()
            flags |= {(parser.prog, option) for option in action.option_strings if option.startswith("--")}
    return len(find_verbs()), len(flags)


def frames_to_model(words: list[str], *, training: bool) -> int:
    """Return the number of functions of the package on the stack when a command calls the model.

    Args:
        words: The command.
        training: Whether to count the calls of a model in training, or of a model in evaluation mode.
    """
    from molslice.cli import main
    from molslice.model.graphormer import Graphormer

    depths: list[int] = []
    forward: Callable[..., Any] = Graphormer.forward

    def count_and_call(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        files = [frame.filename for frame in traceback.extract_stack()]
        if args[0].training == training:
            depths.append(sum(Path(file).is_relative_to(PACKAGE) for file in files))
        return forward(*args, **options)

    Graphormer.forward = count_and_call
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            main(words)
    finally:
        Graphormer.forward = forward
    return max(depths)


def measure_runs() -> dict[str, int]:
    """Return the numbers for which commands are run."""
    commands, flags = count_flags()
    with tempfile.TemporaryDirectory() as folder:
        config = str(ROOT / "configs" / "molecule" / "quickstart.yaml")
        train = [
            "train",
            "--config",
            config,
            "--out",
            f"{folder}/run",
            "--training.max_steps",
            "2",
            "--quiet",
        ]
        predict = ["predict", "gap-xtb", "--smiles", "CCO"]
        return {
            "commands": commands,
            "flags": flags,
            "frames from the command to the model, predict": frames_to_model(predict, training=False),
            "frames from the command to the model, train": frames_to_model(train, training=True),
        }


def main() -> None:
    """Print the table, and write the numbers to a file if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--before", type=Path, help="file of an earlier measurement")
    options = parser.parse_args()
    schema = json.loads((ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8"))
    measures = {**measure_sources(), "keys of the configuration": count_keys(schema), **measure_runs()}
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else {}
    for name, value in measures.items():
        print(f"{name:60} {before.get(name, ''):>10} {value:>10,}")
    if options.json:
        options.json.write_text(json.dumps(measures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
