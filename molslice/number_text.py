"""Numbers, counts, and the names and values of metrics, as text, without an import that takes long."""

import math

METRIC_LABELS = {
    "mae": "MAE",
    "fold_error": "mean fold error",
    "roc_auc": "ROC-AUC",
    "pr_auc": "PR-AUC",
    "accuracy": "accuracy",
    "macro_roc_auc": "macro ROC-AUC",
    "balanced_accuracy": "balanced accuracy",
    "log_loss": "log loss",
    "class_error": "mean error in classes",
    "perplexity": "perplexity",
    "mse": "MSE",
    "measure": "value",
}


def format_metric(value: float | None) -> str:
    """Format a metric or a loss with four significant digits, in scientific notation below 0.001.

    The text is like `0.1964`, `12.35` or `3.125e-05`, or `-` for None and NaN. A metric with a standard error
    is written by `molslice.uncertainty.rounding.rounded_error`.
    """
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-3:
        return f"{value:.3e}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def read_number(text: str) -> float:
    """Return a finite number; NaN for any other text, and for numbers with underscores as in Python."""
    try:
        value = float(text.replace("_", "?"))
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def counted(count: int, noun: str = "row") -> str:
    """Return a number of things as text, such as `1 row` or `2,000 training rows`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def with_unit(name: str, unit: str) -> str:
    """Return the name with its unit in parentheses; without them if the unit is empty."""
    return f"{name} ({unit})" if unit else name
