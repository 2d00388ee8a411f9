"""Training: from a configuration to a trained model in a run folder, and comparisons of several runs.

Modules:
    run: `train`, one whole run.
    trainer: The loop over steps with validations and checkpoints.
    stepper: One optimizer step and the state that it changes.
    step_graphs: Steps that are captured as CUDA graphs.
    batches: The training batches.
    pair_memory: Refuses a training whose N x N tensors do not fit.
    optimizer: The optimizer and the learning rate.
    half_weights: Layers in bfloat16 with float32 weights in the optimizer.
    ema: The moving average of the weights.
    validation: Predictions and metrics of a split.
    budget: Converts minutes to steps.
    state: Checkpoints.
    records: `metrics.csv`, TensorBoard and the progress of a training.
    fabric: Device, precision and strategy by Lightning Fabric.
    processes: The processes of a training, and how they end together.
    sharding: Fully sharded data parallelism.
    start: Starts a run from the weights of a trained model.
    continuation: The lock and the checks of a run folder.
    ensemble: Trains the members of an ensemble.
    compare, comparison, figure, curves: Comparisons of attentions.
    fit: Fits a stack of learners and fine-tuned networks to a table.
    fit_table, fit_duplicates, fit_split, fit_scale: From the table of a fit to its rows, `fit_data`.
    fit_folds, fit_learners, fit_networks, fit_record, fit_report: The further steps of `fit`.

Imports: everything below `molslice.cli`.

This package uses Lightning's Fabric with its own loop instead of Lightning's Trainer because a run that is
killed at any moment must end with the same weights, bit for bit, as an uninterrupted one. The order of the
batches, the schedule and the random numbers of a step are functions of the seed and the step. A checkpoint
therefore holds weights, averages, moments and a few numbers, but no state of loaders or generators.
"""
