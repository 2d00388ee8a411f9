"""Profile training steps on a GPU: the time and the kernels of a step, and the launches of the host.

    python benchmarks/gpu_profile.py --attentions softmax,slice_sort

The steps are those of `molslice bench train --models base --precision bf16`, in the forms of
`gpu_training.py`. After the warm-up, some batches are timed, and the same ones are computed again under
PyTorch's profiler. Writes `benchmarks/results/gpu_profile.json`.
"""

import argparse
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from gpu_training import FORMS, kernels_of, parse_forms, plan_form
from record import record
from torch.profiler import ProfilerActivity, profile

from molslice.bench.molecules import Molecules, open_store
from molslice.bench.training.worker import Training
from molslice.data.molecules.store import MoleculeStore
from molslice.training.fabric import quiet_lightning

ROOT = Path(__file__).resolve().parents[1]
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
ATTENTION = ("fmha", "flash", "_attention_forward", "_attention_backward")  # in names of kernels


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attentions", default="softmax,slice_sort")
    parser.add_argument("--model", default="base", help="preset")
    parser.add_argument("--forms", type=parse_forms, default=FORMS)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--steps", type=int, default=15, help="timed and profiled steps, an epoch by default")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    rows = []
    with open_store(Molecules()) as place, quiet_lightning():
        store = MoleculeStore.open(place, verify=False)
        for attention in options.attentions.split(","):
            for form in options.forms:
                rows.append(profile_steps(attention, form, options, store))
                print(rows[-1], flush=True)
    about = {"model": options.model, "precision": "bf16", "warm_up": options.warm_up}
    print("wrote", record("gpu_profile", {**about, "rows": rows}, options.out))


def profile_steps(
    attention: str, form: str, options: argparse.Namespace, store: MoleculeStore
) -> dict[str, Any]:
    """Time and profile the steps of one attention in one form."""
    entry = plan_form(options.model, attention, form, "bf16", "cuda")
    with kernels_of(form):
        training = Training(entry.config, store)
        with closing(training.stream()) as stream:
            for _ in range(options.warm_up):
                training.step(next(stream))
            batches = [next(stream) for _ in range(options.steps)]
        training.wait()
        start = time.perf_counter()
        for batch in batches:
            training.step(batch)
        training.wait()
        seconds = time.perf_counter() - start
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for batch in batches:
                training.step(batch)
            training.wait()
    events = found.key_averages()
    kernels = [event for event in events if event.device_type.name == "CUDA" and not event.is_user_annotation]
    shapes = [one.batch.atom_mask.shape for batch in batches for one in batch.micro_batches]
    microseconds = 1000 * len(batches)  # of all steps, to milliseconds of one
    return {
        "attention": attention,
        "form": form,
        "steps": len(batches),
        "molecules": sum(batch.rows for batch in batches) / len(batches),
        "tokens": sum(molecules * (atoms + 1) for molecules, atoms in shapes) / len(batches),
        "step_ms": 1000 * seconds / len(batches),
        "device_ms": sum(event.self_device_time_total for event in kernels) / microseconds,
        "attention_ms": sum(
            event.self_device_time_total for event in kernels if any(word in event.key for word in ATTENTION)
        )
        / microseconds,
        "launches": sum(event.count for event in events if event.key in LAUNCHES) / len(batches),
        "kernels": [
            {
                "name": event.key[:120],
                "ms": event.self_device_time_total / microseconds,
                "count": event.count / len(batches),
            }
            for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:12]
        ],
    }


if __name__ == "__main__":
    main()
