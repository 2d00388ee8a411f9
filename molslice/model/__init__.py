"""Tokens in, prediction out; knows no data set.

What lives here: `spec` (sizes), `embeddings` (integers to tokens), `graph_bias` (S + E), `encoder` (the
layers, shared by every kind of input), `graphormer` (the molecular model), `gin_virtual` (the baseline),
`sequence` (words, patches or series in, classes out), `hierarchical` (images in stages), `language` (what
comes next), `decision` (policies), `build` and `count`.
May import: `attention`, `ops`, `types`, `registry`, torch, numpy; `gin_virtual` alone imports PyG, and only
when it is asked for.
To add a model: one file with a module from a batch to `ModelOutput`, its name in `spec` and `build`.
Why so: training from a prepared store and predicting from a prepared batch need no chemistry.
"""
