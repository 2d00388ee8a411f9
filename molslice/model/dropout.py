"""Predictions with dropout that can be repeated.

A mask depends on the pass, the place in the encoder, the token and the channel only. A pass therefore
predicts the same for a molecule in any batch, with any padding, in any process. Over the passes the masks of
a molecule have the distribution of masks in training; molecules share them, which changes no spread.
"""

import copy
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.model.encoder import Encoder
from molslice.ops.draws import uniform_of
from molslice.types import MolsliceError

MOST_PASSES = 1_000


@dataclass(slots=True)
class _Pass:
    index: int
    calls: int = 0  # of dropout, so far


_CURRENT: ContextVar[_Pass] = ContextVar("dropout pass")  # threads have their own


class DropoutSampler:
    """Predict several times with dropout of tokens and of the feed-forward networks, as in training.

    The dropout inside the attentions (`attention_dropout`) is left out. The weights are shared with `model`.

    Args:
        model: The trained model, in evaluation mode.
        passes: Number K of passes, at least 2.

    Raises:
        MolsliceError: The number of passes is not possible, or the model has no encoder or no dropout.

    Source: Gal and Ghahramani 2016, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in
    Deep Learning", arXiv 1506.02142, equation 6.
    """

    def __init__(self, model: nn.Module, passes: int) -> None:
        if not 2 <= passes <= MOST_PASSES:
            raise MolsliceError(f"the number of passes must be from 2 to {MOST_PASSES}, got {passes}")
        encoder = getattr(model, "encoder", None)
        if not isinstance(encoder, Encoder):
            raise MolsliceError("the model has no encoder")
        if not encoder.dropout.p:
            raise MolsliceError("it was trained with model.dropout 0")
        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model: Any = copy.deepcopy(model, shared)
        self.passes = passes
        for module in (self.model.encoder, *self.model.encoder.layers):
            module.dropout = _RepeatableDropout(module.dropout.p)
        for layer in self.model.encoder.layers:
            layer.ffn.dropout = _RepeatableDropout(layer.ffn.dropout.p)

    def predictions(self, batch: Any) -> Float[Tensor, "K B T"]:  # noqa: ANN401
        """Predict a batch K times, `ModelOutput.prediction` of each pass [K, B, T]."""
        batch = self.model.prepare(batch)
        predictions = []
        for index in range(self.passes):
            token = _CURRENT.set(_Pass(index))
            try:
                predictions.append(self.model(batch).prediction)
            finally:
                _CURRENT.reset(token)
        return torch.stack(predictions)


class _RepeatableDropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        current = _CURRENT.get()
        current.calls += 1
        places, channels = (torch.arange(size, device=tokens.device) for size in tokens.shape[1:])
        draws = uniform_of((current.index << 32) + current.calls, places[:, None], channels)
        return tokens * ((draws >= self.rate) / (1.0 - self.rate)).to(tokens.dtype)
