"""The float64 reference of `singular`."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.singular import Singular


def reference_sequence(
    attention: Singular,
    tokens: Float[Tensor, "n D"],
    memory: Float[Tensor, "m D"],
    pair_bias: Float[Tensor, "H n n"] | None,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Project, then multiply by alphahat, head by head, as in the formula."""
    size, rank = attention.spec.head_dim, attention.rank
    shares = attention.fold(tokens).exp()
    unfolding = shares / shares.sum(1, keepdim=True)
    maps = [attention.fold] * 3
    if not attention.shared_map:
        maps = [attention.fold_query, attention.fold_key, attention.fold_value]
    shares = [f(tokens).exp() for f in maps]
    of_query, of_key, of_value = ((share / share.sum(0, keepdim=True)).T for share in shares)
    off = 1 - torch.eye(rank, dtype=tokens.dtype)
    penalty = attention.orthogonal_weight * ((unfolding.T @ unfolding * off) ** 2).sum()
    for folding in (of_query, of_key, of_value):
        penalty = penalty + attention.orthogonal_weight / 3 * ((folding @ folding.T * off) ** 2).sum()
    heads, carried = [], []
    for h in range(attention.spec.num_heads):
        part = slice(h * size, (h + 1) * size)
        query, key, value = (f(tokens)[:, part] for f in (attention.query, attention.key, attention.value))
        if attention.spec.pair_bias_mode == "mix" and pair_bias is not None:
            value = pair_bias[h].exp() @ value / pair_bias[h].exp().sum(1, keepdim=True)
        scores = (of_query @ query) @ (of_key @ key).T / (size**0.5 if attention.scaled else 1.0)
        if attention.spec.pair_bias_mode == "logits" and pair_bias is not None:
            scores = scores + of_query @ pair_bias[h] @ of_key.T
        if carry is not None:
            scores = scores + carry[h]
        weights = scores.exp() / scores.exp().sum(1, keepdim=True)
        penalty = (
            penalty + attention.diagonal_weight * ((weights * off) ** 2).sum() / attention.spec.num_heads
        )
        heads.append(unfolding @ weights @ (of_value @ value))
        carried.append(scores)
    has_penalty = attention.orthogonal_weight or attention.diagonal_weight
    return (
        attention.output(torch.cat(heads, -1)),
        penalty / rank**2 if has_penalty else None,
        torch.stack(carried),
    )
