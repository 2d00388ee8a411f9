"""Write a trained model as one file that predicts without molslice.

FILE.onnx runs with onnxruntime, and FILE.pt2 with torch alone. Both take padded arrays of any number of
molecules and predict in the units of the targets; examples/onnx/predict_onnx.py makes the arrays with
RDKit and numpy. The file is compared with the model before the command ends.
"""

import argparse
from dataclasses import asdict

from molslice.cli.arguments import add_model, add_run_options, file_to_write, tell_shipped
from molslice.cli.console import say, tell, write_json

SUMMARY = "write a model as ONNX, or as a program of torch.export"
EXAMPLE = """\
  molslice export gap-xtb --out gap.onnx
  molslice export runs/first --out first.pt2"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    add_model(parser)
    parser.add_argument(
        "--out", type=file_to_write, required=True, metavar="FILE", help="the file to write: .onnx or .pt2"
    )
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Export and report the size of the file and how far its predictions are from the model's."""
    from molslice.export.exported_file import export_model
    from molslice.files.atomic import reserved

    with reserved(args.out):
        report = export_model(args.model, args.out)
    tell_shipped(args.model)
    if report.fragment != "keep":
        what = (
            "predicts the largest molecule of a mixture"
            if report.fragment == "largest"
            else "refuses mixtures"
        )
        say(f"warning: {args.model} {what}, but {report.file} predicts a mixture as it is given")
    if args.json:
        write_json({"model": args.model, **asdict(report)})
    else:
        tell(
            f"{report.bytes:,} bytes written to {report.file}; its predictions of {report.molecules} "
            f"molecules differ from {args.model} by at most {report.largest_difference:.1e}"
        )
    return 0
