"""Measure memory and time of training on Path-X, images of 16,384 tokens, on a CPU.

`softmax` and every attention whose cost is not quadratic are trained with `configs/lra/pathx.yaml` for
`--steps` steps of one image, with and without activation checkpointing. Larger batches need no more memory if
`training.accumulate` computes one image at a time. Each run is a separate process. Its memory is the peak of
the resident set minus the resident set before training.

    python benchmarks/long_inputs.py

Writes benchmarks/results/long_inputs.json with the memory in GB and the time per image in seconds, including
the final evaluation.
"""

import argparse
import multiprocessing
import tempfile
import time
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from record import record

from molslice.attention import ATTENTIONS
from molslice.config import load_config
from molslice.data import build_dataset
from molslice.files.memory import peak_bytes, resident_bytes, restart_peak
from molslice.training.run import train

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "lra" / "pathx.yaml"
BASELINE = "softmax"


def train_some(settings: dict[str, str], answer: Queue) -> None:
    """Train for a few steps and put memory and time into `answer`, or the reason of a failure."""
    try:
        config = load_config(CONFIG, list(settings.items()))
        build_dataset(config.data.name, dict(config.data.options))  # generate the images first
        before = resident_bytes()
        restart_peak()
        with tempfile.TemporaryDirectory() as folder:
            summary = train(config, Path(folder) / "run", quiet=True)
        peak = peak_bytes()
    except (Exception, MemoryError) as error:  # noqa: BLE001 - recorded in the table
        answer.put({"failed": f"{type(error).__name__}: {error}"[:300]})
        return
    assert peak is not None, "the memory of a process is not available on this system"
    assert before is not None, "the memory of a process is not available on this system"
    answer.put({"gb": (peak - before) / 1e9, "seconds_a_picture": summary["seconds"] / summary["steps"]})


def measure(settings: dict[str, str], timeout: float) -> dict[str, Any]:
    """Run one measurement in a separate process, with a time limit in seconds."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=train_some, args=(settings, answer))
    start = time.monotonic()
    process.start()
    while process.is_alive() and answer.empty() and time.monotonic() - start < timeout:
        process.join(0.2)
    if answer.empty():
        if process.is_alive():
            process.kill()
            return {"failed": f"not finished after {timeout:.0f} s"}
        return {"failed": f"the process ended with exit code {process.exitcode}, perhaps out of memory"}
    result = answer.get()
    process.join()
    return result


def main() -> None:
    """Measure all attentions, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attention", help="names (default: softmax and all that are not quadratic)")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=240, help="time limit of a run, in seconds")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    names = [name for name in ATTENTIONS.names() if ATTENTIONS.find(name).traits.cost != "quadratic"]
    names = options.attention.split(",") if options.attention else [BASELINE, *names]
    rows = []
    for name in names:
        row: dict[str, Any] = {"attention": name, "cost": ATTENTIONS.find(name).traits.cost}
        for key, checkpointing in (("plain", "false"), ("checkpointing", "true")):
            settings = {
                "attention.name": name,
                "data.counts": "[4, 1, 1]",
                "model.head_dim": "null",  # all attentions have the width of the model
                "model.activation_checkpointing": checkpointing,
                "training.max_epochs": "null",
                "training.max_steps": str(options.steps),
                "training.batch_size": "1",
                "training.token_budget": str(128 * 128),
                "optimizer.warmup_steps": "0",
                "trainer.accelerator": "cpu",
                "trainer.num_threads": str(options.threads),
            }
            row[key] = measure(settings, options.timeout)
        print(row, flush=True)
        rows.append(row)
    payload = {
        "question": "memory and time of training on Path-X, 16,384 tokens, on a processor",
        "config": "lra/pathx.yaml",
        "settings": {key: getattr(options, key) for key in ("steps", "threads", "timeout")},
        "rows": rows,
    }
    print(record("long_inputs", payload, options.out))


if __name__ == "__main__":
    main()
