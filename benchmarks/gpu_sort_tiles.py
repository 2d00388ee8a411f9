"""Time tiles of the Triton sort on a GPU, to choose those of `molslice/ops/triton_sort.py`.

    python benchmarks/gpu_sort_tiles.py

A program of the kernel sorts some columns with some warps. For each length, several of these tiles and
torch's sort are timed on [B, N, 1024] with 65,536 tokens. All tiles are first compiled in parallel processes,
then timed in one. Each time is a median. Writes `benchmarks/results/gpu_sort_tiles.json`.
"""

# pyright: reportMissingImports=false
# triton is installed only with a GPU
import argparse
import multiprocessing
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from record import record

ROOT = Path(__file__).resolve().parents[1]
TOKENS, WIDTH = 1 << 16, 1024
LENGTHS = (32, 64, 128, 256, 512, 1024, 4096, 16384)
TILES = (
    (1, 8),
    (2, 4),
    (2, 16),
    (4, 4),
    (4, 8),
    (8, 4),
    (8, 8),
    (8, 16),
    (16, 4),
    (32, 4),
    (64, 4),
    (128, 4),
)
MOST_KEYS = 64  # of a thread


@dataclass(frozen=True, slots=True)
class Job:
    """What to time.

    Attributes:
        dtype: Name of the values' dtype.
        tokens: Number of tokens N.
        columns: Columns of a program; None for torch's sort.
        warps: Warps of a program; None for torch's sort.
    """

    dtype: str
    tokens: int
    columns: int | None = None
    warps: int | None = None


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    jobs = [job for dtype in options.dtypes.split(",") for job in list_jobs(dtype)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for _ in pool.imap_unordered(compile_step, jobs):
            pass
    rows = []
    for job in jobs:
        rows.append(measure(job))
        print(rows[-1], flush=True)
    payload = {"tokens_of_a_batch": TOKENS, "width": WIDTH, "rows": rows}
    print("wrote", record("gpu_sort_tiles", payload, options.out))


def list_jobs(dtype: str) -> list[Job]:
    """Return torch's sort and the tiles for each length."""
    jobs = []
    for tokens in LENGTHS:
        jobs.append(Job(dtype, tokens))
        for columns, warps in TILES:
            if 32 * warps <= tokens * columns <= 32 * warps * MOST_KEYS:
                jobs.append(Job(dtype, tokens, columns, warps))
    return jobs


def compile_step(job: Job) -> None:
    """Compile what a job times; Triton keeps it on the disk."""
    build_step(job)


def build_step(job: Job) -> Callable[[], object] | str:
    """Compile what a job times and run it once.

    Returns:
        The step; if it cannot run, the reason.
    """
    import torch
    import triton

    from molslice.ops import column_ops, triton_sort

    values = torch.randn(
        TOKENS // job.tokens, job.tokens, WIDTH, device="cuda", dtype=getattr(torch, job.dtype)
    )
    columns = values.transpose(1, 2)[:, None]
    mask = torch.ones(values.shape[:2], dtype=torch.bool, device="cuda")
    mask[:, -3:] = False

    def step() -> object:
        if job.columns is None:
            return column_ops.sort_by_torch(columns, mask)
        triton_sort._tile = lambda length, _: (triton.next_power_of_2(length), job.columns)
        triton_sort.WARPS, triton_sort.LONGEST = job.warps, LENGTHS[-1]
        return column_ops.sort_columns(columns, mask, None, False)

    try:
        step()
        torch.cuda.synchronize()
    except RuntimeError as error:  # the tile needs more registers or memory than there are
        return str(error).splitlines()[0]
    return step


def measure(job: Job) -> dict[str, object]:
    """Return the time of a job in milliseconds, or the reason for its absence."""
    from triton.testing import do_bench

    step = build_step(job)
    if isinstance(step, str):
        return {**asdict(job), "ms": None, "reason": step}
    return {**asdict(job), "ms": do_bench(step, warmup=3, rep=15, return_mode="median")}


if __name__ == "__main__":
    main()
