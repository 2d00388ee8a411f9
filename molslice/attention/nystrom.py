"""Nystrom attention: the softmax matrix reconstructed from a few landmarks."""

from dataclasses import replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.base import QueryKeyValueAttention, Traits, check_least
from molslice.ops.features import full_precision, precise
from molslice.ops.inverse import razavi_inverse
from molslice.ops.landmarks import segment_means
from molslice.ops.masked import masked_softmax, zero_padding
from molslice.ops.packing import pack_tokens, packed_mask, packing_order, unpack_tokens
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext


class Nystrom(QueryKeyValueAttention):
    """out = softmax(Q K~^T) Z softmax(Q~ K^T) V W_O, Z the pseudo-inverse of softmax(Q~ K~^T), per head.

    The scores are divided by sqrt(C). Q~ and K~ are the means of Q and K over L = `landmarks` segments of the
    real tokens. The token of rank r of n belongs to segment floor(r L / n). If n <= L, each token is its own
    landmark, and the product equals softmax attention up to the convergence of Z. For each matrix A, Z starts
    from A^T / (|A|_1 |A|_inf) and takes `iterations` steps Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4,
    in at least float32. With `pair_bias: mix`, softmax(S + E) V replaces V (ours), also in the residual.

    Args:
        landmarks: Number L of landmarks.
        iterations: Number of steps of the pseudo-inverse.
        conv_kernel: Size in tokens, an odd number, of the residual of the paper, a convolution of V along the
            tokens with one kernel per head. It does not support cross attention. None for no residual.

    Source: Xiong et al. 2021, equations 13 to 15 and algorithm 1. The authors' code starts from the largest
    norm in the whole batch, so that sequences of a batch affect each other. It also pads n to a multiple of
    L.
    """

    traits: ClassVar[Traits] = Traits(
        source="Nystromformer, arXiv 2102.03902",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        cross=True,
        head_dim=True,
    )

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        landmarks: int = 64,
        iterations: int = 6,
        conv_kernel: int | None = None,
    ) -> None:
        check_least("nystrom", 1, landmarks=landmarks, iterations=iterations)
        if conv_kernel is not None and (conv_kernel < 1 or conv_kernel % 2 == 0):
            raise MolsliceError(f"nystrom takes an odd conv_kernel or null, got {conv_kernel}")
        super().__init__(spec, self.traits if conv_kernel is None else replace(self.traits, cross=False))
        self.landmarks, self.iterations = landmarks, iterations
        self.conv = None
        if conv_kernel is not None:
            shape, heads = (conv_kernel, 1), spec.num_heads
            padding = (conv_kernel // 2, 0)
            self.conv = nn.Conv2d(heads, heads, shape, padding=padding, groups=heads, bias=False)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Multiply from right to left, so that no N x N matrix is computed."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        query, key = precise(query), precise(key)
        # The inverse amplifies rounding errors of its input, so full precision is kept.
        with full_precision(query):
            query = query / self.spec.head_dim**0.5
            landmark_queries, has_query = segment_means(query, context.token_mask, self.landmarks)
            landmark_keys, has_key = segment_means(key, memory_mask, self.landmarks)
            has_query, has_key = has_query[:, None, :, None], has_key[:, None, None, :]
            from_landmarks = masked_softmax(query @ landmark_keys.transpose(2, 3), has_key)
            core = masked_softmax(landmark_queries @ landmark_keys.transpose(2, 3), has_query & has_key)
            to_landmarks = masked_softmax(
                landmark_queries @ key.transpose(2, 3), has_query & memory_mask[:, None, None, :]
            )
            inverse = razavi_inverse(core, self.iterations)
            heads = from_landmarks @ (inverse @ (to_landmarks @ precise(value)))
        mixed = self.merge_heads(heads).to(tokens.dtype)
        if self.conv is not None:
            mixed = mixed + self._residual(value, context).to(tokens.dtype)
        return AttentionOutput(self.dropout(self.output(mixed)))

    def _residual(self, value: Float[Tensor, "B H N C"], context: TokenContext) -> Float[Tensor, "B N D"]:
        assert self.conv is not None
        order, mask = packing_order(context.token_mask), packed_mask(context.token_mask)
        packed = zero_padding(pack_tokens(self.merge_heads(value), order), mask)
        return unpack_tokens(self.merge_heads(self.conv(self.split_heads(packed))), order)
