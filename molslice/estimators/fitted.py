"""A regressor and a classifier: the model of `molslice fit`."""

import json
import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, column_or_1d

from molslice.data.molecules.refusals import Refusals
from molslice.estimators.loaded import LOADED, count_workers
from molslice.files.atomic import atomic_folder
from molslice.files.tables.base import Unreadable, free_name
from molslice.inference.base import Predictions, Predictor
from molslice.inference.inputs import Molecules, frame_cells, is_missing_value, molecule_rows
from molslice.inference.load import load_model
from molslice.pretrained import DEFAULT_ENCODER
from molslice.types import MolsliceError

if TYPE_CHECKING:
    from molslice.fitting.data import Duplicates, Limits, Scale


NOT_OF_FIT = ("ordered", "random_state", "n_jobs")  # parameters that `fit` has in another form


@dataclass(kw_only=True, eq=False, repr=False)
class _Estimator(BaseEstimator):
    """A model that `molslice.fitting.fit.fit` fits to all given rows; see `MolsliceRegressor`.

    The fields are the parameters, which scikit-learn reads from the signature.
    """

    encoder: Path | str | None = DEFAULT_ENCODER
    quality: str = "good"
    members: int = 5
    minutes: float | None = None
    tune: float | None = None
    smiles_column: str | Sequence[str] | None = None
    symmetric: bool = False
    conditions: str | Sequence[str] = ()
    related: str | Sequence[str | tuple[Path | str, str]] = ()
    duplicates: "Duplicates" = "average"
    fragment: str = "keep"
    wildcards: str = "refuse"
    standardize: str = "no"
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    _is_flat = True  # whether y had one dimension
    _names_smiles = False  # whether `smiles_column` was given

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = tags.target_tags.multi_output = True
        return tags

    def save(self, folder: Path | str) -> None:
        """Write the fitted model to a new folder, which `load_model` and the command line take.

        Raises:
            MolsliceError: The folder exists and is not empty, or cannot be written.
        """
        check_is_fitted(self, "folder_")
        with atomic_folder(folder) as partial:
            for name, content in self.folder_.items():
                file = partial / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)

    def _fit(
        self,
        X: Molecules,  # noqa: N803
        y: np.ndarray,
        groups: Any,  # noqa: ANN401
        sample_weight: Any,  # noqa: ANN401
        *,
        names: Sequence[str],
        sides: np.ndarray | None = None,
        standard_error: np.ndarray | None = None,
        classes: Sequence[Sequence[str] | None] = (),
        **more: Any,  # noqa: ANN401
    ) -> None:
        """Fit to targets [n] or [n, T]; classes are numbers from 0, and NaN is a missing value.

        `fit` gets its arguments from the parameters of the estimator, and `more`. `names` has the name of
        each target. `sides` and `standard_error` are shaped as y; `sides` says what is a limit, as in
        `ReadValues`. `classes` are the names of the classes of each target; None for numbers.
        """
        # predicting with a pickled estimator needs no training
        from molslice.fitting.columns import checked_columns
        from molslice.fitting.fit import fit
        from molslice.fitting.target_checks import MIN_ROWS

        conditions = checked_columns("condition", self.conditions)
        if self.smiles_column is None:
            molecules = {free_name("smiles", conditions): molecule_rows(X)}
        else:
            smiles_columns = checked_columns("smiles_column", self.smiles_column)
            molecules = {name: molecule_rows(cell) for name, cell in frame_cells(X, smiles_columns).items()}
        cells: dict[str, Sequence[Any]] = frame_cells(X, conditions) if conditions else {}
        taken = {*molecules, *cells}
        first, rows = next(iter(molecules.items()))
        columns = y.reshape(len(y), -1).T
        names = _make_free(names, taken)
        group, weight = (free_name(name, taken) for name in ("group", "weight"))
        if groups is not None:
            words = column_or_1d(groups, dtype=object).tolist()
            cells |= {group: [None if word is None else str(word) for word in words]}
        weights = np.ones(len(rows))
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
            cells |= {weight: weights}
        errors = None
        if standard_error is not None:
            errors = _make_free([f"error_{name}" for name in names], taken)
            of_targets = standard_error.reshape(columns.T.shape).T
            cells |= {name: _cells(column) for name, column in zip(errors, of_targets, strict=True)}
        number = int if more["kind"] == "multiclass" else float
        limits = np.zeros(columns.shape) if sides is None else sides.reshape(columns.T.shape).T
        named = classes or [None] * len(names)
        for name, column, of_column, of_classes in zip(names, columns, limits, named, strict=True):
            if of_classes is None:
                cells |= {name: _cells(column, of_column, number)}
            else:
                cells |= {name: [of_classes[int(code)] for code in column]}
        check_consistent_length(*cells.values(), *molecules.values())
        if len(rows) < MIN_ROWS:
            raise MolsliceError(f"n_samples = {len(rows)}: a fit needs at least {MIN_ROWS}")
        options = {field.name: getattr(self, field.name) for field in fields(self)} | more
        options = {name: value for name, value in options.items() if name not in NOT_OF_FIT}
        options["smiles_column"] = list(molecules)
        with tempfile.TemporaryDirectory() as place:
            table, folder = Path(place, "molecules.jsonl"), Path(place, "model")
            refusals = _write_rows(table, molecules, cells, weights > 0)
            try:
                summary = fit(
                    table,
                    names,
                    folder,
                    split="all",
                    groups=None if groups is None else group,
                    weight=None if sample_weight is None else weight,
                    error=errors,
                    seed=self._seed(),
                    workers=count_workers(self.n_jobs),
                    **options,
                    quiet=True,
                )
            except MolsliceError as error:
                reason = str(error).replace(str(table), "the molecules").replace(f" in column {first!r}", "")
                raise MolsliceError(reason) from error
            left, count = len(summary["targets"]["classes"]), int(np.nanmax(y)) + 1
            if more["kind"] == "multiclass" and left < count:
                raise MolsliceError(
                    f"{count} classes, but only {left} have a molecule that can be read, and a weight"
                )
            self.about_ = summary
            self._names_smiles = self.smiles_column is not None
            self.folder_ = {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
        LOADED.pop(self, None)
        refusals.merge(summary["refusals"])
        if refused := refusals.report():
            listed = "; ".join(f"{kind['count']} {kind['reason']}" for kind in refused)
            warnings.warn(f"rows that cannot be read are left out of the fit: {listed}", stacklevel=3)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _model(self) -> Predictor:
        """Load the model once from its files, which stay in a temporary folder as long as the model."""
        check_is_fitted(self, "folder_")
        if self not in LOADED:
            place = tempfile.mkdtemp()
            folder = Path(place, "model")
            self.save(folder)
            model = load_model(folder)
            if self._names_smiles:
                model.smiles_column = self.about_["smiles_column"]
            weakref.finalize(model, shutil.rmtree, place, ignore_errors=True)
            LOADED[self] = model, place
        return LOADED[self][0]

    def _predictions(self, X: Molecules, interval: float | None = None) -> Predictions:  # noqa: N803
        return self._model().predict_with_errors(X, interval=interval, workers=count_workers(self.n_jobs))

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """Return [n, T, ...] as [n, ...] if y had one dimension."""
        return values[:, 0] if self._is_flat else values


@dataclass(kw_only=True, eq=False, repr=False)
class MolsliceRegressor(RegressorMixin, _Estimator):
    """A regressor that takes molecules; the model of `molslice fit`.

    `score` is R². Missing values of a y with several columns are NaN.

    Args:
        encoder: As in `fit`: a trained encoder for features and fine-tuning, or None.
        quality: As in `fit`: `fast`, `good`, or `best`, which fine-tunes the encoder.
        scale: As in `fit`: `log` learns the logarithms of the values, `linear` the values, and None finds it.
        outliers: As in `fit`: `refuse` values far outside the others, such as -999, or `keep` them.
        limits: As in `fit`: `learn` limits such as `>10`, `drop` them, or learn them as `exact` values.
        members: Number of folds, and of models that are averaged.
        minutes: Learners that would start later are left out; None for no limit.
        tune: As in `fit`: minutes in which the settings of the learners are first chosen; None for defaults.
        smiles_column: As in `fit`: the column of SMILES in X, a DataFrame; None finds it. Two columns, such
            as a solute and a solvent, are the molecules of a pair.
        symmetric: As in `fit`: whether swapping the molecules of a pair changes nothing.
        conditions: As in `fit`: columns of X, a DataFrame, that the model takes beside the molecule, such as
            a temperature.
        related: As in `fit`: measured columns of other tables, such as `other.csv:logP`.
        duplicates: Several rows of one molecule (in the same conditions): `average`, `keep` or `refuse`.
        fragment: What happens to a mixture: `keep`, `largest` or `refuse`.
        wildcards: What happens to a wildcard: `refuse` or `keep`.
        standardize: What standard form molecules get: `no`, `neutral` or `tautomer`.
        random_state: Seed of the folds and the learners: a number, a `numpy.random.RandomState`, or None for
            another one in each fit.
        n_jobs: Processes that read molecules. None is 1, -1 is all cores.

    Attributes:
        folder_: The files of the model folder, by name.
        about_: The content of `fit.json`.
    """

    scale: "Scale | None" = None
    outliers: str = "refuse"
    limits: "Limits" = "learn"

    def fit(
        self,
        X: Molecules,  # noqa: N803
        y: Any,  # noqa: ANN401
        groups: Any = None,  # noqa: ANN401
        sample_weight: Any = None,  # noqa: ANN401
        standard_error: Any = None,  # noqa: ANN401
    ) -> Self:
        """Fit to all rows.

        Args:
            X: n molecules.
            y: Values, [n] or [n, T]. A text such as `>10` is a limit.
            groups: Group of each molecule, [n], such as its project. Molecules of one group are in one fold;
                those without one, None, are alone. None for no groups.
            sample_weight: How much each molecule counts, [n], as the column of `weight` in `fit`; one with a
                weight of 0 is left out. None if all count alike.
            standard_error: Standard error of each value, shaped as y, as the column of `error` in `fit`; NaN
                for an unknown one. None if the errors are not known.

        Raises:
            MolsliceError: The data cannot be used.
            ValueError: `y` or `standard_error` has another shape, or contains infinity, a weight is
                negative, or a standard error is not positive.
        """
        from molslice.data.target_values import check_outliers

        if y is None:
            raise MolsliceError("MolsliceRegressor requires y to be passed, but the target y is None")
        values, sides = self._read(y)
        several = values.ndim == 2 and values.shape[1] > 1
        if not several:
            assert_all_finite(values, input_name="y", estimator_name=type(self).__name__)
        targets = values if several else column_or_1d(values, warn=True)
        sides = sides.reshape(targets.shape)
        errors = None
        if standard_error is not None:
            errors = self._numbers(standard_error, "standard_error")
            if errors.size != targets.size or (several and errors.shape != targets.shape):
                raise ValueError(f"standard_error has the shape {errors.shape}, but y {targets.shape}")
            errors = errors.reshape(targets.shape)
            if (invalid := np.argwhere((errors <= 0) & np.isfinite(targets))).size:
                place, value = int(invalid[0, 0]), errors[tuple(invalid[0])]
                raise ValueError(f"standard_error is {value} at position {place}, expected a positive number")
        advice = "NaN" if several else "only the other rows", "outliers='keep'"
        columns = targets.reshape(len(targets), -1)
        names = _names(y, columns.shape[1])
        check_outliers(columns, names, "the molecules", "position {}".format, self.outliers, advice)
        self._fit(
            X,
            targets,
            groups,
            sample_weight,
            names=names,
            sides=sides,
            standard_error=errors,
            kind="regression",
        )
        self._is_flat = not several
        return self

    def _numbers(self, values: Any, name: str) -> np.ndarray:  # noqa: ANN401
        """Return numbers as float64 [n] or [n, T], NaN where missing."""
        options: Any = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        return check_array(values, ensure_2d=False, input_name=name, estimator=self, **options)

    def _read(self, y: Any) -> tuple[np.ndarray, np.ndarray]:  # noqa: ANN401
        """Return the numbers of y as `_numbers` does, and what is a limit, as in `ReadValues.sides`."""
        from molslice.data.molecules.limits import read_limits

        try:
            values = self._numbers(y, "y")
        except ValueError as error:
            if not re.search(r"to float: '\s*[<>≤≥~≈=].*'", str(error)):
                raise
        else:
            return values, np.zeros(values.shape, np.int8)
        cells = np.asarray(y, dtype=object)
        columns = cells.reshape(len(cells), -1).T
        texts = [["" if is_missing_value(cell) else str(cell) for cell in column] for column in columns]
        named = zip(texts, _names(y, len(texts)), strict=True)
        read = [read_limits(column, name, "position {}".format) for column, name in named]
        values = np.stack([limits.values for limits in read], axis=1)
        sides = np.stack([limits.sides for limits in read], axis=1)
        return values.reshape(cells.shape), sides.reshape(cells.shape)

    def predict(self, X: Molecules) -> np.ndarray:  # noqa: N803
        """Predict molecules.

        Returns:
            float64 [n], or [n, T] after a fit to T columns. NaN for a molecule that cannot be read.
        """
        return self._shaped(self._predictions(X).values.astype(np.float64))

    def predict_interval(self, X: Molecules, coverage: float = 0.9) -> np.ndarray:  # noqa: N803
        """Predict intervals that hold the true value with a probability.

        Args:
            X: n molecules.
            coverage: The probability. It holds for molecules like the fitted ones.

        Returns:
            Lower and upper bounds, float64 [n, 2], or [n, T, 2] after a fit to T columns.

        Raises:
            MolsliceError: The fit had too few rows for this probability.
        """
        predictions = self._predictions(X, coverage)
        assert predictions.lower is not None
        assert predictions.upper is not None
        return self._shaped(np.stack([predictions.lower, predictions.upper], axis=-1).astype(np.float64))


@dataclass(kw_only=True, eq=False, repr=False)
class MolsliceClassifier(ClassifierMixin, _Estimator):
    """A classifier of two to 20 classes that takes molecules; the model of `molslice fit`.

    `score` is the accuracy. With several columns in y, each of two classes, the results are shaped as
    in scikit-learn's other classifiers with several outputs. The other parameters are as in
    `MolsliceRegressor`.

    Args:
        class_weight: As in `fit`: `balanced` gives all classes the same weight in the learners.
        ordered: Whether more than two classes have an order, for which `predict` returns the median class:
            False, True for numbers, or all classes from the lowest to the highest, as in
            `["low", "medium", "high"]`.

    Attributes:
        classes_: The classes in ascending order; a list with two for each column after a fit to several
            columns.
        folder_: The files of the model folder, by name.
        about_: The content of `fit.json`.
    """

    class_weight: str | None = None
    ordered: bool | Sequence[Any] = False
    _places = np.arange(2)  # of `classes_` in the fitted model
    _words = tuple[str, ...]()  # the names of `classes_` there; empty if it has their places

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Molecules, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:  # noqa: ANN401, N803
        """Fit to all rows.

        Args:
            X: n molecules.
            y: Labels, [n], or of two classes in each column, [n, T].
            groups: Group of each molecule, [n]; see `MolsliceRegressor.fit`.
            sample_weight: Weight of each molecule, [n]; see `MolsliceRegressor.fit`.

        Raises:
            MolsliceError: The data cannot be used, or `ordered` does not give the order of the classes.
            ValueError: `y` has another length, or fewer than two classes, or a weight is negative.
        """
        from molslice.fitting.classes import words_of_classes

        if y is None:
            raise MolsliceError("MolsliceClassifier requires y to be passed, but the target y is None")
        options: Any = {"dtype": None}
        labels = check_array(y, ensure_2d=False, input_name="y", estimator=self, **options)
        several = labels.ndim == 2 and labels.shape[1] > 1
        labels = labels if several else column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        classes, codes = [], []
        for column in labels.reshape(len(labels), -1).T:
            names, code = np.unique(column, return_inverse=True)
            if len(names) < 2 or (several and len(names) > 2):
                count = "one class" if len(names) == 1 else f"{len(names)} classes"
                columns = "each of several columns needs two classes" if several else "two classes are needed"
                raise MolsliceError(f"{columns}, got {count}")
            classes.append(names)
            codes.append(code)
        count = len(classes[0])
        is_ordered = count > 2 and self.ordered is not False
        places = _find_places(classes[0], self.ordered) if is_ordered else np.arange(count)
        words = [words_of_classes(names.tolist()) for names in classes]
        order: tuple[str, ...] = ()
        if is_ordered:
            order = tuple(np.asarray(words[0] or [*map(str, places)])[np.argsort(places)].tolist())
        targets = np.stack(codes, axis=1) if several else codes[0] if words[0] else places[codes[0]]
        self._fit(
            X,
            targets.astype(np.float64),
            groups,
            sample_weight,
            names=_names(y, len(classes)),
            classes=words,
            kind="classification" if count == 2 else "multiclass",
            positive=tuple(names[1] for names in words if names) if count == 2 else (),
            order=order,
            outliers="keep",
        )
        self.classes_ = classes if several else classes[0]
        self._words = () if several else tuple(words[0] or ())
        self._places = np.arange(2) if several else places
        if self._words and count > 2:
            fitted = self.about_["targets"]["classes"]
            self._places = np.array([fitted.index(word) for word in self._words])
        self._is_flat = not several
        return self

    def predict(self, X: Molecules) -> np.ndarray:  # noqa: N803
        """Predict the most probable class of each molecule; the median class if classes are ordered.

        Returns:
            Labels [n], or [n, T] after a fit to T columns. A molecule that cannot be read is NaN if the
            classes are numbers, which are float64 then, and None otherwise.
        """
        predictions = self._predictions(X)
        if predictions.labels is not None:
            names = self._words or [*map(str, self._places)]
            code_of = {name: code for code, name in enumerate(names)} | {"": 0}
            known = np.array([label != "" for (label,) in predictions.labels], bool)
            codes = np.array([code_of[label] for (label,) in predictions.labels], int)
            return _labels(np.asarray(self.classes_), codes, known)
        probable = predictions.values
        classes: Any = [self.classes_] if self._is_flat else self.classes_
        columns = [
            _labels(labels, (values > 0.5).astype(int), ~np.isnan(values))
            for labels, values in zip(classes, probable.T, strict=True)
        ]
        return self._shaped(np.stack(columns, axis=1))

    def predict_proba(self, X: Molecules) -> Any:  # noqa: ANN401, N803
        """Predict the probability of each class.

        Returns:
            float64 [n, C] in the order of `classes_`; after a fit to T columns a list of T arrays [n, 2]. NaN
            for a molecule that cannot be read.
        """
        probable = self._predictions(X).values.astype(np.float64)
        if self._is_flat and probable.shape[1] > 1:
            return probable[:, self._places]
        pairs = [np.stack([1.0 - values, values], axis=1) for values in probable.T]
        return pairs[0] if self._is_flat else pairs

    def predict_set(self, X: Molecules, coverage: float = 0.9) -> np.ndarray:  # noqa: N803
        """Predict sets of classes that hold the true class with a probability.

        Args:
            X: n molecules.
            coverage: The probability. It holds for molecules like the fitted ones.

        Returns:
            Whether each class is in the set, bool [n, C] in the order of `classes_`, or [n, T, 2] after a fit
            to T columns.

        Raises:
            MolsliceError: The fit had too few rows for this probability.
        """
        predictions = self._predictions(X, coverage)
        assert predictions.sets is not None
        return self._shaped(predictions.sets[..., self._places])


def _write_rows(
    table: Path,
    molecules: Mapping[str, Sequence[str]],
    cells: Mapping[str, Sequence[Any]],
    is_used: np.ndarray,
) -> Refusals:
    """Write the used rows with molecules that can be read as JSON lines, and return the others.

    Args:
        table: The file to write.
        molecules: Columns of molecules, by name.
        cells: The other columns, by name.
        is_used: Whether a row is used, bool [n].
    """
    refusals = Refusals()
    with table.open("w", encoding="ascii") as file:
        for row in np.flatnonzero(is_used).tolist():
            record: dict[str, Any] = {name: column[row] for name, column in molecules.items()}
            if unreadable := [text for text in record.values() if isinstance(text, Unreadable)]:
                refusals.add(unreadable[0].reason, unreadable[0], f"row {row}")
                continue
            record |= {name: column[row] for name, column in cells.items()}
            file.write(json.dumps(record, default=np.generic.item) + "\n")
    return refusals


def _names(y: Any, count: int) -> list[str]:  # noqa: ANN401
    """Return the names of the targets: of a Series or a DataFrame its names, else `y`, or `y0`, `y1`, ..."""
    given = getattr(y, "columns", [getattr(y, "name", None)])
    names = [name.strip() if isinstance(name, str) else "" for name in given]
    if all(names) and len({*names}) == len(names) == count:
        return names
    return ["y"] if count == 1 else [f"y{index}" for index in range(count)]


def _make_free(names: Sequence[str], taken: set[str]) -> list[str]:
    """Return names that differ from those already taken and from each other, and add them to these."""
    free = []
    for name in names:
        free.append(free_name(name, taken | {*names}) if name in taken else name)
        taken.add(free[-1])
    return free


def _cells(values: np.ndarray, sides: np.ndarray | None = None, number: type = float) -> list[Any]:
    """Return numbers [n] as cells of a table: None where missing, and a text such as `>10.0` for a limit."""
    cells = [None if np.isnan(value) else number(value) for value in values]
    if sides is not None:
        for row in np.flatnonzero(sides).tolist():
            cells[row] = f"{'>' if sides[row] > 0 else '<'}{cells[row]!r}"
    return cells


def _find_places(classes: np.ndarray, ordered: bool | Sequence[Any]) -> np.ndarray:  # noqa: FBT001
    """Return the place of each class, which are ascending, in the order that `ordered` gives, int [C]."""
    if ordered is True:
        if classes.dtype.kind not in "biuf":
            words = ", ".join(map(repr, classes.tolist()))
            raise MolsliceError(f"the order of the classes {words} is not known; give them as ordered=[...]")
        return np.arange(len(classes))
    given = list(ordered)  # pyright: ignore[reportArgumentType]
    if len(given) != len(classes) or set(given) != set(classes.tolist()):
        raise MolsliceError(f"ordered has the classes {given}, but y has {classes.tolist()}")
    return np.array([given.index(name) for name in classes.tolist()])


def _labels(classes: np.ndarray, codes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the class of each row by its number, int [n]; NaN or None where it is not known."""
    labels = classes[codes]
    if known.all():
        return labels
    numeric = np.issubdtype(classes.dtype, np.number) or classes.dtype == bool
    labels = labels.astype(np.float64 if numeric else object)
    labels[~known] = np.nan if numeric else None
    return labels
