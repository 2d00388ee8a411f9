"""Show what an attention does: a figure and its numbers, in minutes on a CPU.

Each study has its own options; molslice study NAME --help lists them. Studies of trained models train small
ones on the embedded data and keep them in DIR/runs, unless --runs names other models.
"""

import argparse
import inspect
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import HelpFormatter, add_run_options, count, file_path, flag
from molslice.cli.console import tell, text_table, write, write_json
from molslice.files.progress import hidden_progress

if TYPE_CHECKING:
    from molslice.studies.base import Option

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
    from molslice.config.conversion import convert_text
    from molslice.studies import STUDIES, run_study
    from molslice.studies.base import study_options

    if args.study is None:
        if not args.list:
            args.usage_error("give the name of a study, or --list")
        rows = [(name, STUDIES.find(name).summary) for name in STUDIES.names()]
        write(text_table(("study", "shows"), rows))
        return 0
    options = study_options(STUDIES.find(args.study))
    words = _parser(args.study, options).parse_args(args.words)
    args.debug = args.debug or words.debug
    texts = {name: getattr(words, name) for name in options}
    chosen = {
        name: convert_text(text, options[name].type, name) for name, text in texts.items() if text is not None
    }
    with hidden_progress(words.quiet):
        result = run_study(
            args.study,
            words.out,
            seed=words.seed,
            runs=words.runs,
            options=chosen,
            quiet=words.quiet,
            tell=tell,
        )
    if words.json:
        write_json(result.to_mapping())
    else:
        write("\n".join(str(result.files[kind]) for kind in ("png", "svg", "csv", "json")))
    return 0


def _parser(name: str, options: "dict[str, Option]") -> argparse.ArgumentParser:
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
    runs = "run folders or shipped models to study" if study.unused_with_runs else argparse.SUPPRESS
    parser.add_argument("--runs", nargs="+", default=(), metavar="RUN", help=runs)
    metavars: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}
    for option in options.values():
        several = isinstance(option.default, tuple)
        shown = ",".join(map(str, option.default)) if several else option.default
        default = "" if "default" in option.help or shown in (None, "") else f" (default: {shown})"
        metavar = metavars.get(option.type, "A,B,..." if several else "FILE")
        parser.add_argument(flag(option.name), metavar=metavar, help=f"{option.help}{default}")
    add_run_options(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser
