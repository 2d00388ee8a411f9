"""Values for pairs of tokens of a molecule, looked up in tables by distance and by the bonds of the path.

The value of two atoms is the value of their distance, plus the mean over the first bonds of their path of a
value for each place and code. Every pair with the graph token, which is token 0, has one value.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from molslice.ops import kernel_choice
from molslice.ops.path_codes import CODE_BITS, NUM_CODES
from molslice.ops.paths import MAX_HOPS
from molslice.types import PathCodes

_TRITON = kernel_choice.load_kernels("triton_path_bias")


def path_bias(
    codes: PathCodes, spatial: Float[Tensor, "R H"], hops: Float[Tensor, "K C H"]
) -> Float[Tensor, "B H N N"]:
    """Look up the value of each pair of tokens.

    Args:
        codes: The paths.
        spatial: Values of the distances 0, 1, ..., with longer ones sharing the last of them; then the values
            of pairs without a path and of pairs with the graph token.
        hops: Values of the codes of the first, second, ... bond of a path; zero for the code of no bond.

    Returns:
        Values of all pairs, with the graph token as token 0. Padding has the values of pairs without a path.
    """
    if kernel_choice.are_usable(_TRITON, spatial):
        tables = torch.cat([F.pad(spatial, (0, 0, 0, NUM_CODES - len(spatial)))[None], hops])
        return _look_up(codes.distance, codes.bonds, tables, len(spatial))
    distance = codes.distance.long()
    furthest = len(spatial) - 3
    slots = torch.where(distance < 0, furthest + 1, distance.clamp(max=furthest))
    shifts = torch.arange(0, MAX_HOPS * CODE_BITS, CODE_BITS, device=distance.device)
    places = ((codes.bonds[..., None] >> shifts) & (NUM_CODES - 1)) + NUM_CODES * torch.arange(
        MAX_HOPS, device=distance.device
    )
    flat = hops.flatten(0, 1)
    total = F.embedding(places[..., 0], flat)
    for hop in range(1, MAX_HOPS):
        total = total + F.embedding(places[..., hop], flat)
    values = F.embedding(slots, spatial) + total / distance.clamp(1, MAX_HOPS)[..., None]
    batch, atoms, _ = distance.shape
    bias = spatial[-1].expand(batch, atoms + 1, atoms + 1, -1).clone()
    bias[:, 1:, 1:] = values
    return bias.permute(0, 3, 1, 2)


@torch.library.custom_op("molslice::path_bias", mutates_args=())
def _look_up(distance: Tensor, bonds: Tensor, tables: Tensor, slots: int) -> Tensor:
    """Call the kernel with tables [1 + K, 64, H]."""
    assert _TRITON is not None  # checked in `path_bias`
    out = _empty_bias(distance, tables)
    _TRITON.look_up_into(distance.contiguous(), bonds.contiguous(), tables, slots, CODE_BITS, out)
    return out


_look_up.register_fake(lambda distance, _, tables, *others: _empty_bias(distance, tables))  # noqa: ARG005


def _empty_bias(distance: Tensor, tables: Tensor) -> Tensor:
    batch, atoms, _ = distance.shape
    return tables.new_empty(batch, tables.shape[2], atoms + 1, atoms + 1)


@torch.library.custom_op("molslice::path_bias_gradients", mutates_args=())
def _gradients(grad: Tensor, distance: Tensor, bonds: Tensor, slots: int) -> Tensor:
    assert _TRITON is not None  # checked in `path_bias`
    tensors = [tensor.contiguous() for tensor in (grad, distance, bonds)]
    return _TRITON.gradients_of(*tensors, slots, MAX_HOPS, CODE_BITS)


@_gradients.register_fake
def _(grad: Tensor, distance: Tensor, bonds: Tensor, slots: int) -> Tensor:  # noqa: ARG001
    return grad.new_empty(1 + MAX_HOPS, NUM_CODES, grad.shape[1], dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ANN401, ARG001
    distance, bonds, _, ctx.slots = inputs
    ctx.save_for_backward(distance, bonds)


def _backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None]:  # noqa: ANN401
    return None, None, _gradients(grad, *ctx.saved_tensors, ctx.slots), None


_look_up.register_autograd(_backward, setup_context=_keep)
