"""Measurement of what attentions, training and the data path cost.

Packages: `training` (of molecule models) and `data` (from SMILES to batches). The modules here measure
what an attention costs: steps per second, peak memory, parameters, and operations.

Contents:

    plan: what to measure.
    job: one measurement of a plan.
    worker: the program that measures one job in its own process.
    process: starts and watches a worker.
    run: runs all jobs in interleaved order and keeps the measurements in a folder.
    result: medians, spreads, and crossing points.
    tables, bubbles, scores: the files of a result.
    flops: the operations of the model of a configuration, without a measurement.
    published: the numbers of the Sliceformer paper.
    machine: the description of the machine.
    answers: how a worker reads its job and answers.
    molecules: the molecules that training and data are measured with.
    rounds: runs all jobs of training and of data in interleaved order and keeps the measurements.

Imports: everything below `molslice.cli` except `molslice.studies`. `worker` imports only torch and the model.
To add a quantity: measure it in `worker`, add a field to `result.Cell`, and add a table to `tables`.
Reason: each measurement runs in a fresh process. The peak of the resident set is therefore that of one model,
an attention that runs out of memory or crashes does not end the table, and no measurement inherits the heap
of another one. Each round measures the entries in turn, so a slow minute of the machine affects all of them.
A result is the median over the rounds, with the smallest and the largest value.

The model is a `SequenceClassifier` of byte ids without padding and without dropout. A training step is the
forward pass, the cross-entropy plus the penalty of the attention, the backward pass, and AdamW. An inference
step is a forward pass in evaluation mode. Half precision is autocast. Peak memory is that of training steps:
on a CPU, the peak of the resident set minus its size before the model was built (after one step of a tiny
model, which loads the code); on a GPU, the peak of torch's allocator. Operations are those of one forward and
backward pass as `torch.utils.flop_counter` counts them. It counts only matrix products, so the cost of an
attention that sorts is underestimated. 1 GB is 10^9 bytes.
"""
