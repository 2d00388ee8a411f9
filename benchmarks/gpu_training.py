"""Measure training steps on a GPU with torch's kernels, with those of molslice, and compiled.

    python benchmarks/gpu_training.py --attentions softmax,slice_sort

The steps are those of `molslice bench train`: batches of 1,024 molecules from `data/gap_xtb`, prepared ahead
in a thread, bfloat16. All forms of all attentions are measured in turn in one process. For each of them the
result has the fields of a measurement of `molslice bench train`.

    torch       MOLSLICE_KERNELS=0: `scaled_dot_product_attention`, and torch's sort
    kernels     the Triton kernels of molslice
    compiled    the same with `training.compile`

Writes `benchmarks/results/gpu_training.json` after each round. With `--device cpu --model slim` it only shows
that the program runs.
"""

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from record import record

from molslice.bench.molecules import Molecules, open_store
from molslice.bench.training.plan import DEFAULT_ATTENTIONS, TrainEntry, TrainPlan, plan_entries
from molslice.bench.training.worker import TrainJob, measure
from molslice.ops import kernels

ROOT = Path(__file__).resolve().parents[1]
FORMS = ("torch", "kernels", "compiled")


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attentions", default=DEFAULT_ATTENTIONS)
    parser.add_argument("--forms", type=parse_forms, default=FORMS)
    parser.add_argument("--model", default="base", help="preset")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "32"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=Path, help="prepared molecules (default: data/gap_xtb)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    about = {name: getattr(options, name) for name in ("model", "device", "precision", "steps")}
    with open_store(Molecules(store=options.store)) as store:
        for number in range(options.rounds):
            for attention in options.attentions.split(","):
                for form in options.forms:
                    rows.append({"attention": attention, "form": form, "round": number})
                    rows[-1] |= measure_form(attention, form, options, store)
                    print(describe(rows[-1]), flush=True)
            file = record("gpu_training", {**about, "rounds": number + 1, "rows": rows}, options.out)
            print("wrote", file, flush=True)


def parse_forms(text: str) -> tuple[str, ...]:
    """Return the forms of an option."""
    forms = tuple(text.split(","))
    if unknown := set(forms) - set(FORMS):
        raise argparse.ArgumentTypeError(f"unknown form {min(unknown)}; choices: {', '.join(FORMS)}")
    return forms


def plan_form(model: str, attention: str, form: str, precision: str, device: str) -> TrainEntry:
    """Return the training of one form of an attention."""
    overrides = [("training.compile", str(form == "compiled").lower())]
    (entry,) = plan_entries([model], attention, [precision], overrides=overrides, device=device)
    return entry


def kernels_of(form: str) -> AbstractContextManager[None]:
    """Return a context with the kernels of a form."""
    return kernels.torch_forms() if form == "torch" else nullcontext()


def measure_form(attention: str, form: str, options: argparse.Namespace, store: Path) -> dict[str, Any]:
    """Measure one form of an attention."""
    entry = plan_form(options.model, attention, form, options.precision, options.device)
    plan = TrainPlan([entry], device=options.device, rounds=1, steps=options.steps)
    (task,) = plan.tasks(store)
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with kernels_of(form):
        return measure(cast(TrainJob, task.job))


def describe(row: dict[str, Any]) -> str:
    """Return a line about a measurement."""
    name = f"{row['attention']:12} {row['form']:9}"
    if row["outcome"] != "ok":
        return f"{name} {row['outcome']}: {row.get('reason')}"
    return (
        f"{name} {row['molecules'] / row['seconds']:9,.0f} molecules/s, "
        f"{row['flops'] / row['seconds'] / 1e12:6.1f} TFLOP/s, "
        f"waiting {row['waiting_seconds'] / row['seconds']:.1%}, "
        f"{row['peak_bytes'] / 1e9:.1f} GB"
    )


if __name__ == "__main__":
    main()
