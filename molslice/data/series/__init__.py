"""Data sets of time series: the UEA and UCR archives in `.ts` files.

May import: what `molslice.data` may; aeon inside functions.
To add one: a file with a class that derives from `SequenceDataset`.
"""
