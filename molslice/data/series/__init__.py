"""Data sets of time series: the UEA and UCR archives in `.ts` files.

Imports: the same as `molslice.data`, and aeon inside functions.

To add a data set, write a file with a class that derives from `SequenceDataset`.
"""
