"""Refuse a training whose N x N tensors exceed the memory, before the system ends it without a message."""

import copy

import torch
from torch import Tensor, nn

from molslice.attention import Attention
from molslice.config import RunConfig
from molslice.files.process_memory import available_bytes
from molslice.training.batches import TrainingBatches
from molslice.types import MolsliceError, TokenContext

SHORT = 256  # tokens of the shortest measured sequence
PER_PAIR = 64  # bytes of a head and a layer below which nothing is measured; softmax keeps 12
GIB = 1 << 30


def check_pair_memory(
    model: nn.Module, batches: TrainingBatches, config: RunConfig, device: torch.device
) -> None:
    """Refuse a model whose attentions keep more in N x N tensors than there is memory.

    The estimate is a lower bound for the largest batch of the first epoch: it counts only the N x N tensors
    that the attentions keep for the gradients, measured on short sequences on the same device. With a pair
    bias it counts only the bias.

    Raises:
        MolsliceError: The message says how much they need, and what to change.
    """
    layers, free = _largest_layers(model), _free_bytes(device)
    if not layers or free is None:
        return
    spec = layers[0].spec
    parts = batches.world * batches.accumulate
    longest = int(batches.order.tokens.max())
    at_most = longest * (batches.order.token_budget / parts + longest)
    if at_most * spec.num_heads * len(layers) * PER_PAIR <= free:
        return
    shapes = (batches.order.shape_of(rows) for rows in batches.order.epoch(0))
    length, rows = max(shapes, key=lambda shape: shape.width**2 * shape.rows)
    rows = -(-rows // parts)
    if batches.dataset.spec.paired:
        length, rows = length // 2, 2 * rows
    kept = 1 if getattr(config.model, "activation_checkpointing", False) else len(layers)
    scale = rows * length**2 * (1.0 if config.trainer.precision == "32" else 0.5)
    measured = None
    if spec.pair_bias_mode != "none":
        needed = scale * spec.num_heads * 4
    else:
        measured = copy.deepcopy(layers[0]).to(device).train()
        needed = scale * kept * _bytes_per_pair(measured, length)
    if needed <= free:
        return
    advice = ["a smaller training.batch_size", "a larger training.accumulate"]
    if kept > 1:
        advice.append("model.activation_checkpointing: true")
    if measured is not None and scale * kept * _bytes_per_pair(measured.eval(), length) <= free:
        advice.append("model.attention_dropout: 0, for which the device has a kernel without these tensors")
    raise MolsliceError(
        f"training needs at least {needed / GIB:,.1f} GiB for the N x N tensors of attention "
        f"{layers[0].name!r} (sequences: {rows:,} of {length:,} tokens, heads: {spec.num_heads}, layers: "
        f"{len(layers)}), but {free / GIB:,.1f} GiB are available on {device}. Choose {', '.join(advice)}, "
        "or an attention of linear cost, such as flow"
    )


def _largest_layers(model: nn.Module) -> list[Attention]:
    """List the attentions over the most tokens: all, or the attentions of the first stage."""
    layers = [module for module in model.modules() if isinstance(module, Attention) and not module.spec.cross]
    most = max((layer.spec.max_tokens or 0 for layer in layers), default=0)
    return [layer for layer in layers if (layer.spec.max_tokens or 0) == most]


def _free_bytes(device: torch.device) -> int | None:
    """Return the bytes that a training can use; None if that is not known."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return available_bytes(swap=True) if device.type == "cpu" else None


def _bytes_per_pair(attention: Attention, length: int) -> float:
    """Measure the bytes that are kept for the gradients, for each pair of tokens of a sequence."""
    short = min(SHORT, length // 4)
    if attention.traits.cost != "quadratic" or short < 1:
        return 0.0
    once, twice, four_times = (_kept_bytes(attention, short * factor) for factor in (1, 2, 4))
    # of a + b n + c n^2, the second difference
    return max(0.0, (four_times - twice - 2 * (twice - once)) / (6 * short**2))


def _kept_bytes(attention: Attention, length: int) -> int:
    parameter = next(attention.parameters())
    kept: list[Tensor] = []  # alive until they are counted, so that no two have the same place

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    devices = [parameter.device] if parameter.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        tokens = torch.randn(1, length, attention.spec.dim, device=parameter.device, dtype=parameter.dtype)
        mask = torch.ones(1, length, dtype=torch.bool, device=parameter.device)
        attention(tokens.requires_grad_(), TokenContext(mask))
    storages = (tensor.untyped_storage() for tensor in kept)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
