"""Calibrate uncertainties with chemprop's own methods, and write the intervals as JSON.

`network_uncertainty.py` starts this program in chemprop's environment, so it does not import molslice. Its
input is a JSON file with `levels` and, for the validation rows (`valid`) and the test rows (`test`), the
`predicted` values and the `variance` that `chemprop predict` writes without a calibration; for the validation
rows also the `truth`. Each calibrator is fitted to the validation rows.
"""

import json
import sys
from pathlib import Path
from statistics import NormalDist

import torch
from chemprop.uncertainty.calibrator import (  # pyright: ignore[reportMissingImports]
    RegressionConformalCalibrator,
    ZScalingCalibrator,
)


def main() -> None:
    """Write the lower and upper bounds of the test rows at each level, for each calibrator."""
    source, out = map(Path, sys.argv[1:])
    about = json.loads(source.read_text())

    def column(part: str, name: str) -> torch.Tensor:
        return torch.tensor(about[part][name], dtype=torch.float64)[:, None]

    held = [column("valid", name) for name in ("predicted", "variance", "truth")]
    mask = torch.ones_like(held[0], dtype=torch.bool)
    predicted, variance = (column("test", name) for name in ("predicted", "variance"))
    deviation = ZScalingCalibrator().fit(*held, mask).apply(variance).sqrt()
    found = {"conformal-regression": [], "zscaling": []}
    for level in about["levels"]:
        half = RegressionConformalCalibrator(1 - level).fit(*held, mask).apply(variance)
        normal = NormalDist().inv_cdf((1 + level) / 2) * deviation
        for name, width in (("conformal-regression", half), ("zscaling", normal)):
            bounds = [(predicted + sign * width)[:, 0].tolist() for sign in (-1, 1)]
            found[name].append({"level": level, "lower": bounds[0], "upper": bounds[1]})
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
