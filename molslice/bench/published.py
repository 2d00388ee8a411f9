"""The speed tables of the Sliceformer paper for its text setting, shown beside ours.

Source: Yuan and Xu 2023, arXiv 2310.17683, the comparison of speed and memory on byte-level text
classification: batch 32 over four RTX 3090, 1K to 4K tokens. All rows of training speed and memory are here.
They agree with the sheet of results in the authors' repository, github.com/DaShenZi721/sliceformer, which has
Cosformer only at 3K. The sheet also has inference speeds, but none of Cosformer, so inference is left out.
Their Transformer computes all scores, as `softmax:fused=false` does; a fused kernel is not among their
baselines. None means out of memory.
"""

from typing import NamedTuple

SETTING = "sliceformer_text"
LENGTHS = (1024, 2048, 3072, 4096)


class Published(NamedTuple):
    """The numbers of one attention by length; None means out of memory.

    Attributes:
        name: Name of the model in the paper.
        speed: Training steps per second.
        memory: Memory in GB.
    """

    name: str
    speed: tuple[float | None, ...]
    memory: tuple[float | None, ...]


# our entry -> the numbers of the paper, in the order of its table
PUBLISHED: dict[str, Published] = {
    "softmax:fused=false": Published("Transformer", (27.49, 9.45, 4.73, None), (11.64, 32.45, 65.67, None)),
    "local": Published("Local Attention", (31.41, 25.47, 18.06, 13.80), (6.23, 9.24, 12.26, 15.27)),
    "linformer": Published("Linformer", (28.47, 28.08, 19.08, 14.55), (5.95, 8.82, 11.65, 14.47)),
    "reformer": Published("Reformer", (31.55, 22.00, 13.42, 8.84), (6.91, 12.22, 19.54, 28.88)),
    "sinkhorn_blocks": Published(
        "Sinkhorn Transformer", (29.88, 22.00, 15.66, 11.70), (6.70, 10.23, 13.78, 17.32)
    ),
    "synthesizer": Published("Synthesizer", (19.57, 6.27, 3.01, None), (12.77, 37.53, 75.23, None)),
    "bigbird": Published("BigBird", (27.27, 14.34, 9.76, 7.21), (9.59, 16.53, 23.16, 30.07)),
    "linear": Published("Linear Transformer", (31.35, 25.79, 17.07, 12.32), (6.50, 9.84, 13.18, 16.52)),
    "performer": Published("Performer", (28.84, 26.67, 18.97, 14.10), (6.25, 9.35, 12.45, 15.54)),
    "longformer": Published("Longformer", (17.56, 5.67, 2.74, None), (13.00, 37.07, 75.46, None)),
    "sparse": Published("Sparse Transformer", (27.39, 9.47, 4.72, None), (11.64, 32.45, 65.71, None)),
    "sinkhorn": Published("Sinkformer", (18.72, 5.82, 2.86, None), (14.13, 41.58, 82.53, None)),
    "cosformer": Published("Cosformer", (28.42, 26.13, 17.56, 12.58), (6.36, 9.68, 13.36, 16.95)),
    "slice_sort": Published("Sliceformer", (32.79, 32.26, 21.79, 16.25), (5.61, 8.12, 10.64, 13.14)),
}
