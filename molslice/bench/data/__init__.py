"""Measurement of the data path: from SMILES to padded batches, without a model.

Contents:

    worker: the program that measures one job in its own process.
    run: what to measure.
    result: medians and spreads over the rounds, and the table.

Imports: as `molslice.bench`.
Reason: each stage has its own process, so that its peak memory belongs to this stage alone.
"""
