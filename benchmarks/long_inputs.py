"""Path-X on a processor: training on pictures of 16,384 tokens, and the memory it takes.

Every attention whose cost is not quadratic, and `softmax` beside them, trains `configs/lra/pathx.yaml` by the
trainer itself: `--steps` steps of one picture, with and without activation checkpointing. More pictures a
step take no more memory where training.accumulate has them one at a time. Each run is a process of its own;
its memory is the highest resident set minus the one before the run began.

    python benchmarks/long_inputs.py

Writes benchmarks/results/long_inputs.json: GB, and seconds a picture, the last evaluation included.
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
from molslice.bench.memory import peak_bytes, resident_bytes, restart_peak
from molslice.config import load_config
from molslice.data import build_dataset
from molslice.training.run import train

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "lra" / "pathx.yaml"
BASELINE = "softmax"


def train_some(settings: dict[str, str], answer: Queue) -> None:
    """In a process of its own: what a short training takes, or why it failed."""
    try:
        config = load_config(CONFIG, list(settings.items()))
        build_dataset(config.data.name, dict(config.data.options))  # the pictures are not part of it
        before = resident_bytes()
        restart_peak()
        with tempfile.TemporaryDirectory() as folder:
            summary = train(config, Path(folder) / "run", quiet=True)
        peak = peak_bytes()
    except (Exception, MemoryError) as error:  # noqa: BLE001 - the reason stands in the table
        answer.put({"failed": f"{type(error).__name__}: {error}"[:300]})
        return
    assert peak is not None, "this system does not tell the memory of a process"
    assert before is not None, "this system does not tell the memory of a process"
    answer.put({"gb": (peak - before) / 1e9, "seconds_a_picture": summary["seconds"] / summary["steps"]})


def measure(settings: dict[str, str], timeout: float) -> dict[str, Any]:
    """Run it with a time limit."""
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
            return {"failed": f"not done in {timeout:.0f} s"}
        return {"failed": f"ended with {process.exitcode}, as when memory is out"}
    result = answer.get()
    process.join()
    return result


def main() -> None:
    """Measure all of them, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attention", help="names, instead of all that are not quadratic")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=240, help="seconds a run may take")
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
