"""Generic input and output, shared by molecules, images, texts and runs.

Modules:
    atomic: Write a file or a folder completely or not at all.
    owner: Identify the process that wrote a file.
    lock: Reserve a folder for one process.
    processes: Worker processes and programs that end with their parent.
    parsing: YAML and JSON with limits on size and depth.
    lines: Text and bytes by line, plain or gzip.
    tables: CSV and TSV.
    parquet: Parquet.
    records: Columns of a table in any of these formats.
    cache: Cache folders and checksums.
    hub: Downloads from the Hugging Face Hub.
    pillow: Import of Pillow.

Imports: `molslice.registry`, `molslice.types`, numpy, pandas, PyYAML. A library for one format only is
imported inside a function.

To add a format, write a module for it and add its suffix to `records.py`.
"""
