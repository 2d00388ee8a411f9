"""Models on the Hugging Face Hub: load one by its name, and publish one with a card.

The package `huggingface_hub` comes with the extra `hub`. Loading uses the network only for a name that is
neither a folder nor a shipped model.
"""

import logging
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from molslice.files.hub import hub_library
from molslice.folders.ensemble import is_ensemble, member_folders
from molslice.folders.fitted import is_fitted_folder, read_fitted
from molslice.folders.run import SUMMARY, read_summary
from molslice.inference.load import AnyPredictor, find_model, load_model
from molslice.pretrained import pretrained_names
from molslice.tasks.metrics import METRIC_LABELS, with_unit
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)

CARD = "README.md"
WEIGHTS = ("model.safetensors", "learners.safetensors", "calibration.safetensors")
TEXTS = (
    *("config.yaml", "summary.json", "metrics.csv", "fit.json"),
    *("card.md", "ensemble.json", "calibration.json"),
)
TRAINING_DATA = ("rows.csv", "domain.json", "domain.safetensors")  # they hold the training molecules
SKIPPED = ("checkpoints", "tensorboard")
NEEDED = "{} needs huggingface_hub: pip install 'molslice[hub]'"
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def from_pretrained(
    name_or_repo: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | None = None,
    local_files_only: bool = False,
    device: torch.device | str = "cpu",
    fragment: str | None = None,
    wildcards: str | None = None,
) -> AnyPredictor:
    """Load a model from a folder, by the name of a shipped model, or from the Hugging Face Hub.

    Args:
        name_or_repo: A folder or shipped model as in `load_model`, or a repository of the Hub such as
            `name/model`.
        revision: Branch, tag or commit of the repository; None for its main branch.
        cache_dir: Folder for downloaded files; None for the default of the Hub's library.
        token: Token for a private repository; None for the default of the Hub's library.
        local_files_only: Whether to use downloaded files only, without the network.
        device: As in `load_model`.
        fragment: As in `load_model`.
        wildcards: As in `load_model`.

    Raises:
        MolsliceError: There is no such folder, model or repository, `huggingface_hub` is not installed, the
            network failed, or the files are damaged or not molslice's.
    """
    name = str(name_or_repo)
    if Path(name).exists() or name in pretrained_names() or not _NAME.fullmatch(name):
        return load_model(name_or_repo, device, fragment=fragment, wildcards=wildcards)
    needed = NEEDED.format(f"loading {name}")
    with hub_library("huggingface_hub", needed, f"download {name} from") as hub:
        folder = hub.snapshot_download(
            name,
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            allow_patterns=[*WEIGHTS, *TEXTS, *TRAINING_DATA, "*/" + WEIGHTS[0], "*/" + TEXTS[0]],
        )
    return load_model(folder, device, fragment=fragment, wildcards=wildcards)


def push_to_hub(
    name_or_path: str | Path,
    repo: str,
    *,
    license: str,  # noqa: A002 - the key of the card
    private: bool | None = None,
    token: str | None = None,
    training_data: bool = False,
) -> str:
    """Publish a model in a repository of the Hugging Face Hub, with a card.

    The weights, the configuration (which names the file of the data), the measured errors and the calibration
    (which has measured values of validation rows) are published. The learners of a model of `molslice fit`
    contain the descriptors and the measured values of its training rows; a warning says so.

    Args:
        name_or_path: The model, as in `load_model`.
        repo: The repository, such as `name/model`; it is created if it does not exist.
        license: Identifier of the license of the model, such as `mit`.
        private: Whether a new repository is private; None for the default of the account.
        token: Token with the right to write; None for the default of the Hub's library.
        training_data: Whether to publish the SMILES of the training too. Without them, the published model
            does not name the nearest known molecules.

    Returns:
        The address of the commit.

    Raises:
        MolsliceError: The model cannot be loaded, the name of the repository is invalid, `huggingface_hub` is
            not installed, or the upload failed.
    """
    if not _NAME.fullmatch(repo):
        raise MolsliceError(f"invalid repository {repo!r}; write it as NAME/MODEL")
    folder = find_model(name_or_path)
    folder = folder.parent if folder.is_file() else folder
    load_model(folder)
    needed = NEEDED.format(f"publishing {repo}")
    with hub_library("huggingface_hub", needed, f"upload {repo} to") as hub:
        if is_fitted_folder(folder):
            logger.warning(
                "%s is a model of molslice fit: its learners contain the descriptors and the measured values "
                "of its training rows, and they are published",
                folder,
            )
        with tempfile.TemporaryDirectory() as name:
            staged = Path(name)
            for file in _published(folder, training_data):
                target = staged / file.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
            (staged / CARD).write_text(hub_card(folder, repo, license), encoding="utf-8")
            api = hub.HfApi(token=token)
            api.create_repo(repo, private=private, exist_ok=True)
            return str(api.upload_folder(repo_id=repo, folder_path=staged, commit_message=f"Upload {repo}"))


def _published(folder: Path, training_data: bool) -> list[Path]:
    """Return the files of a model folder to publish; none of them is a link."""
    names = {*WEIGHTS, *TEXTS, *(TRAINING_DATA if training_data else ())}
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name in names
        and path.is_file()
        and not path.is_symlink()
        and not set(path.relative_to(folder).parts) & {*SKIPPED}
    )


def hub_card(folder: Path, repo: str, license: str) -> str:  # noqa: A002 - the key of the card
    """Write the card of a model: front matter that the Hub reads, then text.

    The text comes from `README.md` or `card.md` of the folder if there is one.

    Raises:
        MolsliceError: A file of the folder cannot be read.
    """
    source, metrics = _measured(folder)
    task = {"type": "graph-ml", "name": "molecular property prediction"}
    result = {"task": task, "dataset": {"type": "molecules", "name": source}, "metrics": metrics}
    front = {
        "license": license,
        "library_name": "molslice",
        "pipeline_tag": "graph-ml",
        "tags": ["chemistry", "molecules", "property-prediction"],
        "model-index": [{"name": repo.partition("/")[2], "results": [result] if metrics else []}],
    }
    card = next((file for file in (folder / CARD, folder / "card.md") if file.is_file()), None)
    if card is not None:
        # without the front matter of an earlier card
        text = re.sub(r"\A---\n.*?\n---\n", "", card.read_text("utf-8"), count=1, flags=re.S)
    else:
        lines = [f"- {metric['name']}: {metric['value']:.4g}" for metric in metrics]
        text = "\n".join(
            [f"# {repo}", "", f"Data: {source}", *(["", "Test split:", "", *lines] if lines else [])]
        )
    use = f'from molslice import from_pretrained\n\nfrom_pretrained("{repo}").predict(["CCO"])'
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return f"---\n{header}---\n\n{text.strip()}\n\n## Use\n\n```python\n{use}\n```\n"


def _measured(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of the data, and the errors on held-out rows as the Hub lists them."""
    if is_fitted_folder(folder):
        record = read_fitted(folder).about
        rows = []
        for target in record.get("results", ()):
            if isinstance(target.get("test"), Mapping) and "molslice fit" in target["test"]:
                kind = str(target.get("metric", record.get("metric")))
                value = target["test"]["molslice fit"]
                rows.append((kind, METRIC_LABELS.get(kind, ""), target["target"], target["unit"], value))
        source = Path(str(record.get("source", "a table"))).name
    else:
        kind, errors = _test_errors(folder)
        label = f"{kind.upper()} of the members, mean," if is_ensemble(folder) else kind.upper()
        rows = [(kind, label, *error) for error in errors]
        config = load_model(folder).data_config
        path = config.options.get("path")
        source = Path(path).name if isinstance(path, str) else config.name
    metrics = [
        {"type": kind, "value": value, "name": f"{label} of {with_unit(name, unit)}"}
        for kind, label, name, unit, value in rows
        if isinstance(value, int | float)
    ]
    return source, metrics


def _test_errors(folder: Path) -> tuple[str, list[tuple[str, str, float]]]:
    """Return the metric of a run, and name, unit and error of each target; of an ensemble the means."""
    runs = member_folders(folder) if is_ensemble(folder) else [folder]
    files = [run / SUMMARY for run in runs]
    if not all(file.is_file() for file in files):
        return "", []
    summaries = [read_summary(run) for run in runs]
    kind, units = str(summaries[0].get("metric")), summaries[0].get("units", {})
    errors = [summary.get("test", {}).get(kind) or {} for summary in summaries]
    rows = []
    for name in errors[0]:
        numbers = [run_errors.get(name) for run_errors in errors]
        values = [value for value in numbers if isinstance(value, int | float)]
        if len(values) == len(numbers):
            rows.append((name, units.get(name, ""), sum(values) / len(values)))
    return kind, rows
