"""Label molecules with GFN2-xTB in worker processes with a time limit.

This file defines the labels and the worker processes. `gap_source.py` selects the molecules, and
`gap_files.py` writes the data set.
"""

import math
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import rdDistGeom, rdForceFieldHelpers

SEED = 20240
MMFF_STEPS = 10_000
HARTREE_EV = 27.211386245988  # CODATA 2018
BOHR_ANGSTROM = 0.529177210903  # CODATA 2018
DEBYE = 2.541746473  # of one elementary charge times one bohr, CODATA 2018


def embed(smiles: str) -> tuple[Chem.Mol | None, str | None]:
    """Generate one MMFF94 conformer.

    Returns:
        The molecule with hydrogens and the conformer, and None; or None and the reason of the failure.
    """
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    params = rdDistGeom.ETKDGv3()
    params.randomSeed = SEED
    try:
        conformer_id = rdDistGeom.EmbedMolecule(mol, params)
        if conformer_id < 0:
            params.useRandomCoords = True
            conformer_id = rdDistGeom.EmbedMolecule(mol, params)
    except (RuntimeError, ValueError):
        return None, "embedding_raised"
    if conformer_id < 0:
        return None, "embedding_failed"
    if not rdForceFieldHelpers.MMFFHasAllMoleculeParams(mol):
        return None, "mmff_parameters_missing"
    status = rdForceFieldHelpers.MMFFOptimizeMolecule(mol, mmffVariant="MMFF94", maxIters=MMFF_STEPS)
    return (mol, None) if status == 0 else (None, "mmff_not_converged")


def quantum_labels(mol: Chem.Mol) -> tuple[dict[str, Any], str | None]:
    """Compute the closed-shell labels at the given conformer.

    Args:
        mol: A molecule with its hydrogens and one conformer, in angstrom.

    Returns:
        The labels and None; or an empty dictionary and the reason of the failure. The labels are

        - `homo_ev`, `lumo_ev`, `gap_ev`: the orbital energies, by electron count, and their difference;
        - `dipole_debye`: length of the dipole moment. Its origin, the center of mass, matters only for ions;
        - `energy_ev`: total energy;
        - `charges`: Mulliken charge of each atom of `mol`, in elementary charges.
    """
    from tblite.exceptions import TBLiteRuntimeError, TBLiteValueError  # pyright: ignore[reportMissingImports]
    from tblite.interface import Calculator  # pyright: ignore[reportMissingImports]

    numbers = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()])
    positions = mol.GetConformer().GetPositions() / BOHR_ANGSTROM
    charge = float(Chem.GetFormalCharge(mol))
    try:
        calculator = Calculator("GFN2-xTB", numbers, positions, charge=charge, uhf=0)
        calculator.set("verbosity", 0)
        result = calculator.singlepoint()
    except (TBLiteRuntimeError, TBLiteValueError):
        return {}, "scf_failed"
    energies = np.sort(np.asarray(result.get("orbital-energies")).ravel())
    pairs = round(float(np.sum(result.get("orbital-occupations")))) // 2
    if not 0 < pairs < len(energies):
        return {}, "no_frontier_orbitals"
    homo, lumo = (float(energies[place]) for place in (pairs - 1, pairs))
    gap = (lumo - homo) * HARTREE_EV
    if not (math.isfinite(gap) and gap > 0):
        return {}, "gap_not_positive"
    masses = np.array([atom.GetMass() for atom in mol.GetAtoms()])
    dipole = np.asarray(result.get("dipole")) - charge * (masses @ positions) / masses.sum()
    values = {
        "gap_ev": gap,
        "homo_ev": homo * HARTREE_EV,
        "lumo_ev": lumo * HARTREE_EV,
        "dipole_debye": float(np.linalg.norm(dipole)) * DEBYE,
        "energy_ev": float(result.get("energy")) * HARTREE_EV,
    }
    charges = [round(float(value), 4) for value in result.get("charges")]
    if not all(map(math.isfinite, [*values.values(), *charges])):
        return {}, "label_not_finite"
    return {**{name: round(value, 6) for name, value in values.items()}, "charges": charges}, None


def label(smiles: str) -> dict[str, Any]:
    """Label one SMILES.

    Returns:
        A record with `smiles` and the labels of `quantum_labels`, or with `smiles` and `reason`. The charges
        of the atoms of the SMILES come first, in its order, and those of the added hydrogens last.
    """
    mol, reason = embed(smiles)
    labels, reason = ({}, reason) if mol is None else quantum_labels(mol)
    return {"smiles": smiles, **labels} if reason is None else failed(smiles, reason)


def failed(smiles: str, reason: str) -> dict[str, Any]:
    """Return the record of a molecule without labels."""
    return {"smiles": smiles, "reason": reason}


def serve(pipe: Connection) -> None:
    """Receive SMILES and send their records until the pipe closes. Runs in a worker process."""
    rdBase.DisableLog("rdApp.*")
    while True:
        try:
            pipe.send(label(pipe.recv()))
        except (EOFError, OSError, KeyboardInterrupt):
            return


class Worker:
    """A process that labels one molecule at a time and can be killed at any time."""

    def __init__(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        self.pipe, worker_pipe = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(worker_pipe,), daemon=True)
        self.process.start()
        worker_pipe.close()
        self.smiles: str | None = None
        self.since = 0.0

    def give(self, smiles: str) -> None:
        """Send the next molecule."""
        self.smiles, self.since = smiles, time.monotonic()
        self.pipe.send(smiles)

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def label_all(todo: Iterable[str], jobs: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the record of each SMILES when it is finished.

    Args:
        todo: The SMILES.
        jobs: Number of worker processes.
        seconds: Time limit of a molecule, in seconds.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # inherited by the spawned workers
    queue = iter(todo)
    workers: list[Worker] = []
    try:
        for smiles in queue:
            workers.append(Worker())
            workers[-1].give(smiles)
            if len(workers) == jobs:
                break
        while workers:
            first_due = min(worker.since for worker in workers) + seconds
            patience = max(0.0, first_due - time.monotonic()) + 0.001
            ready = wait([worker.pipe for worker in workers], timeout=patience)
            for place in reversed(range(len(workers))):
                worker = workers[place]
                late = time.monotonic() - worker.since > seconds
                if worker.pipe not in ready and not late:
                    continue
                record, alive = collect(worker, worker.pipe in ready)
                yield record
                following = next(queue, None)
                if not alive or following is None:
                    worker.stop()
                if following is None:
                    workers.pop(place)
                    continue
                workers[place] = worker if alive else Worker()
                workers[place].give(following)
    finally:
        for worker in workers:
            worker.stop()


def collect(worker: Worker, answered: bool) -> tuple[dict[str, Any], bool]:
    """Receive the record of a worker.

    Args:
        worker: The worker.
        answered: Whether its pipe has data; otherwise its time is over.

    Returns:
        The record, and whether the worker can be used again.
    """
    smiles = worker.smiles or ""
    if not answered:
        return failed(smiles, "time_limit"), False
    try:
        return worker.pipe.recv(), True
    except (EOFError, OSError):
        return failed(smiles, "process_died"), False


def settings() -> dict[str, Any]:
    """Return the settings and versions that determine the labels of a SMILES."""
    return {
        "method": "GFN2-xTB single point, closed shell, gas phase",
        "geometry": "ETKDGv3, then MMFF94",
        "seed": SEED,
        "mmff_steps": MMFF_STEPS,
        "versions": {name: version(name) for name in ("rdkit", "tblite", "numpy")},
    }
