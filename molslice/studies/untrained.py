"""Untrained encoders of an attention, and images as their tokens."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention import ATTENTIONS
from molslice.config.entries import split_entries
from molslice.model import AttentionChoice
from molslice.model.encoder import Encoder, initialize_linear
from molslice.types import MolsliceError

# Variants of registered attentions that respond differently to the order of tokens.
VARIANTS = ("slice_sort:placement=aligned",)


def registered_entries() -> tuple[str, ...]:
    """Return all registered attentions with their default options, and the variants, sorted."""
    return tuple(sorted((*ATTENTIONS.names(), *VARIANTS)))


def read_choice(text: str) -> AttentionChoice:
    """Parse an entry `name:option=value:option=value`, the format of `molslice compare`.

    Raises:
        MolsliceError: The name is unknown, or an option has another form.
    """
    (entry,) = split_entries(text)
    ATTENTIONS.find(entry.name)
    options = dict(entry.options)
    return AttentionChoice(entry.name, options.pop("pair_bias", None), options)


def seeded_encoder(
    choice: AttentionChoice,
    seed: int,
    *,
    dim: int,
    num_layers: int,
    num_heads: int,
    uses_pair_bias: bool,
    max_tokens: int,
) -> Encoder:
    """Build an untrained encoder in evaluation mode, with Glorot initialization, from a seed.

    Raises:
        MolsliceError: An option is unknown, or the attention does not support the sizes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Encoder(
            choice,
            dim=dim,
            num_layers=num_layers,
            num_heads=num_heads,
            ffn_dim=dim,
            uses_pair_bias=uses_pair_bias,
            max_tokens=max_tokens,
        )
        initialize_linear(encoder)
    return encoder.eval()


def draw_image(size: int, seed: int) -> np.ndarray:
    """Draw a disk and a bar on a color gradient, float64 [size, size, 3] from 0 to 1."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:size, 0:size] / (size - 1)
    angle = generator.uniform(0, 2 * np.pi)
    slope = (np.cos(angle) * (rows - 0.5) + np.sin(angle) * (columns - 0.5)) * 0.4 + 0.5
    image = slope[..., None] * generator.uniform(0.4, 0.9, 3)
    center, radius = generator.uniform(0.3, 0.7, 2), generator.uniform(0.12, 0.25)
    disk = np.hypot(rows - center[0], columns - center[1]) < radius
    turn, center_of_bar = generator.uniform(0, np.pi), generator.uniform(0.25, 0.75, 2)
    across = np.cos(turn) * (rows - center_of_bar[0]) + np.sin(turn) * (columns - center_of_bar[1])
    image[disk] = generator.uniform(0, 1, 3)
    image[np.abs(across) < 0.05] = generator.uniform(0, 1, 3)
    return image.clip(0, 1)


def open_image(path: Path) -> np.ndarray:
    """Read an image file as float64 [height, width, 3] from 0 to 1.

    Raises:
        MolsliceError: The file cannot be read or is not an image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"), np.float64) / 255
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise MolsliceError(f"cannot read image {path}: {error}") from error


def whole_image(image: np.ndarray, size: int) -> np.ndarray:
    """Crop the largest central square and average it down to [size, size, 3], float64.

    Raises:
        MolsliceError: The image is smaller than `size`.
    """
    side = _checked_side(image, size)
    top, left = ((length - side) // 2 for length in image.shape[:2])
    square = torch.from_numpy(image[top : top + side, left : left + side]).permute(2, 0, 1)[None]
    pixels = torch.nn.functional.adaptive_avg_pool2d(square, size)
    return pixels[0].permute(1, 2, 0).numpy()


def crop_image(image: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Crop a square [size, size, 3] at a random position; returns a view.

    Raises:
        MolsliceError: The image is smaller than `size`.
    """
    _checked_side(image, size)
    height, width = image.shape[:2]
    generator = np.random.default_rng(seed)
    top, left = generator.integers(height - size + 1), generator.integers(width - size + 1)
    return image[top : top + size, left : left + size]


def _checked_side(image: np.ndarray, size: int) -> int:
    side = min(image.shape[:2])
    if side < size:
        raise MolsliceError(f"the image is {image.shape[1]} x {image.shape[0]}, smaller than {size} x {size}")
    return side


def embed_patches(images: list[np.ndarray], patch: int, dim: int, seed: int) -> Float[Tensor, "B N D"]:
    """Embed images as an untrained Vision Transformer does: a class token, then the patches row by row.

    A token is a linear map of standardized pixels plus a position; all weights are normal random numbers.

    Args:
        images: Squares of equal size, [size, size, 3] each.
        patch: Side of a patch in pixels; it must divide the size.
        dim: Width of a token D.
        seed: Seed of the weights.

    Returns:
        Tokens [B, N, D] with N = 1 + (size / patch)^2, float32.

    Source: Dosovitskiy et al. 2021 (ViT), equation 1.
    """
    pixels = torch.from_numpy(np.stack(images)).float()
    batch, size, _, colors = pixels.shape
    side = size // patch
    pixels = (pixels - pixels.mean((1, 2), keepdim=True)) / pixels.std((1, 2), keepdim=True).clamp(min=1e-3)
    cut = pixels.reshape(batch, side, patch, side, patch, colors).permute(0, 1, 3, 2, 4, 5)
    cut = cut.reshape(batch, side * side, -1)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(cut.shape[-1], dim, generator=generator) / cut.shape[-1] ** 0.5
    positions = torch.randn(side * side + 1, dim, generator=generator)
    class_token = torch.zeros(batch, 1, dim)
    return torch.cat([class_token, cut @ weight], 1) + positions
