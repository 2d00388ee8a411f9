"""Cut images into tokens: the base class of data sets of images."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch

from molslice.data.base import Dataset
from molslice.data.images.mixing import mix_images
from molslice.data.images.rand_augment import rand_augment, resized_crop
from molslice.data.sequences import checked_rows
from molslice.data.splits import Splits
from molslice.registry import check_choice
from molslice.types import DataSpec, MolsliceError, SequenceBatch

Tokens = Literal["patches", "pixels"]
Augment = Literal["none", "crop", "crop_flip", "crop_flip_rand", "resized_flip_rand", "resized_flip_rand_mix"]
LEVELS = 256
SAMPLE_BYTES = 1 << 28  # bytes from which mean and std of a larger training split are estimated
CHUNK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Cutting:
    """How an image is cut into tokens; the fields are options of every data set of images.

    Attributes:
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray.
        augment: Augmentation of training images; see `ImageDataset`.
    """

    tokens: Tokens = "patches"
    patch: int = 2
    gray: bool = False
    augment: Augment = "none"

    def __post_init__(self) -> None:
        check_choice("tokens of images", self.tokens, get_args(Tokens))
        check_choice("augment of images", self.augment, get_args(Augment))
        check_count("patch", self.patch)
        if not isinstance(self.gray, bool):
            raise MolsliceError(f"gray of images must be true or false, got {self.gray!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any], **fixed: Any) -> "Cutting":  # noqa: ANN401
        """Create from the options of a data set, which may have others; `fixed` replaces options."""
        return cls(**{key: options[key] for key in cls.__slots__ if key in options} | fixed)

    def describe(self, num_classes: int, height: int, width: int, colors: int, scale: str = "") -> DataSpec:
        """Describe the tokens of images; `scale` names the standardization of patches.

        Raises:
            MolsliceError: The size of the image is not a multiple of the patch size.
        """
        colors = 1 if self.gray else colors
        kind = "gray" if colors == 1 else "rgb"
        if self.tokens == "pixels":
            length = height * width * colors
            return DataSpec(
                num_classes, "ids", vocabulary_size=LEVELS, max_tokens=length, vocabulary=f"{kind} levels"
            )
        if height % self.patch or width % self.patch:
            common = math.gcd(height, width)
            fitting = [size for size in range(1, common + 1) if common % size == 0]
            raise MolsliceError(
                f"patches of {self.patch} x {self.patch} do not tile images of {height} x {width}; "
                f"choices: {', '.join(map(str, fitting))}"
            )
        return DataSpec(
            num_classes,
            "values",
            channels=self.patch**2 * colors,
            max_tokens=height // self.patch * (width // self.patch),
            grid=(height // self.patch, width // self.patch),
            vocabulary=f"{kind} patches of {self.patch}" + (f", {scale}" if scale else ""),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Images read from files.

    Attributes:
        pixels: uint8 [rows, height, width, colors]; one color if gray was requested.
        labels: Class of each row, int [rows]; negative if unknown.
        splits: Row numbers of each split.
        failed: Reasons of rows without an image, by row number.
        class_names: Names of the classes; empty if the files have none.
    """

    pixels: np.ndarray
    labels: np.ndarray
    splits: Splits
    failed: Mapping[int, str] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()


class ImageDataset(Dataset):
    """Images of one size and their classes.

    With `tokens: patches` a token is a square of `patch` x `patch` pixels, row by row from the top left. Its
    values are ordered by pixel, then by color. Each color is standardized by its mean and standard deviation
    over the training split (as fractions of 255, rounded to three digits). With `tokens: pixels` a token is
    the level, 0 to 255, of one pixel of a gray image, or of one color of one pixel (red, green, blue, then
    the next pixel).

    Augmentation of training images, `augment`:
    `none`; `crop` shifts by up to an eighth of the size and pads with black; `crop_flip` also mirrors half of
    the images left to right (He et al. 2016, section 4.2); `crop_flip_rand` adds RandAugment;
    `resized_flip_rand` takes a random resized crop instead of the shift, for large images (see
    `rand_augment`); `resized_flip_rand_mix` also mixes pairs of images of a batch by Mixup or CutMix (see
    `mix_images`), and both classes share in the loss. The random numbers depend only on the draw and the row,
    and mixing depends on all rows that are collated together. Evaluation never augments.

    A subclass sets `source`, reads its files, and calls `_take`.

    Args:
        tokens: `patches`, or `pixels` for one token per pixel (per color of a pixel without `gray`).
        patch: Side of a patch, in pixels.
        gray: Whether to convert colors to gray.
        augment: `none`, `crop`, `crop_flip`, `crop_flip_rand`, `resized_flip_rand` or
            `resized_flip_rand_mix`; see `ImageDataset`.
        cache_dir: Folder for decoded images; by default the user's cache.

    Attributes:
        cutting: How images are cut into tokens.
        images: uint8 [rows, height, width, colors].
    """

    kind = "multiclass"
    target_names, target_units = ("class",), ("",)
    row_name = "images"

    cutting: Cutting
    images: np.ndarray

    def _take(
        self,
        pictures: Pictures,
        cutting: Cutting,
        scale: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        """Set the attributes from the images.

        `scale` is the mean and standard deviation of each color as fractions of 255, by default measured in
        the training split.
        """
        self.images, self.splits, self.cutting = pictures.pixels, pictures.splits, cutting
        self._errors, labels = dict(pictures.failed), pictures.labels
        self.class_names = pictures.class_names or self.class_names
        if len(self._errors) == len(self.images):
            reason = next(iter(self._errors.values()), "it holds no images")
            raise MolsliceError(f"cannot read any image of {self.source}: {reason}")
        if labels.max() >= len(self.class_names):
            row, classes = int(labels.argmax()), len(self.class_names)
            raise MolsliceError(
                f"invalid class {labels[row]} in {self.source}, row {row + 1}; choices: 0 to {classes - 1}"
            )
        self._labels = np.where(labels < 0, np.nan, labels).astype(np.float32)[:, None]
        _, height, width, colors = self.images.shape
        scale_text = ""
        if cutting.tokens == "patches":
            mean, spread = scale or self._measured_scale()
            self._factor = (1 / (255 * np.array(spread))).astype(np.float32)
            self._shift = (-np.array(mean) / np.array(spread)).astype(np.float32)
            scale_text = f"mean {_listed(mean)}, std {_listed(spread)}"
        self._spec = cutting.describe(len(self.class_names), height, width, colors, scale_text)
        self._num_tokens = np.full(len(self.images), self._spec.max_tokens)
        self._num_tokens[list(self._errors)] = 0
        self._draws: tuple[int, np.ndarray] | None = None

    @property
    def num_tokens(self) -> np.ndarray:
        """Number of tokens of each row, int [rows]: equal for all images, 0 for a row without an image."""
        return self._num_tokens

    @property
    def targets(self) -> np.ndarray:
        """Class number of each row, float32 [rows, 1]; NaN if unknown."""
        return self._labels

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> SequenceBatch:
        """Collate images into a batch without padding; augmented if `draw` is given."""
        rows = checked_rows(rows, self.num_tokens, self.source)
        pixels = np.asarray(self.images[rows])
        if draw is not None and self.cutting.augment != "none":
            pixels = self._moved(pixels, rows, draw)
            if "_rand" in self.cutting.augment:
                pixels = self._randomly_changed(pixels, rows, draw)
        targets, others = self._labels[rows], {}
        if draw is not None and self.cutting.augment.endswith("_mix"):
            pixels, share = mix_images(pixels, np.random.default_rng([draw % 2**64, *rows]))
            others["other_targets"] = torch.from_numpy(targets[::-1].copy())
            others["other_share"] = torch.full((len(rows),), share)
        if self.cutting.tokens == "pixels":
            tokens = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.int64))
        else:
            tokens = self._patches(pixels)
        return SequenceBatch(tokens, targets=torch.from_numpy(targets), rows=torch.from_numpy(rows), **others)

    def _patches(self, pixels: np.ndarray) -> torch.Tensor:
        count, height, width, colors = pixels.shape
        size = self.cutting.patch
        cut = pixels.reshape(count, height // size, size, width // size, size, colors)
        cut = cut.transpose(0, 1, 3, 2, 4, 5)
        values = np.multiply(cut, self._factor, dtype=np.float32)
        values += self._shift
        return torch.from_numpy(np.ascontiguousarray(values).reshape(count, -1, size * size * colors))

    def _randomly_changed(self, pixels: np.ndarray, rows: np.ndarray, draw: int) -> np.ndarray:
        changed = np.empty_like(pixels)
        for place, row in enumerate(rows):
            generator = np.random.default_rng([draw % 2**64, row])
            image = pixels[place]
            if self.cutting.augment.startswith("resized"):
                image = resized_crop(image, generator)
            changed[place] = rand_augment(image, generator)
        return changed

    def _moved(self, pixels: np.ndarray, rows: np.ndarray, draw: int) -> np.ndarray:
        count, height, width, _ = pixels.shape
        resized = self.cutting.augment.startswith("resized")  # such a crop shifts, so only mirror here
        margins = (0, 0) if resized else (max(1, height // 8), max(1, width // 8))
        drawn = self._drawn(draw, margins)[rows]
        down = drawn[:, :1] + np.arange(height)
        right = np.arange(width)[None]
        if "flip" in self.cutting.augment:
            right = np.where(drawn[:, 2:], width - 1 - right, right)
        right = drawn[:, 1:2] + right
        padded = np.pad(pixels, ((0, 0), margins[:1] * 2, margins[1:] * 2, (0, 0)))
        return padded[np.arange(count)[:, None, None], down[:, :, None], right[:, None]]

    def _drawn(self, draw: int, margins: tuple[int, int]) -> np.ndarray:
        """Draw for every row the offset of its window in the padded image, and whether to flip it."""
        if self._draws is None or self._draws[0] != draw:
            limits = np.array([2 * margins[0] + 1, 2 * margins[1] + 1, 2])
            generator = np.random.default_rng(draw % 2**64)
            drawn = generator.integers(limits, size=(len(self), 3)).astype(np.int32)
            self._draws = draw, drawn
        return self._draws[1]

    def _measured_scale(self) -> tuple[list[float], list[float]]:
        """Compute mean and standard deviation of each color over the training split, as fractions of 255."""
        rows = self.splits["train"]
        rows = rows[~np.isin(rows, list(self._errors))]
        if not len(rows):
            raise MolsliceError(f"the split 'train' of {self.source} has no readable image")
        size = math.prod(self.images.shape[1:])
        rows = rows[:: max(1, math.ceil(len(rows) * size / SAMPLE_BYTES))]
        colors = self.images.shape[-1]
        counts = np.zeros((colors, LEVELS), np.int64)
        for chunk in chunks(len(rows), size):
            values = np.asarray(self.images[rows[chunk]])
            for color in range(colors):
                counts[color] += np.bincount(values[..., color].ravel(), minlength=LEVELS)
        levels = np.arange(LEVELS) / 255
        mean = counts @ levels / counts.sum(1)
        spread = np.sqrt(counts @ levels**2 / counts.sum(1) - mean**2)
        # a constant color has standard deviation 0
        spread = np.where(spread < 5e-4, 1.0, spread)
        return mean.round(3).tolist(), spread.round(3).tolist()


def chunks(rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices of consecutive rows of about 16 MiB each."""
    step = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, rows, step):
        yield slice(start, start + step)


def to_gray(images: np.ndarray) -> np.ndarray:
    """Convert RGB, uint8 [..., 3], to gray levels, uint8 [..., 1].

    They are 0.299 R + 0.587 G + 0.114 B, rounded, in 16-bit fixed point. TensorFlow's conversion, used by
    Long Range Arena, can differ by one level.

    Source: ITU-R BT.601, as Pillow's conversion to mode L.
    """
    gray = np.empty((*images.shape[:-1], 1), np.uint8)
    for rows in chunks(len(images), math.prod(images.shape[1:]) or 1):
        red, green, blue = (images[rows, ..., color].astype(np.uint32) for color in range(3))
        gray[rows, ..., 0] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    return gray


def check_count(option: str, value: object) -> None:
    """Check that an option of images is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise MolsliceError(f"{option} of images must be an integer of at least 1, got {value!r}")


def _listed(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:g}" for number in numbers)
