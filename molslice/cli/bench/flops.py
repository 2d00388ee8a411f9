"""Count the operations of a configuration's model for one row, without data and without running it.

The row has the largest length of the data and no padding. Only the matrix products of a forward pass are
counted. Papers that state FLOPs often mean multiply-adds, of two operations each.
"""

import argparse

from molslice.cli.arguments import add_options, file_path
from molslice.cli.console import text_table, write, write_json

SUMMARY = "operations of the model of a configuration"
EXAMPLE = """\
  molslice bench flops --config configs/vision/flowformer_imagenet.yaml
  molslice bench flops --config configs/lra/text.yaml --attention.name flow --json"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench flops`."""
    parser.add_argument("--config", type=file_path, required=True, metavar="FILE", help="YAML file")
    add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Count the operations and print them."""
    from molslice.bench.flops import count_operations
    from molslice.config.entries import attention_label, describe_data
    from molslice.training.start import load_run_config

    config = load_run_config(args.config, args.overrides)
    numbers = count_operations(config.model, config.attention, describe_data(config))._asdict()
    if args.json:
        names = {"model": config.model.name, "attention": attention_label(config)}
        write_json({"config": args.config, **names, **numbers})
    else:
        rows = [(name.replace("_", "-"), f"{number:,}") for name, number in numbers.items()]
        write(text_table((f"{config.model.name}, {attention_label(config)}", "of one row"), rows))
    return 0
