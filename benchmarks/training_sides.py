"""The sides of `training_speed.py`: programs that train one epoch at a time on the same molecules."""

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import torch
from graphormer_rewrite import GraphormerSet, build_graphormer, collate
from record import ROOT, other_environment
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.bench.molecules import featurize
from molslice.bench.training import TrainEntry
from molslice.bench.training_worker import Training
from molslice.chem.smiles import quiet_rdkit
from molslice.data.molecules.leaderboard import import_ogb
from molslice.data.molecules.store import MoleculeStore
from molslice.model.gin_virtual import GinVirtual, GinVirtualSpec
from molslice.types import DataSpec

GIN_BATCH, GRAPHORMER_BATCH = 256, 64  # of OGB's program; of molslice and chemprop in this comparison


@dataclass(frozen=True, slots=True)
class Molecules:
    """The molecules that all sides train on. The target is the number of atoms.

    Attributes:
        smiles: The SMILES; all sides can read them.
        atoms: Number of atoms of each.
    """

    smiles: Sequence[str]
    atoms: Sequence[int]

    def first(self, count: int) -> "Molecules":
        """Return the first molecules, for slow sides."""
        return Molecules(self.smiles[:count], self.atoms[:count])


class Side(ABC):
    """A program with its model and its own form of the molecules.

    Attributes:
        name: Name in the result.
        imports: Python statement that imports what a training needs; its time counts as the start.
        parameters: Number of parameters.
        molecules: Number of molecules of an epoch.
        prepare_seconds: Processor time of converting them from SMILES, once.
    """

    name: str
    imports: str
    parameters: int
    molecules: int
    prepare_seconds: float

    @abstractmethod
    def train_epoch(self) -> float:
        """Train one epoch, and return its processor seconds."""

    def start_seconds(self) -> float:
        """Return the processor seconds of a new process that imports what a training needs."""
        return import_seconds(self.imports)

    def close(self) -> None:
        """End processes that the side has started."""
        return


@cache
def import_seconds(statement: str) -> float:
    """Return the processor seconds of a new process that runs an import statement."""
    command = [sys.executable, "-c", f"{statement}; import time; print(time.process_time())"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)


def processor_seconds(function: Callable[[], object]) -> float:
    """Return the processor seconds of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


class Molslice(Side):
    """Training steps of molslice from a store in a folder."""

    imports = "import molslice.training.run"

    def __init__(self, entry: TrainEntry, molecules: Molecules, folder: Path) -> None:
        self.name = f"molslice {entry.model} {entry.attention}"
        self.molecules = len(molecules.smiles)
        path = folder / f"store-{self.molecules}"
        if not path.exists():
            start = time.process_time()
            MoleculeStore.write(path, featurize(molecules.smiles), source="molecules")
            (folder / "prepare_seconds").write_text(str(time.process_time() - start))
        self.prepare_seconds = float((folder / "prepare_seconds").read_text())
        self.training = Training(entry.config, MoleculeStore.open(path, verify=False))
        self.parameters = sum(parameter.numel() for parameter in self.training.stepper.model.parameters())
        self._stream = self.training.stream()

    def train_epoch(self) -> float:
        """Train one epoch; see `Side`."""

        def steps() -> None:
            for _ in range(self.training.batches.steps_per_epoch):
                self.training.step(next(self._stream))

        return processor_seconds(steps)


class Graphs(ABC):
    """The loop that programs with a torch module and a loader share: one target, absolute error."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    clip: float | None

    @abstractmethod
    def predictions(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield predictions and targets of each batch of an epoch, [B] each."""

    def train_epoch(self) -> float:
        """Train one epoch; see `Side`."""

        def steps() -> None:
            for prediction, target in self.predictions():
                loss = F.l1_loss(prediction, target)
                self.optimizer.zero_grad()
                loss.backward()
                if self.clip is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                self.optimizer.step()
                loss.item()

        return processor_seconds(steps)


def ogb_graphs(molecules: Molecules) -> list[dict[str, Any]]:
    """Convert molecules with OGB's function."""
    smiles2graph = import_ogb("ogb.utils").smiles2graph
    with quiet_rdkit():
        return [smiles2graph(text) for text in molecules.smiles]


class PygGin(Graphs, Side):
    """OGB's baseline GIN-virtual as OGB trains it: PyG's data set in memory, its loader, Adam."""

    name = "PyG GIN-virtual 5 x 600"
    imports = "import ogb.utils, torch_geometric.loader, torch_geometric.nn"
    clip = None

    def __init__(self, molecules: Molecules) -> None:
        from torch_geometric.data import Data, InMemoryDataset
        from torch_geometric.loader import DataLoader

        class InMemory(InMemoryDataset):
            """The base class of OGB's data set, with the items of OGB's."""

            @classmethod
            def of(cls, items: list[Data]) -> Self:
                dataset = cls()
                dataset.data, dataset.slices = cls.collate(items)
                return dataset

        self.molecules = len(molecules.smiles)
        start = time.process_time()
        items = [
            Data(
                x=torch.from_numpy(graph["node_feat"]),
                edge_index=torch.from_numpy(graph["edge_index"]),
                edge_attr=torch.from_numpy(graph["edge_feat"]),
                y=torch.tensor([float(atoms)]),
            )
            for graph, atoms in zip(ogb_graphs(molecules), molecules.atoms, strict=True)
        ]
        self.loader = DataLoader(InMemory.of(items), batch_size=GIN_BATCH, shuffle=True)
        self.prepare_seconds = time.process_time() - start
        torch.manual_seed(0)
        self.model = self.gin = GinVirtual(GinVirtualSpec(num_layers=5, dim=600, dropout=0.0), DataSpec(1))
        self.model.train()
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def predictions(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield predictions and targets; see `Graphs`."""
        for batch in self.loader:
            yield predict_pyg(self.gin, batch), batch.y


def predict_pyg(model: GinVirtual, batch: Any) -> Tensor:  # noqa: ANN401
    """Compute what `GinVirtual.forward` computes, from PyG's batch.

    Returns:
        The prediction of each molecule [B].
    """
    graph, molecules = batch.batch, batch.num_graphs
    atoms = model.atom_embedding(batch.x.byte())
    virtual = model.virtual_node.expand(molecules, -1)
    for index, (layer, norm) in enumerate(zip(model.layers, model.norms, strict=True)):
        atoms = atoms + virtual[graph]
        state = norm(layer(atoms, batch.edge_index, model.bond_embedding[index](batch.edge_attr.byte())))
        if index < len(model.virtual_updates):
            state = torch.relu(state)
            pooled = model._sum_atoms(atoms, graph, size=molecules)
            virtual = model.dropout(model.virtual_updates[index](pooled + virtual))
        atoms = model.dropout(state)
    return model.readout(model._sum_atoms(atoms, graph, size=molecules)).squeeze(-1)


class GraphormerPipeline(Graphs, Side):
    """The rewrite of Graphormer's pipeline, with a size of `molslice bench train`.

    It preprocesses each molecule in each epoch.
    """

    imports = "import ogb.utils, torch"
    clip = 5.0

    def __init__(self, size: str, molecules: Molecules) -> None:
        self.name = f"Graphormer rewrite {size}"
        self.molecules = len(molecules.smiles)
        start = time.process_time()
        graphs = ogb_graphs(molecules)
        self.prepare_seconds = time.process_time() - start
        targets = [float(atoms) for atoms in molecules.atoms]
        self.loader = torch.utils.data.DataLoader(
            GraphormerSet(graphs, targets), GRAPHORMER_BATCH, shuffle=True, collate_fn=collate
        )
        torch.manual_seed(0)
        self.model = build_graphormer(size)
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4)

    def predictions(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield predictions and targets; see `Graphs`."""
        for batch in self.loader:
            yield self.model(batch), batch.targets


class Chemprop(Side):
    """Chemprop at its default size, in a process of another interpreter."""

    imports = ""

    def __init__(self, python: str, molecules: Molecules, folder: Path, threads: int) -> None:
        self.molecules = len(molecules.smiles)
        file = folder / "molecules.txt"
        lines = zip(molecules.smiles, molecules.atoms, strict=True)
        file.write_text("".join(f"{text} {atoms}\n" for text, atoms in lines), encoding="utf-8")
        command = [python, str(ROOT / "benchmarks" / "chemprop_speed.py"), str(file)]
        self._process = subprocess.Popen(
            [*command, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=other_environment(threads),
        )
        self.about = self._answer()
        self.name = f"chemprop {self.about['chemprop']}"
        self.parameters, self.prepare_seconds = self.about["parameters"], self.about["prepare_seconds"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"chemprop ended with code {self._process.wait()}")
        return json.loads(line)

    def train_epoch(self) -> float:
        """Train one epoch; see `Side`."""
        assert self._process.stdin is not None
        self._process.stdin.write("epoch\n")
        self._process.stdin.flush()
        return self._answer()["seconds"]

    def start_seconds(self) -> float:
        """Return the processor seconds of the start of its process."""
        return self.about["start_seconds"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
