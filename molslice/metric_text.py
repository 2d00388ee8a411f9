"""The names and values of metrics as text, without an import that takes long."""

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


def format_metric(value: float | None, spread: float | None = None) -> str:
    """Format a metric or a loss with four significant digits, in scientific notation below 0.001.

    The text is like `0.1964`, `12.35` or `3.125e-05`, or `-` for None and NaN. With a spread, the standard
    deviation over several runs, it is like `0.1964 ± 0.0021`: the spread has as many decimals as the
    metric, or two significant digits if it would round to zero.
    """
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or not math.isfinite(value):
        text = f"{value:g}"
    elif abs(value) < 1e-3:
        text = f"{value:.3e}"
    else:
        text = f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
    if spread is None:
        return text
    rounded = f"{spread:.{len(text.partition('.')[2])}f}"
    if "e" in text or float(rounded) == 0:
        rounded = f"{spread:.1e}" if spread else "0"
    return f"{text} ± {rounded}"


def with_unit(name: str, unit: str) -> str:
    """Return the name with its unit in parentheses; without them if the unit is empty."""
    return f"{name} ({unit})" if unit else name
