"""Linear attention: a product of features replaces the exponential of the scores."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.features import kernel_average, kernel_step, positive_average, positive_elu, precise
from molslice.types import AttentionOutput, State, TokenContext


class Linear(QueryKeyValueAttention):
    """out_i = sum_j phi(Q_i) phi(K_j) V_j / sum_j phi(Q_i) phi(K_j) W_O, per head, with phi = elu + 1.

    Sums run over the real tokens, and over j <= i in the causal form. One token at a time, the state has C (C
    + 1) numbers per head. phi is positive, so the weights are a convex combination. The authors' code adds
    eps = 1e-6 to the divisor; ours adds nothing. With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Source: Katharopoulos et al. 2020, section 3.2; the causal form section 3.3, as a recurrent network
    section 3.4. As in the paper, there is no factor 1 / sqrt(C).
    """

    traits: ClassVar[Traits] = Traits(
        source="Transformers are RNNs, arXiv 2006.16236",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        causal=True,
        recurrent=True,
        cross=True,
        head_dim=True,
    )

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Sum over keys and values first, then apply the queries."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        query, key = (positive_elu(precise(x)) for x in (query, key))
        key = key.masked_fill(~memory_mask[:, None, :, None], 0.0)
        if self.spec.causal:
            heads = kernel_average(query, key, value, causal=True)
        else:
            heads = positive_average(query, key, value)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))

    def _empty_state(self, batch: int) -> State:
        """Return the empty sum of phi(K_j) [V_j, 1]."""
        size, weight = self.spec.head_dim, precise(self.key.weight)
        return (weight.new_zeros(batch, self.spec.num_heads, size, size + 1),)

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Add one key and value, then apply the query."""
        query, key, value = (
            f(token).unflatten(-1, (self.spec.num_heads, -1)) for f in (self.query, self.key, self.value)
        )
        query, key = (positive_elu(precise(x)) for x in (query, key))
        heads, past = kernel_step(query, key, value, state[0])
        return self.dropout(self.output(heads.flatten(1).to(token.dtype))), (past,)
