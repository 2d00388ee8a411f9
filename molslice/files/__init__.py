"""Generic input and output, shared by molecules, images, texts and runs.

In: paths and URLs from users. Out: rows, lines and plain values; errors name file and place. Whatever is
written is complete or absent.

Modules:
    atomic: Write a file or a folder completely or not at all.
    folder_names: Replace the paths of folders in a text that others read.
    lock: Reserve a file or a folder for one process, and identify the process that wrote a file.
    process_memory: Resident sets, available memory, limits, and freed memory.
    processes: Worker processes and programs that end with their parent.
    parsing: YAML and JSON with limits on size and depth.
    urls: Files in object stores, named by URLs of fsspec.
    lines: Text and bytes by line, plain, gzip or Zstandard.
    tables: Tables in any format: separated values, JSON lines, Parquet, SMILES on each line, SD files.
    records: Columns of tables of texts, with the types of JSON and Parquet.
    npy: Arrays written piece by piece.
    received: Files of folders that another person may have made.
    cache: Cache folders and checksums.
    progress: Bars and lines on standard error.
    ray_data: A function on all cores of this machine or of a cluster.
    hub: Downloads from the Hugging Face Hub.
    pillow: Import of Pillow.

Imports: `molslice.registry`, `molslice.types`, fsspec, numpy, pandas, pyarrow, PyYAML, tqdm. A library
for one format only is imported inside a function.

To add a format of tables, write a subclass of `Table` in a module of `tables/` and name its ending in
`open_table`.
"""
