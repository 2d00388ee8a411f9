"""Decide on the length of a training: by the number of rows, or by the time of a step.

Minutes are converted to a number of steps by measurement. The number is then fixed, so the run is repeatable.
"""

import itertools
import time
from contextlib import closing
from typing import Literal

import torch

from molslice.training.stepper import Stepper
from molslice.training.validation import Evaluator

WARM_UP_STEPS, WARM_UP_ON_GPU = 3, 60  # not timed: memory is allocated, and kernels are compiled by shape
MIN_TIMED, MAX_TIMED = 8, 200
SHARE = 0.04  # share of the minutes for measuring
SEEN_ROWS = 19_200  # rows that fine-tuning sees in all epochs, within the bounds of the epochs
MIN_EPOCHS, MAX_EPOCHS = 4, 40


def count_epochs(rows: int) -> int:
    """Return the number of epochs of fine-tuning for a number of training rows: fewer rows, more epochs."""
    return min(max(SEEN_ROWS // max(1, rows), MIN_EPOCHS), MAX_EPOCHS)


def resolve_epochs(epochs: int | Literal["auto"] | None, rows: int) -> int | None:
    """Return `training.max_epochs`, with `auto` as `count_epochs` of the training rows."""
    return count_epochs(rows) if epochs == "auto" else epochs


def measure_max_steps(
    stepper: Stepper, valid: Evaluator, minutes: float, rows_at_the_end: int, start: float
) -> int:
    """Return the number of steps for which training, validations and the final evaluation take `minutes`.

    The measured steps have learning rate zero and are undone. The time of a batch is assumed to be
    proportional to its padded tokens.

    Args:
        stepper: The stepper to measure.
        valid: The evaluator of the validation split.
        minutes: The time limit.
        rows_at_the_end: Number of rows that are evaluated once after training.
        start: The `time.perf_counter()` from which the minutes count.
    """
    seconds = 60.0 * minutes
    per_token = _seconds_per_token(stepper, seconds)
    validation = _validation_seconds(stepper, valid)
    tokens = stepper.batches.padded_tokens(0)
    step = per_token * float(tokens.mean())
    training = stepper.config.training
    between = training.valid_every_steps or training.valid_every_epochs * stepper.batches.steps_per_epoch
    at_the_end = validation * (1 + rows_at_the_end / max(1, len(valid.rows)))
    left = seconds - (time.perf_counter() - start) - at_the_end
    steps = max(1, int(left / (step + validation / between)))
    return int(stepper.fabric.broadcast(steps))


def _seconds_per_token(stepper: Stepper, seconds: float) -> float:
    weights = {name: tensor.clone() for name, tensor in stepper.model.state_dict().items()}
    precision = dict(stepper.fabric.strategy.precision.state_dict())
    tokens = stepper.batches.padded_tokens(0)
    done, timed = 0, 0
    warm_up = WARM_UP_ON_GPU if stepper.fabric.device.type == "cuda" else WARM_UP_STEPS
    begin = time.perf_counter()
    with closing(stepper.stream(0, 0)) as stream:
        for number, batch in enumerate(itertools.islice(stream, warm_up + MAX_TIMED)):
            if number == warm_up:
                _wait(stepper)
                begin = time.perf_counter()
            stepper.step(batch, 0, rate=0.0)
            if stepper.average:
                stepper.average.update(1)
            if number >= warm_up:
                timed += 1
                done += int(tokens[batch.index] if batch.epoch == 0 else tokens.mean())
                is_enough = time.perf_counter() - begin > SHARE * seconds
                # all processes must stop at the same step
                if timed >= MIN_TIMED and stepper.fabric.broadcast(is_enough):
                    break
        _wait(stepper)  # once, because in the training too the host is ahead of the GPU
        spent = time.perf_counter() - begin
    stepper.model.load_state_dict(weights)
    if stepper.average:
        stepper.average.model.load_state_dict(weights)
    for moments in stepper.optimizer.optimizer.state.values():  # in place: captured steps use the tensors
        for moment in moments.values():
            moment.zero_()
    stepper.fabric.strategy.precision.load_state_dict(precision)
    return spent / done


def _validation_seconds(stepper: Stepper, valid: Evaluator) -> float:
    """Estimate the time of one validation on one process, in seconds, from some of its batches."""
    chosen = valid.batches[:: max(1, len(valid.batches) // 6)][:8]
    tokens = sum(int(valid.dataset.num_tokens[valid.rows[p]].max()) * len(p) for p in chosen)
    model = stepper.evaluated_model
    training = model.training
    model.eval()
    begin = time.perf_counter()
    for places in chosen:
        valid.predict_batch(model, places[: max(1, len(places) // stepper.fabric.world_size)])
    _wait(stepper)
    spent = time.perf_counter() - begin
    model.train(training)
    return spent * float(valid.padded_tokens.sum()) / tokens


def _wait(stepper: Stepper) -> None:
    if stepper.fabric.device.type == "cuda":
        torch.cuda.synchronize(stepper.fabric.device)
