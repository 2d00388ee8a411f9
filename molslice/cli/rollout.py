"""Play a trained policy in its environment, conditioned on a target return.

The score is D4RL's: 0 for a random policy, 100 for an expert, where the task has a reference.
"""

import argparse
from typing import Any

from molslice.cli.arguments import add_run_options, count, model_name, number, positive
from molslice.cli.console import text_table, write, write_json

SUMMARY = "play a trained policy in its environment"
EXAMPLE = """\
  molslice rollout runs/hopper --target-return 3600 1800
  molslice rollout runs/hopper --env Hopper-v5 --target-return 3600 --episodes 100 --seed 0 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rollout`."""
    parser.add_argument("model", type=model_name, metavar="RUN", help="run folder of a policy")
    parser.add_argument(
        "--target-return",
        type=number,
        nargs="+",
        required=True,
        metavar="R",
        help="returns to condition on; behavior cloning ignores them",
    )
    parser.add_argument(
        "--env",
        metavar="NAME",
        help="Gymnasium environment; package.module:Name-v0 imports the module that registers it "
        "(default: the environment named in the model's data)",
    )
    parser.add_argument(
        "--episodes", type=positive, default=10, metavar="N", help="episodes for each return (default: 10)"
    )
    parser.add_argument(
        "--seed", type=count, default=0, metavar="N", help="seed of the first episode (default: 0)"
    )
    add_run_options(parser, device="cpu")


def run(args: argparse.Namespace) -> int:
    """Play and print the returns."""
    from molslice.inference.load import load_network
    from molslice.inference.sequences.rollout import rollout

    result = rollout(
        load_network(args.model, args.device),
        args.target_return,
        environment=args.env,
        episodes=args.episodes,
        seed=args.seed,
    )
    result = {"model": str(args.model), **result}
    if args.json:
        write_json(result)
    else:
        write(result_text(result))
    return 0


def result_text(result: dict[str, Any]) -> str:
    """Format one line for each target return."""
    from molslice.uncertainty.rounding import rounded_error

    rows = []
    for target in result["targets"]:
        score = rounded_error(target["normalized"], target["normalized_std"])
        reached = rounded_error(target["return"], target["return_std"])
        rows.append((f"{target['target_return']:g}", reached, score, f"{target['length']:.1f}"))
    header = ("target return", "return", "D4RL score", "steps")
    return "\n".join(
        [
            text_table(header, rows),
            "",
            f"environment  {result['environment']}, {result['episodes']} episodes each, mean ± spread, "
            f"seeds from {result['seed']}",
            f"seconds      {result['seconds']:.1f}",
        ]
    )
