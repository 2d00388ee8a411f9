"""Measurement of training: molecules per second of real training steps, and where their time goes.

Contents:

    plan: the models, attentions and precisions to measure.
    worker: the program that measures one job in its own process.
    clock: times of the parts of a step, on a CPU or a GPU.
    run: measures a plan; peak arithmetic of GPUs.
    result: medians and spreads over the rounds, and the table.

Imports: as `molslice.bench`. `worker` needs no rdkit.
Reason: a measured step is one of `molslice.training`: the same `Stepper`, the same batches in the same order,
prefetched as in training. Speed is therefore the speed of a training run between two validations.
"""
