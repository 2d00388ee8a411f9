"""Export a trained model to one file that predicts without molslice."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from molslice.chem.featurize import CHECKED_SMILES, HARD_MAX_ATOMS, molecule_arrays
from molslice.chem.naming import atom_vocabulary, bond_vocabulary
from molslice.export.formats import ENDINGS, need_packages, quiet_torch, run_file, write_program
from molslice.export.program import MoleculeProgram, plain_forms
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.load import NetworkPredictor, load_model
from molslice.inference.precision import float32_inference
from molslice.model.graphormer import Graphormer
from molslice.registry import near_names
from molslice.types import MoleculeArrays, MolsliceError
from molslice.version import __version__

ATTENTIONS = ("softmax", "slice_sort", "flow", "singular")
FORMAT = "molslice-export-1"
INPUTS = ("atoms", "atom_mask", "bonds")
TOLERANCE = 1e-4  # of a prediction, in spreads of the target
ROUNDING = 1e-6  # of a prediction in float32, as a share of it
CAN = (
    "molslice export takes a graphormer on molecules, or an ensemble of them, with the attention "
    f"{', '.join(ATTENTIONS)}"
)

Exportable = NetworkPredictor | EnsemblePredictor


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written.

    Attributes:
        file: The file.
        bytes: Its size.
        inputs: Names of the inputs.
        columns: Column name of each value of a prediction.
        molecules: Number of molecules that were predicted by model and file.
        largest_difference: The largest difference of these predictions, in the unit of the target.
        fragment: What the model does with a mixture, see `load_model`; the file takes it as one graph.
    """

    file: str
    bytes: int
    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    molecules: int
    largest_difference: float
    fragment: str


def export_model(name_or_path: str | Path, out: str | Path) -> ExportReport:
    """Write a trained model as an ONNX file or a program of `torch.export`, and check its predictions.

    The file takes the padded arrays of any number of molecules of up to 256 atoms; see `padded_arrays`. It
    predicts in the units of the targets, for classes probabilities.

    Args:
        name_or_path: The model; see `load_model`.
        out: The file to write, `.onnx` or `.pt2`.

    Raises:
        MolsliceError: The model or its attention cannot be exported, the ending is unknown, a package is
            missing, the file cannot be written, or it predicts other values than the model.
    """
    file = Path(out)
    if file.suffix not in ENDINGS:
        raise MolsliceError(f"cannot write {file}: {near_names(file.suffix, ENDINGS)}")
    if file.suffix == ".onnx":
        need_packages()
    predictor = load_model(name_or_path)
    if not isinstance(predictor, NetworkPredictor | EnsemblePredictor):
        raise MolsliceError(f"cannot export {name_or_path}: it was written by molslice fit; {CAN}")
    write_program(trace(predictor), file, json.dumps(describe(predictor)))
    return ExportReport(
        file=str(file),
        bytes=file.stat().st_size,
        inputs=INPUTS,
        columns=predictor.columns,
        molecules=len(CHECKED_SMILES),
        largest_difference=check_file(predictor, file),
        fragment=predictor.fragment,
    )


def padded_arrays(molecules: Sequence[MoleculeArrays]) -> dict[str, np.ndarray]:
    """Return the inputs of an exported file for a batch of molecules.

    Args:
        molecules: The arrays of each molecule, with at least one atom.

    Returns:
        `atoms` uint8 [B, A, 9], `atom_mask` bool [B, A] and `bonds` uint8 [B, M, 5], zero at padding.
    """
    counts = np.array([len(molecule.atoms) for molecule in molecules])
    atoms = np.zeros((len(molecules), counts.max(), 9), np.uint8)
    bonds = np.zeros((len(molecules), max(len(molecule.bonds) for molecule in molecules), 5), np.uint8)
    for row, molecule in enumerate(molecules):
        atoms[row, : len(molecule.atoms)] = molecule.atoms
        bonds[row, : len(molecule.bonds)] = molecule.bonds
    return {"atoms": atoms, "atom_mask": np.arange(atoms.shape[1]) < counts[:, None], "bonds": bonds}


def describe(predictor: Exportable) -> dict[str, Any]:
    """Return the metadata of an exported file, as JSON types."""
    targets = predictor.targets
    return {
        "format": FORMAT,
        "molslice_version": __version__,
        "model": predictor.name,
        "targets": [
            {"name": name, "unit": unit} for name, unit in zip(targets.names, targets.units, strict=True)
        ],
        "columns": list(predictor.columns),
        "kind": targets.kind,
        "atom_order": predictor.atom_order,
        "fragment": predictor.fragment,
        "max_atoms": HARD_MAX_ATOMS,
        "atoms": atom_vocabulary(),
        "bonds": bond_vocabulary(),
    }


def trace(predictor: Exportable) -> ExportedProgram:
    """Trace a model for any number of molecules, atoms and bonds, in operators of torch alone."""
    module = build_program(predictor)
    arrays = padded_arrays([molecule_arrays("CCO"), molecule_arrays("Cc1ccccc1")])
    shapes = {name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for name in arrays}
    example = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with float32_inference("cpu"), torch.inference_mode(mode=False), torch.no_grad(), quiet_torch():
        program = torch.export.export(module, (), example, dynamic_shapes=shapes, strict=False)
        plain = plain_forms()
        has_own = any(node.target in plain for node in program.graph.nodes)
        return program.run_decompositions(plain) if has_own else program


def build_program(predictor: Exportable) -> MoleculeProgram:
    """Return the model, or the mean of the members of an ensemble, as a function of padded arrays."""
    networks = predictor.members if isinstance(predictor, EnsemblePredictor) else (predictor,)
    return MoleculeProgram([(_graphormer(network), network.targets) for network in networks])


def _graphormer(network: NetworkPredictor) -> Graphormer:
    """Return the module of a network, which is refused if it cannot be exported."""
    model, attention = network.model, network.config.attention.name
    if not isinstance(model, Graphormer):
        raise MolsliceError(f"cannot export {network.name}: its model is {network.config.model.name}; {CAN}")
    if attention not in ATTENTIONS:
        raise MolsliceError(f"cannot export {network.name}: its attention is {attention}; {CAN}")
    if network.config.attention.options.get("order") == "multi_permutation":
        raise MolsliceError(
            f"cannot export {network.name}: with the order multi_permutation, rounding errors of equal "
            f"atoms change the prediction; {CAN} and another order"
        )
    if model.descriptor_state is not None:
        raise MolsliceError(f"cannot export {network.name}: it takes descriptors; {CAN} and no descriptors")
    return model


def check_file(predictor: Exportable, file: Path) -> float:
    """Compare an exported file with its model on molecules with all features.

    Returns:
        The largest difference of a prediction, in the unit of the target.

    Raises:
        MolsliceError: They differ. The file is removed.
    """
    order: Any = predictor.atom_order
    arrays = padded_arrays([molecule_arrays(smiles, atom_order=order) for smiles in CHECKED_SMILES])
    predictions = run_file(file, arrays)
    with predictor.reader() as reader:  # without a choice of fragments: the file gets whole mixtures
        (store,) = reader.read([list(CHECKED_SMILES)])
    expected = predictor.predict_molecules(store).values
    difference = np.abs(predictions - expected)
    allowed = TOLERANCE * np.array(predictor.targets.std) + ROUNDING * np.abs(expected)
    if predictions.shape != expected.shape or not (difference <= allowed).all():
        file.unlink()
        raise MolsliceError(
            f"cannot export {predictor.name}: predictions of the file differ from the model's "
            f"by up to {np.max(difference):g}"
        )
    return float(difference.max())
