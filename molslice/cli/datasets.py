"""The data set for a trained model."""

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from molslice.config import DataConfig
    from molslice.data import Dataset
    from molslice.inference.base import Predictor
    from molslice.inference.fitted import FittedPredictor

FILES_OF_SPLITS = ("valid_path", "test_path")
DIVIDING = [["data", option] for option in ("split", *FILES_OF_SPLITS)]
PLACES = {"data.root", "data.cache_dir", "data.workers"}  # settings that change no row
UNDIVIDED = "{kind: random, fractions: [1, 0, 0]}"

logger = logging.getLogger(__name__)


def find_model_data(
    predictor: "Predictor",
    data: "DataConfig",
    root: str | None,
    overrides: Sequence[tuple[str, str]],
    fragment: str | None,
    *,
    whole: str | None = None,
    same_division: bool = False,
) -> "Dataset":
    """Build the data on which a trained model is measured.

    Args:
        predictor: The model.
        data: The data of its training.
        root: Another folder of the data, for data sets with an option `root`.
        overrides: `data.` settings that replace the settings of the training. A new `data.name` drops all
            others. If they name the columns of the targets, or the model is one of `molslice fit`, the
            targets get the names of the model.
        fragment: What happens to a mixture; None for what the model does.
        whole: Name of the only split of another table, which may be too small to be divided like the data of
            the training, unless `overrides` divide it; None to divide it.
        same_division: Whether to refuse data that have changed since the training or are divided in another
            way, instead of a warning.

    Raises:
        MolsliceError: A setting is not a `data.` setting, the data cannot be loaded, or `same_division` is
            set and the data have changed since the training.
    """
    from molslice.config import override_data
    from molslice.errors import MolsliceError
    from molslice.inference.fitted import FittedPredictor

    settings, keys = [*overrides, *([] if root is None else [("data.root", root)])], _keys(overrides)
    for key, _ in settings:
        if not key.startswith("data."):
            raise MolsliceError(f"--{key}: only settings of the data (--data.<option>) can be changed here")
    name = keys.get("data.name") or data.name
    whole = whole if _names_table(keys, data) else None
    if whole is not None:
        settings.append(("data.split", UNDIVIDED))
    if isinstance(predictor, FittedPredictor) and "data.path" in keys and name == data.name:
        settings[:0] = _settings_of_fit(predictor)
    if name in ("csv", "prepared"):
        settings.insert(0, ("data.kind", predictor.targets.kind))  # not what these rows alone would say
    if fragment or (predictor.fragment != "keep" and name == "csv"):
        settings.insert(0, ("data.fragment", predictor.fragment))
    treats_alike = predictor.wildcards == data.options.get("wildcards", "refuse")
    if name == "csv" and not treats_alike:
        settings.insert(0, ("data.wildcards", predictor.wildcards))
    settings[:0] = _without_geometry(data, name, overrides)
    changed = override_data(data, settings)
    dataset = _build(predictor, changed, keys)
    _check_decimal_comma(predictor, dataset, changed, keys)
    _check_units(predictor, dataset, keys)
    if whole is not None:
        dataset.splits = {whole: dataset.splits["train"]}
    same_content = not fragment and treats_alike and set(keys) <= PLACES
    is_comparable = not names_data(overrides) and "data.context" not in keys  # which adds rows
    if is_comparable and (difference := _difference(predictor, dataset, content=same_content)):
        if same_division:
            raise MolsliceError(f"cannot calibrate: {difference}")
        logger.warning("%s", difference)
    renamed = "data.target_columns" in keys or isinstance(predictor, FittedPredictor)
    if renamed and len(dataset.target_names) == len(predictor.target_names):
        dataset.target_names = predictor.target_names  # columns may have any name
    return dataset


def _settings_of_fit(predictor: "FittedPredictor") -> list[tuple[str, str]]:
    """Return the settings that read targets of another table as the fit did."""
    # the rows of the fit have other columns if a target has the name of one of its own columns
    is_transformed = predictor.fit_options.get("transform") is not None
    columns = predictor.target_names if is_transformed else predictor.measured_columns
    how, settings = predictor.number_format, [("data.target_columns", json.dumps(columns))]
    if predictor.smiles_column is not None:
        settings.append(("data.smiles_column", json.dumps(predictor.smiles_column)))
    if how.decimal is not None:
        settings.append(("data.decimal", json.dumps(how.decimal)))
    if how.missing:
        settings.append(("data.missing_values", json.dumps(how.missing)))
    return settings


def _build(predictor: "Predictor", data: "DataConfig", given: dict[str, str]) -> "Dataset":
    """Build the data; find the column of SMILES of a table that lacks the column of the training.

    Raises:
        MolsliceError: The data cannot be loaded, or the only column of SMILES has the second molecules.
    """
    from molslice.data import build_dataset
    from molslice.data.molecules.csv import Csv
    from molslice.files.tables.base import MissingColumnError

    try:
        return build_dataset(data.name, dict(data.options))
    except MissingColumnError as error:
        is_of_training = "data.path" in given and "data.smiles_column" not in given
        if not is_of_training or error.column != predictor.smiles_column:
            raise
        dataset = build_dataset(data.name, {**data.options, "smiles_column": None})
        if isinstance(dataset, Csv) and dataset.smiles_column == predictor.partner:
            raise
        return dataset


def _check_decimal_comma(
    predictor: "Predictor",
    dataset: "Dataset",
    data: "DataConfig",
    given: dict[str, str],
) -> None:
    """Refuse another table whose points may be decimal marks, if only the training says that they are not."""
    from molslice.data.molecules.csv import Csv
    from molslice.data.molecules.tables import check_decimal_comma, open_molecules

    is_inherited = "data.path" in given and "data.decimal" not in given and data.options.get("decimal") == ","
    if not is_inherited or not isinstance(dataset, Csv):
        return
    names = zip(dataset.target_names, predictor.types, strict=False)  # another number is refused later
    columns = [name for name, of_target in names if not of_target.has_classes]
    reading = {"smiles_column": dataset.smiles_column, "delimiter": data.options.get("delimiter")}
    for files in dataset.files.values():
        with open_molecules(files, **reading) as table:
            check_decimal_comma(table, columns, ("--data.decimal '\",\"'", "--data.decimal ."))


def _check_units(predictor: "Predictor", dataset: "Dataset", given: dict[str, str]) -> None:
    """Refuse another table of a fit whose columns of units have another unit than the predictions."""
    from molslice.chem.concentrations import is_same_unit
    from molslice.data.molecules.csv import Csv
    from molslice.data.molecules.side_columns import columns_beside
    from molslice.errors import MolsliceError
    from molslice.inference.fitted import FittedPredictor

    if not isinstance(predictor, FittedPredictor) or not isinstance(dataset, Csv) or "data.path" not in given:
        return
    options = predictor.fit_options
    if "unit_columns" not in options or options.get("transform") is not None:
        return
    numbers = [not of_target.has_classes for of_target in predictor.types]
    columns = columns_beside(numbers, options["unit_columns"], list(dataset.units_beside))
    if options["unit_columns"] is None and not any(columns) and dataset.units_beside:
        listed = " and ".join(map(repr, dataset.units_beside))
        logger.warning("%s: the units in %s are not compared with the model's", dataset.source, listed)
    for column, predicted in zip(columns, predictor.target_units, strict=True):
        units = dataset.units_beside.get(column or "", [])
        expected = predicted or next(iter(units), "")
        if other := [unit for unit in units if not is_same_unit(unit, expected)]:
            raise MolsliceError(
                f"{dataset.source}, column {column!r}: values are in {other[0]}, but "
                f"{'the model predicts' if predicted else 'others are in'} {expected}; convert them"
            )


def _without_geometry(
    data: "DataConfig", name: str, overrides: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the setting that computes no conformers of other data, on which the model is not trained."""
    is_needless = bool(data.options.get("geometry")) and name == data.name and names_data(overrides)
    return [("data.geometry", "false")] if is_needless else []


def names_data(overrides: Sequence[tuple[str, str]]) -> bool:
    """Return whether settings name other data than the model."""
    return bool({"data.path", "data.name"} & set(_keys(overrides)))


def changes_rows(overrides: Sequence[tuple[str, str]]) -> bool:
    """Return whether settings name other data, or divide the data of the model in another way."""
    return names_data(overrides) or _divides(_keys(overrides))


def _names_table(given: dict[str, str], data: "DataConfig") -> bool:
    """Return whether settings name another table or store, and neither they nor the model divide it."""
    name = given.get("data.name", data.name)
    divided = _divides(given) or (name == data.name and not {*FILES_OF_SPLITS}.isdisjoint(data.options))
    return name in ("csv", "prepared") and "data.path" in given and not divided


def _divides(given: dict[str, str]) -> bool:
    """Return whether settings say which rows are in which split."""
    return any(key.split(".")[:2] in DIVIDING for key in given)


def _keys(overrides: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {key.replace("-", "_"): value for key, value in overrides}


def _difference(predictor: "Predictor", dataset: "Dataset", *, content: bool) -> str | None:
    """Describe how the data have changed since the training; None if they have not, or it is unknown.

    Rows of the training may then be measured.

    Args:
        predictor: The model.
        dataset: The data.
        content: Whether the targets of the rows are compared too, and not only the splits.
    """
    from molslice.data.checksums import changed_parts, division_identity
    from molslice.files.cache import array_checksum
    from molslice.files.parsing import read_json_object
    from molslice.folders.run import DATA
    from molslice.inference.ensemble import EnsemblePredictor

    members = predictor.members if isinstance(predictor, EnsemblePredictor) else [predictor]
    folder = members[0].folder  # all were trained on the same rows
    if folder is None or not (folder / DATA).is_file():
        return None
    then = read_json_object(folder / DATA)
    identities = {"is not divided as it was": division_identity(dataset)}
    if content:  # not the inputs, which depend on the version of RDKit too
        identities["is not what it was"] = {"targets": array_checksum(dataset.targets)}
    for what, now in identities.items():
        if changed := changed_parts({name: str(then.get(name)) for name in now}, now):
            return (
                f"{dataset.source} {what} when {folder} was trained (different: {', '.join(changed)}); rows "
                "of the training may be among those that are measured"
            )
    return None
