"""Count the parameters of a configuration's model, part by part, without training.

The data are read only if their options do not determine the number of words or classes.
"""

import argparse

from molslice.cli.arguments import add_options, file_path
from molslice.cli.console import text_table, write, write_json

SUMMARY = "count parameters by part"
EXAMPLE = """\
  molslice params --config configs/molecule/quickstart.yaml
  molslice params --config configs/molecule/pcqm4m_v2.yaml --attention.name slice_sort --json"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `params`."""
    parser.add_argument("--config", type=file_path, required=True, metavar="FILE", help="YAML file")
    add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Count the parameters and print them."""
    from molslice.config.entries import attention_label, describe_data
    from molslice.model import build_model
    from molslice.model.count import parameters_by_part
    from molslice.training.start import load_run_config

    config = load_run_config(args.config, args.overrides)
    counts = parameters_by_part(build_model(config.model, config.attention, describe_data(config)))
    if args.json:
        names = {"model": config.model.name, "attention": attention_label(config)}
        write_json({"config": args.config, **names, "parameters": counts})
    else:
        rows = [(name, f"{number:,}") for name, number in counts.items()]
        write(text_table((f"{config.model.name}, {attention_label(config)}", "parameters"), rows))
    return 0
