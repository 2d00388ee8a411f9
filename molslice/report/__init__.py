"""One self-contained HTML page about a trained model, or about several.

A model and its data come in, a file of HTML goes out. To add a section, write a function that returns `Html`
and name it in `SECTIONS` of `sections.py`.

Modules:
    measure: Predictions of the splits, from the model or from the rows of a fit.
    groups: Errors by size, element and scaffold.
    verdict: What the errors mean, in a sentence.
    charts: Learning curves, predictions against known values, curves of classes and calibration as SVG.
    page: The frame of the page, and HTML of tables and text.
    sections: The parts of the page that need known values.
    training: The parts that need the model alone.
    write: The report.
    comparison: Several models side by side.
    table_rows, fit_rows: The rows of the table of a fit, with their out-of-fold predictions.
    suspects: Values of a fit that may be wrong.
    pair_changes: Matched pairs of its molecules.
    suspects_files: CSV files and a page about both.
"""

from molslice.report.comparison import write_comparison
from molslice.report.write import write_report

__all__ = ["write_comparison", "write_report"]
