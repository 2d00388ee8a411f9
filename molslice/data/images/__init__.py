"""Data sets of images, their patches and augmentations.

`base.py` cuts images into tokens. `decoding.py` decodes files once and keeps them, `dividing.py` and
`tables.py` make splits of archives and Parquet files, `rand_augment.py` augments, `fetch.py` downloads,
`idx.py` reads MNIST's format.
May import: what `molslice.data` may; Pillow and pyarrow inside functions.
To add one: a file with a class that derives from `ImageDataset`.
"""
