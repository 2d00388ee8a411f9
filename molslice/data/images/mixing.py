"""Mixup and CutMix: mixtures of two images of a batch."""

import numpy as np

MIXUP, CUTMIX, CUT = 0.8, 1.0, 0.5  # DeiT's values: both alphas, and the share of batches that are cut


def mix_images(images: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Mix image k of B with image B - 1 - k, all in the same way.

    Mixup is the mean of both images with weights 1 - s and s, rounded. CutMix replaces a rectangle by the
    rectangle of the other image. Its center is uniform in the image, and its sides are sqrt(u) of the
    image's sides, u drawn from Beta(1, 1). It is clipped at the border, and s is its share of the area.

    Args:
        images: uint8 [B, height, width, colors].
        generator: Where the form, s and the rectangle are drawn from.

    Returns:
        The mixed images, and the share s of the other image.

    Source: Mixup, Zhang et al. 2018, arXiv 1710.09412; CutMix, Yun et al. 2019, arXiv 1905.04899; one of the
    two for each batch, DeiT (Touvron et al. 2021, arXiv 2012.12877, table 9). The partners are chosen as in
    timm.
    """
    others = images[::-1]
    if generator.random() >= CUT:
        share = generator.beta(MIXUP, MIXUP)
        mixed = np.multiply(images, np.float32(1 - share)) + np.multiply(others, np.float32(share))
        return np.rint(mixed).astype(np.uint8), share
    height, width = images.shape[1:3]
    side = np.sqrt(generator.beta(CUTMIX, CUTMIX))
    rows, columns = (_interval(length, int(side * length), generator) for length in (height, width))
    mixed = images.copy()
    mixed[:, rows, columns] = others[:, rows, columns]
    return mixed, (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)


def _interval(length: int, size: int, generator: np.random.Generator) -> slice:
    start = int(generator.integers(length)) - size // 2
    return slice(max(0, start), min(length, start + size))
