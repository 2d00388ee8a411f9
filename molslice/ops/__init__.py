"""Pure tensor functions. They use only torch and numpy.

Contents: `masked`, sums, means and softmaxes that ignore padding; `packing`, ranks among the real tokens;
`sorting` and `column_ops`, sorts along the tokens, on the CPU by `numpy_sort`, on a GPU by `triton_sort`;
`mixed_sort` and `triton_mix`, pair weights and sort in one kernel; `causal`, products with past tokens;
`running`, running sums of exponentials; `laplace`, mixing by distance on a line; `sinkhorn`, doubly
stochastic matrices; `features`, feature maps of kernels; `hashing`, codes and collisions; `landmarks`, means
of segments; `inverse`, iterated pseudo-inverses; `windows`, blocks of tokens; `paths`, shortest paths on a
batch of graphs; `path_codes` and `path_bias`, the same as codes of fixed size, and a look-up by them, on a
GPU by `triton_path_codes` and `triton_path_bias`; `distances`, bins of pairs of atoms; `vocabulary`, sizes
of embedding tables; `draws`, random numbers as a function of integers; `derivatives`, maps between tokens
by differentiation; `biased_attention`, softmax with a bias; `packed_attention`, softmax and flow with a
bias in one kernel, `triton_attention` and `triton_flow`; `folded_attention` and `triton_folded`, attention
among pseudo-tokens in one kernel; `layer_steps` and `triton_layers`, what is between the matrix products of a
layer; `triton_draws`, dropout in kernels.
Imports: torch, numpy, jaxtyping, `molslice.types`.
To add one: write a file named after what it computes, with functions that take tensors and a mask and return
tensors, without state.
Reason: every reduction over tokens is in this folder, so that values at padding, NaN included, affect neither
results nor gradients.
"""
