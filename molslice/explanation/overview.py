"""What a model of `molslice fit` depends on, over many molecules: its features, and substructures."""

import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from molslice.data.molecules.conditions import with_conditions
from molslice.data.molecules.describe import DescribedMolecules
from molslice.data.molecules.fragments import choose_fragments
from molslice.explanation.score import PredictionScore
from molslice.figures import literal, to_picture
from molslice.files.atomic import reserved, write_atomically
from molslice.files.progress import Progress
from molslice.folders.results import results_folder
from molslice.tasks.metrics import with_unit
from molslice.tasks.standard_errors import error_of_mean
from molslice.types import MolsliceError

MOST_ROWS, FEWEST_ROWS = 100, 10  # that are drawn from all rows, and that are needed
ALIKE = 0.9  # absolute rank correlation of descriptors that are shuffled together
SHOWN, FEWEST_MOLECULES = 12, 3  # entries of a figure, and molecules with a substructure that is drawn
TABLE, FIGURES = "global.csv", ("global.svg", "global.png")
FEATURE, SUBSTRUCTURE = "feature", "substructure"
FAMILIAR = (  # descriptors that name the group with which they are shuffled
    *("MolWt", "HeavyAtomCount", "MolLogP", "TPSA", "RingCount", "NumAromaticRings", "FractionCSP3"),
    *("NumHDonors", "NumHAcceptors", "NumRotatableBonds", "NumHeteroatoms", "MolMR"),
)
BLUE, ORANGE = "#0072b2", "#d55e00"
COLORED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
STYLES: dict[str, Any] = {  # by the background of a figure
    "white": {},
    "dark": {
        **dict.fromkeys(COLORED, "#edf2f2"),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "#1b2326"),
    },
    "transparent": dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
}


@dataclass(frozen=True, slots=True)
class Effect:
    """What a feature or a substructure does to predictions, as a line of `global.csv`.

    Attributes:
        kind: `feature` or `substructure`.
        name: Name of the descriptor, or SMILES of the substructure with what it is bonded to.
        together: Other descriptors that were shuffled with it.
        molecules: Number of molecules.
        effect: Of a feature, the mean absolute change of a prediction when its values are shuffled among the
            molecules. Of a substructure, the mean of the prediction minus the prediction with it masked.
        standard_error: Standard error of the mean over molecules.
        unit: Unit of both.
    """

    kind: str
    name: str
    together: str
    molecules: int
    effect: float
    standard_error: float
    unit: str


def find_effects(
    score: PredictionScore, rows: Iterable[str], advance: Callable[[int], object] = lambda count: None
) -> list[Effect]:
    """Measure features and substructures on at most `MOST_ROWS` rows, drawn at random.

    Args:
        score: The target of the model.
        rows: Rows with their conditions; unreadable ones are left out.
        advance: Called with the number of predicted molecules.

    Returns:
        The features, then the substructures, the largest effect of each first.

    Raises:
        MolsliceError: Fewer than `FEWEST_ROWS` rows can be read.
    """
    given, generator = [*rows], np.random.default_rng(0)
    order = generator.permutation(len(given))[: 2 * MOST_ROWS]
    chosen = choose_fragments([given[row] for row in order], *score.predictor.treatment).smiles
    with score.predictor.reader() as reader:
        (molecules,) = reader.read([chosen])
    readable = np.flatnonzero([reason is None for reason in molecules.errors])[:MOST_ROWS]
    if len(readable) < FEWEST_ROWS:
        raise MolsliceError(f"a global view needs {FEWEST_ROWS} readable molecules, got {len(readable)}")
    molecules, rows = molecules.take(readable), [chosen[row] for row in readable]
    predicted = score.of_molecules(molecules)
    numbers = np.unique(molecules.canonical, return_inverse=True)[1]
    features = [
        _effect(
            FEATURE, name, np.abs(score.of_molecules(shuffled) - predicted), numbers, score.unit, together
        )
        for name, together, shuffled in _shuffled(score, molecules, generator, advance)
    ]
    changes: dict[str, list[float]] = defaultdict(list)
    changed: dict[str, list[int]] = defaultdict(list)
    for row, value, number in zip(rows, predicted, numbers.tolist(), strict=True):
        for name, change in _without_groups(score, row, value):
            changes[name].append(change)
            changed[name].append(number)
        advance(1)
    substructures = [
        _effect(SUBSTRUCTURE, name, np.array(values), np.array(changed[name]), score.unit)
        for name, values in changes.items()
    ]
    return [
        effect
        for kind in (features, substructures)
        for effect in sorted(kind, key=lambda effect: (-abs(effect.effect), effect.name))
    ]


def _effect(
    kind: str, name: str, changes: np.ndarray, molecules: np.ndarray, unit: str, together: str = ""
) -> Effect:
    """Return the mean of changes [n]; in its error, the changes of one molecule, int [n], count as one."""
    count, error = len(np.unique(molecules)), error_of_mean(changes, molecules)
    return Effect(kind, name, together, count, float(changes.mean()), error, unit)


def _shuffled(
    score: PredictionScore,
    molecules: DescribedMolecules,
    generator: np.random.Generator,
    advance: Callable[[int], object],
) -> Iterator[tuple[str, str, DescribedMolecules]]:
    """Yield the name of a feature, what is shuffled with it, and the molecules with shuffled values."""
    from molslice.chem.descriptors import descriptor_names  # needs rdkit

    predictor, names = score.predictor, descriptor_names()
    for columns in _alike(molecules.descriptors):
        values = molecules.descriptors.copy()
        values[:, columns] = values[generator.permutation(len(values))][:, columns]
        first, *others = _familiar_first([names[column] for column in columns])
        yield first, " ".join(others), replace(molecules, descriptors=values)
        advance(len(values))
    order = generator.permutation(len(molecules))
    yield "Morgan counts", "", replace(molecules, counts=molecules.counts[order])
    if predictor.encoder is not None:
        name = "embedding and networks" if predictor.networks else "embedding"
        yield name, "", replace(molecules, canonical=[molecules.canonical[row] for row in order])
    for column, condition in enumerate(predictor.conditions):
        assert molecules.conditions is not None
        conditions = molecules.conditions.copy()
        conditions[:, column] = conditions[order, column]
        yield condition.name, "", replace(molecules, conditions=conditions)
    if molecules.partners is not None:
        yield predictor.partner or "", "", replace(molecules, partners=molecules.partners.take(order))


def _familiar_first(names: Sequence[str]) -> list[str]:
    """Return names of descriptors with the most familiar one first."""
    return sorted(names, key=lambda name: FAMILIAR.index(name) if name in FAMILIAR else len(FAMILIAR))


def _alike(descriptors: np.ndarray) -> list[list[int]]:
    """Return groups of columns whose absolute rank correlation is at least `ALIKE` on average."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    filled = np.where(np.isnan(descriptors), np.nanmin(descriptors, initial=0.0) - 1.0, descriptors)
    varying = np.flatnonzero(np.ptp(filled, axis=0) > 0)
    if len(varying) < 2:
        return [[int(column)] for column in varying]
    distances = 1.0 - np.abs(np.corrcoef(rankdata(filled[:, varying], axis=0), rowvar=False))
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(np.maximum(distances, 0.0), checks=False), "average")
    clusters = fcluster(tree, 1.0 - ALIKE, "distance")
    return [varying[clusters == cluster].tolist() for cluster in np.unique(clusters)]


def _without_groups(score: PredictionScore, row: str, predicted: float) -> Iterator[tuple[str, float]]:
    """Yield the name of each group of atoms, and what the prediction loses without it."""
    from molslice.chem.masked import MaskableMolecule  # needs rdkit

    molecule = MaskableMolecule(row)
    names = [molecule.name(group) for group in molecule.groups]
    places = [place for place, name in enumerate(names) if name]
    if not places:
        return
    choices = ~np.eye(len(names), dtype=bool)[places]
    masked = [with_conditions(molecule.masked(visible), row) for visible in choices]
    for place, value in zip(places, score(masked), strict=True):
        yield names[place], float(predicted - value)


def write_overview(
    score: PredictionScore,
    rows: Iterable[str],
    folder: Path,
    *,
    ending: str = ".svg",
    background: str = "white",
    progress: bool = False,
) -> list[Effect]:
    """Write `global.csv` and a figure on a background of `BACKGROUNDS`; see `find_effects`.

    Earlier ones are replaced.
    """
    with reserved(folder), results_folder(folder):
        with Progress("explain", None, "predictions", shown=progress) as bar:
            effects = find_effects(score, rows, bar.update)
        table = io.StringIO()
        writer = csv.DictWriter(table, [field.name for field in fields(Effect)])
        writer.writeheader()
        writer.writerows(asdict(effect) for effect in effects)
        with rc_context(STYLES[background]):
            figure = to_picture(_draw(score, effects), ending[1:])
        write_atomically(folder / TABLE, table.getvalue())
        for other in FIGURES:
            (folder / other).unlink(missing_ok=True)
        write_atomically(folder / f"global{ending}", figure)
    return effects


def _draw(score: PredictionScore, effects: Sequence[Effect]) -> Figure:
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    model = os.path.basename(os.path.abspath(score.predictor.name))
    features = [effect for effect in effects if effect.kind == FEATURE]
    often = [
        effect for effect in effects if effect.kind == SUBSTRUCTURE and effect.molecules >= FEWEST_MOLECULES
    ]
    figure.suptitle(literal(f"{model}: {score.name}, {features[0].molecules} molecules"))
    _draw_bars(left, features[:SHOWN], [_with_others(effect) for effect in features[:SHOWN]])
    _draw_bars(right, often[:SHOWN], [f"{effect.name} ({effect.molecules})" for effect in often[:SHOWN]])
    described = score.predictor.described_columns[score.column]
    name = f"{score.name}, class {described['class']}" if "class" in described else score.name
    unit = with_unit(name, score.unit)
    left.set_title("Features")
    left.set_xlabel(literal(f"mean absolute change of {unit}\nif molecules exchange their values"))
    right.set_title("Substructures with their neighbors (molecules)")
    right.set_xlabel(literal(f"mean change of {unit}\nby the substructure; gray: standard error"))
    return figure


def _with_others(feature: Effect) -> str:
    """Return the name of a feature with the number of descriptors that are shuffled with it."""
    count = len(feature.together.split())
    return f"{feature.name} and {count} like it" if count else feature.name


def _draw_bars(axes: Axes, effects: Sequence[Effect], labels: Sequence[str]) -> None:
    values, errors = [effect.effect for effect in effects], [effect.standard_error for effect in effects]
    colors = [BLUE if value < 0 else ORANGE for value in values]
    axes.barh([literal(label) for label in labels], values, xerr=errors, color=colors, ecolor="#8c8c8c")
    axes.invert_yaxis()
