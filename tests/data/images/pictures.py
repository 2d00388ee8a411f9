"""Small images and their file formats."""

import gzip
import io
import tarfile

import numpy as np


def pixels(count, height=32, width=32, colors=3, seed=0):
    """Return random images, uint8 [count, height, width, colors]."""
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, colors)).astype(np.uint8)


def encoded(image, kind="PNG", **options):
    """Return an encoded image."""
    from PIL import Image

    content = io.BytesIO()
    image = image[..., 0] if image.shape[-1] == 1 else image
    Image.fromarray(image).save(content, kind, **options)
    return content.getvalue()


def write_idx(path, values, compressed=False):
    """Write an array of bytes as an idx file."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    data = header + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if compressed else data)
    return path


def records(images, *labels):
    """Return records of CIFAR's binary version: classes, then planes of red, green and blue."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.column_stack([*(np.asarray(each, np.uint8) for each in labels), planes]).tobytes()


def write_archive(path, members):
    """Write a tar.gz archive from a mapping of names to bytes."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def write_table(path, images, labels, names=(), image_column="image", label_column="label"):
    """Write a Parquet file like the `datasets` library: structs of bytes and path, names in the schema."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [
        None if image is None else {"bytes": image, "path": f"{i}.png"} for i, image in enumerate(images)
    ]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({image_column: pa.array(cells, kind), label_column: pa.array(labels, pa.int64())})
    if names:
        features = {label_column: {"names": list(names), "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path
