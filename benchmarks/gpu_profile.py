"""Profile training steps on a GPU: the time and the kernels of a step, and the launches of the host.

    python benchmarks/gpu_profile.py --attentions softmax,slice_sort

The steps are those of `molslice bench train --models base --precision bf16`. After the warm-up, some batches
are timed, and the first of them are computed again under PyTorch's profiler. Writes
`benchmarks/results/gpu_profile.json`.
"""

import argparse
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from record import record
from torch.profiler import ProfilerActivity, profile

from molslice.bench.molecules import Molecules, open_store
from molslice.bench.training.plan import plan_entries
from molslice.bench.training.worker import Training
from molslice.data.molecules.store import MoleculeStore
from molslice.training.fabric import quiet_lightning

ROOT = Path(__file__).resolve().parents[1]
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC")


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attentions", default="softmax,slice_sort")
    parser.add_argument("--model", default="base", help="preset")
    parser.add_argument("--compile", action="store_true", help="with training.compile")
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--profiled", type=int, default=4)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    rows = []
    with open_store(Molecules()) as place, quiet_lightning():
        store = MoleculeStore.open(place, verify=False)
        for attention in options.attentions.split(","):
            rows.append({"attention": attention, **profile_steps(attention, options, store)})
            print(rows[-1], flush=True)
    about = {name: getattr(options, name) for name in ("model", "compile", "warm_up", "steps", "profiled")}
    print("wrote", record("gpu_profile", {**about, "rows": rows}, options.out))


def profile_steps(attention: str, options: argparse.Namespace, store: MoleculeStore) -> dict[str, Any]:
    """Time and profile the steps of one attention."""
    overrides = [("training.compile", str(options.compile).lower())]
    (entry,) = plan_entries([options.model], attention, ["bf16"], overrides=overrides, device="cuda")
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
            for batch in batches[: options.profiled]:
                training.step(batch)
            training.wait()
    events = found.key_averages()
    kernels = [event for event in events if event.device_type.name == "CUDA" and not event.is_user_annotation]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    profiled = [one.batch.atom_mask.shape for b in batches[: options.profiled] for one in b.micro_batches]
    per_step = 1000 * options.profiled  # microseconds of all steps to milliseconds of one
    return {
        "step_ms": 1000 * seconds / len(batches),
        "molecules_per_second": sum(batch.rows for batch in batches) / seconds,
        "profiled_tokens": sum(molecules * (atoms + 1) for molecules, atoms in profiled),
        "device_ms": sum(event.self_device_time_total for event in kernels) / per_step,
        "launches": sum(event.count for event in events if event.key in LAUNCHES) / options.profiled,
        "kernels": [
            {
                "name": event.key[:120],
                "ms": event.self_device_time_total / per_step,
                "count": event.count / options.profiled,
            }
            for event in kernels[:12]
        ],
    }


if __name__ == "__main__":
    main()
