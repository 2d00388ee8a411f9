"""The trained encoder of a fit: the molecules that it reads, and how it is used."""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from molslice.data.molecules.store import MoleculeStore
from molslice.files.processes import start_method
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.quality import QUALITIES
from molslice.inference.load import load_encoder
from molslice.inference.smiles_reader import default_workers, read_molecules


@dataclass(frozen=True, slots=True)
class EncoderUse:
    """The trained encoder of a fit.

    Attributes:
        model: Run folder or name.
        device: Where it is fine-tuned.
        embedding_seconds: Time in which it has embedded all rows, in seconds.
        molecules: The molecules of the rows, which are read once for all folds; None if no network is
            trained.
        has_process: Whether a process of its own may fine-tune it beside the learners.
    """

    model: Path | str
    device: str
    embedding_seconds: float
    molecules: MoleculeStore | None = None
    has_process: bool = False

    def take(self, kept: np.ndarray) -> "EncoderUse":
        """Return the encoder with some of the molecules; `kept` are their places, int [k]."""
        molecules = self.molecules
        if molecules is None or len(kept) == len(molecules):
            return self
        chosen = MoleculeStore.in_memory([molecules.arrays(place) for place in kept.tolist()])
        return replace(self, molecules=chosen)


def may_start_process(device: str) -> bool:
    """Return whether a process of its own may use the device beside the learners."""
    # where processes are spawned, they would run the main program again
    return (
        device == "cuda" and start_method() == "forkserver" and not multiprocessing.current_process().daemon
    )


def read_for_encoder(
    encoder: Path, device: str, rows: FitData, options: FitOptions, workers: int | None
) -> tuple[Callable[[list[str]], np.ndarray], MoleculeStore | None]:
    """Read the molecules that networks learn, and return a function that embeds SMILES.

    Args:
        encoder: The folder of the encoder.
        device: Where it computes.
        rows: The rows of the fit.
        options: Options of the fit.
        workers: Processes that read SMILES; None on a device uses many for large tables only.

    Returns:
        The function, and the molecules of the rows; None for them if no networks are trained.
    """
    # mixtures are replaced before they are described, whatever the encoder was trained with
    network = load_encoder(encoder, device, fragment="keep", wildcards="keep")
    count = default_workers(network.device, len(rows.smiles)) if workers is None else workers
    molecules = None
    if QUALITIES[options.quality].fine_tunes and rows.partner is None:
        molecules = read_molecules(rows.molecules.canonical, count)
    processes_embed = count > 0 and network.device.type == "cpu"
    are_read = molecules is not None and network.atom_order == "canonical" and not processes_embed

    def embed(smiles: list[str]) -> np.ndarray:
        if molecules is not None and are_read and smiles is rows.molecules.canonical:
            return network.embed_store(molecules).values
        return network.embed(smiles, workers=workers)

    return embed, molecules
