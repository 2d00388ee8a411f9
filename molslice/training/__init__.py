"""From a configuration to a trained model in a run folder.

What lives here: `run.py`, the whole of a run; `loop.py`, its steps; `optimizer.py`, `ema.py`, `batches.py`,
`validation.py`, `budget.py` (minutes to steps), `state.py` (checkpoints), `records.py` (metrics, bar,
TensorBoard) and `fabric.py` (Lightning). May import: everything below `molslice.cli`.

Why Lightning's Fabric and our own loop instead of its Trainer: a run that is killed at any moment has to end
with the same weights, bit for bit, as one that was not. Here the order of the batches, the schedule and the
random numbers of a step are functions of the seed and the number of the step, so that a checkpoint is
weights, averages, moments and a few numbers, and nothing is left to the state of a loader or a generator.
"""
