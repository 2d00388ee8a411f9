"""Tests of distillation."""

import pytest
import torch
from torch import nn

from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.types import ModelOutput, MolsliceError
from tests.tasks.test_molecule import Batch

CLASSES = ("red", "green", "blue")
INFO = TargetInfo(("color",), ("",), "multiclass", (0.0,), (1.0,), CLASSES)


class Heads(nn.Module):
    def __init__(self, *heads):
        super().__init__()
        self.heads = nn.ParameterList(heads)
        self.modes = []

    def forward(self, batch):
        self.modes.append(self.training)
        both = tuple(self.heads)
        return ModelOutput(sum(both) / len(both), None, both if len(both) == 2 else None)


def loss_of(task, targets):
    targets = torch.tensor(targets)
    batch = Batch(targets=targets, rows=torch.arange(len(targets)))
    return task.training_step(MicroBatch(batch, len(targets), int((~targets.isnan()).sum())))


def test_each_head_has_half_of_the_loss_and_the_teacher_decides():
    labeled, taught, said = (torch.randn(3, 3, generator=torch.Generator().manual_seed(i)) for i in range(3))
    student, teacher = Heads(labeled, taught), Heads(said)
    task = TASKS.build("distillation", student, INFO, options={"teacher": teacher})
    targets = [[2.0], [float("nan")], [0.0]]
    expected = 0.0
    for row in (0, 2):  # one without a label teaches nothing
        expected -= labeled[row].log_softmax(0)[int(targets[row][0])] / 4
        expected -= taught[row].log_softmax(0)[int(said[row].argmax())] / 4
    loss = loss_of(task.train(), targets)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(head.grad.abs().sum() > 0 for head in student.heads)
    assert teacher.heads[0].grad is None
    assert teacher.modes == [False]
    assert student.modes == [True]


def test_labels_alone_are_smoothed():
    labeled, taught, said = torch.eye(3), torch.eye(3), torch.eye(3)
    options = {"teacher": Heads(said), "label_smoothing": 0.3}
    loss = loss_of(TASKS.build("distillation", Heads(labeled, taught), INFO, options=options), [[0.0]] * 3)
    smooth = nn.functional.cross_entropy(labeled, torch.zeros(3).long(), label_smoothing=0.3)
    torch.testing.assert_close(loss, (smooth + nn.functional.cross_entropy(taught, torch.arange(3))) / 2)


def test_what_is_missing_is_named():
    with pytest.raises(MolsliceError, match="needs training.teacher"):
        loss_of(TASKS.build("distillation", Heads(torch.eye(3), torch.eye(3)), INFO), [[0.0]] * 3)
    one_head = TASKS.build(
        "distillation", Heads(torch.eye(3)), INFO, options={"teacher": Heads(torch.eye(3))}
    )
    with pytest.raises(MolsliceError, match="cls_distilled"):
        loss_of(one_head, [[0.0]] * 3)
    several = TargetInfo(("a", "b"), ("", ""), "classification", (0.0, 0.0), (1.0, 1.0))
    with pytest.raises(MolsliceError, match="of kind multiclass, got classification"):
        TASKS.build("distillation", Heads(torch.eye(3)), several)
