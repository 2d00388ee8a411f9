"""Arguments that several verbs share, and dotted settings."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from molslice.files.urls import File
    from molslice.inference.load import AnyPredictor

AUTO = "auto"
LARGEST = 2**63 - 1
INPUT_HELP = (
    "files with a column of SMILES: CSV or TSV, Parquet, JSON lines, .smi or .sdf, also .gz or .zst; "
    "URLs such as s3://bucket/a.csv; patterns such as 'parts/*.csv'; - reads CSV or TSV from standard "
    "input"
)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions and examples."""

    def __init__(self, prog: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(prog, max_help_position=32, width=100, **options)


def split_overrides(words: list[str]) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Split a command line into other words and `--dotted.key value` or `--dotted.key=value` settings.

    The value of a setting is None if it is missing.
    """
    rest: list[str] = []
    overrides: list[tuple[str, str | None]] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        key, equals, value = word[2:].partition("=")
        if not (word.startswith("--") and "." in key):
            rest.append(word)
        elif equals:
            overrides.append((key, value))
        elif position < len(words) and not words[position].startswith("--"):
            overrides.append((key, words[position]))
            position += 1
        else:
            overrides.append((key, None))
    return rest, overrides


def file_path(text: str) -> Path:
    """Parse a local path. An empty path is refused, because it would mean the current folder."""
    path = file_or_url(text)
    if not isinstance(path, Path):
        raise argparse.ArgumentTypeError(f"{text!r} is a URL; a path on this machine is needed")
    return path


def file_to_write(text: str) -> Path:
    """Parse the path of a file that is written, and refuse a folder before the work."""
    path = file_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; give the name of a file")
    return path


def file_or_url(text: str) -> "File":
    """Parse a path or a URL. An empty path is refused, because it would mean the current folder."""
    from molslice.files.urls import as_file

    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return as_file(text)


def model_name(text: str) -> str:
    """Parse a run folder or the name of a shipped model."""
    file_path(text)
    return text


def worker_count(text: str) -> int:
    """Parse a number of processes."""
    from molslice.files.processes import MAX_WORKERS

    return whole_number(text, 0, MAX_WORKERS)


def whole_number(text: str, least: int, most: int = LARGEST) -> int:
    """Parse an integer from `least` to `most`."""
    value = int(text) if text.isdecimal() and len(text) < 30 else -1
    if not least <= value <= most:
        up_to = f" and at most {most}" if value > most or most < LARGEST else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}{up_to}")
    return value


def number(
    text: str, what: str = "a finite number", above: float = -math.inf, below: float = math.inf
) -> float:
    """Parse a number between two others; `what` describes it in the message."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not above < value < below:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


positive = partial(whole_number, least=1)
count = partial(whole_number, least=0)
positive_number = partial(number, what="a positive number", above=0.0)
minutes = partial(number, what="a positive number of minutes", above=0.0)
share = partial(number, what="a number between 0 and 1, such as 0.9", above=0.0, below=1.0)


def delimiter(text: str) -> str:
    """Parse one character between cells; the word `tab` is a tab."""
    text = "\t" if text in ("tab", "\\t") else text
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is not one character, or tab")
    return text


OPTIONS: dict[str, dict[str, Any]] = {  # what several verbs have with the same meaning
    "--json": {"action": "store_true", "help": "print only the result, as JSON"},
    "--quiet": {"action": "store_true", "help": "hide progress bars and messages"},
    "--smiles-column": {"metavar": "NAME", "help": "column of SMILES (default: detected)"},
    "--delimiter": {
        "type": delimiter,
        "metavar": "C",
        "help": "character between cells, or tab (default: detected)",
    },
    "--decimal": {
        "choices": (".", ","),
        "metavar": "MARK",
        "help": "decimal mark of the targets, . or ,; with a comma, a point separates thousands (default: .)",
    },
    "--missing-value": {
        "action": "append",
        "default": [],
        "metavar": "VALUE",
        "help": "number or text that stands for a missing value, as in --missing-value=-999; repeatable",
    },
    "--engine": {
        "choices": ("ray",),
        "help": "compute with Ray Data on the cluster of RAY_ADDRESS, or else on all cores of this machine; "
        "--workers sets the number of workers",
    },
    "--workers": {
        "type": worker_count,
        "metavar": "N",
        "help": "worker processes (default: all cores to predict a large file, otherwise the main process)",
    },
    "--resume": {
        "action": "store_true",
        "help": "continue an interrupted run, from the folder OUTPUT.partial",
    },
}


def add_options(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add some of `OPTIONS` by their names, in order."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


def add_run_options(parser: argparse.ArgumentParser, *, device: str | None = None) -> None:
    """Add `--quiet` and `--json`, before them `--device` (see `add_device`) unless `device` is None."""
    if device is not None:
        add_device(parser, device)
    add_options(parser, "--quiet", "--json")


def check_needs(args: argparse.Namespace, needs: Mapping[str, str]) -> None:
    """End with a usage error if an option of `needs` is given without the one that it needs."""
    for name, needed in needs.items():
        if getattr(args, name) not in (None, False, []) and getattr(args, needed) in (None, False):
            args.usage_error(f"{flag(name)} needs {flag(needed)}")


def check_delimiter(args: argparse.Namespace, paths: Sequence["File"] | None) -> None:
    """End with a usage error if `--delimiter` is given and no input contains separated values."""
    if args.delimiter is None or not paths:
        return
    from molslice.data.molecules.input_files import find_files, name_of
    from molslice.files.tables import has_delimiter

    files = find_files(paths)
    if not any(map(has_delimiter, files)):
        args.usage_error(f"--delimiter needs a file of separated values, got {name_of(files)}")


def check_resume(args: argparse.Namespace) -> None:
    """End with a usage error if `--resume` is given for an output whose finished rows are not kept."""
    if args.resume and not is_on_disk(args.output):
        args.usage_error(f"--resume needs a file on this machine as --output, got {args.output}")


def is_on_disk(output: "File | None") -> bool:
    """Return whether an output is a file on this machine, and not standard output or a URL."""
    return isinstance(output, Path) and str(output) != "-"


def flag(name: str) -> str:
    """Return the flag of an option by the name of its attribute."""
    return f"--{name.replace('_', '-')}"


def add_model(parser: argparse.ArgumentParser, metavar: str = "MODEL") -> None:
    """Add the argument of a trained model."""
    parser.add_argument(
        "model",
        type=model_name,
        metavar=metavar,
        help="folder of a run, a fit or a checkpoint, or name of a shipped model such as gap-xtb",
    )


def load_chosen_model(
    args: argparse.Namespace, count_rows: Callable[[], int] | None = None
) -> "AnyPredictor":
    """Load the model of `add_model` with the options of `add_device` and `add_fragment`."""
    from molslice.inference.load import load_model

    device = choose_device(args, count_rows)
    model = load_model(args.model, device, fragment=args.fragment, wildcards=args.wildcards)
    tell_shipped(args.model)
    tell_device(args, model.device)
    return model


def tell_shipped(*models: str) -> None:
    """Describe the shipped models among `models` on standard error; a folder may have been meant."""
    from molslice.cli.console import tell
    from molslice.pretrained import describe_shipped, is_shipped

    for model in filter(is_shipped, models):
        tell(f"{model}: the model that ships with molslice ({describe_shipped(model).summary})")


def add_smiles(parser: argparse._ActionsContainer, use: str = "") -> None:
    """Add `--smiles`; `use` continues its help."""
    parser.add_argument("--smiles", nargs="+", action="extend", metavar="SMILES", help=f"molecules{use}")


def add_condition(parser: argparse.ArgumentParser) -> None:
    """Add `--condition`, which is read as pairs of name and value."""
    parser.add_argument(
        "--condition",
        type=condition,
        action="append",
        metavar="NAME=VALUE",
        help="condition of --smiles, as in temperature=298.15; a file has a column for each",
    )


def condition(text: str) -> tuple[str, str]:
    """Parse the name and the value of a condition."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def given_conditions(args: argparse.Namespace) -> dict[str, str] | None:
    """Return the conditions of `--condition`; None without any. Ends the program if one is given twice."""
    given = args.condition or []
    conditions = dict(given)
    if len(conditions) < len(given):
        args.usage_error("--condition: a name is given twice")
    return conditions or None


def add_input(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    """Add `--input`."""
    parser.add_argument(
        "--input",
        type=file_or_url,
        nargs="+",
        action="extend",
        required=required,
        metavar="FILE",
        help=INPUT_HELP,
    )


def add_output(parser: argparse.ArgumentParser, endings: str, *, required: bool = False) -> None:
    """Add `--output` for files with `endings`, and `--smiles-column` and `--delimiter` of `--input`."""
    parser.add_argument(
        "--output",
        "--out",
        type=file_or_url,
        required=required,
        metavar="FILE",
        help=f"the file or URL to write: {endings}, or - for CSV on standard output",
    )
    add_options(parser, "--smiles-column", "--delimiter")


def add_device(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--device`; `default` is `cpu`, or what `auto` means, such as "a GPU for large files"."""
    if default == "cpu":
        parser.add_argument("--device", default="cpu", help="device: cpu, cuda or cuda:1 (default: cpu)")
        return
    parser.add_argument(
        "--device", default=AUTO, help=f"device: auto, cpu, cuda or cuda:1 (default: auto, {default})"
    )


def choose_device(args: argparse.Namespace, count_rows: Callable[[], int] | None = None) -> str:
    """Return the device of `add_device`: for `auto`, CUDA if it is available and the input is not small.

    Args:
        args: The arguments of the verb.
        count_rows: Returns the number of molecules or an estimate of it; called only where it decides. None
            if any number is worth the start of a GPU.
    """
    if args.device != AUTO:
        return args.device
    from torch import cuda

    from molslice.inference.smiles_reader import DEVICE_PARALLEL_ROWS

    if not cuda.is_available() or (count_rows is not None and count_rows() < DEVICE_PARALLEL_ROWS):
        return "cpu"
    return "cuda"


def tell_device(args: argparse.Namespace, device: "torch.device | str") -> None:
    """Name the GPU on standard error if it was chosen for `auto` and `device` computes."""
    if args.device != AUTO or str(device) == "cpu":
        return
    from torch import cuda

    from molslice.cli.console import tell

    tell(f"device: cuda ({cuda.get_device_name()}); --device cpu computes without it")


def add_fragment(parser: argparse.ArgumentParser, default: str = "as in training, or keep") -> None:
    """Add `--fragment` and `--wildcards`; the help names what happens without them."""
    from molslice.chem import FRAGMENTS, WILDCARDS

    parser.add_argument(
        "--fragment",
        choices=FRAGMENTS,
        help=f"mixtures and salts: keep them, take the largest molecule, or refuse them (default: {default})",
    )
    parser.add_argument(
        "--wildcards",
        choices=WILDCARDS,
        help="rows with wildcards, R-groups or bonds of any order (*, ~): refuse or keep them "
        f"(default: {default.replace('keep', 'refuse')})",
    )


def add_strict(parser: argparse.ArgumentParser, *, in_folder: bool = False) -> None:
    """Add `--strict`; `in_folder` if the output may be a folder of files that are written in turn."""
    kept = "; complete files in a folder are kept" if in_folder else ""
    parser.add_argument(
        "--strict", action="store_true", help=f"stop at the first row that fails, and write nothing{kept}"
    )
