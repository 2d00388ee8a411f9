"""Measurement of the data path: from SMILES to padded batches, without a model.

Contents:

    job: one measurement.
    worker: the program that measures one job in its own process.
    run: what to measure, and the loop over rounds.
    result: medians and spreads over the rounds, and the table.

Imports: those of `molslice.bench`.
To add a quantity: measure it in `worker`, and add it to `result.Measurement`, `result.Row` and the table.
Reason: each stage has its own process, so that its peak memory is that of this stage alone.
"""
