"""Calibrate the variance of an ensemble with chemprop's own classes; chemprop's Python runs this program.

It reads a job as JSON from standard input and writes half the width of each interval, for each method and
level.
"""

import json
import sys

import torch
from chemprop.uncertainty.calibrator import (  # pyright: ignore[reportMissingImports]
    RegressionConformalCalibrator,
    ZelikmanCalibrator,
    ZScalingCalibrator,
)
from scipy.stats import norm


def main() -> None:
    """Read the job, calibrate, and write the answer."""
    job = json.load(sys.stdin)
    names = ("predicted", "variance", "truth", "new_variance")
    predicted, variance, truth, new = (
        torch.tensor(job[name], dtype=torch.float64)[:, None] for name in names
    )
    mask = torch.ones_like(truth, dtype=torch.bool)
    zscaled = ZScalingCalibrator().fit(predicted, variance, truth, mask).apply(new).sqrt()
    answer = {"zscaling": [], "zelikman-interval": [], "conformal-regression": []}
    for level in job["levels"]:
        answer["zscaling"].append(zscaled * norm.ppf((1 + level) / 2))
        crude = ZelikmanCalibrator(level).fit(predicted, variance, truth, mask)
        answer["zelikman-interval"].append(crude.apply(new).sqrt())
        # as the command does: the variance is the half interval that is widened
        conformal = RegressionConformalCalibrator(1 - level).fit(predicted, variance, truth, mask)
        answer["conformal-regression"].append(conformal.apply(new))
    halves = {name: [half[:, 0].tolist() for half in each] for name, each in answer.items()}
    json.dump(halves, sys.stdout)


if __name__ == "__main__":
    main()
