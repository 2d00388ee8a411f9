"""Check and measure on a GPU, in order of value and within a time limit, what has only run on a CPU.

    molslice prepare data/gap_xtb/raw/data.csv.gz --target homolumogap --out runs/gpu_list/gap
    python benchmarks/gpu_list.py --store runs/gpu_list/gap --minutes 12

1. A check: the losses of captured steps against the losses of the same steps without a graph, which are
   computed twice. `pytest -m gpu` checks the kernels.
2. Molecules per second of real training steps, in bfloat16 with batches of 1,024 molecules, in these forms:

    collated    batches of any shape, collated in a thread of the host with 4 CPU threads
    eager       batches of fixed shapes, gathered on the device
    captured    the same, with each step a CUDA graph
    compiled    the same, with compiled layers
    weights     captured, with `trainer.precision: bf16-weights` and the kernels between products
    muon        the same, with `optimizer.name: muon`

   Beside them, a rewrite of Graphormer's pipeline with batches of 256 molecules on the device.
3. The kernels of a step in the form `weights`.
4. A training that is stopped and continued against an uninterrupted one, the gathering of batches, and, with
   a `--corpus` of `scripts/make_corpus.py`, the rate of a pretraining.
5. With RDKit installed, the commands of a user in a new process: `predict` and `embed` of the molecules of
   `--smiles`, also of a few of them, whose time is the start, answers of `serve`, and `fit` of the tables of
   `--fit`, on the device and on the CPU.

A program of its own computes the steps, and another one continues after a step that fails or exceeds its
limit. Writes `gpu_list.json` after each step. A step that succeeded is not repeated if this file has it from
the same commit, or the file `--earlier` has it from any. With `--device cpu --model slim --small` the list
only shows that the program runs; there, no step is captured.
"""

import argparse
import dataclasses
import gc
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoder_pretraining import CONFIG, SIZES
from gpu_commands import (
    measure_embed,
    measure_fit,
    measure_loading,
    measure_predict,
    measure_serving,
)
from graphormer_rewrite import GraphormerBatch, GraphormerSet, build_graphormer, collate
from record import ROOT, describe_hardware, find_commit, list_versions, make_parser, write_json
from safetensors.torch import load_file
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from molslice.bench.training import find_peak, plan_entries
from molslice.bench.training_worker import StepClock, Training, flops_per_token, padded_tokens
from molslice.config import load_config
from molslice.data.molecules.store import MoleculeStore
from molslice.folders.run import MODEL
from molslice.training.batches import StepBatch
from molslice.training.fabric import quiet_lightning
from molslice.training.run import train
from molslice.training.step_graphs import StepGraphs
from molslice.training.stepper import Stepper

NAME = "gpu_list"
SETTINGS = {
    "collated": {"training.fixed_shapes": "false"},
    "eager": {"training.fixed_shapes": "true"},
    "captured": {"training.fixed_shapes": "true"},
    "compiled": {"training.fixed_shapes": "true", "training.compile": "true"},
    "weights": {"training.fixed_shapes": "true"},
    "muon": {"training.fixed_shapes": "true", "optimizer.name": "muon"},
}
# name -> settings of a check of losses
VARIANTS: dict[str, dict[str, str]] = {
    "": {},
    "levers": {"model.local": "gine", "model.pair_state": "true", "optimizer.name": "muon"},
    "compiled": {"training.compile": "true"},
}
CAPTURED = ("captured", "compiled", "weights", "muon")
THREADS = 4
TIMED_STEPS = 100
COMPARED_STEPS = 200  # with and without graphs
SHORTEST = 5.0  # seconds; no step starts later
CHECK_SECONDS, RATE_SECONDS, COMPILED_SECONDS, COMMAND_SECONDS = 240, 60, 150, 240  # limits of a step
GRAPHORMER_BATCH, GRAPHORMER_BATCHES = 256, 8
RESUMED_STEPS = 120  # half of them after an interruption
PRETRAINED_STEPS = 1_000

QUICKSTART = ROOT / "configs" / "molecule" / "quickstart.yaml"

Numbers = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One entry of the list.

    Attributes:
        name: The key of its result.
        seconds: Its limit.
        run: Computes the result.
    """

    name: str
    seconds: int
    run: Callable[[], Numbers]


def main() -> None:
    """Run the list, or compute the steps for the program that runs it."""
    parser = make_parser(__doc__)
    parser.add_argument("--store", type=Path, required=True, help="prepared molecules")
    parser.add_argument("--pcqm4m", type=Path, help="molecules with the lengths of PCQM4M, for more rates")
    parser.add_argument("--smiles", type=Path, help="table with a column smiles, to predict")
    parser.add_argument("--corpus", type=Path, help="corpus of a pretraining, for its rate")
    parser.add_argument(
        "--fit",
        action="append",
        default=[],
        type=table_and_target,
        metavar="FILE:TARGET",
        help="table to fit; repeatable",
    )
    parser.add_argument("--minutes", type=float, default=12.0, help="limit of the whole list")
    parser.add_argument("--earlier", type=Path, help="file of an earlier run")
    parser.add_argument("--model", default="base", help="preset of the first models")
    parser.add_argument("--second-model", default="small", help="preset of the last models")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", default="", help="names of steps, or their beginnings, separated by commas")
    parser.add_argument("--small", action="store_true", help="few and small steps, to see that it runs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        compute(options)
    else:
        run_list(options)


def table_and_target(text: str) -> tuple[str, str]:
    """Read a value of `--fit`."""
    path, _, target = text.rpartition(":")
    if not path or not target:
        raise argparse.ArgumentTypeError(f"invalid table {text!r}: expected FILE:TARGET")
    return path, target


def run_list(options: argparse.Namespace) -> None:
    """Run all steps in other programs and write their results."""
    end = time.monotonic() + 60 * options.minutes
    file = options.out / f"{NAME}.json"
    results: dict[str, Numbers] = {}
    done, commit = set[str](), find_commit()
    for known in (options.earlier, file):
        if known is not None and known.exists():
            former = json.loads(known.read_text())
            steps = {name: {"commit": former["commit"], **step} for name, step in former["steps"].items()}
            results |= steps
            done |= {
                name
                for name, step in steps.items()
                if step["outcome"] == "ok" and (known == options.earlier or step["commit"] == commit)
            }
    about: Numbers = {"device": options.device, "store": str(options.store), "hardware": describe_hardware()}
    about |= {"commit": commit, "versions": list_versions()}
    prefixes = tuple(filter(None, options.only.split(",")))
    waiting = {
        step.name: step.seconds
        for step in list_steps(options)
        if step.name not in done and step.name.startswith(prefixes or "")
    }
    while waiting and time.monotonic() < end - SHORTEST:
        for name, result in converse(waiting, end):
            waiting.pop(name)
            results[name] = {**result, "commit": commit}
            write_json(file, {"name": NAME, **about, "steps": results})
            print(f"{end - time.monotonic():5.0f} s left  {name}: {describe(result)}", flush=True)
    print("not run:", ", ".join([*waiting, *list_missing(options)]) or "nothing", flush=True)


def list_missing(options: argparse.Namespace) -> list[str]:
    """Return the kinds of steps that are not in the list, with the reason of each."""
    missing = [] if options.pcqm4m else ["rates with the lengths of PCQM4M (no --pcqm4m)"]
    missing += [] if options.corpus else ["pretraining (no --corpus)"]
    if find_spec("rdkit") is None:
        return [*missing, "commands (RDKit is not installed)"]
    missing += [] if options.smiles else ["predict, embed and serve (no --smiles)"]
    return missing if options.fit else [*missing, "fit (no --fit)"]


def converse(waiting: dict[str, int], end: float) -> Iterator[tuple[str, Numbers]]:
    """Start a program, send it the waiting steps one by one, and yield their results until one fails."""
    program = subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], "--worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # so that commands end with it
    )

    def end_program() -> None:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)

    assert program.stdin is not None
    assert program.stdout is not None
    try:
        for name, seconds in list(waiting.items()):
            left = min(seconds, end - time.monotonic())
            if left < SHORTEST:
                return
            program.stdin.write(f"{name}\n".encode())
            program.stdin.flush()
            timer = threading.Timer(left, end_program)
            timer.start()
            answer = program.stdout.readline()
            timer.cancel()
            if not answer:
                yield name, {"outcome": "failed", "reason": f"no result; its limit was {left:.0f} s"}
                return
            result = json.loads(answer)
            yield name, result
            if result["outcome"] != "ok":
                return  # a failed kernel can break the later ones of its program
    finally:
        end_program()
        program.wait()


def compute(options: argparse.Namespace) -> None:
    """Answer each name of a step on standard input with its result."""
    steps = {step.name: step for step in list_steps(options)}
    torch.set_num_threads(THREADS)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries and their programs print is not an answer
    with quiet_lightning():
        for line in sys.stdin:
            name = line.strip()
            start = time.perf_counter()
            result: Numbers
            try:
                result = {"outcome": "ok", **steps[name].run()}
            except Exception as error:  # noqa: BLE001 - the list goes on
                reason = f"{type(error).__name__}: {error}"
                result = {"outcome": "failed", "reason": reason[:2000]}
            result["total_seconds"] = round(time.perf_counter() - start, 1)
            free_memory()
            print(json.dumps(finite(result)), file=answers, flush=True)


def finite(value: Any) -> Any:  # noqa: ANN401
    """Return JSON values with the names of numbers that are not finite in their place."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def free_memory() -> None:
    """Free the memory of earlier steps."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def list_steps(options: argparse.Namespace) -> list[Step]:
    """Return the steps in order of value."""
    first, second = options.model, options.second_model

    def rates(model: str, attention: str, *forms: str, pcqm4m: bool = False) -> list[Step]:
        store = options.pcqm4m if pcqm4m else options.store
        return [
            Step(
                f"{'pcqm4m ' if pcqm4m else ''}{model} {attention} {form}",
                COMPILED_SECONDS if form == "compiled" else RATE_SECONDS,
                lambda form=form: measure(model, attention, form, options, store),
            )
            for form in forms
            if store is not None
        ]

    def profiles(model: str, attention: str) -> Step:
        store = options.pcqm4m or options.store
        return Step(
            f"profile {model} {attention}",
            COMPILED_SECONDS,
            lambda: profile_kernels(model, attention, options, store),
        )

    def losses(attention: str, variant: str = "") -> Step:
        name = f"check losses {attention} {variant}".rstrip()
        return Step(name, CHECK_SECONDS, lambda: check_losses(attention, variant, options))

    def graphormer(size: str) -> Step:
        return Step(f"{size} graphormer", RATE_SECONDS, lambda: measure_graphormer(size, options))

    def loading() -> Step:
        store = options.pcqm4m or options.store
        return Step(
            "bench data", RATE_SECONDS, lambda: measure_loading(store, options.device, small=options.small)
        )

    resumed = Step("check resume", CHECK_SECONDS, lambda: check_resume(options))
    pretraining = [
        Step(f"pretraining {size}", COMPILED_SECONDS, lambda size=size: measure_pretraining(size, options))
        for size in (("small",) if options.small else ("wide", "small"))
        if options.corpus is not None
    ]
    commands = list_commands(options)
    if options.small:
        return [
            losses("softmax"),
            losses("slice_sort", "levers"),
            *rates(first, "softmax", "collated", "eager", "captured", "weights", "muon"),
            graphormer(first),
            resumed,
            loading(),
            *pretraining,
            *commands,
        ]
    return [
        losses("softmax"),
        *(
            step
            for model, attention in (
                *((first, attention) for attention in ("softmax", "slice_sort", "flow", "singular")),
                *((second, attention) for attention in ("softmax", "slice_sort")),
            )
            for step in rates(model, attention, "weights", pcqm4m=True)
        ),
        graphormer(first),
        *pretraining,
        *commands,
        resumed,
        loading(),
        *rates(first, "softmax", "weights", "collated", "captured"),
        *rates(first, "slice_sort", "weights", "collated"),
        *rates(first, "slice_sort:order=max_exchange", "weights"),
        *rates(first, "softmax", "compiled", "muon"),
        profiles(first, "softmax"),
        profiles(first, "slice_sort"),
        profiles(second, "softmax"),
        *rates(first, "slice_sort", "captured", "compiled"),
        *rates(first, "softmax", "eager"),
        *(losses(attention) for attention in ("slice_sort", "flow", "singular")),
        *(losses("softmax", variant) for variant in VARIANTS if variant),
        losses("slice_sort", "levers"),
        profiles(first, "flow"),
        profiles(first, "singular"),
        *rates(first, "flow", "compiled"),
        *rates(first, "singular", "compiled"),
    ]


def list_commands(options: argparse.Namespace) -> list[Step]:
    """Return the steps that run commands, none without RDKit."""
    if find_spec("rdkit") is None:
        return []
    device, small, steps = options.device, options.small, []
    if (path := options.smiles) is not None:
        for name, measure_command in (
            ("predict", measure_predict),
            ("embed", measure_embed),
            ("serve", measure_serving),
        ):
            steps.append(
                Step(
                    name,
                    COMMAND_SECONDS,
                    lambda path=path, measure_command=measure_command: measure_command(
                        path, device, small=small
                    ),
                )
            )
    # the networks of `best` would take a CPU too long
    for quality, devices in (("good", (device, "cpu")), ("best", (device,))):
        for path, target in options.fit:
            name = f"fit {Path(path).name.partition('.')[0]}{'' if quality == 'good' else f' {quality}'}"
            arguments = (path, target, dict.fromkeys(devices), "fast" if small else quality)
            steps.append(Step(name, COMMAND_SECONDS, lambda arguments=arguments: measure_fit(*arguments)))
    return steps


def build(
    model: str,
    attention: str,
    form: str,
    options: argparse.Namespace,
    store: Path | None = None,
    overrides: dict[str, str] | None = None,
    precision: str | None = None,
) -> Training:
    """Build the training of one form of an attention."""
    settings = {**SETTINGS[form], **(overrides or {})}
    if options.small:
        settings |= {"training.batch_size": "64", "training.token_budget": "2048"}
    if precision is None:
        usual = "bf16" if options.device == "cuda" else "32"
        precision = "bf16-weights" if form in ("weights", "muon") else usual
    (entry,) = plan_entries(
        [model], attention, [precision], overrides=list(settings.items()), device=options.device
    )
    training = Training(entry.config, MoleculeStore.open(store or options.store, verify=False))
    if form == "eager":
        training.stepper.graphs = None
    return training


def measure(
    model: str,
    attention: str,
    form: str,
    options: argparse.Namespace,
    store: Path,
) -> Numbers:
    """Measure the rate of training steps."""
    training = build(model, attention, form, options, store)
    clock, steps = StepClock(training.device), 3 if options.small else TIMED_STEPS
    molecules = tokens = 0
    with closing(training.stream()) as stream:
        start = time.perf_counter()
        warm_up(training, form, stream, options)
        warm_up_seconds = time.perf_counter() - start
        clock.begin()
        start, processor = time.perf_counter(), time.process_time()
        for _ in range(steps):
            batch = next(stream)
            clock.arrive()
            training.step(batch)
            clock.finish()
            molecules += batch.rows
            tokens += padded_tokens(*batch.micro_batches)
        training.wait()
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    waiting = clock.seconds()["waiting"]
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else None
    rows = training.batches.order.epoch(0)
    flops = flops_per_token(training, rows[:: max(1, len(rows) // 4)][:4]) * tokens
    rate = flops / seconds
    top = find_peak(torch.cuda.get_device_name(), "bf16") if options.device == "cuda" else None
    graphs = training.stepper.graphs
    return {
        "molecules_per_second": molecules / seconds,
        "step_ms": 1000 * seconds / steps,
        "processor_ms": 1000 * processor / steps,
        "molecules": molecules / steps,
        "tokens": tokens / steps,
        "padding_share": 1.0
        - float(training.batches.order.tokens.sum() / training.batches.padded_tokens(0).sum()),
        "teraflops": rate / 1e12,
        "peak_share": None if top is None else rate / top,
        "waiting_share": None if waiting is None else waiting / seconds,
        "peak_gigabytes": None if peak is None else peak / 1e9,
        "warm_up_seconds": warm_up_seconds,
        "steps": steps,
        "threads": THREADS,
        "shapes": len(getattr(training.batches.order, "shapes", ())),
        "captured_shapes": None if graphs is None else graphs.num_captured,
        "obstacles": None if graphs is None else sorted(graphs.obstacles),
    }


def warm_up(training: Training, form: str, stream: Iterator[StepBatch], options: argparse.Namespace) -> None:
    """Compute steps before the timed ones: three with one batch of each shape where steps are captured."""
    seen = set()
    for number, batch in enumerate(stream, start=1):
        shape = padded_tokens(*batch.micro_batches), batch.micro_batches[0].batch.rows.shape
        if form in CAPTURED and shape in seen and not batch.last:
            continue
        for _ in range(3 if form in CAPTURED else 1):
            training.step(batch)
        seen.add(shape)
        if batch.last if form in CAPTURED and not options.small else number >= (3 if options.small else 40):
            break
    training.wait()


def check_losses(attention: str, variant: str, options: argparse.Namespace) -> Numbers:
    """Compare the losses of captured steps, with dropout, and of the same steps without graphs.

    In the variant `compiled`, the first captured step is not compiled.
    """
    overrides = {"training.batch_size": "256", "training.token_budget": "8192", **VARIANTS[variant]}
    steps = 6 if options.small else COMPARED_STEPS
    result: Numbers = {"steps": steps}
    for precision in ("32", "bf16-weights"):
        runs = []
        for form in ("eager", "eager", "captured"):
            training = build("slim", attention, form, options, overrides=overrides, precision=precision)
            with closing(training.stream()) as stream:
                losses = [float(training.stepper.step(next(stream), step, 1e-3)) for step in range(steps)]
            graphs: StepGraphs | None = training.stepper.graphs
            runs.append(losses)
        eager, again, captured = runs
        result[precision] = {
            "captured_shapes": 0 if graphs is None else graphs.num_captured,
            "captured_and_eager": differences_of(captured, eager),
            "eager_and_eager": differences_of(again, eager),
            "first_losses": eager[:3],
            "last_losses": eager[-3:],
            "last_losses_captured": captured[-3:],
        }
    return result


def differences_of(losses: list[float], others: list[float]) -> Numbers:
    """Compare the losses of two runs."""
    differences = [abs(a - b) for a, b in zip(losses, others, strict=True)]
    first = next((number for number, difference in enumerate(differences) if difference), None)
    largest = max(differences) if all(map(math.isfinite, differences)) else math.nan
    return {"largest": largest, "first_step_that_differs": first, "first_20": differences[:20]}


def check_resume(options: argparse.Namespace) -> Numbers:
    """Compare the weights of a training that is stopped and continued and of an uninterrupted one."""
    steps = 8 if options.small else RESUMED_STEPS
    settings = {
        "data.name": "prepared",
        "data.path": str(options.store),
        "model.dropout": "0.1",
        "training.max_steps": str(steps),
        "training.fixed_shapes": "true",
        "trainer.accelerator": options.device,
    }
    result: Numbers = {"steps": steps}
    for precision in ("32", "bf16-weights"):
        config = load_config(QUICKSTART, [*settings.items(), ("trainer.precision", precision)])
        with tempfile.TemporaryDirectory() as folder:
            runs = {name: Path(folder) / name for name in ("whole", "again", "continued")}
            for name in ("whole", "again"):
                train(config, runs[name], quiet=True)
            with stopped_at(steps // 2), suppress(KeyboardInterrupt):
                train(config, runs["continued"], quiet=True)
                raise RuntimeError("the training was not stopped")
            train(config, runs["continued"], resume=True, quiet=True)
            weights = {name: load_file(run / MODEL) for name, run in runs.items()}
        result[precision] = {
            f"largest difference {name}": max(
                float((weights[name][key].double() - value.double()).abs().max())
                for key, value in weights["whole"].items()
            )
            for name in ("again", "continued")
        }
    return result


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """Stop the trainings of the block at a step, as a signal does."""
    compute = Stepper.step

    def stop(self: Stepper, batch: StepBatch, number: int, rate: float) -> torch.Tensor:
        if number == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return compute(self, batch, number, rate)

    Stepper.step = stop
    try:
        yield
    finally:
        Stepper.step = compute


def measure_pretraining(size: str, options: argparse.Namespace) -> Numbers:
    """Measure the rate of a pretraining with all families of labels, with captures and validations."""
    steps = 3 if options.small else PRETRAINED_STEPS
    settings = {
        **SIZES[size],
        "data.path": str(options.corpus),
        "training.max_steps": str(steps),
        "training.checkpoint_every_steps": "null",
        "trainer.accelerator": options.device,
        "trainer.precision": "32" if options.device == "cpu" else "bf16-weights",
    }
    with tempfile.TemporaryDirectory() as folder:
        summary = train(load_config(CONFIG, list(settings.items())), Path(folder) / "run", quiet=True)
    kept = ("rows_per_second", "steps", "epochs", "seconds", "total_seconds", "parameters")
    return {**{key: summary[key] for key in kept}, "valid": summary["valid"]["measure"]}


def measure_graphormer(size: str, options: argparse.Namespace) -> Numbers:
    """Measure the rate of the rewrite of Graphormer, with batches that are on the device already."""
    store = MoleculeStore.open(options.pcqm4m or options.store, verify=False)
    molecules, batches = (8, 2) if options.small else (GRAPHORMER_BATCH, GRAPHORMER_BATCHES)
    rows = np.flatnonzero(np.diff(store.atom_offsets))[: molecules * batches]
    items = GraphormerSet([ogb_graph(store, int(row)) for row in rows], [0.0] * len(rows))
    device = torch.device(options.device)
    prepared = []
    for first in range(0, len(items), molecules):
        batch = collate([items[place] for place in range(first, min(first + molecules, len(items)))])
        prepared.append(GraphormerBatch(*(tensor.to(device) for tensor in batch)))
    torch.manual_seed(0)
    model = build_graphormer(size).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)

    def train(steps: int) -> int:
        count = 0
        for step in range(steps):
            batch = prepared[step % len(prepared)]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                prediction = model(batch)
            loss = functional.l1_loss(prediction.float().view(-1), batch.targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            count += len(batch.targets)
        float(loss.detach())  # waits for the device
        return count

    train(len(prepared))
    steps = 3 if options.small else TIMED_STEPS
    start = time.perf_counter()
    count = train(steps)
    seconds = time.perf_counter() - start
    return {"molecules_per_second": count / seconds, "step_ms": 1000 * seconds / steps, "steps": steps}


def ogb_graph(store: MoleculeStore, row: int) -> dict[str, Any]:
    """Return a molecule as `ogb.utils.smiles2graph` does, which needs RDKit."""
    graph = store.to_pyg(row)
    return {
        "num_nodes": graph.num_nodes,
        "node_feat": np.asarray(graph.x),
        "edge_index": np.asarray(graph.edge_index),
        "edge_feat": np.asarray(graph.edge_attr),
    }


def profile_kernels(model: str, attention: str, options: argparse.Namespace, store: Path) -> Numbers:
    """List the kernels of steps in the form `weights` by time."""
    training = build(model, attention, "weights", options, store)
    steps = 2 if options.small else training.batches.steps_per_epoch
    with closing(training.stream()) as stream:
        warm_up(training, "weights", stream, options)
        batches = [next(stream) for _ in range(steps)]
    training.wait()
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if options.device == "cuda" else [])]
    with profile(activities=kinds) as recorded:
        for batch in batches:
            training.step(batch)
        training.wait()
    events = [
        event
        for event in recorded.key_averages()
        if event.device_type.name == "CUDA" and not event.is_user_annotation
    ]
    events.sort(key=lambda event: -event.self_device_time_total)
    milliseconds = 1000 * steps  # from microseconds of all steps
    return {
        "steps": steps,
        "device_ms": sum(event.self_device_time_total for event in events) / milliseconds,
        "kernels_per_step": sum(event.count for event in events) / steps,
        "kernels": [
            {
                "name": event.key[:100],
                "ms": round(event.self_device_time_total / milliseconds, 4),
                "count": event.count / steps,
            }
            for event in events[:40]
        ],
    }


def describe(result: Numbers) -> str:
    """Return the numbers of a result on one line."""
    shown = {key: f"{value:,.4g}" for key, value in result.items() if isinstance(value, float)}
    return result.get("reason") or ", ".join(f"{key} {number}" for key, number in shown.items())


if __name__ == "__main__":
    main()
