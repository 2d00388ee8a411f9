"""Offer molslice to agents and programs over the Model Context Protocol, on standard input and output.

The tools are models, predict, explain and fit. They read and write only inside of the folder --root, and
return what the commands print with --json.
"""

import argparse

from molslice.cli.arguments import file_path

SUMMARY = "offer predictions and fits to agents (MCP)"
EXAMPLE = """\
  molslice mcp --root ~/molecules"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mcp`."""
    parser.add_argument(
        "--root", type=file_path, required=True, metavar="DIR", help="folder that requests may read and write"
    )


def run(args: argparse.Namespace) -> int:
    """Answer requests until standard input closes."""
    from molslice.serve.agents import serve_agents

    serve_agents(args.root)
    return 0
