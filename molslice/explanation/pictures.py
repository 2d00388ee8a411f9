"""Pictures of explanations."""

from typing import TYPE_CHECKING

import numpy as np

from molslice.tasks.metrics import with_unit

if TYPE_CHECKING:
    from molslice.explanation.result import AttentionView, Contributions

__all__ = ["draw_attention", "draw_contributions"]


def draw_contributions(found: "Contributions", ending: str) -> bytes:
    """Draw the contributions on the structure; see `Contributions.picture`."""
    from molslice.chem.coloring import draw_colored  # needs rdkit

    heading = f"{found.target}: {_number(found.prediction, found.unit)}"
    if found.probability is not None:
        heading += f" (probability {found.probability:.3g})"
    difference = found.prediction - found.baseline
    equation = (
        f"= {_number(found.baseline, '')} for the saturated hydrocarbon with this skeleton "
        f"{'-' if difference < 0 else '+'} {_number(abs(difference), '')} from the atoms"
    )
    method = f"{found.model}; {_method(found)}"
    return draw_colored(
        found.smiles,
        found.values,
        ending,
        heading=heading,
        lines=[line for line in (equation, method, found.warning, found.note) if line],
        scale=f"contribution of the atom to {with_unit(found.target, found.unit)}",
    )


def draw_attention(view: "AttentionView", ending: str) -> bytes:
    """Draw the first values of the atoms beside the map; see `AttentionView.picture`."""
    from molslice.chem.coloring import Matrix, draw_colored  # needs rdkit

    caption, values = next(iter(view.by_atom.items()))
    labels = ["graph", *(f"{element}{index}" for index, element in enumerate(view.elements))]
    layers, matrix = len(view.maps), view.maps.mean(0)
    return draw_colored(
        view.smiles,
        values.mean(0),
        ending,
        heading=f"{view.model}: attention {view.attention}",
        lines=[
            f"mean over {layers} layers and their heads; not a contribution to the prediction",
            *([f"maps of {view.note}"] if view.note else []),
            *(["negative weights of the map are drawn as zero"] if matrix.min() < 0 else []),
        ],
        scale=caption,
        diverging=bool(values.min() < 0),
        matrix=Matrix(np.maximum(matrix, 0.0), labels, f"{view.kind} map: to row, from column"),
    )


def _method(found: "Contributions") -> str:
    if found.standard_errors is None:
        error = _number(abs(found.sum_error), found.unit, 1)
        return f"integrated gradients, {found.evaluations} steps, error of the sum {error}"
    largest = found.largest_standard_error
    accuracy = f"standard error at most {_number(largest, found.unit, 2)}" if largest else "exact"
    return f"Shapley values, {accuracy}, {found.evaluations:,} masked molecules"


def _number(value: float, unit: str, digits: int = 4) -> str:
    return f"{value:.{digits}g} {unit}".rstrip()
