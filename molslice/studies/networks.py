"""Attentions by their entry, and untrained encoders with them."""

import torch

from molslice.attention import ATTENTIONS
from molslice.config.entries import split_entries
from molslice.model import AttentionChoice
from molslice.model.encoder import Encoder, initialize_linear

__all__ = ["read_choice", "registered_entries", "seeded_encoder"]

# Variants of registered attentions that respond differently to the order of tokens.
VARIANTS = ("slice_sort:placement=aligned",)


def registered_entries() -> tuple[str, ...]:
    """Return all registered attentions with their default options, and the variants, sorted."""
    return tuple(sorted((*ATTENTIONS.names(), *VARIANTS)))


def read_choice(text: str) -> AttentionChoice:
    """Parse an entry `name:option=value:option=value`, the format of `molslice compare`.

    Raises:
        MolsliceError: The name is unknown, or an option has another form.
    """
    (entry,) = split_entries(text)
    ATTENTIONS.find(entry.name)
    options = dict(entry.options)
    return AttentionChoice(entry.name, options.pop("pair_bias", None), options)


def seeded_encoder(
    choice: AttentionChoice,
    seed: int,
    *,
    dim: int,
    num_layers: int,
    num_heads: int,
    uses_pair_bias: bool,
    max_tokens: int,
) -> Encoder:
    """Build an untrained encoder in evaluation mode, with Glorot initialization.

    Args:
        choice: The choice of the attention.
        seed: Seed of the initialization.
        dim: Width of the tokens, and hidden width of the feed-forward network.
        num_layers: Number of layers.
        num_heads: Number of heads.
        uses_pair_bias: Whether the encoder gets a pair bias.
        max_tokens: Upper limit of the number of tokens.

    Raises:
        MolsliceError: An option is unknown, or the attention does not support the sizes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Encoder(
            choice,
            dim=dim,
            num_layers=num_layers,
            num_heads=num_heads,
            ffn_dim=dim,
            uses_pair_bias=uses_pair_bias,
            max_tokens=max_tokens,
        )
        initialize_linear(encoder)
    return encoder.eval()
