"""Molecules: data sets, the compact store, its preparation and its batches.

Modules beside the data sets `csv`, `pcqm4m`, `prepared` and `corpus`:
    prepare: Converts SMILES to a store in parallel, and caches it.
    input_rows: Reads the rows of files with a running checksum.
    prepare_files: Converts files of any length to a store, also on a cluster or after an interruption.
    fragments: Chooses the molecules of mixtures.
    refusals: Counts of failed rows by reason, with examples.
    report: Counts of what was prepared.
    tables: Reads files of molecules in any format.
    smiles_column: Finds the column of SMILES.
    identifiers: Finds the columns of names and numbers of compounds.
    limits: Reads values that are limits, such as `>10`.
    side_columns: Finds columns with the relations or units of the targets.
    store, store_writer: A folder of memory-mapped arrays, and how it is written.
    store_files: Reads and checks the files of a store.
    joined: Several stores that are read as one.
    pyg: Rows of a store as graphs of PyTorch Geometric.
    row: The contents of a row, for people.
    verify: Finds damage in a store.
    collate: Pads rows of a store to a batch.
    stored_rows: A store in the memory of a device, which collates batches of fixed shapes.
    ogb_split: Reads OGB's split file without running code from it.
    ogb_download: Downloads OGB's archives.
    leaderboard: OGB's evaluator, and submissions.

Imports: the same as `molslice.data`.

To add a data set, write a file with a class that derives from `MoleculeDataset`.
"""
