"""The command line. One file is one verb.

A verb is a file with `SUMMARY`, `EXAMPLE`, `add_arguments(parser)` and `run(args) -> int`, and with
`TAKES_OVERRIDES = True` if it takes `--dotted.key value` settings. The name of the file is the name of the
verb. The docstring of the file is its description in `--help`. Files without `SUMMARY` are shared:
`arguments.py`, `datasets.py`, and `console.py` for the standard streams.
A verb with several actions may be a package with `SUMMARY`, `EXAMPLE`, `ACTIONS` (modules like
verbs, by name) and `DEFAULT_ACTION`, which runs if no action is named.

Results go to files or to standard output (as JSON with `--json`). Messages and progress go to standard error.
Exit codes: 0 success, 1 a reported error, 2 wrong usage, 130 interrupted, 128 + number for another signal.

Imports: everything. Import torch and packages that need it inside functions, so that `--help` is fast.

To add a verb, write one such file. A verb is thin: it calls a function that Python code can call too.
"""

import argparse
import atexit
import gc
import importlib
import itertools
import os
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import IO, Any, NoReturn

from molslice.cli.arguments import HelpFormatter, split_overrides
from molslice.cli.console import (
    OutputClosedError,
    close_messages,
    close_output,
    escaped,
    open_streams,
    say,
    warnings_as_messages,
    write,
)
from molslice.files.process_memory import keep_freed_memory
from molslice.files.progress import hidden_progress
from molslice.version import __version__

__all__ = ["build_parser", "find_verbs", "main"]

# How often a waiting thread of OpenMP looks for work before it sleeps. By default it looks for
# milliseconds, and a command takes several times as long if many other programs need the cores. With
# OMP_WAIT_POLICY=PASSIVE, it sleeps at once, and small models train half as fast. It is read when torch and
# scikit-learn are imported.
SPINS = ("GOMP_SPINCOUNT", "10000")
# Otherwise the last garbage collection searches all objects of torch and RDKit, which takes a second.
atexit.register(gc.freeze)


def find_verbs() -> dict[str, ModuleType]:
    """Return the modules of the verbs by name, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "__main__")
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "SUMMARY")}


class _Parser(argparse.ArgumentParser):
    """A parser that reports a failure to write its help, and writes errors in one line."""

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:
        if message and file is not None and file is sys.stdout:
            write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


class _VerbParser(_Parser):
    """The parser of a verb, which may have actions."""

    actions: Mapping[str, ModuleType] | None = None
    default_action = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # noqa: ANN401
        """Parse the arguments, with the default action if the first one is not an action.

        Arguments that are not known are an error of the verb, which shows its usage. Unknown options are
        reported before required ones that are missing, because one may be the other with a typing error.
        """
        words = list(args or [])
        if not any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions):
            given = itertools.takewhile(lambda word: word != "--", words)
            self._refuse([word for word in given if self._is_unknown(word)])
        elif self.actions is not None and (not words or words[0] not in {*self.actions, "-h", "--help"}):
            words = [self.default_action, *words]
        namespace, unknown = super().parse_known_args(words, namespace)
        self._refuse(unknown)
        return namespace, unknown

    def _is_unknown(self, word: str) -> bool:
        name = word.partition("=")[0]
        return word.startswith("--") and " " not in word and name not in self._option_string_actions

    def _refuse(self, unknown: Sequence[str]) -> None:
        if not unknown:
            return
        import difflib  # only for this message

        options = {name.lstrip("-"): name for name in self._option_string_actions}
        given = unknown[0].partition("=")[0].lstrip("-")
        near = difflib.get_close_matches(given, options, n=1, cutoff=0.8)
        hint = f"; did you mean {options[near[0]]}?" if near else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of `molslice` with all verbs."""
    parser = _Parser(
        prog="molslice",
        description="Predict molecular properties; train and compare attentions.",
        epilog='example:\n  molslice predict gap-xtb --smiles "CCO" "c1ccccc1"',
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"molslice {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=_VerbParser)
    for name, module in find_verbs().items():
        verb = _add_parser(verbs, name, module)
        if not hasattr(module, "ACTIONS"):
            continue
        verb.actions, verb.default_action = module.ACTIONS, module.DEFAULT_ACTION
        actions = verb.add_subparsers(
            dest="action", metavar="ACTION", required=True, help=f"default: {module.DEFAULT_ACTION}"
        )
        for action, inner in module.ACTIONS.items():
            _add_parser(actions, action, inner)
    return parser


def _add_parser(parsers: Any, name: str, module: ModuleType) -> Any:  # noqa: ANN401
    parser = parsers.add_parser(
        name,
        help=module.SUMMARY,
        description=module.__doc__,
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    if hasattr(module, "ACTIONS"):
        return parser
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(
        run=module.run, usage_error=parser.error, takes_overrides=getattr(module, "TAKES_OVERRIDES", False)
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, by default the one of `sys.argv`, and return the exit code."""
    open_streams()
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(*SPINS)
    args = argparse.Namespace(debug=False)
    try:
        with _ended_by_signals(), warnings_as_messages():
            _parse(sys.argv[1:] if argv is None else list(argv), args)
            keep_freed_memory()
            with hidden_progress(getattr(args, "quiet", False)):
                code = args.run(args)
        close_output()
        return code
    except SystemExit as stop:  # argparse has printed the help or an error, or a signal arrived
        return int(stop.code or 0)
    except OutputClosedError:
        return 0  # the reader has closed the pipe, as `head` does
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted")  # the message of training says how to resume
        return 130
    except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
        if args.debug or os.environ.get("MOLSLICE_DEBUG") == "1":
            traceback.print_exc()
        elif not _is_users(error):
            raise
        say(f"error: {describe(error)}")
        return 1
    finally:
        close_messages()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Convert TERM and HUP to an exception, so that partial files are removed and workers end.

    A signal that is ignored stays ignored, such as HUP under `nohup`.
    """

    def end(number: int, frame: object) -> None:  # noqa: ARG001
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    numbers = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _parse(argv: list[str], args: argparse.Namespace) -> None:
    """Parse the arguments of a command into `args`."""
    words, overrides = split_overrides(argv)
    parser, verbs = build_parser(), find_verbs()
    if words and not words[0].startswith("-") and words[0] not in verbs:
        from molslice.registry import near_names  # only for this message

        parser.error(f"unknown verb {words[0]!r}; {near_names(words[0], verbs)}")
    parser.parse_args(words, args)
    if overrides and not args.takes_overrides:
        args.usage_error(f"unrecognized arguments: --{overrides[0][0]}")
    for key, value in overrides:
        if value is None:
            args.usage_error(f"argument --{key}: expected a value")
    args.overrides = overrides


def _is_users(error: BaseException) -> bool:
    """Return whether the message explains the error. Other errors are bugs and show their traceback."""
    from molslice.errors import MolsliceError

    return isinstance(error, (MolsliceError, OSError)) or _is_out_of_memory(error)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    text = str(error)  # torch raises a plain RuntimeError on CPU
    return isinstance(error, RuntimeError) and ("allocate memory" in text or "out of memory" in text)


def describe(error: BaseException) -> str:
    """Describe an error in one line, with the path of an `OSError`."""
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ValueError):
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    elif _is_out_of_memory(error):
        reason = str(error).partition("\n")[0]
        text = f"not enough memory: {reason}" if reason else "not enough memory"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
