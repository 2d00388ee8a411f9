"""The operations of models, counted without data and without memory for their weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from molslice.model import AttentionChoice, ModelSpec, build_model
from molslice.model.count import parameters_by_part
from molslice.model.sequences.decision import TOKENS_PER_STEP
from molslice.model.skeleton import without_memory
from molslice.types import DataSpec, EpisodeBatch, MolsliceError, SequenceBatch


def count_matrix_products(
    model: nn.Module,
    make_batch: Callable[[], SequenceBatch | EpisodeBatch],
    backward: Callable[[Any], object] | None = None,
    device: torch.device | str = "cpu",
) -> int:
    """Count the operations of the matrix products of a pass, two for each multiply-add.

    Args:
        model: The model.
        make_batch: Makes the batch, of which only the shapes count.
        backward: Runs the backward pass from the output; None counts the forward pass alone.
        device: The device of the batch.

    Raises:
        RuntimeError: The pass depends on values; NotImplementedError is one.
    """
    named = [*model.named_parameters(), *model.named_buffers()]
    # Fake tensors have shapes and no values, so counting needs no memory at any length. The plain form of
    # attention has the products of the fused kernels, for which the counter has no formula.
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.set_grad_enabled(backward is not None),
        sdpa_kernel(SDPBackend.MATH),
    ):
        state = {
            name: torch.empty(
                value.shape, dtype=value.dtype, device=device, requires_grad=value.requires_grad
            )
            for name, value in named
        }
        batch = make_batch()
        with FlopCounterMode(display=False) as counter:
            output = functional_call(model, state, (batch,))
            if backward is not None:
                backward(output)
    return counter.get_total_flops()


class Operations(NamedTuple):
    """The size of a model and the cost of a row.

    Attributes:
        tokens: Tokens of the longest row, of both sequences for pairs.
        parameters: Trainable parameters.
        flops: Floating-point operations of the matrix products of a forward pass of that row.
        multiply_adds: Multiply-adds, of two operations each; many papers state them as FLOPs.
    """

    tokens: int
    parameters: int
    flops: int
    multiply_adds: int


def count_operations(spec: ModelSpec, attention: AttentionChoice, data: DataSpec) -> Operations:
    """Count the operations of a forward pass of one row without padding, of the largest length.

    Only matrix products are counted, by `torch.utils.flop_counter`. Norms, softmaxes and sums need few
    operations and are left out; so is sorting, which may need many.

    Args:
        spec: The options of the model.
        attention: The choice of the attention.
        data: The properties of the data.

    Raises:
        MolsliceError: The data are molecules, the model does not fit the data or the attention, or the
            attention needs values to run.
    """
    if data.tokens == "molecules":
        raise MolsliceError("operations of molecule models depend on the molecules; see molslice bench train")
    with without_memory():
        model = build_model(spec, attention, data).eval()
    try:
        flops = count_matrix_products(model, lambda: _longest_row(data))
    except RuntimeError as error:
        raise MolsliceError(
            f"the operations of {attention.name} depend on values, so they cannot be counted"
        ) from error
    tokens = (data.max_tokens or 0) * (2 if data.paired else 1)
    return Operations(tokens, parameters_by_part(model)["total"], flops, flops // 2)


def _longest_row(data: DataSpec) -> SequenceBatch | EpisodeBatch:
    assert data.max_tokens is not None  # checked in `DataSpec`
    if data.tokens == "steps":
        shape = 1, data.max_tokens // TOKENS_PER_STEP
        return EpisodeBatch(
            states=torch.zeros(*shape, data.channels or 0),
            actions=torch.zeros(*shape, data.num_outputs),
            returns_to_go=torch.zeros(shape),
            timesteps=torch.zeros(shape, dtype=torch.int64),
        )

    def sequence() -> Tensor:
        if data.tokens == "ids":
            return torch.zeros(1, data.max_tokens or 0, dtype=torch.int64)
        return torch.zeros(1, data.max_tokens or 0, data.channels or 0)

    return SequenceBatch(sequence(), pair_tokens=sequence() if data.paired else None)
