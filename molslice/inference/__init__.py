"""Use of trained models: prediction, evaluation, generation, rollouts and attention maps.

Modules:
    load: Loads a trained model.
    network: The `Predictor`, which predicts from SMILES in the unit of the targets.
    ensemble: The mean of several networks.
    calibrate: Keeps the predictions of held-out rows, from which intervals are computed.
    forward: The precision of every forward pass.
    inputs: Reads the molecules that Python code gives: texts, RDKit molecules, arrays and DataFrames.
    predictions: Predictions with their uncertainty.
    domain: Compares molecules with the training molecules.
    intervals: Adds intervals and sets to predictions.
    reading: Converts SMILES to arrays.
    table: Predicts CSV files of any length.
    columns: Names the columns of predictions.
    evaluate: Measures the error on a split of a data set.
    uncertainty: Measures how good the intervals are.
    uncertainty_figure: Plots of them.
    store_table: Writes a store as a table.
    submission: Writes submissions to the PCQM4M leaderboard.
    generate: Continues a text with a language model.
    rollout: Plays a policy in its environment.
    maps: Reads the attention maps of a model.
    influence: Computes attention maps by differentiation.
    json_text: Writes results as JSON.

Imports: `tasks`, `uncertainty`, `run_folder`, `config`, `data`, `model`, `chem` and the packages below them.

To add a use of trained models, write a function that takes a `Predictor` here, and a verb in `molslice.cli`.

Nothing is unpickled when a model is loaded, and every prediction takes the same path.
"""
