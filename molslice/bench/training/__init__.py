"""Measurement of training: molecules per second of real training steps, and where their time goes.

Contents:

    plan: the models, attentions and precisions to measure.
    job: one measurement of a plan.
    worker: the program that measures one job in its own process.
    clock: times of the parts of a step, on a CPU or a GPU.
    run: runs all jobs in interleaved order and keeps the measurements in a folder.
    result: medians and spreads over the rounds.
    table: a result as Markdown.
    peaks: peak arithmetic of GPUs.

Imports: those of `molslice.bench`. `worker` needs no rdkit.
To add a quantity: measure it in `worker`, add a field to `result.Measurement` and to `result.Row`, and a
column to `table`.
Reason: a measured step is one of `molslice.training`: the same `Stepper`, the same batches in the same order,
prefetched as in training. Speed is therefore that of a training run between two validations. Each measurement
runs in a fresh process, and the entries take turns, as in `molslice bench attention`.
"""
