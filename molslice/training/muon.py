"""Muon for the matrices of a model, with AdamW for all other parameters."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.types import MolsliceError

MOMENTUM = 0.95
ITERATIONS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
RMS_OF_ADAMW = 0.2
SMALLEST_NORM = 1e-7


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are orthogonal matrices, in one optimizer with AdamW.

    For a matrix W of R rows and C columns with gradient G: M = 0.95 M + 0.05 G, N = 0.95 M + 0.05 G, and
    W = (1 - lr decay) W - 0.2 sqrt(max(R, C)) lr `orthogonalize`(N). The factor 0.2 sqrt(max(R, C)) gives a
    step the root mean square of a step of AdamW, so that both take the same learning rate.

    `torch.optim.Muon` takes the same steps one matrix at a time, and reads the learning rate on the host.
    Here, matrices of equal shape are one product, and a step can be captured as a CUDA graph. The iteration
    takes bfloat16 where the device has it, so that a seed gives other weights on a CPU without it.

    Args:
        groups: Groups of parameters, with `weight_decay` and perhaps other keys, which are kept.
        no_matrices: Parameters with two axes that AdamW updates, such as embeddings.
        lr: Learning rate.
        betas: Decay rates of AdamW's moments.
        fused: Whether AdamW has torch's fused kernel.

    Raises:
        MolsliceError: There is no matrix.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the factor is from
    Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv 2502.16982, section 2.2.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        no_matrices: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        fused: bool,
    ) -> None:
        others = {id(parameter) for parameter in no_matrices}

        def is_matrix(parameter: Tensor) -> bool:
            return parameter.ndim == 2 and id(parameter) not in others

        matrices = [{**group, "momentum": MOMENTUM} for group in _chosen(groups, is_matrix)]
        of_adamw = _chosen(groups, lambda parameter: not is_matrix(parameter))
        if not matrices:
            raise MolsliceError("optimizer.name muon needs a model with matrices; choices: adamw, radam")
        self._adamw = torch.optim.AdamW(of_adamw, lr=lr, betas=betas, fused=fused) if of_adamw else None
        if self._adamw is not None:  # torch would warn of the steps before the first capture
            setattr(self._adamw, "_warned_capturable_if_run_uncaptured", True)  # noqa: B010
        super().__init__([*matrices, *(self._adamw.param_groups if self._adamw else [])], {"lr": lr})
        self._share()

    def _share(self) -> None:
        """Give AdamW its groups and the state of this optimizer."""
        if self._adamw is not None:
            self._adamw.param_groups = [group for group in self.param_groups if "momentum" not in group]
            self._adamw.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters that have a gradient."""
        assert closure is None
        self._step_matrices([group for group in self.param_groups if "momentum" in group])
        if self._adamw is not None:
            self._adamw.step()

    def _step_matrices(self, groups: Sequence[dict[str, Any]]) -> None:
        """Update the matrices of all groups; matrices of equal shape are one product."""
        weights = [weight for group in groups for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
        gradients = [weight.grad for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1.0 - MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
        directions = torch._foreach_lerp(gradients, momenta, MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
        steps = dict(zip(weights, _orthogonalize_all(directions), strict=True))
        for group in groups:
            for weight in group["params"]:
                if weight in steps:  # the rate may be a tensor, which a captured step reads
                    weight.mul_(1.0 - group["lr"] * group["weight_decay"]).sub_(steps[weight] * group["lr"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; see `torch.optim.Optimizer.load_state_dict`."""
        super().load_state_dict(state_dict)
        self._share()


def _chosen(groups: Sequence[dict[str, Any]], is_chosen: Callable[[Tensor], bool]) -> list[dict[str, Any]]:
    """Return the groups with the chosen parameters alone; empty groups are left out."""
    return [
        {**group, "params": chosen} for group in groups if (chosen := [*filter(is_chosen, group["params"])])
    ]


def _orthogonalize_all(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Orthogonalize matrices of any shapes, scaled as the steps of `Muon` before the learning rate."""
    places: dict[torch.Size, list[int]] = {}
    for place, matrix in enumerate(matrices):
        places.setdefault(matrix.shape, []).append(place)
    steps = list(matrices)
    for shape, of_shape in places.items():
        orthogonal = orthogonalize(torch.stack([matrices[place] for place in of_shape])).float()
        for place, step in zip(of_shape, orthogonal * (RMS_OF_ADAMW * max(shape) ** 0.5), strict=True):
            steps[place] = step
    return steps


def orthogonalize(matrices: Float[Tensor, "K R C"]) -> Float[Tensor, "K R C"]:
    """Move the singular values of matrices toward 1, to about 0.7 to 1.2, by five Newton-Schulz steps.

    X = N / |N|, then five times X = 3.4445 X - 4.7750 X X^T X + 2.0315 (X X^T)^2 X, in bfloat16 where the
    device has products of this type. X is transposed if it has more rows than columns.

    Args:
        matrices: Matrices N.

    Source: Jordan et al. 2024.
    """
    first, third, fifth = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.to(torch.bfloat16 if _has_bfloat16(matrices.device) else torch.float32)
    x = x / x.flatten(1).norm(dim=1).clamp(min=SMALLEST_NORM)[:, None, None]
    x = x.mT if is_tall else x
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x.mT if is_tall else x


def _has_bfloat16(device: torch.device) -> bool:
    """Return whether a device has fast products of bfloat16."""
    if device.type != "cpu":
        return True
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
