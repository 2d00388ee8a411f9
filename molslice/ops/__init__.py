"""Pure tensor functions, torch and numpy only.

What lives here: `masked.py`, sums, means and softmaxes that padding cannot reach; `sorting.py`, sorts
along the tokens; `paths.py`, shortest paths on a batch of graphs; `vocabulary.py`, sizes of feature tables.
May import: torch, numpy, jaxtyping, `molslice.types`. To add one: a file named after what it computes,
functions that take tensors and a mask and return tensors, without state.
Why so: an attention that reduces over tokens by itself will one day sum a padded row; every reduction over
tokens therefore goes through this folder, where garbage at padding, NaN included, reaches neither the
value nor the gradient.
"""
