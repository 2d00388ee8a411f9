"""The effect of the number of tokens on softmax and on sorting."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from molslice.studies.base import Findings, Least, Request, Study

DTYPES = {"float32": torch.float32, "float64": torch.float64}
METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda scores: scores.softmax(-1),
    "sort": lambda scores: scores.sort(-1).values,
}


@dataclass(frozen=True, kw_only=True)
class Oversmoothing(Study):
    """Softmax with standard normal scores over 10 to a million tokens, compared with sorting.

    Queries, keys and values are normal random numbers. Each query is scaled to length sqrt(C), so that its
    scores are standard normal for any N. The rows of the CSV are means and standard deviations over `repeats`
    draws of:
      weight_sd: the standard deviation of a query's weights over the tokens; sqrt(e - 1) / N in the limit.
      largest_weight: the largest weight of a query.
      output_sd: the standard deviation of the outputs over queries, averaged over channels. For `sort`, over
        the tokens of the sorted columns, which are the values themselves.
      share_equal, largest_difference, sum_of_differences: f(x)[p] compared with f(x[p]) for scores x and
        `permutations` random permutations p; `share_equal` is the share of bitwise equal entries. A softmax
        sums in another order after a permutation, and if the sum differs in its last bit, most weights do.
        Sorting only compares: sort(x) and sort(x[p]) are compared directly.
      output_difference: the largest difference between a query's outputs for both orders of tokens; for
        `sort`, between the sorted columns.

    Source: The questions come from the Sliceformer authors' `sofmax_equ_test.py` (standard deviation,
    distance and share of equal entries after a permutation). Its softmax omits the exponential in the
    numerator; ours does not.
    """

    summary: ClassVar[str] = "softmax over many tokens compared with sorting: smoothing and exactness"

    tokens: Annotated[tuple[int, ...], "numbers of tokens", Least(2)] = tuple(10**k for k in range(1, 7))
    queries: Annotated[int, "queries, computed one at a time", Least(2)] = 8
    channels: Annotated[int, "channels of a head", Least(1)] = 8
    repeats: Annotated[int, "draws for each number of tokens", Least(1)] = 3
    permutations: Annotated[int, "permutations of each draw's scores", Least(1)] = 10

    def measure(self, request: Request) -> Findings:
        """Measure one row for each number of tokens, method, dtype and quantity."""
        rows: list[dict[str, Any]] = []
        for count in self.tokens:
            request.tell(f"{count:,} tokens")
            draws: dict[tuple[str, str, str], list[float]] = {}
            for repeat in range(self.repeats):
                for key, value in self._draw_once(count, repeat, request.seed):
                    draws.setdefault(key, []).append(value)
            for key, values in draws.items():
                source = dict(zip(("method", "dtype", "quantity"), key, strict=True))
                spread = {"mean": float(np.mean(values)), "sd": float(np.std(values)), "values": len(values)}
                rows.append({"tokens": count, **source, **spread})
        return Findings(rows)

    def _draw_once(self, count: int, repeat: int, seed: int) -> list[tuple[tuple[str, str, str], float]]:
        generator = torch.Generator().manual_seed((seed * 1000 + repeat) * 10_000_019 + count)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        query = draw(self.queries, self.channels)
        query = query / query.norm(dim=1, keepdim=True) * self.channels**0.5
        key, value = draw(count, self.channels), draw(count, self.channels)
        orders = [torch.randperm(count, generator=generator) for _ in range(self.permutations)]
        measured = []
        for dtype, kind in DTYPES.items():
            key_, value_ = key.to(kind), value.to(kind)
            spread = self._softmax(query.to(kind), key_, value_, orders[0])
            measured += [(("softmax", dtype, name), x) for name, x in spread]
            scores = key_ @ query[0].to(kind) / self.channels**0.5
            for method in METHODS:
                measured += [((method, dtype, name), x) for name, x in _exactness(method, scores, orders)]
            columns, again = (x.T.contiguous().sort(-1).values for x in (value_, value_[orders[0]]))
            measured.append((("sort", dtype, "output_sd"), float(columns.double().std(-1).mean())))
            measured.append((("sort", dtype, "output_difference"), float((columns - again).abs().max())))
        return measured

    def _softmax(
        self, query: Float[Tensor, "Q C"], key: Tensor, value: Float[Tensor, "N C"], permutation: Tensor
    ) -> list[tuple[str, float]]:
        """Compute the N x N matrix row by row; the whole matrix would take terabytes."""
        deviations, largest, outputs = [], [], []
        for row in query:
            weights = (key @ row / self.channels**0.5).softmax(-1)
            deviations.append(float(weights.double().std(correction=0)))
            largest.append(float(weights.max()))
            outputs.append(weights @ value)
        shuffled = (key[permutation] @ query[0] / self.channels**0.5).softmax(-1) @ value[permutation]
        return [
            ("weight_sd", float(np.mean(deviations))),
            ("largest_weight", float(np.mean(largest))),
            ("output_sd", float(torch.stack(outputs).double().std(0).mean())),
            ("output_difference", float((shuffled - outputs[0]).abs().max())),
        ]

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw the weights, the outputs and the exactness."""
        figure.set_size_inches(13.0, 4.0)
        left, middle, right = figure.subplots(1, 3)
        tokens = np.array(self.tokens, dtype=np.float64)
        _plot(left, findings, "softmax", "float64", "weight_sd", "softmax", marker="o")
        _plot(left, findings, "softmax", "float64", "largest_weight", "softmax, largest weight", marker="^")
        limit = r"$\sqrt{\mathrm{e} - 1}\,/\,N$"
        left.plot(tokens, np.sqrt(np.e - 1) / tokens, "k--", linewidth=1, label=limit)
        left.set(yscale="log", ylabel="standard deviation of the weights", title="weights")
        _plot(middle, findings, "softmax", "float64", "output_sd", "softmax, over queries", marker="o")
        _plot(middle, findings, "sort", "float64", "output_sd", "sort, over tokens", marker="s")
        middle.set(yscale="log", ylabel="standard deviation of the outputs", title="outputs")
        for dtype in DTYPES:
            _plot(right, findings, "softmax", dtype, "share_equal", f"softmax, {dtype}", "o", spread=False)
        _plot(right, findings, "sort", "float32", "share_equal", "sort, both", "s", spread=False)
        right.set(ylim=(-0.05, 1.05), title="permute, then apply: the same bits?")
        right.set_ylabel("share of entries equal bit for bit")
        for axes in (left, middle, right):
            axes.set(xscale="log", xlabel="tokens N")
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small", frameon=False)


def _exactness(method: str, scores: Float[Tensor, " N"], orders: list[Tensor]) -> list[tuple[str, float]]:
    """Return each quantity for each permutation."""
    apply = METHODS[method]
    plain, quantities = apply(scores), []
    for order in orders:
        expected = plain[order] if method == "softmax" else plain
        permuted = apply(scores[order])
        difference = (expected - permuted).abs().double()
        quantities += [
            ("share_equal", float((expected == permuted).double().mean())),
            ("largest_difference", float(difference.max())),
            ("sum_of_differences", float(difference.sum())),
        ]
    return quantities


def _plot(
    axes: Axes,
    findings: Findings,
    method: str,
    dtype: str,
    quantity: str,
    label: str,
    marker: str,
    spread: bool = True,
) -> None:
    rows = findings.select(method=method, dtype=dtype, quantity=quantity)
    tokens, means, sds = ([row[name] for row in rows] for name in ("tokens", "mean", "sd"))
    bars = sds if spread else None
    axes.errorbar(tokens, means, yerr=bars, marker=marker, markersize=5, capsize=3, label=label)
