"""Data sets of images, their patches and augmentations.

Modules beside the data sets:
    base: Cuts images into tokens and augments them.
    decoding: Decodes image files once and caches the pixels.
    labeled_files: The base class of a user's own images, in folders or in tables.
    parquet_files: Images in Parquet files, and their download from the Hugging Face Hub.
    cifar_files: The base class of CIFAR-10 and CIFAR-100.
    rand_augment: RandAugment and resized crops.

Imports: the same as `molslice.data`, and Pillow and pyarrow inside functions.

To add a data set, write a file with a class that derives from `ImageDataset`.
"""
