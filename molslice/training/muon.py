"""Muon for the matrices of a model, with AdamW for all other parameters."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from molslice.types import MolsliceError

MATRIX_RATE = "match_rms_adamw"  # a step changes a matrix about as much as a step of AdamW at the same rate


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are orthogonal matrices, in one optimizer with AdamW.

    For a matrix W of R rows and C columns with gradient G: M = 0.95 M + 0.05 G, N = 0.95 M + 0.05 G, and
    W = (1 - lr decay) W - 0.2 sqrt(max(R, C)) lr O. O is near P Q^T of the singular value decomposition
    N = P S Q^T, by five steps of a Newton-Schulz iteration. The factor before O gives a step the root mean
    square of a step of AdamW, so that both take the same learning rate.

    Args:
        groups: Groups of parameters, with `weight_decay` and perhaps other keys, which are kept.
        tables: Parameters with two axes whose rows are looked up, such as embeddings; AdamW updates them.
        lr: Learning rate.
        betas: Decay rates of AdamW's moments.
        fused: Whether AdamW has torch's fused kernel.

    Raises:
        MolsliceError: This version of torch has no Muon, or there is no matrix.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the factor is from
    Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv 2502.16982, section 2.2.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        tables: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        fused: bool,
    ) -> None:
        kind = getattr(torch.optim, "Muon", None)
        if kind is None:
            raise MolsliceError(f"optimizer.name muon needs torch 2.9 or newer, got {torch.__version__}")
        of_tables = {id(table) for table in tables}

        def is_matrix(parameter: Tensor) -> bool:
            return parameter.ndim == 2 and id(parameter) not in of_tables

        matrices = _chosen(groups, is_matrix)
        others = _chosen(groups, lambda parameter: not is_matrix(parameter))
        if not matrices:
            raise MolsliceError("optimizer.name muon needs a model with matrices; choices: adamw, radam")
        self._parts = [kind(matrices, lr=lr, adjust_lr_fn=MATRIX_RATE)]
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=lr, betas=betas, fused=fused))
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Give the two optimizers the groups and the state of this one."""
        start = 0
        for part in self._parts:
            end = start + len(part.param_groups)
            part.param_groups, part.state = self.param_groups[start:end], self.state
            start = end

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters that have a gradient."""
        assert closure is None
        for part in self._parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; see `torch.optim.Optimizer.load_state_dict`."""
        super().load_state_dict(state_dict)
        self._share()


def _chosen(groups: Sequence[dict[str, Any]], is_chosen: Callable[[Tensor], bool]) -> list[dict[str, Any]]:
    """Return the groups with the chosen parameters alone; empty groups are left out."""
    return [
        {**group, "params": chosen} for group in groups if (chosen := [*filter(is_chosen, group["params"])])
    ]
