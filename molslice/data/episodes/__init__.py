"""Data sets of reinforcement learning episodes: observations, actions and returns-to-go.

Imports: the same as `molslice.data`, and h5py inside functions.

To add a data set, write a file with a class that derives from `Dataset`.
"""
