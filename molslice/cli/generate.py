"""Continue a text with a trained language model, token by token.

Attentions with a state of constant size (linear, flow, random_feature) take the same time and memory for each
token.
"""

import argparse

from molslice.cli.arguments import add_run_options, count, model_name, number, positive
from molslice.cli.console import tell, write, write_json

SUMMARY = "continue a text with a trained language model"
EXAMPLE = """\
  molslice generate runs/words --prompt "The history of the" --tokens 50
  molslice generate runs/words --prompt "The history of the" --temperature 0.7 --top-k 40 --seed 1
  molslice generate runs/words --temperature 0 --json       # always the most probable token"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `generate`."""
    parser.add_argument("model", type=model_name, metavar="RUN", help="run folder of a language model")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="text to continue (default: a new line)")
    parser.add_argument(
        "--tokens", type=positive, default=50, metavar="N", help="number of new tokens (default: 50)"
    )
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=1.0,
        metavar="T",
        help="divisor of the logits: below 1 favors probable tokens, 0 takes the most probable (default: 1)",
    )
    parser.add_argument(
        "--top-k", type=positive, metavar="K", help="draw only from the K most probable tokens"
    )
    parser.add_argument(
        "--seed", type=count, default=0, metavar="N", help="seed of the random draws (default: 0)"
    )
    add_run_options(parser, device="cpu")


def _temperature(text: str) -> float:
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def run(args: argparse.Namespace) -> int:
    """Generate and print the text."""
    from molslice.inference.load import load_network
    from molslice.inference.sequences.generate import generate

    result = generate(
        load_network(args.model, args.device),
        args.prompt,
        args.tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        seed=args.seed,
        progress=True,
    )
    if result.unknown:
        tell(f"not in the vocabulary, read as <unk>: {', '.join(map(repr, result.unknown))}")
    if args.json:
        fields = ("prompt", "continuation", "numbers", "unknown", "forgotten")
        write_json({"model": str(args.model), **{name: getattr(result, name) for name in fields}})
    else:
        write(result.text)
    return 0
