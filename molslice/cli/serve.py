"""Serve a web page and a JSON API that predict molecules, on this machine by default."""

import argparse
import math
from typing import TYPE_CHECKING

from molslice.cli.arguments import (
    add_device,
    add_options,
    choose_device,
    model_name,
    number,
    positive,
    tell_device,
    tell_shipped,
)
from molslice.cli.console import say

if TYPE_CHECKING:
    from molslice.serve.limits import Limits

SUMMARY = "serve a web page and a JSON API"
EXAMPLE = """\
  molslice serve gap-xtb
  molslice serve gap-xtb runs/solubility --port 9000 --workers 2
  molslice serve gap-xtb --host 0.0.0.0                    # other machines too, for example in a container"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    parser.add_argument(
        "models",
        nargs="+",
        type=model_name,
        metavar="MODEL",
        help="folder of a run, a fit or a checkpoint, or name of a shipped model; the first is the default",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=port_number, default=8000, metavar="N", help="port; 0 takes a free one (default: 8000)"
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="processes that predict requests (default: 1)",
    )
    parser.add_argument(
        "--max-molecules",
        type=positive,
        metavar="N",
        help="maximum number of molecules in a request (default: 1000)",
    )
    parser.add_argument(
        "--max-file", type=positive, metavar="MB", help="maximum size of a file (default: 100)"
    )
    parser.add_argument(
        "--timeout",
        type=time_limit,
        metavar="SECONDS",
        help="time limit of a request, at most 86,400 (default: 30)",
    )
    add_device(parser, "a GPU if there is one")
    add_options(parser, "--quiet")


def port_number(text: str) -> int:
    """Parse a port; 0 takes a free one."""
    if not text.isdecimal() or len(text) > 5 or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def time_limit(text: str) -> float:
    """Parse the time limit of a request in seconds."""
    from molslice.serve.limits import MAX_SECONDS

    what = f"a number of seconds above 0 and at most {MAX_SECONDS:,}"
    return number(text, what, above=0.0, below=math.nextafter(MAX_SECONDS, math.inf))


def run(args: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    from molslice.errors import MolsliceError

    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MolsliceError(f"molslice serve needs {error.name}: pip install 'molslice[serve]'") from error
    from molslice.serve.server import serve

    def started(address: str) -> None:
        if not args.quiet:
            say(f"serving {', '.join(args.models)} at {address} (Ctrl-C ends it)")

    device = choose_device(args)
    tell_shipped(*args.models)
    tell_device(args, device)
    serve(
        args.models,
        host=args.host,
        port=args.port,
        device=device,
        workers=args.workers,
        limits=chosen_limits(args),
        started=started,
    )
    return 0


def chosen_limits(args: argparse.Namespace) -> "Limits":
    """Return the limits, changed by the command line; the queue holds four of the largest requests."""
    from molslice.serve.limits import Limits

    chosen = {}
    if args.max_molecules is not None:
        chosen = {"molecules": args.max_molecules, "waiting": 4 * max(args.max_molecules, 1_000)}
    if args.max_file is not None:
        chosen["file_bytes"] = args.max_file * 1_000_000
    if args.timeout is not None:
        chosen["seconds"] = args.timeout
    return Limits(**chosen)
