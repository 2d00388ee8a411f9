"""Use of trained models: prediction, evaluation, generation, rollouts and attention maps.

In: a run, ensemble or fitted folder, and molecules as SMILES, tables or data sets. Out: `Predictions`, tables
of them, and measured errors.

Modules:
    load, hub: Load a trained model from a folder or the Hugging Face Hub.
    base: `Predictor`, the interface of everything that predicts from SMILES.
    network, ensemble, fitted, embedding: Networks, models of `molslice fit`, and learned fingerprints.
    options: What predictions have besides their values: intervals, spread and domain.
    predictions, columns: Predictions and the names of their columns.
    inputs, reading: Read molecules from Python values, and convert SMILES to arrays.
    forward: The precision of every forward pass.
    domain: Compares molecules with the training molecules.
    held_out: Keeps the predictions of held-out rows, from which intervals are computed.
    evaluate: Measures the error on a split of a data set.
    groups: Groups molecules by size and scaffold.
    goals, ranking: Order molecules by the probability of a goal, and choose what to measure next.
    uncertainty, uncertainty_figure: Measure and draw how good the intervals are.
    maps: Reads the attention maps of a model.
    json_text: Writes results as JSON.
    tables: Predicts files of any length.
    sequences: Generates text, and plays policies.

A SMILES passes `predict_with_errors`, `predict_chunks`, which chooses fragments and reads arrays, and
`predict_molecules`, which computes batches. Tables pass `predict_table` and `predict_chunks`.

Imports: `tasks`, `uncertainty`, `folders`, `config`, `data`, `model`, `chem` and the packages below them.

To add a use of trained models, write a function that takes a predictor here, and a verb in `molslice.cli`. To
add a kind of model, write a `Predictor` with `reader` and `predict_molecules`.

Nothing is unpickled when a model is loaded, and every prediction takes the same path.
"""
