"""Language modeling: predict the next token at each token."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from torch import Tensor, nn

from molslice.model.sequences.language import LanguageModel
from molslice.tasks.base import Task
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError

IGNORED = -100  # the target where nothing is predicted


class Language(Task):
    """Cross-entropy of the next token, summed over the predicted tokens. The metric is the perplexity.

    Raises:
        MolsliceError: The data are not text, or the model does not predict at each token.
    """

    kinds: ClassVar = ("tokens",)

    def __init__(self, model: nn.Module, targets: TargetInfo) -> None:
        super().__init__(model, targets)
        if not isinstance(model, LanguageModel):
            raise MolsliceError(
                "task language needs a model that predicts at each token: model.name language"
            )

    @property
    def num_results(self) -> int:
        """The number 1: the mean negative log-likelihood of a row."""
        return 1

    def loss_sum(self, prediction: Float[Tensor, "B N V"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Sum over the predicted tokens; see `Task.loss_sum`."""
        logits, wanted = prediction.flatten(0, 1), _following(batch).flatten()
        return F.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum")

    def results(self, prediction: Float[Tensor, "B N V"], batch: Any) -> Float[Tensor, "B 1"]:  # noqa: ANN401
        """Return the mean negative log-likelihood of the predicted tokens of each row, in nats [B, 1]."""
        means = [
            # row by row: in float32 the logits of a whole batch take twice the memory of the model's output
            F.cross_entropy(logits.float(), wanted, ignore_index=IGNORED)
            for logits, wanted in zip(prediction, _following(batch), strict=True)
        ]
        return torch.stack(means)[:, None]


def _following(batch: Any) -> Int[Tensor, "B N"]:  # noqa: ANN401
    """Return the next token at each position [B, N], `IGNORED` at padding and where it is not predicted."""
    mask = batch.token_mask if batch.pair_mask is None else batch.pair_mask
    return batch.pair_tokens if mask is None else batch.pair_tokens.masked_fill(~mask, IGNORED)
