"""RandAugment and resized crops, with the operations of Pillow."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from molslice.files.pillow import import_pillow

NUM_OPERATIONS, LEVEL, LEVELS = 2, 9, 30  # the paper's values for ImageNet
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
Operation = Callable[[Any, float, float], Any]  # image, strength from 0 to 1, sign


def rand_augment(image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Apply two of fourteen operations, drawn with replacement, at level 9 of 30.

    Args:
        image: uint8 [height, width, colors], one color or three.
        draw: Generator for the operations and signs.

    Returns:
        The image, uint8 of the same shape; new borders are black.

    Source: RandAugment, Cubuk et al. 2020, arXiv 1909.13719, sections 3 and 4.3. The ranges are from
    AutoAugment, Cubuk et al. 2019, arXiv 1805.09501, table 6, with shifts of up to 0.45 of the side (there
    150 of 331 pixels).
    """
    changed = _to_pillow(image)
    for number in draw.integers(len(OPERATIONS), size=NUM_OPERATIONS):
        sign = 1.0 if draw.random() < 0.5 else -1.0
        changed = tuple(OPERATIONS.values())[number](changed, LEVEL / LEVELS, sign)
    return np.asarray(changed).reshape(image.shape)


def resized_crop(image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Crop a random window and resize it to the size of the image.

    The window has 8 to 100% of the area and an aspect ratio of 3:4 to 4:3 (log-uniform). A window that does
    not fit is drawn again, at most ten times; then the window is the whole image.

    Args:
        image: uint8 [height, width, colors], one color or three.
        draw: Generator for the window.

    Returns:
        The resized window, uint8 of the same shape.

    Source: Szegedy et al. 2015, arXiv 1409.4842, section 6, with the ranges that are usual for ImageNet.
    """
    height, width = image.shape[:2]
    window = (0, 0, width, height)
    for _ in range(TRIES):
        area = draw.uniform(*AREA) * height * width
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = (
                int(draw.integers(whole - side + 1)) for whole, side in ((width, wide), (height, high))
            )
            window = (left, top, left + wide, top + high)
            break
    picture = _to_pillow(image)
    cut = picture.resize((width, height), import_pillow().Resampling.BICUBIC, box=window)
    return np.asarray(cut).reshape(image.shape)


def _to_pillow(image: np.ndarray) -> Any:  # noqa: ANN401
    return import_pillow().fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def _affine(image: Any, *matrix: float) -> Any:  # noqa: ANN401
    pillow = import_pillow()
    return image.transform(image.size, pillow.Transform.AFFINE, matrix, pillow.Resampling.NEAREST)


def _enhanced(kind: str) -> Operation:
    def change(image: Any, strength: float, sign: float) -> Any:  # noqa: ANN401
        from PIL import ImageEnhance

        return getattr(ImageEnhance, kind)(image).enhance(1.0 + 0.9 * sign * strength)

    return change


def _leveled(kind: str, argument: Callable[[float], int] | None = None) -> Operation:
    def change(image: Any, strength: float, sign: float) -> Any:  # noqa: ANN401, ARG001
        from PIL import ImageOps

        operation = getattr(ImageOps, kind)
        return operation(image) if argument is None else operation(image, argument(strength))

    return change


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "identity": lambda image, strength, sign: image,  # noqa: ARG005
        "shear_x": lambda image, strength, sign: _affine(image, 1, 0.3 * sign * strength, 0, 0, 1, 0),
        "shear_y": lambda image, strength, sign: _affine(image, 1, 0, 0, 0.3 * sign * strength, 1, 0),
        "shift_x": lambda image, strength, sign: _affine(
            image, 1, 0, 0.45 * sign * strength * image.size[0], 0, 1, 0
        ),
        "shift_y": lambda image, strength, sign: _affine(
            image, 1, 0, 0, 0, 1, 0.45 * sign * strength * image.size[1]
        ),
        "rotate": lambda image, strength, sign: image.rotate(30 * sign * strength),
        "brightness": _enhanced("Brightness"),
        "color": _enhanced("Color"),
        "contrast": _enhanced("Contrast"),
        "sharpness": _enhanced("Sharpness"),
        "posterize": _leveled("posterize", lambda strength: 8 - round(4 * strength)),
        "solarize": _leveled("solarize", lambda strength: round(256 * (1 - strength))),
        "autocontrast": _leveled("autocontrast"),
        "equalize": _leveled("equalize"),
    }
)
