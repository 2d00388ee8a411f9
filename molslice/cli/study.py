"""Show what an attention does: a figure and its numbers, in minutes on a CPU.

Each study has its own options; molslice study NAME --help lists them. Studies of trained models train small
ones on the embedded data and keep them in DIR/runs, unless --runs names other models.
"""

import argparse
import inspect
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import HelpFormatter, add_run_options, count, file_path, flag
from molslice.cli.console import teller, text_table, write, write_json

if TYPE_CHECKING:
    from molslice.studies.options import Option

SUMMARY = "show what an attention does: a figure and its numbers"
EXAMPLE = """\
  molslice study --list
  molslice study oversmoothing --out runs/study
  molslice study permutation --out runs/study --attentions softmax,slice_sort --depth 4
  molslice study spectrum --runs runs/first gap-xtb --out runs/study"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments before the options of a study, which are parsed once the study is known."""
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument("study", nargs="?", metavar="NAME", help="name of the study")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="--out DIR and options")


def run(args: argparse.Namespace) -> int:
    """List the studies or run one."""
    from molslice.studies import STUDIES, run_study

    if args.study is None:
        if not args.list:
            args.usage_error("give the name of a study, or --list")
        rows = [(name, STUDIES.find(name).summary) for name in STUDIES.names()]
        write(text_table(("study", "shows"), rows))
        return 0
    known = _options(args.study)
    parser = _parser(args.study, known)
    words = parser.parse_args(args.words)
    args.debug = args.debug or words.debug

    result = run_study(
        args.study,
        words.out,
        seed=words.seed,
        runs=words.runs,
        options=_given(words, known),
        quiet=words.quiet,
        tell=teller(words),
    )
    if words.json:
        write_json(result.to_mapping())
    else:
        write("\n".join(str(path) for path in (result.png, result.svg, result.csv, result.json)))
    return 0


def _options(name: str) -> "dict[str, Option]":
    from molslice.studies import STUDIES
    from molslice.studies.options import constructor_options

    return constructor_options(STUDIES.find(name))


def _parser(name: str, known: "dict[str, Option]") -> argparse.ArgumentParser:
    from molslice.studies import STUDIES

    study = STUDIES.find(name)
    parser = argparse.ArgumentParser(
        prog=f"molslice study {name}",
        description=inspect.getdoc(study),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=file_path, required=True, metavar="DIR", help="folder for the files")
    parser.add_argument("--seed", type=count, default=0, help="seed of everything random (default: 0)")
    runs = "run folders or shipped models to study" if study.takes_runs else argparse.SUPPRESS
    parser.add_argument("--runs", nargs="+", default=(), metavar="RUN", help=runs)
    for option in known.values():
        shown = ",".join(map(str, option.default)) if isinstance(option.default, tuple) else option.default
        default = "" if "default" in option.help or shown in (None, "") else f" (default: {shown})"
        parser.add_argument(flag(option.name), metavar=_metavar(option), help=f"{option.help}{default}")
    add_run_options(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _metavar(option: "Option") -> str:
    names: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}
    return names.get(option.type, "A,B,..." if isinstance(option.default, tuple) else "FILE")


def _given(words: argparse.Namespace, known: "dict[str, Option]") -> dict[str, Any]:
    from molslice.config.conversion import convert_text

    texts = {name: getattr(words, name) for name in known}
    given = {name: text for name, text in texts.items() if text is not None}
    return {name: convert_text(text, known[name].type, name) for name, text in given.items()}
