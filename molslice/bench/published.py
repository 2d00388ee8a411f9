"""The numbers of the Sliceformer paper for its text setting, shown beside ours.

Source: Yuan and Xu 2023, arXiv 2310.17683, the comparison of speed and memory on byte-level text
classification: batch 32 over four RTX 3090, 1K to 4K tokens. Their Transformer computes all scores, as
`softmax:fused=false` does; a fused kernel is not among their baselines. None means out of memory.
"""

from typing import NamedTuple

__all__ = ["LENGTHS", "PUBLISHED", "SETTING", "Published"]

SETTING = "sliceformer_text"
LENGTHS = (1024, 2048, 3072, 4096)


class Published(NamedTuple):
    """The numbers of one attention by length; None means out of memory.

    Attributes:
        name: Name of the attention in the paper.
        speed: Training steps per second.
        memory: Memory in GB.
    """

    name: str
    speed: tuple[float | None, ...]
    memory: tuple[float | None, ...]


# our entry -> the numbers of the paper
PUBLISHED: dict[str, Published] = {
    "softmax:fused=false": Published("Transformer", (27.49, 9.45, 4.73, None), (11.64, 32.45, 65.67, None)),
    "linformer": Published("Linformer", (28.47, 28.08, 19.08, 14.55), (5.95, 8.82, 11.65, 14.47)),
    "performer": Published("Performer", (28.84, 26.67, 18.97, 14.10), (6.25, 9.35, 12.45, 15.54)),
    "cosformer": Published("Cosformer", (28.42, 26.13, 17.56, 12.58), (6.36, 9.68, 13.36, 16.95)),
    "slice_sort": Published("Sliceformer", (32.79, 32.26, 21.79, 16.25), (5.61, 8.12, 10.64, 13.14)),
}
