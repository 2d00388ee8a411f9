"""Molecules: data sets, the compact store, its preparation and its batches.

`csv.py` and `pcqm4m.py` are data sets. `prepare.py` converts SMILES to a store: a folder of memory-mapped
arrays (`store.py`), written by `store_writer.py` from the chunks of `packed.py`. `collate.py` pads rows of a
store to a batch. For OGB, `ogb_split.py` reads the split file without unpickling, `ogb_download.py` downloads
the archives, and `leaderboard.py` evaluates and writes submissions.
May import: what `molslice.data` may.
To add one: a file with a class that derives from `MoleculeDataset`.
"""
