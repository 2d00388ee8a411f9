"""Predict with a model that `molslice fit` wrote."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from molslice.config import DataConfig
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.conditions import encode
from molslice.data.molecules.describe import CHUNK_ROWS, DescribedMolecules, MoleculeDescriber
from molslice.data.molecules.store import MoleculeStore
from molslice.files.cache import file_checksum
from molslice.folders.fitted import (
    DISAGREEMENT,
    ENCODER,
    FINE_TUNED,
    FIT,
    LEARNER_FILE,
    NETWORKS,
    ROW_COLUMNS,
    ROWS,
    SIZE,
    FittedModel,
    out_of_fold_calibration,
    row_columns,
    training_pairs,
    training_rows,
    with_related,
)
from molslice.inference.base import Predictor
from molslice.inference.columns import distinct_columns
from molslice.inference.domain import ARRAYS as DOMAIN_ARRAYS
from molslice.inference.domain import DOMAIN, TrainingDomain
from molslice.inference.network import NetworkPredictor
from molslice.inference.options import PLAIN, PredictionOptions, add_uncertainty
from molslice.inference.predictions import NOT_FINITE, Members, Predictions
from molslice.learners import Features
from molslice.learners.fold_averages import by_member
from molslice.number_text import METRIC_LABELS, format_metric
from molslice.tasks.target_types import (
    Learned,
    TargetType,
    column_slices,
    has_named_classes,
    part_slices,
    targets_of_parts,
)
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import ARRAYS as CALIBRATION_ARRAYS
from molslice.uncertainty.calibration import CALIBRATION, Calibration
from molslice.uncertainty.probabilities import log_odds

FILES = (FIT, LEARNER_FILE, ROWS, CALIBRATION, CALIBRATION_ARRAYS, DOMAIN, DOMAIN_ARRAYS)  # of a prediction


def network_scores(predicted: np.ndarray, targets: TargetInfo) -> np.ndarray:
    """Convert predictions of a fine-tuned network to what a learner predicts.

    Args:
        predicted: Standardized values, or probabilities of class 1, float32 [n, T].
        targets: The description of the targets, with the mean and the spread of what was learned.

    Returns:
        What was learned, values or their logarithms, or log-odds, float64 [n, T].
    """
    values = predicted.astype(np.float64)
    if targets.kind == "classification":
        return log_odds(values)
    return values * np.array(targets.std) + np.array(targets.mean)


def prediction_row_columns(
    names: Sequence[str], types: Sequence[TargetType], given: Sequence[str] = ()
) -> list[str]:
    """Name the columns of the predictions in `rows.csv`, one for each target, or for each of several classes.

    `types` say what each target is; `given` are the columns that follow: conditions and the second molecule.
    """
    columns = row_columns(names)
    wanted = []
    for name, column, target_type in zip(names, columns, types, strict=True):
        several = target_type.several
        wanted += [column] if several is None else [f"{name}_{word}" for word in several.names]
    return distinct_columns(wanted, taken=[*ROW_COLUMNS, *columns, *given])


class FittedPredictor(Predictor):
    """A stack of learners on descriptors, fingerprints and embeddings, and of fine-tuned networks.

    A prediction depends on the molecule and its conditions only. It is the mean over the members of the fit.

    Args:
        model: The learners and their weights.
        name: The name of the model in messages.
        folder: The folder of the model.
        encoder: The encoder whose embeddings are features; None for a model without one.
        networks: The fine-tuned network of each fold, for each of `FittedModel.network_kinds`; empty for a
            model without them.
    """

    folder: Path
    chunk_rows = CHUNK_ROWS

    def __init__(
        self,
        model: FittedModel,
        name: str,
        folder: Path,
        encoder: NetworkPredictor | None = None,
        networks: Sequence[NetworkPredictor] = (),
    ) -> None:
        self.model, self.name, self.folder = model, name, folder
        self.encoder, self.networks = encoder, tuple(networks)
        self.targets, self.num_members = model.targets, model.num_members
        self.fragment, self.wildcards, self.standardize = model.fragment, model.wildcards, model.standardize
        self.conditions, self.partner, self.symmetric = model.conditions, model.partner, model.symmetric
        self.fit_options = model.about["options"]
        if self.partner is not None:
            self.smiles_column = model.about["smiles_column"]
        self.device = encoder.device if encoder is not None else torch.device("cpu")

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """The column of each target in the table of the fit."""
        return tuple(self.model.about.get("columns", self.target_names))

    @property
    def data_config(self) -> DataConfig:
        """The rows of the fit as a data set, divided as in the fit."""
        named = has_named_classes(self.types) or self.targets.kind == "mixed"
        options = {
            "path": str(self.folder / ROWS),
            "target_columns": row_columns(self.target_names),
            "units": list(self.target_units),
            "kind": self.targets.kind,
            **({"classes": [list(target_type.class_names) for target_type in self.types]} if named else {}),
            "outliers": "keep",  # if the fit has kept some
            **({} if self.partner is None else {"smiles_column": ROW_COLUMNS[0]}),
            "split": {"kind": "column", "column": "split", "valid_fraction": 0},
        }
        if self.fragment != "keep":
            options["fragment"] = self.fragment
        if self.wildcards != "refuse":
            options["wildcards"] = self.wildcards
        return DataConfig("csv", options)

    def checksum(self) -> str:
        """Return a checksum of the files of the model; see `Predictor.checksum`.

        Other files of the folder do not count: predictions may be written there.
        """
        files = [self.folder / name for name in FILES]
        for name in (ENCODER, NETWORKS):
            files += sorted((self.folder / name).rglob("*"))
        files = [path for path in files if path.is_file()]
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return hashlib.sha256(
            repr([*zip(names, map(file_checksum, files), strict=True)]).encode()
        ).hexdigest()

    def reader(self, workers: int = 0) -> MoleculeDescriber:
        """Return a reader that computes descriptors and fingerprint counts."""
        encoder = self.encoder
        if encoder is None or encoder.atom_order != "canonical" or encoder.data.num_descriptors:
            return MoleculeDescriber(workers)
        return MoleculeDescriber(workers, with_binaries=True)  # which the encoder reads

    def predict_molecules(
        self, molecules: DescribedMolecules, options: PredictionOptions = PLAIN
    ) -> Predictions:
        """Predict described molecules; see `Predictor.predict_molecules`."""
        values = np.full((len(molecules), len(self.columns)), np.nan, np.float32)
        errors = list(molecules.errors)
        members, difficulty = np.zeros((2, self.num_members, *values.shape))
        readable = np.flatnonzero([reason is None for reason in errors])
        if len(readable):
            needs_spread = self.needs_spread(options)
            members[:, readable], difficulty[:, readable] = self.member_predictions(
                molecules.take(readable), needs_spread=needs_spread
            )
            values[readable] = members[:, readable].mean(0)
        for row in readable[~np.isfinite(values[readable]).all(1)]:
            values[row], errors[row] = np.nan, NOT_FINITE
        by_row = members.transpose(1, 0, 2)
        return add_uncertainty(
            Predictions(values, errors, labels=self.labels(values), types=self.types),
            Members(by_row.std(1), by_row, difficulty.transpose(1, 0, 2)),
            options,
        )

    @property
    def types(self) -> tuple[TargetType, ...]:
        """What each target is; see `Predictor.types`."""
        return self.model.types

    def is_logarithmic(self, target: int) -> bool:
        """Return whether the logarithm of a target is learned; see `Predictor.is_logarithmic`."""
        return self.model.stacks[[*part_slices(self.types)][target].start].logarithmic

    def labels(self, predicted: np.ndarray) -> list[tuple[str, ...]] | None:
        """Return the name of the chosen class of each target of several, for each row; "" for NaN.

        None if there is no such target.
        """
        names = []
        for target_type, columns in zip(self.types, column_slices(self.types), strict=True):
            if target_type.several is not None:
                probabilities = predicted[:, columns]
                chosen = target_type.several.choose(np.nan_to_num(probabilities))
                words = np.array(target_type.class_names)[chosen]
                names.append(np.where(np.isnan(probabilities).any(axis=1), "", words).tolist())
        return [*zip(*names, strict=True)] if names else None

    def _numbers(self) -> list[dict[str, str]]:
        numbers = []
        for target_type, item in zip(self.types, super()._numbers(), strict=True):
            words = target_type.class_names if target_type.several is not None else target_type.words[1:]
            numbers += [{**item, "class": word, "unit": ""} for word in words] or [item]
        return numbers

    def count_trained(self, names: Sequence[str], partners: Sequence[str] = ()) -> int:
        """Count the rows of known training molecules or pairs; see `Predictor.count_trained`."""
        if self.partner is None:
            return super().count_trained(names)
        return sum(pair in self._training_pairs for pair in self._named_pairs(names, partners))

    @cached_property
    def _training_pairs(self) -> frozenset[tuple[str, ...]]:
        pairs = list[tuple[str, str]]()
        with contextlib.suppress(MolsliceError):  # models that ship do not have their rows
            pairs = training_pairs(self.folder, self.partner or "")
        both = zip(*pairs, strict=True) if pairs else ((), ())
        return frozenset(self._named_pairs(*map(self.name_molecules, both)))

    def _named_pairs(self, names: Sequence[str], partners: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield pairs of names, in alphabetical order if the model is symmetric."""
        for pair in zip(names, partners, strict=True):
            yield tuple(sorted(pair)) if self.symmetric else pair

    def find_calibration(self) -> Calibration:
        """Return the out-of-fold predictions of the training rows; see `Predictor.find_calibration`.

        The calibration of a folder without one is read from its `rows.csv`.
        """
        calibration = Calibration.read(self.folder, self.targets.kind, self.target_names)
        kept_alone = has_named_classes(self.types) or self.targets.kind == "mixed"
        if calibration is None and kept_alone:
            raise MolsliceError(f"{self.folder} is incomplete: {self.folder / CALIBRATION} is missing")
        calibration = calibration or out_of_fold_calibration(self.folder, self.model)
        if calibration.num_folds != self.num_members:
            raise MolsliceError(
                f"{self.folder} has held-out rows of {calibration.num_folds} folds, but {self.num_members} "
                "members"
            )
        if calibration.dropout_passes:
            raise MolsliceError(f"{self.folder} has held-out rows with dropout, but its model has no dropout")
        parts = part_slices(self.types)
        for target, target_type, columns in zip(calibration.targets, self.types, parts, strict=True):
            names = () if target_type.several is None else target_type.several.names
            if target.kind != target_type.kind or target.classes != names:
                raise MolsliceError(f"{self.folder} has held-out rows of other classes than its model")
            if target.logarithmic != self.model.stacks[columns.start].logarithmic:
                raise MolsliceError(
                    f"{self.folder} has held-out rows of {target.name!r} on another scale than its model"
                )
        return calibration

    def _read_domain(self) -> TrainingDomain:
        if (self.folder / DOMAIN).exists():
            return super()._read_domain()
        if self.partner is not None:
            raise MolsliceError(f"{self.name} predicts pairs of molecules, which have no domain")
        smiles, values = training_rows(self.folder, self.target_names)  # of an older folder
        return TrainingDomain.of_smiles(smiles, self.fragment, standardize=self.standardize, values=values)

    def member_predictions(
        self, molecules: DescribedMolecules, *, needs_spread: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict molecules without errors with the stack of each member (`molslice.learners.fold_averages`).

        Args:
            molecules: The molecules.
            needs_spread: Whether to compute the expected errors of numbers.

        Returns:
            The predictions in the units of the targets, and the expected error in the unit of the learners
            (in older folders the standard deviation over the learners; 0 for classes and where it is not
            needed), float64 [members, n, C] each, with the columns of `Predictions`.
        """
        if molecules.partners is not None and self.model.symmetric:
            molecules = molecules.in_order()
        store, second = self._read(molecules), molecules.partners
        features = self._features(molecules, store)
        if second is not None:
            others = self._features(second, self._read(second))
            features = features.joined(others, symmetric=self.model.symmetric)
        model, tuned = self.model, dict[int, np.ndarray]()
        for group, networks in self.networks_by_kind():
            assert store is not None  # networks have an encoder
            scores = [
                network_scores(network.predict_molecules(store).values, group.targets) for network in networks
            ]
            for place, column in enumerate(group.columns):
                tuned[column] = np.stack([of_network[:, place] for of_network in scores])
        are_numbers = [not self.types[index].has_classes for index in targets_of_parts(self.types)]
        columns, difficulty = [], []
        for index, (learners, stack, scale) in enumerate(
            zip(model.learners, model.stacks, model.scales, strict=True)
        ):
            has_spread = needs_spread and are_numbers[index]
            predicted, indicators = {}, {}
            for name, learner in learners.items():
                if scale is None or not learner.indicators or not has_spread:
                    predicted[name] = learner.predict(features)
                else:
                    predicted[name], of_learner = learner.predict_with_indicators(features)
                    indicators |= of_learner
            if index in tuned:
                predicted[FINE_TUNED] = tuned[index]
            predicted, indicators = self._by_member(predicted), self._by_member(indicators)
            columns.append(stack.combine(predicted))
            if not has_spread:
                difficulty.append(np.zeros_like(columns[-1]))
                continue
            disagreement = stack.disagreement(predicted)
            if scale is None:
                difficulty.append(disagreement)
            else:
                size = np.broadcast_to(features.size(), disagreement.shape)
                difficulty.append(scale.expect({**indicators, DISAGREEMENT: disagreement, SIZE: size}))
        blocks, hard = [], []
        for target_type, of_target in zip(self.types, part_slices(self.types), strict=True):
            parts = np.stack(columns[of_target], axis=2)
            blocks.append(parts if target_type.several is None else target_type.several.combine(parts))
            hard.append(
                np.stack(difficulty[of_target], axis=2)
                if target_type.several is None
                else np.zeros_like(blocks[-1])
            )
        return np.concatenate(blocks, axis=2), np.concatenate(hard, axis=2)

    def _details(self) -> list[str]:
        rows, results = self.model.about["rows"]["train"], self.model.about["results"]
        details = [f"fitted to {rows:,} rows"]
        if len(results) == 1 and (metric := results[0].get("metric", self.model.about.get("metric"))):
            error = format_metric(results[0]["cross_validated"])
            details.append(f"cross-validated {METRIC_LABELS[metric]} {error}")
        return details

    def networks_by_kind(self) -> list[tuple[Learned, tuple[NetworkPredictor, ...]]]:
        """Return what the networks of each kind learn, and the network of each fold."""
        count = self.model.num_networks
        return [
            (group, self.networks[place * count : (place + 1) * count])
            for place, group in enumerate(self.model.network_kinds.values())
        ]

    def _features(self, molecules: DescribedMolecules, store: MoleculeStore | None) -> Features:
        embedding = None if self.encoder is None or store is None else self.encoder.embed_store(store).values
        given = molecules.conditions
        conditions = encode(self.conditions, given) if self.conditions and given is not None else None
        features = Features(molecules.descriptors, molecules.counts, embedding, conditions)
        return with_related(features, self.model.related)

    def _by_member(self, predicted: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Average the models of each member, float64 [members, n] each."""
        averaged = {}
        for name, values in predicted.items():
            if len(values) not in (self.model.num_folds, self.model.num_folds * self.model.num_assignments):
                raise MolsliceError(f"{name} of {self.name} has another number of folds")
            averaged[name] = by_member(values, self.model.num_folds, self.model.num_assignments)
        return averaged

    def _read(self, molecules: DescribedMolecules) -> MoleculeStore | None:
        """Convert molecules once for the encoder and all networks; None for a model without them."""
        if self.encoder is None:
            return None
        if molecules.binaries is not None:
            from molslice.chem.featurize import canonical_arrays  # needs rdkit

            return MoleculeStore.in_memory(canonical_arrays(molecules.canonical, molecules.binaries))
        with self.encoder.reader() as reader:
            return next(iter(reader.read([molecules.canonical])))

    def predict_dataset(
        self,
        dataset: MoleculeDataset,
        rows: np.ndarray,
        options: PredictionOptions = PLAIN,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a data set.

        Raises:
            MolsliceError: `atom_permutation` is given; descriptors have no order of atoms.
        """
        if atom_permutation is not None:
            raise MolsliceError(
                f"{self.name} predicts from descriptors, which do not depend on the order of atoms"
            )
        smiles = self.conditioned(dataset.smiles(), dataset.side_cells)
        return self.predict_with_errors([smiles[row] for row in rows], options=options, progress=progress)
