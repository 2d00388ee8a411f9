"""Measurement of what attentions, training and the data path cost.

Attentions: steps per second, peak memory, parameters, and operations. Training: molecules per second of
molecule models, and where the time goes. Data: from SMILES to padded batches, without a model.

Contents:

    rounds: the measuring core. Runs jobs in interleaved order, keeps the measurements, summarizes them.
    job: one measurement in its own process.
    machine, molecules: the machine, and the molecules that training and data are measured with.
    attention, training, data: the three measurements. Each has its jobs, its result, and a function that runs
        all jobs.
    attention_worker, training_worker: the programs that measure one job; `data` is its own worker.
    attention_result, bubbles, scores, published: the tables and the plot of attentions.
    flops: the operations of the model of a configuration, without a measurement.

Input: a plan, and molecules for training and data. Output: a `rounds.Result`, also as JSON and Markdown.
Imports: everything below `molslice.cli` except `molslice.studies`.
To add a quantity: measure it in a worker, add its name to `NUMBERS` of the result, summarize it in
`summarize`, and add it to the table. To add a kind of measurement: see `rounds`.
Reason: each measurement runs in a fresh process. The peak of the resident set therefore belongs to one model,
an attention that runs out of memory or crashes does not end the table, and no measurement inherits the heap
of another one. Each round measures the entries in turn, so a slow minute of the machine affects all of them.
A result is the median over the rounds, with the smallest and the largest value. 1 GB is 10^9 bytes.

The model of `attention` is a `SequenceClassifier` of byte ids without padding and without dropout. A training
step is the forward pass, the cross-entropy plus the penalty of the attention, the backward pass, and AdamW.
An inference step is a forward pass in evaluation mode. Half precision is autocast. Peak memory is measured in
training: on a CPU, the peak of the resident set minus its size before the model was built (after a step of a
tiny model, which loads the code); on a GPU, the peak of its allocator. Operations are counted in a forward
and a backward pass by `torch.utils.flop_counter`. It counts only matrix products, so the cost of an
attention that sorts is underestimated.

A step of `training` is one of `molslice.training`: the same `Stepper`, the same batches in the same order,
prefetched as in training. Speed is therefore the speed of a training run between two validations.
"""
