"""Write the learned fingerprints of molecules in files of any length.

The embedding of a molecule is the state of the encoder before the head: the last state of the graph token,
then the mean of the last states of the atoms. Rows that cannot be read have NaN and a reason. A table has all
columns of the input, the embedding and the reason. A .npy file has the embeddings only, one row for each row
of the input.
"""

import argparse
from dataclasses import asdict
from functools import partial

from molslice.cli.arguments import (
    add_fragment,
    add_input,
    add_model,
    add_options,
    add_output,
    add_run_options,
    add_strict,
    check_delimiter,
    check_resume,
    choose_device,
    tell_device,
    tell_shipped,
)
from molslice.cli.console import say_failed_rows, tell, tell_treated_rows, write_json
from molslice.number_text import counted

SUMMARY = "write learned fingerprints of molecules"
EXAMPLE = """\
  molslice embed gap-xtb --input molecules.csv --output embedded.npy
  molslice embed runs/encoder --input molecules.csv.gz --output embedded.parquet --workers 2"""
UNUSED = ("columns", "metrics", "measured", "trained")  # of a report: one number for each column, and errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `embed`."""
    add_model(parser)
    add_input(parser, required=True)
    add_output(parser, ".csv, .csv.gz, .parquet, .jsonl, .jsonl.gz or .npy", required=True)
    add_options(parser, "--workers", "--resume")
    add_strict(parser)
    add_fragment(parser)
    add_run_options(parser, device="a GPU for large files")


def run(args: argparse.Namespace) -> int:
    """Embed, and return 1 if no molecule could be read."""
    from molslice.inference.embedding import Embedder
    from molslice.inference.load import load_network
    from molslice.inference.tables.sinks import ENDINGS
    from molslice.inference.tables.table import estimate_rows, predict_table

    if args.json and str(args.output) == "-":
        args.usage_error("--json needs a file as --output, because both write to standard output")
    check_delimiter(args, args.input)
    check_resume(args)
    device = choose_device(args, partial(estimate_rows, args.input))
    embedder = Embedder(load_network(args.model, device, fragment=args.fragment, wildcards=args.wildcards))
    tell_shipped(args.model)
    tell_device(args, device)
    report = predict_table(
        embedder,
        args.input,
        args.output,
        smiles_column=args.smiles_column,
        delimiter=args.delimiter,
        endings=ENDINGS,
        workers=args.workers,
        resume=args.resume,
        strict=args.strict,
    )
    if args.json:
        fields = {key: value for key, value in asdict(report).items() if key not in UNUSED}
        write_json({"model": args.model, "output": args.output, "size": len(report.columns), **fields})
    if say_failed_rows(report, args.output, "embedding"):
        return 1
    tell_treated_rows(report.replaced, report.wildcards)
    rows = counted(report.rows)
    tell(f"{rows} of {len(report.columns)} numbers written to {args.output}")
    return 0
