"""Data sets of reinforcement learning episodes: observations, actions and returns-to-go.

May import: what `molslice.data` may; h5py inside functions.
To add one: a file with a class that derives from `Dataset`.
"""
