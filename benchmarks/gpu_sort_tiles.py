"""Time tiles of the Triton sort on a GPU, to choose those of `molslice/ops/triton_sort.py`.

    python benchmarks/gpu_sort_tiles.py

A program of the kernel sorts some columns with some warps. For each length, several of these tiles and
torch's sort are timed on [B, N, 1024] with 65,536 tokens. The tiles are compiled in parallel processes and
timed one at a time. Each time is a median. Writes `benchmarks/results/gpu_sort_tiles.json`.
"""

# pyright: reportMissingImports=false
# triton is installed only with a GPU
import argparse
import fcntl
import multiprocessing
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from record import record

ROOT = Path(__file__).resolve().parents[1]
TOKENS, WIDTH = 1 << 16, 1024
LENGTHS = (32, 64, 128, 256, 512, 1024)
TILES = ((2, 4), (4, 4), (4, 8), (8, 4), (8, 8), (8, 16), (16, 4), (32, 4), (64, 4), (128, 4))
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
    rows = []
    with (
        tempfile.NamedTemporaryFile() as lock,
        multiprocessing.get_context("spawn").Pool(options.jobs) as pool,
    ):
        jobs = [job for dtype in options.dtypes.split(",") for job in list_jobs(dtype)]
        for row in pool.imap(measure, [(job, lock.name) for job in jobs]):
            print(row, flush=True)
            rows.append(row)
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


def measure(task: tuple[Job, str]) -> dict[str, object]:
    """Return the time of a job in milliseconds, or why there is none."""
    import torch
    import triton
    from triton.testing import do_bench

    from molslice.ops import column_ops, triton_sort

    job, lock_path = task
    values = torch.randn(
        TOKENS // job.tokens, job.tokens, WIDTH, device="cuda", dtype=getattr(torch, job.dtype)
    )
    columns = values.transpose(1, 2)[:, None]
    mask = torch.ones(values.shape[:2], dtype=torch.bool, device="cuda")
    mask[:, -3:] = False
    if job.columns is not None:
        triton_sort._tile = lambda length, _: (triton.next_power_of_2(length), job.columns)
        triton_sort.WARPS, triton_sort.LONGEST = job.warps, LENGTHS[-1]

    def step() -> None:
        if job.columns is None:
            column_ops.sort_by_torch(columns, mask)
        else:
            column_ops.sort_columns(columns, mask, None, False)

    row: dict[str, object] = asdict(job)
    try:
        step()
        torch.cuda.synchronize()
    except RuntimeError as error:  # the tile needs more registers or memory than there are
        return {**row, "ms": None, "reason": str(error).splitlines()[0]}
    with Path(lock_path).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {**row, "ms": do_bench(step, warmup=3, rep=15, return_mode="median")}


if __name__ == "__main__":
    main()
