"""Classification learned from labels and from the decisions of a trained model."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from molslice.tasks.sequence import Sequence
from molslice.tasks.targets import TargetInfo
from molslice.types import ModelOutput, MolsliceError


class Distillation(Sequence):
    """Half the cross-entropy with the label plus half the second head's with the teacher's decision.

    The teacher processes the same augmented batch, runs in evaluation mode, and is not part of the weights.
    Rows without a label are left out. A prediction is the mean of both heads' logits and needs no teacher.

    Args:
        model: The student, with two heads.
        targets: The description of the classes.
        teacher: The trained model to learn from; None for prediction only.
        label_smoothing: Label smoothing in [0, 1) of the loss with the label.

    Raises:
        MolsliceError: The kind of the targets is not multiclass, or `label_smoothing` is out of range.

    Source: hard-label distillation of DeiT, Touvron et al. 2021, arXiv 2012.12877, section 4 and equation 3.
    The paper adds the softmax outputs of both heads for a prediction. Its code averages their logits, and so
    does this class.
    """

    kinds: ClassVar = ("multiclass",)

    def __init__(
        self,
        model: nn.Module,
        targets: TargetInfo,
        *,
        teacher: nn.Module | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(model, targets, label_smoothing=label_smoothing)
        self.teacher = None if teacher is None else teacher.requires_grad_(False)

    def train(self, mode: bool = True) -> "Distillation":
        """Set the mode of the student; the teacher stays in evaluation mode."""
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def output_loss_sum(self, output: ModelOutput, batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Return half the sum of both heads' losses over the rows that have a label.

        Raises:
            MolsliceError: There is no teacher, or the model has no second head.
        """
        if self.teacher is None or output.heads is None:
            raise MolsliceError(
                "task distillation needs training.teacher, the run folder of a trained model, and a model "
                "with model.readout cls_distilled"
            )
        with torch.no_grad():
            decided = self.teacher(batch).prediction.argmax(-1)
        labeled, taught = (head.float() for head in output.heads)
        present = ~batch.targets[:, 0].isnan()
        second = (F.cross_entropy(taught, decided, reduction="none") * present).sum()
        return (self.loss_sum(labeled, batch) + second) / 2
