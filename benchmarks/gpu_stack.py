"""Measure training steps of the encoder alone on a GPU, in several arithmetics, replayed as CUDA graphs.

    python benchmarks/gpu_stack.py --minutes 2.5

The encoder is that of `base`: 12 layers of width 768 with 32 heads, dropout 0.1, about 23,500 tokens of
molecules with a pair bias. Forms:

    layers      float32 weights with autocast, layer by layer in torch's operations, attention by kernels
    compiled    the same, each layer by torch.compile
    autocast    float32 weights with autocast, on the kernels between the products of a layer
    bf16        layers with weights in bfloat16 on these kernels, as `trainer.precision: bf16-weights`
    still       the same without dropout
    inductor    weights in bfloat16, the whole encoder by torch.compile instead of these kernels

`gradients` are forward and backward pass; `update` also clips, updates by AdamW, and rounds the weights.
`check` compares with float32, and `tune` times a kernel with other settings. Steps run in order of value,
each guarded, in a process that is started again if a step breaks it. Writes `gpu_stack.json` after each step.
With `--device cpu --small` it only shows that the program runs.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from record import record
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from molslice.model.base import AttentionChoice
from molslice.model.encoder import Encoder, initialize_linear
from molslice.ops import biased_attention, kernels, layer_steps, mixed_sort
from molslice.ops.layer_steps import draw_seed
from molslice.training.half_weights import HalfWeights

ROOT = Path(__file__).resolve().parents[1]
PEAK = 989.5e12  # operations per second of an H100 in bfloat16
BROKEN = 3  # exit code of a worker whose device can no longer be used
LATEST_SECONDS = 15  # after the minutes, for the step that is running
TOKENS = 23_552
STEPS = (
    "tune attention 20",
    "tune sort 20",
    "check softmax",
    "bf16 softmax 16",
    "profile bf16 softmax 16",
    "check slice_sort",
    "bf16 slice_sort 16",
    "profile bf16 slice_sort 16",
    "bf16 softmax 24",
    "bf16 slice_sort 24",
    "layers softmax 16",
    "still softmax 16",
    "tune attention 16",
    "tune steps 16",
    "bf16 flow 16",
    "bf16 singular 16",
    "tune sort 16",
    "autocast softmax 16",
    "tune attention 24",
    "profile bf16 flow 16",
    "profile bf16 singular 16",
    "compiled softmax 16",
    "layers slice_sort 16",
    "inductor softmax 16",
    "profile inductor softmax 16",
)
Numbers = dict[str, Any]
Settings = dict[tuple[ModuleType | None, str], Any]
HEADS, WARPS = "HEADS_OF_PROGRAM", "WARPS"


def attention_settings(module: ModuleType | None, names: Sequence[str]) -> dict[str, Settings]:
    """Return numbers of heads and warps of a program to try, by name."""
    tried = [(1, 1), (1, 2), (1, 4), (4, 1), (4, 2)]
    return {
        f"{heads} heads, {warps} warps": {
            (module, HEADS): heads,
            **{(module, name): {16: warps, 32: warps, 64: warps} for name in names},
        }
        for heads, warps in tried
    }


def step_settings(module: ModuleType | None) -> dict[str, Settings]:
    """Return numbers of rows and programs to try, by name."""
    return {
        f"{rows} rows, {programs} programs on a processor, {block} rows of a block": {
            (module, "ROWS"): rows,
            (module, "PROGRAMS"): programs * 132,
            (module, "BLOCK_PROGRAMS"): programs * 132,
            (module, "BLOCK_ROWS"): block,
        }
        for rows, programs, block in [(1, 4, 4), (1, 8, 8), (2, 4, 8), (2, 8, 16), (4, 2, 16), (4, 4, 32)]
    }


SETTINGS = {
    "attention": attention_settings(biased_attention._TRITON, [WARPS]),
    "sort": {
        **attention_settings(mixed_sort._TRITON, ["FORWARD_WARPS", "BACKWARD_WARPS"]),
        "1 heads, 4 warps, threads exchange values": {
            (mixed_sort._TRITON, HEADS): 1,
            (mixed_sort._TRITON, "FORWARD_WARPS"): {16: 1, 32: 4, 64: 4},
            (mixed_sort._TRITON, "MOST_IN_THREAD"): 0,
        },
    },
    "steps": step_settings(layer_steps._TRITON),
}


def main() -> None:
    """Run the steps in worker processes, and record their results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="a small encoder and few tokens")
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--steps", default=",".join(STEPS), help="names, separated by commas")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    end, waiting, rows = time.time() + 60 * options.minutes, options.steps.split(","), []
    while waiting and time.time() < end:
        command = [
            sys.executable,
            __file__,
            *sys.argv[1:],
            "--worker",
            str(end),
            "--steps",
            ",".join(waiting),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            timer = threading.Timer(end + LATEST_SECONDS - time.time(), worker.kill)
            timer.start()
            for line in worker.stdout:
                rows.append(json.loads(line))
                waiting.remove(rows[-1]["step"])
                print(describe(rows[-1]), flush=True)
                record("gpu_stack", {"device": options.device, "rows": rows}, options.out)
            timer.cancel()
        if worker.returncode not in (0, BROKEN) and waiting:
            rows.append({"step": waiting.pop(0), "error": f"exit {worker.returncode}"})
            print(describe(rows[-1]), flush=True)
    print("not run:", ", ".join(waiting) or "nothing", flush=True)
    print("wrote", record("gpu_stack", {"device": options.device, "rows": rows}, options.out))


def work(options: argparse.Namespace) -> None:
    """Run steps, and write a line of JSON for each."""
    for step in options.steps.split(","):
        if time.time() > float(options.worker):
            return
        start = time.perf_counter()
        row: Numbers = {"step": step}
        try:
            row |= run(step.split(), options)
        except Exception as error:  # noqa: BLE001 - the next steps are measured whatever this one raised
            row["error"] = f"{type(error).__name__}: {error}"[-600:]
        row["seconds"] = round(time.perf_counter() - start, 1)
        print(json.dumps(row), flush=True)
        if any(word in row.get("error", "") for word in ("CUDA error", "AcceleratorError")):
            sys.exit(BROKEN)
        if options.device == "cuda":
            torch.cuda.empty_cache()


def run(words: list[str], options: argparse.Namespace) -> Numbers:
    """Run one step."""
    match words:
        case ["check", attention]:
            return check(attention, options)
        case ["profile", form, attention, length]:
            return profile_step(Stack(form, attention, int(length), options))
        case ["tune", what, length]:
            return tune(what, int(length), options)
        case [form, attention, length]:
            stack = Stack(form, attention, int(length), options)
            times = {
                "gradients": stack.milliseconds(stack.gradients),
                "update": stack.milliseconds(stack.update),
            }
            return stack.describe(times)
    raise ValueError(f"unknown step {words}")


class Stack:
    """An encoder with a batch, its gradients and its update.

    Args:
        form: The arithmetic; see the top of the file. `still` is `bf16` without dropout.
        attention: Name of the attention.
        length: Number of tokens N.
        options: The options of the program.
    """

    def __init__(self, form: str, attention: str, length: int, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.form, self.attention, self.device = form, attention, options.device
        self.on_gpu = options.device == "cuda"
        self.dim, self.layers, self.heads = (64, 2, 4) if options.small else (768, 12, 32)
        self.length, self.batch = length, 256 // length if options.small else TOKENS // length
        dropout = 0.0 if form in ("still", "exact") else 0.1
        encoder = Encoder(
            AttentionChoice(attention),
            dim=self.dim,
            num_layers=self.layers,
            num_heads=self.heads,
            ffn_dim=self.dim,
            dropout=dropout,
            attention_dropout=dropout,
            uses_pair_bias=True,
        )
        initialize_linear(encoder)
        self.whole = encoder.to(self.device)
        self.half = HalfWeights(encoder) if form in ("bf16", "still", "inductor") else None  # pyright: ignore[reportArgumentType]
        self.encoder: nn.Module = self.whole if self.half is None else self.half.task
        if form == "compiled":
            torch._dynamo.reset()
            for layer in encoder.layers:
                layer.compile(dynamic=False)
        if form == "inductor":
            torch._dynamo.reset()
            self.encoder.compile(dynamic=False)
        rate = torch.tensor(1e-5, device=self.device) if self.on_gpu else 1e-5
        self.optimizer = torch.optim.AdamW(
            encoder.parameters(), lr=rate, weight_decay=0.01, fused=True, capturable=self.on_gpu
        )
        self.draw()

    def draw(self) -> None:
        """Draw tokens, mask and bias; sequences have at most three tokens of padding."""
        shape = (self.batch, self.length, self.dim)
        count = torch.randint(self.length - 3, self.length + 1, (self.batch, 1))
        self.mask = (torch.arange(self.length) < count).to(self.device)
        self.tokens = torch.randn(shape, device=self.device).requires_grad_()
        pairs = (self.batch, self.heads, self.length, self.length)
        self.bias = torch.randn(pairs, device=self.device).requires_grad_()
        self.direction = torch.randn(self.batch, self.dim, device=self.device)

    def gradients(self) -> Tensor:
        """Compute the gradients of a loss that depends on the first tokens."""
        self.tokens.grad = self.bias.grad = None
        for parameter in self.encoder.parameters():
            parameter.grad = None
        has_autocast = self.form in ("layers", "compiled", "autocast")
        with self._operations(), torch.autocast(self.device, torch.bfloat16, enabled=has_autocast):
            output = self.encoder(self.tokens, self.mask, self.bias)
            loss = (output.tokens[:, 0].float() * self.direction).mean()
            if output.penalty is not None:
                loss = loss + output.penalty
        loss.backward()
        return loss.detach()

    @contextmanager
    def _operations(self) -> Iterator[None]:
        """Use the kernels between products in the forms that have them."""
        uses_kernels = Encoder._uses_kernels
        if self.form in ("layers", "compiled", "inductor", "exact"):
            Encoder._uses_kernels = lambda self, tokens, dtype: False
        try:
            yield
        finally:
            Encoder._uses_kernels = uses_kernels

    def update(self) -> Tensor:
        """Compute the gradients, clip them and update the weights."""
        loss = self.gradients()
        if self.half is not None:
            self.half.hand_over_gradients()
        nn.utils.clip_grad_norm_(self.whole.parameters(), 5.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.half is not None:
            self.half.take_weights()
        return loss

    def captured(self, step: Callable[[], Tensor]) -> Callable[[], object]:
        """Return the replay of a step as a CUDA graph; on a CPU, the step."""
        if not self.on_gpu:
            return step
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = step()
        return graph.replay

    def kernel_calls(self, what: str) -> list[Callable[[], Tensor]]:
        """Return a forward and a backward pass of one kernel on tensors as in a layer."""
        heads = (self.batch, self.length, self.heads, self.dim // self.heads)
        values = torch.randn(heads, device=self.device, dtype=torch.bfloat16)
        bias, seed = self.bias.detach().bfloat16(), draw_seed(values, 0.1)
        rows = values.flatten(2)
        if what == "attention":
            packed = torch.stack([values] * 3, 2)
            tensors = packed, bias, self.mask, seed, 0.1
            return [
                lambda: biased_attention._attend(*tensors),
                lambda: biased_attention._gradients(
                    values, packed, bias, self.mask, bias, seed, 0.1, bias.dtype
                )[0],
            ]
        if what == "sort":
            tensors = values, bias, self.mask, None, seed, 0.1
            places = mixed_sort._mix_and_sort(*tensors)[1]
            return [
                lambda: mixed_sort._mix_and_sort(*tensors)[0],
                lambda: mixed_sort._gradients(
                    values, places, values, bias, self.mask, bias, seed, 0.1, bias.dtype
                )[0],
            ]
        weight = torch.ones(self.dim, device=self.device, dtype=torch.bfloat16)
        tensors = rows, rows, weight, weight, weight, 1e-5, seed, 0.1, torch.bfloat16, torch.bfloat16
        total, _, statistics = layer_steps._add_and_norm(*tensors)
        inputs = rows, rows, total, statistics, weight, seed, 0.1, torch.bfloat16, True
        return [
            lambda: layer_steps._add_and_norm(*tensors)[0],
            lambda: layer_steps._norm_gradients(*inputs)[0],
            lambda: layer_steps._gelu(rows, weight, seed, 0.1),
            lambda: layer_steps._gelu_gradients(rows, rows, weight, seed, 0.1)[0],
        ]

    def milliseconds(self, step: Callable[[], Tensor]) -> float:
        """Return the time of a captured step."""
        replay = self.captured(step)
        return time_call(replay, self.on_gpu, 20 if self.on_gpu else 2)

    @property
    def operations(self) -> float:
        """Operations of the matrix products of a step."""
        maps = {"slice_sort": 2, "flow": 4, "singular": 4}.get(self.attention, 4)
        products = 1 if self.attention == "slice_sort" else 2
        per_token = 2 * self.dim**2 * (maps + 2) + 2 * products * self.length * self.dim
        return 3.0 * self.layers * per_token * self.batch * self.length

    def describe(self, times: dict[str, float]) -> Numbers:
        """Return the numbers of a measurement."""
        memory = torch.cuda.max_memory_allocated() / 1e9 if self.on_gpu else None
        row: Numbers = {"tokens": self.batch * self.length, "memory_gb": memory}
        for name, milliseconds in times.items():
            rate = self.operations / (milliseconds / 1000)
            row[f"{name}_ms"] = round(milliseconds, 3)
            row[f"{name}_tflops"] = round(rate / 1e12, 1)
            row[f"{name}_of_peak"] = round(rate / PEAK, 3)
            row[f"{name}_molecules_per_second"] = round(self.batch / (milliseconds / 1000))
        return row


def time_call(call: Callable[[], object], on_gpu: bool, repeats: int) -> float:
    """Return the median of three means of the time of a call, in milliseconds."""
    call()
    means = []
    for _ in range(3):
        if not on_gpu:
            start = time.perf_counter()
            call()
            means.append(1000 * (time.perf_counter() - start))
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        means.append(begin.elapsed_time(end) / repeats)
    return sorted(means)[1]


def check(attention: str, options: argparse.Namespace) -> Numbers:
    """Compare values and gradients of `bf16` with float32 and torch's operations, and a graph with eager."""
    stack, exact = (Stack(form, attention, 16, options) for form in ("still", "exact"))
    names = [name for name, _ in exact.encoder.named_parameters()]
    stack.gradients()
    with kernels.torch_forms():
        exact.gradients()
    pairs = zip(names, stack.encoder.parameters(), exact.encoder.parameters(), strict=True)
    slopes: dict[str, Any] = {name: (one.grad, other.grad) for name, one, other in pairs}
    slopes |= {"tokens": (stack.tokens.grad, exact.tokens.grad), "bias": (stack.bias.grad, exact.bias.grad)}
    # the gradient of a key's bias is zero but for rounding
    errors = {name: distance(*both) for name, both in slopes.items() if not name.endswith("key.bias")}
    worst = sorted(errors, key=lambda name: -errors[name])[:4]
    row: Numbers = {"gradient_errors": {name: errors[name] for name in (*worst, "tokens", "bias")}}
    row["padding_has_no_gradient"] = not slopes["tokens"][0][~stack.mask].any()
    losses = [float(stack.gradients())]
    replay = stack.captured(stack.gradients)
    replay()
    losses.append(float(stack.loss if stack.on_gpu else losses[0]))
    return row | {"losses": losses}


def distance(one: Tensor, other: Tensor) -> float:
    """Return the relative distance of two tensors."""
    return float((one.double() - other.double()).norm() / other.double().norm())


def profile_step(stack: Stack) -> Numbers:
    """Return the kernels of an update that take the most time."""
    replay, count = stack.captured(stack.update), 5 if stack.on_gpu else 1
    replay()
    activities = [ProfilerActivity.CUDA if stack.on_gpu else ProfilerActivity.CPU]
    with profile(activities=activities) as recorded:
        for _ in range(count):
            replay()
        if stack.on_gpu:
            torch.cuda.synchronize()
    field = "self_device_time_total" if stack.on_gpu else "self_cpu_time_total"
    events = sorted(recorded.key_averages(), key=lambda event: -getattr(event, field))
    total = sum(getattr(event, field) for event in events) / 1000 / count
    rows = [
        {
            "name": event.key[:110],
            "ms": round(getattr(event, field) / 1000 / count, 3),
            "count": event.count / count,
        }
        for event in events[:25]
    ]
    return {"total_ms": total, "launches": sum(event.count for event in events) / count, "kernels": rows}


def tune(what: str, length: int, options: argparse.Namespace) -> Numbers:
    """Time one kernel in both directions with several settings, milliseconds of each."""
    form = {"attention": "softmax", "sort": "slice_sort", "steps": "softmax"}[what]
    stack, forms = Stack("bf16", form, length, options), {}
    for name, settings in SETTINGS[what].items():
        try:
            with changed(settings):
                forms[name] = [round(stack.milliseconds(call), 4) for call in stack.kernel_calls(what)]
        except Exception as error:  # noqa: BLE001 - some settings need more shared memory than there is
            forms[name] = f"{type(error).__name__}: {error}"[:100]
    return {"forward_and_backward_ms": forms}


@contextmanager
def changed(settings: Settings) -> Iterator[None]:
    """Change constants of modules of kernels."""
    before = {key: getattr(*key) for key in settings}
    for (module, constant), value in settings.items():
        setattr(module, constant, value)
    try:
        yield
    finally:
        for (module, constant), value in before.items():
            setattr(module, constant, value)


def describe(row: Numbers) -> str:
    """Return a short text about a result."""
    shown = {key: value for key, value in row.items() if key not in ("step", "kernels")}
    lines = [f"{row['step']}: {json.dumps(shown)}"]
    lines += [f"    {one['ms']:8.3f} ms {one['count']:6.1f}  {one['name']}" for one in row.get("kernels", ())]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
