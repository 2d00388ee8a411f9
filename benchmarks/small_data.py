"""Compare methods on small measured sets: MoleculeNet, ADMET sets of TDC and others, and MoleculeACE.

Every method gets the same rows. Random and scaffold splits hold out a tenth for testing and a tenth for the
methods that need validation rows; the others train on both. Sets with a test split of their own keep it.
Sets above 5,000 rows are represented by a fixed sample. The error is MAE (RMSE for MoleculeACE), one less the
Spearman correlation for clearance, or one less the area under the curve. Nothing is chosen on the test rows;
ESOL, FreeSolv, BACE and hepatocyte clearance are development sets, and are not part of the means.

    python benchmarks/small_data.py --data PATH_TO_SETS --members forest,boosting,fit
    python benchmarks/small_data.py --data PATH_TO_SETS --members chemprop --chemprop chemprop
    python benchmarks/small_data.py --data PATH_TO_SETS --members plain,frozen,tuned
    python benchmarks/small_data.py --data PATH_TO_SETS --members minimol --minimol minimol/bin/python
    python benchmarks/small_data.py --data PATH_TO_SETS --curve
    python benchmarks/small_data.py --collect

Each finished job is a JSON file below `--runs` and is not repeated. Several processes may work on the same
`--runs` at once. `--collect` writes `benchmarks/results/small_data.json` from what is finished, and
`--restore` writes the jobs of that file to `--runs`, to add others to them. Chemprop and minimol each
need an environment of their own; see `training_speed.py` and `minimol_embed.py`. Only the first job of
minimol on a set counts the time of the fingerprints.
"""

import argparse
import hashlib
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import ROOT, child_seconds, find_commit, group_by, make_parser, record, spread, write_json
from small_data_members import MEMBERS, Work
from small_data_sets import SETS, Molecules, divide, error_of, read_molecules, score

from molslice.files.cache import file_checksum
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.folders.run import model_file
from molslice.inference.load import find_model, load_encoder
from molslice.pretrained import DEFAULT_ENCODER
from molslice.types import MolsliceError

COMMIT = find_commit()  # of the code that runs, also if the checkout moves on
DEVELOPMENT = ("esol", "freesolv", "bace", "tdc_clearance_hepatocyte_az")
CURVE_SETS, CURVE_ROWS = ("lipo", "tdc_solubility_aqsoldb", "tdc_ames"), (100, 300, 1_000, None)
BETTER_BASELINE = "best of forest and boosting"
UNRANKED = ("minimol", "catboost", "linear", "svm")  # measured on sets with a split of their own
FEWEST_SETS, RESAMPLES = 5, 10_000  # for confidence intervals


@dataclass(frozen=True, slots=True)
class Job:
    """One training of one method.

    Attributes:
        measured: Name of the set.
        split: Name of the division.
        seed: Seed of the division and of the method.
        member: Name of the method.
        train_rows: Number of training rows for a learning curve; None for all.
    """

    measured: str
    split: str
    seed: int
    member: str
    train_rows: int | None = None

    @property
    def name(self) -> str:
        """Name of the folder of the job."""
        rows = "" if self.train_rows is None else f"-{self.train_rows}"
        return f"{self.measured}-{self.split}-{self.seed}-{self.member}{rows}"


def list_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield the jobs, all sets with the first seed before the second."""
    for seed in range(options.seeds):
        for name in options.sets:
            splits = [split for split in SETS[name].splits if split in options.splits]
            sizes = CURVE_ROWS if options.curve else (None,)
            if options.curve and name not in CURVE_SETS:
                continue
            for split in splits[:1] if options.curve else splits:
                for rows in sizes:
                    for member in options.members:
                        yield Job(name, split, seed, member, rows)


class Runner:
    """Runs jobs and keeps their results.

    Raises:
        MolsliceError: The encoder does not exist.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failed: list[str] = []
        encoder = options.encoder
        if encoder is not None:
            load_encoder(encoder)  # refuses anything else
        self._encoder = None if encoder is None else file_checksum(model_file(find_model(encoder)))
        self._read: tuple[str, Molecules] | None = None

    def run(self, job: Job) -> None:
        """Run a job unless it is finished or another process runs it. A failure is printed and remembered.

        Raises:
            MolsliceError: The job is finished, but used another encoder.
        """
        folder = self.options.runs / "jobs" / job.name
        result = folder / "result.json"
        if result.is_file():
            self._check_encoder(job, result)
            return
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_folder(folder))
            except MolsliceError:
                return  # another process runs it
            if result.is_file():
                return
            try:
                self._run_locked(job, folder, result)
            except (MolsliceError, subprocess.CalledProcessError) as error:
                self.failed.append(job.name)
                print(f"{job.name} failed: {error}", file=sys.stderr, flush=True)

    def _encoder_of(self, job: Job) -> str | None:
        """Return the checksum of the encoder that a job uses, or None."""
        return self._encoder if MEMBERS[job.member].needs == "encoder" else None

    def _check_encoder(self, job: Job, result: Path) -> None:
        if read_json_object(result).get("encoder") != self._encoder_of(job):
            raise MolsliceError(f"{result} was made with another encoder; choose another folder with --runs")

    def _run_locked(self, job: Job, folder: Path, result: Path) -> None:
        measured, member = SETS[job.measured], MEMBERS[job.member]
        molecules = self._molecules(job.measured)
        parts = divide(molecules, job.split, job.seed, job.train_rows)
        scratch = folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        options = self.options
        work = Work(
            molecules,
            measured.kind,
            parts,
            job.seed,
            scratch,
            options.encoder,
            options.chemprop,
            options.minimol,
            options.runs / "fingerprints",
            options.threads,
        )
        start, used = time.perf_counter(), processor_seconds()
        predictions = member.run(work)
        content = {
            **asdict(job),
            "metric": measured.metric,
            "rows": {name: len(rows) for name, rows in parts.items()},
            "test_checksum": checksum_rows(molecules, parts["test"]),
            "values": {
                label: score(measured.metric, predicted, molecules.values[parts["test"]])
                for label, predicted in predictions.items()
            },
            "encoder": self._encoder_of(job),
            "commit": COMMIT,
            "processor_seconds": round(processor_seconds() - used, 1),
            "seconds": round(time.perf_counter() - start, 1),
        }
        shutil.rmtree(scratch, ignore_errors=True)
        write_json(result, content)
        values = ", ".join(f"{label} {value:.4g}" for label, value in content["values"].items())
        print(f"{job.name}: {values} ({content['processor_seconds']:.0f} s)", flush=True)

    def _molecules(self, name: str) -> Molecules:
        if self._read is None or self._read[0] != name:
            self._read = (name, read_molecules(SETS[name], self.options.data, self.options.runs / "features"))
        return self._read[1]


def checksum_rows(molecules: Molecules, rows: np.ndarray) -> str:
    """Return a checksum of the molecules and measured values of some rows, whatever their order."""
    lines = sorted(f"{molecules.smiles[row]} {molecules.values[row].tolist()}" for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def processor_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    return time.process_time() + child_seconds()


def read_jobs(runs: Path) -> list[dict[str, Any]]:
    """Return the results of the finished jobs below a folder."""
    return [read_json_object(file) for file in sorted((runs / "jobs").glob("*/result.json"))]


def list_lines(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line for each job and label."""
    return [
        {**{key: value for key, value in job.items() if key != "values"}, "label": label, "value": value}
        for job in jobs
        for label, value in job["values"].items()
    ]


def restore(recorded: Path, runs: Path) -> int:
    """Write the jobs of a recorded JSON to `runs`, and return their number; finished ones are kept."""
    restored = 0
    for content in read_json_object(recorded)["jobs"]:
        job = Job(**{field.name: content[field.name] for field in fields(Job)})
        result = runs / "jobs" / job.name / "result.json"
        if not result.is_file():
            write_json(result, content)
            restored += 1
    return restored


def comparable(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines without the seeds of drawn rows that not all methods of a set have finished.

    Each seed of a random division has other test rows, and each seed of a learning curve other training rows,
    so means over other seeds cannot be compared. The rows of the other divisions are the same for all seeds.
    """
    division = itemgetter("measured", "split", "train_rows")
    shared = {}
    for key, group in group_by(lines, division).items():
        methods = group_by(group, itemgetter("label")).values()
        shared[key] = set.intersection(*({line["seed"] for line in method} for method in methods))
    return [
        line
        for line in lines
        if (line["split"] != "random" and line["train_rows"] is None)
        or line["seed"] in shared[division(line)]
    ]


def summarize(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and spread over the seeds for each set, division, size and method."""
    rows = []
    keys = itemgetter("measured", "split", "train_rows", "label")
    for (name, split, train_rows, label), group in group_by(lines, keys).items():
        values, metric = [line["value"] for line in group], SETS[name].metric
        rows.append(
            {
                **{"set": name, "split": split, "train_rows": train_rows, "label": label, "metric": metric},
                **spread(values),
                "error": statistics.fmean(error_of(metric, value) for value in values),
                "seeds": len(values),
                "processor_seconds": statistics.fmean(line["processor_seconds"] for line in group),
            }
        )
    return rows


def compare(lines: Sequence[dict[str, Any]], label: str, reference: str) -> dict[str, Any] | None:
    """Compare a method with a reference over the pairs of set and division that both have finished.

    `mean_errors` computes the errors of a pair. Development sets are not counted.

    Returns:
        Number of pairs, share of pairs with a lower error, median and geometric mean of the ratios of the
        errors, and the 95% confidence interval of the latter, which is None for fewer than five sets. None
        without a common pair.
    """
    logarithms: dict[str, list[float]] = {}
    for (name, _), errors in mean_errors(lines, (label, reference)).items():
        ratio = max(errors[label], 1e-9) / max(errors[reference], 1e-9)
        logarithms.setdefault(name, []).append(math.log(ratio))
    if not logarithms:
        return None
    every = [value for values in logarithms.values() for value in values]
    return {
        "label": label,
        "reference": reference,
        "pairs": len(every),
        "share_better": statistics.fmean(value < 0 for value in every),
        "median_ratio": math.exp(statistics.median(every)),
        "geometric_mean_ratio": math.exp(statistics.fmean(every)),
        "interval": bootstrap_interval(list(logarithms.values())),
    }


def bootstrap_interval(logarithms: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the 95% confidence interval of a geometric mean; None for fewer than five sets.

    Sets are resampled. The divisions of one set have the same molecules, so they are resampled together.

    Args:
        logarithms: The logarithms of the ratios of each set.
    """
    if len(logarithms) < FEWEST_SETS:
        return None
    sums = np.array([sum(of_set) for of_set in logarithms])
    counts = np.array([len(of_set) for of_set in logarithms])
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return np.exp(np.quantile(means, [0.025, 0.975])).tolist()


def mean_errors(
    lines: Sequence[dict[str, Any]], labels: Collection[str]
) -> dict[tuple[str, str], dict[str, float]]:
    """Return the mean errors of some methods on each pair of set and division that all of them have finished.

    The means are over the seeds of `comparable`. Development sets are not counted.
    """
    counted = [line for line in lines if line["train_rows"] is None and line["measured"] not in DEVELOPMENT]
    counted += better_baselines(counted)
    finished = comparable([line for line in counted if line["label"] in labels])
    means = {}
    for pair, group in group_by(finished, itemgetter("measured", "split")).items():
        methods = group_by(group, itemgetter("label"))
        if len(methods) == len(labels):
            means[pair] = {
                label: statistics.fmean(map(line_error, method)) for label, method in methods.items()
            }
    return means


def line_error(line: dict[str, Any]) -> float:
    """Return the error of a line, which is better when smaller."""
    return error_of(line["metric"], line["value"])


def better_baselines(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a line with the better of forest and boosting for each set, division and seed that has both."""
    baselines = [line for line in lines if line["label"] in ("forest", "boosting")]
    groups = group_by(baselines, itemgetter("measured", "split", "seed")).values()
    return [{**min(group, key=line_error), "label": BETTER_BASELINE} for group in groups if len(group) == 2]


def mean_ranks(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean rank of each method over the pairs that all have finished, by `mean_errors`."""
    from scipy.stats import rankdata

    labels = sorted({line["label"] for line in lines})
    ranks = [rankdata([errors[label] for label in labels]) for errors in mean_errors(lines, labels).values()]
    if not ranks:
        return {"pairs": 0, "ranks": {}}
    return {"pairs": len(ranks), "ranks": dict(zip(labels, np.mean(ranks, axis=0).tolist(), strict=True))}


def check_rows(jobs: Sequence[dict[str, Any]]) -> None:
    """Check that all methods of a division have the same rows.

    Jobs of early versions have no checksum of their test rows, or no number of rows either.

    Raises:
        SystemExit: Two methods have other rows.
    """
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for job in jobs:
        for key in ("rows", "test_checksum"):
            if key in job:
                division = (job["measured"], job["split"], job["seed"], job["train_rows"], key)
                other = seen.setdefault(division, job)
                if other[key] != job[key]:
                    raise SystemExit(
                        f"{other['member']} and {job['member']} have other {key} of {job['measured']}, split "
                        f"{job['split']}, seed {job['seed']}: {other[key]} and {job[key]}; delete the older"
                    )


def collect(runs: Path, out: Path) -> Path:
    """Write the finished results and their comparisons as JSON.

    Raises:
        SystemExit: No job is finished, or jobs have other rows or encoders.
    """
    jobs = read_jobs(runs)
    check_rows(jobs)
    lines = list_lines(jobs)
    if not lines:
        raise SystemExit(f"no finished job below {runs}")
    encoders = sorted({line["encoder"] for line in lines if line["encoder"]})
    if len(encoders) > 1:
        raise SystemExit(f"the results below {runs} were made with different encoders: {', '.join(encoders)}")
    rows = summarize(comparable(lines))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    comparisons = [
        comparison
        for reference in (*labels, BETTER_BASELINE)
        for label in labels
        if label != reference and (comparison := compare(lines, label, reference)) is not None
    ]
    payload = {
        "question": "error on small measured sets, the same rows for every method",
        "development_sets": list(DEVELOPMENT),
        "encoders": encoders,
        "commits": sorted({str(line.get("commit")) for line in lines}),
        "comparisons": comparisons,
        "mean_ranks": mean_ranks([line for line in lines if line["label"] not in UNRANKED]),
        "results": rows,
        "jobs": jobs,
    }
    return record("small_data", payload, out)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with moleculenet, admet and moleculeace")
    parser.add_argument("--sets", default=",".join(SETS), help="default: all")
    parser.add_argument("--splits", default="random,scaffold,own")
    parser.add_argument("--members", default=",".join(MEMBERS), help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--curve", action="store_true", help="learning curves of three sets instead")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help="run folder or name of an encoder")
    parser.add_argument("--chemprop", help="command of chemprop")
    parser.add_argument("--minimol", help="Python of an environment with minimol")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "small_data")
    parser.add_argument("--collect", action="store_true", help="write the JSON, train nothing")
    parser.add_argument(
        "--restore", action="store_true", help="write the jobs of the JSON to --runs, train nothing"
    )
    options = parser.parse_args(argv)
    for name, known in (("sets", SETS), ("members", MEMBERS), ("splits", ("random", "scaffold", "own"))):
        given = getattr(options, name).split(",")
        for word in given:
            if word not in known:
                parser.error(f"unknown name {word!r} in --{name}; choices: {', '.join(known)}")
        setattr(options, name, given)
    if options.collect or options.restore:
        return options
    if options.data is None:
        parser.error("training needs --data")
    for member in options.members:
        needs = MEMBERS[member].needs
        if needs is not None and getattr(options, needs) is None:
            parser.error(f"the member {member!r} needs --{needs}")
    return options


def main(argv: list[str] | None = None) -> None:
    """Run the jobs, or collect or restore the finished ones."""
    options = parse_arguments(argv)
    if options.restore:
        print(f"{restore(options.out / 'small_data.json', options.runs)} jobs restored")
        return
    if options.collect:
        print(collect(options.runs, options.out))
        return
    torch.set_num_threads(options.threads)
    try:
        runner = Runner(options)
        for job in list_jobs(options):
            runner.run(job)
    except MolsliceError as error:
        raise SystemExit(str(error)) from error
    if runner.failed:
        raise SystemExit(f"{len(runner.failed)} jobs failed: {', '.join(runner.failed)}")


if __name__ == "__main__":
    main()
