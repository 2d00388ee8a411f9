import numpy as np
import pytest
import torch

from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.tasks.metrics import accuracy, jaccard_index, metric_per_target, perplexity, selection_score
from molslice.types import MolsliceError
from tests.tasks.test_molecule import Batch, Given

NAN = float("nan")
CLASSES = ("red", "green", "blue")


def build(prediction, kind="multiclass", **options):
    one = kind == "multiclass"
    names = ("color",) if one else ("a", "b", "c")
    zeros, ones, units = (0.0,) * len(names), (1.0,) * len(names), ("",) * len(names)
    info = TargetInfo(names, units, kind, zeros, ones, CLASSES if one else ())
    return TASKS.build("sequence", Given(prediction), info, options=options)


def loss_of(task, targets):
    targets = torch.tensor(targets)
    batch = Batch(targets=targets, rows=torch.arange(len(targets)))
    return task.training_step(MicroBatch(batch, len(targets), int((~targets.isnan()).sum())))


def test_the_loss_is_the_mean_cross_entropy_of_rows_with_a_class():
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 0.0], [3.0, -1.0, 0.0]])
    task = build(logits)
    expected = -(logits[0].log_softmax(0)[1] + logits[2].log_softmax(0)[0]) / 2
    loss = loss_of(task, [[1.0], [NAN], [0.0]])
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert not task.model.prediction.grad[1].any()


def test_smoothing_moves_a_share_to_all_classes():
    logits = torch.tensor([[1.0, 2.0, 0.5]])
    logs = logits[0].log_softmax(0)
    expected = -(0.8 * logs[1] + 0.2 * logs.mean())
    torch.testing.assert_close(loss_of(build(logits, label_smoothing=0.2), [[1.0]]), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_mixed_row_has_the_cross_entropy_of_the_mixed_classes(smoothing):
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    first, other, share = torch.tensor([1, 0, 2]), torch.tensor([2, 0, 1]), torch.tensor([0.3, 0.6, 0.0])
    wanted = torch.eye(3)[first] * (1 - share)[:, None] + torch.eye(3)[other] * share[:, None]
    smooth = wanted * (1 - smoothing) + smoothing / 3
    batch = Batch(targets=first[:, None].float(), rows=torch.arange(3))
    batch.other_targets, batch.other_share = other[:, None].float(), share
    loss = build(logits, label_smoothing=smoothing).training_step(MicroBatch(batch, 3, 3))
    torch.testing.assert_close(loss, -(smooth * logits.log_softmax(1)).sum(1).mean())


def test_labels_that_hold_together_take_binary_cross_entropy():
    logits = torch.tensor([[1.0, -2.0, 0.0]])
    expected = -(logits[0, 0].sigmoid().log() + (1 - logits[0, 1].sigmoid()).log()) / 2
    loss = loss_of(build(logits, "classification"), [[1.0, 0.0, NAN]])
    torch.testing.assert_close(loss, expected)


def test_the_accuracy_of_labels_is_the_mean_over_rows_of_their_overlap():
    truth = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, NAN, 0, NAN], [NAN] * 4])
    right = [[0.9, 0.8, 0.1, 0.5], [0.2, 0.9, 0.9, 0.4], [0.1] * 4, [0.1, 0.6, 0, 0], [0.7] * 4, [1.0] * 4]
    slow = []
    for probabilities, labels in zip(right, truth.tolist(), strict=True):
        known = [k for k in range(4) if labels[k] in (0, 1)]
        true, said = {k for k in known if labels[k]}, {k for k in known if probabilities[k] > 0.5}
        if known:
            slow.append(len(true & said) / len(true | said) if true | said else 1.0)
    assert slow == [1.0, 1 / 3, 1.0, 0.0, 0.5]
    assert jaccard_index(np.array(right), truth) == pytest.approx(sum(slow) / 5)
    assert np.isnan(jaccard_index(np.ones((2, 3)), np.full((2, 3), NAN)))
    assert jaccard_index(np.full((1, 2), NAN), np.array([[1.0, 0.0]])) == 0.0


def test_labels_are_measured_together():
    zeros, ones, units = (0.0,) * 2, (1.0,) * 2, ("",) * 2
    info = TargetInfo(("a", "b"), units, "classification", zeros, ones)
    logits = torch.tensor([[3.0, -3.0], [1.0, 1.0]])
    task, plain = (TASKS.build(name, Given(logits), info) for name in ("labels", "sequence"))
    targets = [[1.0, 0.0], [1.0, 0.0]]
    torch.testing.assert_close(loss_of(task, targets), loss_of(plain, targets))
    results = task.evaluate_batch(task.model, Batch(rows=torch.arange(2))).detach().numpy()
    metrics = task.metrics(results, np.array(targets))
    assert metrics == {"labels": 0.75}
    assert task.score(metrics) == 0.25
    assert [(one.name, one.metric) for one in task.measures] == [("labels", "accuracy")]
    with pytest.raises(MolsliceError, match="task labels needs targets of kind classification"):
        TASKS.build("labels", Given(logits), build(logits).targets)


def test_results_are_probabilities_and_metrics_their_accuracy():
    task = build(torch.tensor([[0.0, 5.0, 0.0], [2.0, 1.0, 0.0]]))
    assert task.num_results == 3
    results = task.evaluate_batch(task.model, Batch(rows=torch.arange(2)))
    torch.testing.assert_close(results.sum(1), torch.ones(2))
    metrics = task.metrics(results.detach().numpy(), np.array([[1.0], [1.0]]))
    assert metrics == {"color": 0.5}
    assert task.score(metrics) == 0.5


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("regression", {}, "multiclass or classification, got regression"),
        ("multiclass", {"label_smoothing": 1.0}, "got 1.0"),
        ("classification", {"label_smoothing": 0.1}, "must be in \\[0, 1\\), and 0 unless"),
    ],
)
def test_what_does_not_fit_is_refused(kind, options, message):
    with pytest.raises(MolsliceError, match=message):
        build(torch.zeros(1, 3), kind, **options)


def test_accuracy_leaves_out_rows_without_class():
    probabilities = np.array([[0.6, 0.4], [0.2, 0.8], [0.9, 0.1]])
    assert accuracy(probabilities, np.array([0.0, 0.0, NAN])) == 0.5
    assert np.isnan(accuracy(probabilities, np.full(3, NAN)))


def test_perplexity_weighs_rows_by_their_tokens():
    found = perplexity(np.array([1.0, 2.0, NAN]), np.array([3.0, 1.0, 0.0]))
    assert found == pytest.approx(np.exp(5.0 / 4.0))
    assert np.isnan(perplexity(np.array([1.0]), np.array([0.0])))
    info = TargetInfo(("next",), ("",), "tokens", (0.0,), (1.0,))
    metrics = metric_per_target(info, np.array([[1.0], [2.0]]), np.array([[3.0], [1.0]]))
    assert metrics == {"next": pytest.approx(np.exp(1.25))}
    assert selection_score(info, metrics) == pytest.approx(np.exp(1.25))


def test_classes_are_checked_and_travel():
    targets = np.array([[0.0], [2.0], [NAN]], np.float32)
    info = TargetInfo.of_training(("color",), ("",), "multiclass", targets, CLASSES)
    assert TargetInfo.from_mapping(info.to_mapping()) == info
    with pytest.raises(MolsliceError, match="holds 3; its 3 classes"):
        TargetInfo.of_training(("color",), ("",), "multiclass", np.array([[3.0]]), CLASSES)
    with pytest.raises(MolsliceError, match="belong to multiclass"):
        TargetInfo(("color",), ("",), "multiclass", (0.0,), (1.0,))
    with pytest.raises(MolsliceError, match="belong to multiclass"):
        TargetInfo(("a",), ("",), "regression", (0.0,), (1.0,), CLASSES)
