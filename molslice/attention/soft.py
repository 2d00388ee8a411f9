"""SOFT attention: a Gaussian kernel in place of softmax, approximated by landmarks, in linear time."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import Attention, Projection, Traits, check_least
from molslice.ops.features import full_precision, precise
from molslice.ops.inverse import newton_schulz_inverse
from molslice.ops.landmarks import segment_means
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Soft(Attention):
    """out = G(Q, L) G(L, L)^+ G(L, Q) V W_O with G(a, b) = exp(-|a - b|^2 / (2 sqrt(C))), per head.

    Keys equal queries, and nothing is normalized. L are the `num_landmarks` bottleneck tokens, means of Q
    over contiguous segments of the n real tokens: the token of rank r belongs to segment floor(r
    num_landmarks / n). If n <= num_landmarks the approximation is exact up to the convergence of the inverse:
    out = G(Q, Q) V W_O. The pseudo-inverse takes `iterations` steps of Newton's method, Z <- Z (2 I - A Z),
    from Z = A^T / (|A|_1 |A|_inf), and its gradient goes through these steps. Dropout is applied to the
    output. The bias of the queries shifts tokens and landmarks alike and has no effect; it is included in the
    published parameter counts. With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Args:
        num_landmarks: Number of landmarks.
        iterations: Number of steps of Newton's method.

    Source: Lu et al. 2021 (SOFT), section 3. The paper compares poolings over windows of the image and
    selects a convolution; the authors' code adds a layer norm and a GELU after it, and a depthwise
    convolution of V. Ours is the paper's average pooling, along the sequence and without parameters. Their
    iteration starts from 2 A / |A|_1^2 (later 1.8, with 0.01 I added to A), at the limit of convergence; ours
    converges for every A. Their code uses the gradient of the exact inverse.
    """

    traits: ClassVar[Traits] = Traits(
        source="SOFT, arXiv 2110.11945",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, num_landmarks: int = 49, iterations: int = 20) -> None:
        check_least("soft", 1, num_landmarks=num_landmarks, iterations=iterations)
        super().__init__(spec)
        self.num_landmarks, self.iterations = num_landmarks, iterations
        self.query = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Multiply three thin matrices, without an N x N tensor."""
        query, value = self.split_heads(self.query(tokens)), self.split_heads(self.value(tokens))
        value = self.mix_pairs(value, context)
        # Distances are small differences of large squares, and the inverse amplifies their rounding errors.
        # This needs float32, also if the model or autocast computes in half precision.
        with full_precision(tokens):
            query, value = precise(query) / self.spec.head_dim**0.25, precise(value)
            landmarks, is_used = segment_means(query, context.token_mask, self.num_landmarks)
            is_used, is_real = is_used[:, None, None], context.token_mask[:, None, :, None]
            to_landmarks = _gaussian(query, landmarks).masked_fill(~(is_real & is_used), 0.0)
            between = _gaussian(landmarks, landmarks).masked_fill(~(is_used & is_used.transpose(2, 3)), 0.0)
            inverse = newton_schulz_inverse(between, self.iterations)
            heads = to_landmarks @ (inverse @ (to_landmarks.transpose(2, 3) @ value))
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))


def _gaussian(one: Float[Tensor, "B H N C"], other: Float[Tensor, "B H M C"]) -> Float[Tensor, "B H N M"]:
    """Return exp(-|a - b|^2 / 2) by a matrix product; explicit differences need N M C memory."""
    squares = (one.square().sum(-1)[..., None] + other.square().sum(-1)[..., None, :]) / 2
    return (one @ other.transpose(2, 3) - squares).exp()
