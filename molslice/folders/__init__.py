"""Folders that hold a trained model: written by training and fit, read by inference.

Modules:
    run: A trained network with its configuration.
    ensemble: Several run folders.
    fitted: The learners, networks, settings and rows of `molslice fit`.
    limit_cells: Limits such as `>10` in the table of the rows of a fit.
    results: Tables and figures, which are not in the folder of a model.

Imports: `config`, `tasks`, `learners`, `uncertainty` and the packages below them.

Nothing in these folders can run code: weights are safetensors, everything else is JSON, YAML or CSV. A new
kind of model is one module with its file names, a writer, and a reader that refuses damaged files by name.
"""
