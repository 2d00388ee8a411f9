"""YOSO attention: the probability, or the sample, of a hash collision in place of softmax."""

from dataclasses import replace
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits, check_choice, check_least
from molslice.ops.features import precise, unit_vectors
from molslice.ops.hashing import expected_kernel, sampled_kernel
from molslice.ops.masked import pair_mask
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

Form = Literal["expected", "sampled"]


class Yoso(QueryKeyValueAttention):
    """out = l2(E V) W_O per head, with q_i and k_j divided by their lengths and l2 dividing a row by its own.

    In both forms the gradient of E_ij by q_i k_j is the paper's lower bound code_length / 2 E_ij. The sampled
    form uses the sampled E there too, by tables of products.

    Choices:

    - Planes are drawn once, from `seed`, the layer and the head, and are saved with the model, so that its
      results are reproducible. The paper draws them in every pass.
    - A query gives zero if no key has its code.
    - Dropout is on E in the expected form, and on the output in the sampled form.
    - With `pair_bias: logits`, in the expected form, E_ij is multiplied by exp(S + E). With `mix`, softmax(S
      + E) V replaces V.

    Args:
        form: How E is computed.

            - `expected`: E_ij = (1 - arccos(q_i k_j) / pi)^code_length, an N x N matrix.
            - `sampled`: E_ij is the share of `num_hashes` rounds in which q_i and k_j have the same code of
              `code_length` signs on random planes. Its expectation is the form above. Each round adds the
              values to a table of 2^code_length rows by the codes of the keys and reads it by the codes of
              the queries, in linear time.

        code_length: Number of signs of a code.
        num_hashes: Number of rounds, for `sampled`.
        seed: Seed of the planes, together with the layer.

    Source: Zeng et al. 2021 (YOSO). The authors' code has an option for a depthwise convolution of V, which
    is not part of the formula and is omitted. The defaults are the same as there.
    """

    traits: ClassVar[Traits] = Traits(
        source="YOSO, arXiv 2111.09714",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        cross=True,
        head_dim=True,
    )
    planes: Float[Tensor, "H R C T"]  # in the sampled form

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        form: Form = "sampled",
        code_length: int = 9,
        num_hashes: int = 32,
        seed: int = 0,
    ) -> None:
        check_choice("yoso", "form", form, get_args(Form))
        if not 1 <= code_length <= 16:
            raise MolsliceError(
                f"yoso takes a code_length from 1 to 16, for tables of 2^code_length rows, got {code_length}"
            )
        check_least("yoso", 1, num_hashes=num_hashes)
        traits = self.traits
        if form == "expected":
            traits = replace(traits, cost="quadratic", pair_bias=("none", "logits", "mix"))
        super().__init__(spec, traits)
        self.form, self.code_length = form, code_length
        if form == "sampled":
            generator = torch.Generator().manual_seed(seed * 1024 + spec.layer)
            shape = (spec.num_heads, num_hashes, spec.head_dim, code_length)
            self.register_buffer("planes", torch.randn(shape, generator=generator))

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute sums of many weights in float32, also if the model computes in half precision."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        query, key = unit_vectors(precise(query)), unit_vectors(precise(key))
        value = precise(value).masked_fill(~memory_mask[:, None, :, None], 0.0)
        if self.form == "sampled":
            heads = sampled_kernel(query, key, value, self.planes)
        else:
            heads = self.dropout(self._weights(query, key, context)) @ value
        heads = unit_vectors(heads.to(value.dtype))
        mixed = self.output(self.merge_heads(heads).to(tokens.dtype))
        return AttentionOutput(self.dropout(mixed) if self.form == "sampled" else mixed)

    def _weights(
        self, query: Float[Tensor, "B H N C"], key: Float[Tensor, "B H M C"], context: TokenContext
    ) -> Float[Tensor, "B H N M"]:
        products = (query @ key.transpose(2, 3)).to(query.dtype)
        weights = expected_kernel(products, self.code_length)
        bias = self.added_bias(context)
        if bias is None:
            return weights
        seen = pair_mask(context.token_mask)
        bias = bias.to(weights.dtype).masked_fill(~seen, 0.0)
        # Rows are normalized at the end, so scaling a row does not change it and avoids overflow.
        largest = bias.detach().masked_fill(~seen, -torch.inf).amax(3, keepdim=True).nan_to_num(0, 0, 0)
        return weights * (bias - largest).exp().masked_fill(~seen, 0.0)
