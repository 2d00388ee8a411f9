"""Generic input and output: files of any kind, without knowledge of what their contents mean.

`atomic.py` writes a file or a folder whole or not at all, `owner.py` identifies the process that wrote it,
`lock.py` keeps a folder to one process, `processes.py` starts processes that end with their parent.
`parsing.py` (YAML and JSON, bounded), `lines.py` (text and gzip), `tables.py` (CSV, TSV),
`parquet.py`, `records.py` (columns of a table of any format), `cache.py` (cache folders, checksums) and
`hub.py` (downloads from the Hugging Face Hub).
May import: `molslice.registry`, `molslice.types`, numpy, pandas, PyYAML; inside a function what only one
format needs.
To add a format: a file of its own, and its suffix in `records.py`.
Why a folder: reading, writing and caching are the same for molecules, images and texts.
"""
