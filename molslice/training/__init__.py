"""Training: from a configuration to a trained model in a run folder, and comparisons of several runs.

A configuration (`RunConfig`) and a data set come in; a run folder goes out, which `molslice.inference` reads.

Modules:
    run: `train`, one whole run.
    continuation: The lock and the checks of a run folder, and what an earlier start has left in it.
    start: Starts a run from the weights of a trained model.
    trainer: The loop over steps with validations and checkpoints.
    stepper: One optimizer step and the state that it changes.
    step_graphs: Steps that are captured as CUDA graphs.
    batches, validation: The training batches; predictions and metrics of a split.
    duration: Converts epochs and minutes to steps.
    memory_check: Refuses a training whose N x N tensors do not fit.
    optimizer: The optimizer, the average of the weights, layers in bfloat16.
    state, records: Checkpoints; `metrics.csv`, TensorBoard and the progress of a training.
    fabric, processes: Device, precision and FSDP; how processes start and end together.
    ensemble: Trains the members of an ensemble.
    compare, comparison, figure: Comparisons of attentions.

To add a setting of training, add its field to `TrainingConfig`, and read it where a step, a validation or a
checkpoint is computed. A new loss is a task; see `molslice.tasks`.

This package uses Lightning's Fabric with its own loop instead of Lightning's Trainer because a run that is
killed at any moment must end with the same weights, bit for bit, as an uninterrupted one. The order of the
batches, the schedule and the random numbers of a step are functions of the seed and the step. A checkpoint
therefore holds weights, averages, moments and a few numbers, but no state of loaders or generators.
"""
