"""Compute RDKit's descriptors in groups that share their intermediate results.

RDKit's functions compute one descriptor each. Many repeat what others have done: the contributions to logP,
the paths of the connectivity indices, a pass over all atoms in Python. The functions of this module compute
such descriptors together, with the same operations in the same order, so that each value is equal to RDKit's
to the last digit. `molslice.chem.descriptors` compares both in each process, and leaves to RDKit what differs
in another version of it.

Source of each descriptor: the function of the same name in RDKit 2026.09.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rdkit import Chem
from rdkit.Chem import QED, Fragments, MolSurf, rdFingerprintGenerator, rdMolDescriptors, rdPartialCharges
from rdkit.Chem.EState import EState_VSA
from rdkit.ML.InfoTheory.rdInfoTheory import InfoEntropy

from molslice.chem.patterns import AtomKind, Bond, PatternCounter

HYDROGEN, CARBON, NITROGEN, OXYGEN, NEON, SULFUR = 1, 6, 7, 8, 10, 16
FAR = 1e6  # distance of atoms that are not connected
MAX_BERTZ_ATOMS = 100  # of a row that is compared
MAX_ENVIRONMENTS = 50_000  # that are remembered
FAULTS = (RuntimeError, ValueError, ArithmeticError, IndexError, KeyError, AttributeError)
OUTER = [0, *(Chem.GetPeriodicTable().GetNOuterElecs(number) for number in range(1, 119))]
PERIODS = np.array([1 + sum(number > last for last in (2, 10, 18, 36, 54, 86)) for number in range(119)])
HYBRIDS = {Chem.HybridizationType.SP: 1, Chem.HybridizationType.SP2: 2, Chem.HybridizationType.SP3: 3}
# contributions of a hydrogen to logP and the refractivity, by the types of Wildman and Crippen
H1, H2, H3, H4, HS = (0.123, 1.057), (-0.2677, 1.395), (0.2142, 0.9627), (0.298, 1.805), (0.1125, 1.112)
PROPERTIES = {  # of `rdMolDescriptors.Properties`, by the names of the descriptors
    "ExactMolWt": "exactmw",
    "MolWt": "amw",
    "NHOHCount": "lipinskiHBD",
    "NOCount": "lipinskiHBA",
    "NumHDonors": "NumHBD",
    "NumHAcceptors": "NumHBA",
    "RingCount": "NumRings",
    "LabuteASA": "labuteASA",
    "TPSA": "tpsa",
    "Chi0v": "chi0v",
    "Chi1v": "chi1v",
    "Chi0n": "chi0n",
    "Chi1n": "chi1n",
    "HallKierAlpha": "hallKierAlpha",
    "Kappa1": "kappa1",
    "NumRotatableBonds": "NumRotatableBonds",
    "NumHeteroatoms": "NumHeteroatoms",
    "NumAmideBonds": "NumAmideBonds",
    "FractionCSP3": "FractionCSP3",
    "NumAromaticRings": "NumAromaticRings",
    "NumAliphaticRings": "NumAliphaticRings",
    "NumSaturatedRings": "NumSaturatedRings",
    "NumHeterocycles": "NumHeterocycles",
    "NumAromaticHeterocycles": "NumAromaticHeterocycles",
    "NumSaturatedHeterocycles": "NumSaturatedHeterocycles",
    "NumAliphaticHeterocycles": "NumAliphaticHeterocycles",
    "NumSpiroAtoms": "NumSpiroAtoms",
    "NumBridgeheadAtoms": "NumBridgeheadAtoms",
    "NumAtomStereoCenters": "NumAtomStereoCenters",
    "NumUnspecifiedAtomStereoCenters": "NumUnspecifiedAtomStereoCenters",
}
Values = dict[str, float]
Contribution = tuple[float, float]  # to logP and to the refractivity


@dataclass(slots=True)
class Graph:
    """The atoms and bonds of a molecule, each read once, and the descriptors so far.

    Attributes:
        mol: The molecule; RDKit keeps intermediate results in it.
        atoms: Its atoms.
        kinds: What patterns can ask about each atom.
        bonds: What patterns can ask about each bond, with the indices of its atoms.
        orders: Order of each bond, 1.5 if aromatic.
        neighbors: The neighbors of each atom and the places of the bonds to them, ascending.
        areas: Labute's contribution of each atom to the surface.
        values: The descriptors so far.
    """

    mol: Chem.Mol
    atoms: list[Chem.Atom]
    kinds: list[AtomKind]
    bonds: list[Bond]
    orders: list[float]
    neighbors: list[list[tuple[int, int]]]
    areas: np.ndarray
    values: Values

    @classmethod
    def of(cls, mol: Chem.Mol) -> "Graph":
        """Read a molecule."""
        atoms = [mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms())]
        bonds = [mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds())]
        rings = mol.GetRingInfo()
        kinds = zip(
            map(Chem.Atom.GetAtomicNum, atoms),
            map(Chem.Atom.GetIsAromatic, atoms),
            map(Chem.Atom.GetTotalNumHs, atoms),
            map(Chem.Atom.GetDegree, atoms),
            map(Chem.Atom.GetFormalCharge, atoms),
            map(Chem.Atom.GetIsotope, atoms),
            map(rings.NumAtomRings, range(len(atoms))),
            map(Chem.Atom.GetTotalValence, atoms),
            strict=True,
        )
        ends = map(Chem.Bond.GetBeginAtomIdx, bonds), map(Chem.Bond.GetEndAtomIdx, bonds)
        bond_kinds = zip(
            map(Chem.Bond.GetBondType, bonds), map(Chem.Bond.IsInRing, bonds), *ends, strict=True
        )
        # a triple bond may be aromatic too, in a ring of many atoms
        orders = [1.5 if bond.GetIsAromatic() else bond.GetBondTypeAsDouble() for bond in bonds]
        areas = np.array(rdMolDescriptors._CalcLabuteASAContribs(mol, includeHs=True)[0])
        graph = cls(mol, atoms, [*kinds], [*bond_kinds], orders, [[] for _ in atoms], areas, {})
        for place, (_, _, begin, end) in enumerate(graph.bonds):
            graph.neighbors[begin].append((end, place))
            graph.neighbors[end].append((begin, place))
        for around in graph.neighbors:
            around.sort()
        return graph


def grouped_descriptors(mol: Chem.Mol) -> Values:
    """Compute most descriptors of a molecule; those that cannot be computed here are missing.

    Molecules with hydrogens as atoms, or with wildcards, have none.
    """
    graph = Graph.of(mol)
    if min(kind[0] for kind in graph.kinds) <= HYDROGEN:
        return {}
    for group in (
        _properties,
        _electrons,
        _contributions,
        _electric_states,
        _connectivity,
        _distances,
        _densities,
        _fragments,
        _spacial_score,
    ):
        try:
            graph.values |= group(graph)
        except FAULTS:
            continue
    return graph.values


def _added(numbers: Iterable[float]) -> float:
    """Add up numbers one after the other; in another order, the last digits differ."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def _properties(graph: Graph) -> Values:
    values = dict(zip(PROPERTIES, _PROPERTIES.ComputeProperties(graph.mol), strict=True))
    for kind in ("Aliphatic", "Aromatic", "Saturated"):
        values[f"Num{kind}Carbocycles"] = values[f"Num{kind}Rings"] - values[f"Num{kind}Heterocycles"]
    values["HeavyAtomCount"] = graph.mol.GetNumHeavyAtoms()
    return values | {"HeavyAtomMolWt": rdMolDescriptors._CalcMolWt(graph.mol, onlyHeavy=True)}


def _electrons(graph: Graph) -> Values:
    valences = [OUTER[number] - charge + hydrogens for number, _, hydrogens, _, charge, *_ in graph.kinds]
    radicals = map(Chem.Atom.GetNumRadicalElectrons, graph.atoms)
    return {"NumValenceElectrons": sum(valences), "NumRadicalElectrons": sum(radicals)}


def _contributions(graph: Graph) -> Values:
    """Compute what comes from the logP, the refractivity and the partial charge of each atom."""
    mol = graph.mol
    logp, refractivity = map(list, zip(*_CRIPPEN.of_atoms(graph), strict=True))
    of_hydrogens = [
        _of_hydrogens(graph, atom) for atom, kind in enumerate(graph.kinds) for _ in range(kind[2])
    ]
    values = {
        "MolLogP": _added([*logp, *(value for value, _ in of_hydrogens)]),
        "MolMR": _added([*refractivity, *(value for _, value in of_hydrogens)]),
        **_binned("SlogP_VSA", graph.areas, np.array(logp)),
        **_binned("SMR_VSA", graph.areas, np.array(refractivity)),
    }
    try:
        rdPartialCharges.ComputeGasteigerCharges(mol, throwOnParamFailure=True)
    except ValueError:  # RDKit's functions differ in what they make of an element without parameters
        return values
    charges = [atom.GetDoubleProp("_GasteigerCharge") for atom in graph.atoms]
    if not all(map(math.isfinite, charges)):
        return values
    least, most = min(charges), max(charges)
    masses = [*map(Chem.Atom.GetMass, graph.atoms)]
    for name, high, low, weights in (
        ("MW", "HI", "LOW", masses),
        ("CHG", "HI", "LO", charges),
        ("LOGP", "HI", "LOW", logp),
        ("MR", "HI", "LOW", refractivity),
    ):
        values[f"BCUT2D_{name}{high}"], values[f"BCUT2D_{name}{low}"] = rdMolDescriptors.BCUT2D(mol, weights)
    return values | {
        "MinPartialCharge": least,
        "MaxPartialCharge": most,
        "MinAbsPartialCharge": min(abs(least), abs(most)),
        "MaxAbsPartialCharge": max(abs(least), abs(most)),
        **_binned("PEOE_VSA", graph.areas, np.array(charges)),
    }


def _binned(name: str, amounts: np.ndarray, weights: np.ndarray) -> Values:
    """Add up the amounts of the atoms whose weights lie between two limits."""
    limits, names = _LIMITS[name], _NAMES[name]
    sums = np.bincount(limits.searchsorted(weights, "right"), amounts, len(names))  # one atom after the other
    return dict(zip(names, sums.tolist(), strict=True))


class CrippenContributions:
    """Contributions of atoms to logP and the refractivity, remembered by what their types depend on.

    The types of Wildman and Crippen ask for the bonds of an atom and for the element and the charge of its
    neighbors, and the types of oxygen also for the neighbors of the neighbors. Hydrogens as atoms change
    nothing.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Contribution] = {}

    def of_atoms(self, graph: Graph) -> list[Contribution]:
        """Return the contributions of each heavy atom."""
        kinds, bonds = graph.kinds, graph.bonds
        seen = [(number, is_aromatic, charge) for number, is_aromatic, _, _, charge, *_ in kinds]
        shells = [
            (kind[:5], *sorted((bonds[place][0], *seen[atom]) for atom, place in around))
            for kind, around in zip(kinds, graph.neighbors, strict=True)
        ]
        keys = [
            (shell, *sorted((bonds[place][0], shells[atom]) for atom, place in around))
            if kind[0] == OXYGEN
            else shell
            for kind, shell, around in zip(kinds, shells, graph.neighbors, strict=True)
        ]
        try:
            return [self._known[key] for key in keys]
        except KeyError:
            if len(self._known) >= MAX_ENVIRONMENTS:
                self._known.clear()
            contributions = rdMolDescriptors._CalcCrippenContribs(graph.mol)
            self._known.update(zip(keys, contributions, strict=True))
            return contributions


def _of_hydrogens(graph: Graph, atom: int) -> Contribution:
    """Return the contributions of a hydrogen of an atom."""
    number, is_aromatic, hydrogens, *_ = graph.kinds[atom]
    if number in (CARBON, NITROGEN):
        return H1 if number == CARBON else H3
    if number != OXYGEN or is_aromatic or hydrogens > 1:
        return H2
    numbers, on_acid = set(), False
    for neighbor, bond in graph.neighbors[atom]:
        if graph.bonds[bond][0] not in (Chem.BondType.SINGLE, Chem.BondType.AROMATIC):
            continue  # as of a protonated ketone
        other, is_ring, more, degree, *_ = graph.kinds[neighbor]
        if other not in (CARBON, NITROGEN, OXYGEN, SULFUR):
            return H2
        if other == CARBON and (is_ring or degree + more == 4):
            return H2
        if is_ring and other != NITROGEN:
            raise ValueError("a hydroxyl group on aromatic oxygen or sulfur has no known type")
        numbers.add(other)
        on_acid |= other == CARBON and any(
            graph.bonds[place][0] == Chem.BondType.DOUBLE
            and (
                graph.kinds[end][0] in (CARBON, NITROGEN)
                or (graph.kinds[end][0] in (OXYGEN, SULFUR) and not graph.kinds[end][1])
            )
            for end, place in graph.neighbors[neighbor]
        )
    if NITROGEN in numbers:
        return H3
    return H4 if on_acid or numbers & {OXYGEN, SULFUR} else HS


def _electric_states(graph: Graph) -> Values:
    degrees = np.array([kind[3] for kind in graph.kinds], float)
    valences = np.array([OUTER[kind[0]] - kind[2] for kind in graph.kinds])
    periods = PERIODS[[kind[0] for kind in graph.kinds]]
    intrinsic = np.zeros(len(degrees))
    np.divide(4.0 / (periods * periods) * valences + 1, degrees, out=intrinsic, where=degrees > 0)
    distances = Chem.GetDistanceMatrix(graph.mol, useBO=False, useAtomWts=False) + 1
    parts = intrinsic - intrinsic[:, None]
    parts /= distances * distances
    if distances.max() >= FAR:
        parts[distances >= FAR] = 0.0
    states = np.add.reduce(parts, axis=0) + intrinsic  # adds one row after the other
    sizes = np.abs(states)
    return {
        "MaxEStateIndex": states.max(),
        "MinEStateIndex": states.min(),
        "MaxAbsEStateIndex": sizes.max(),
        "MinAbsEStateIndex": sizes.min(),
        **_binned("VSA_EState", states, graph.areas),
        **_binned("EState_VSA", graph.areas, states),
    }


def _connectivity(graph: Graph) -> Values:
    degrees = np.array([kind[3] for kind in graph.kinds], float)
    begins, ends = [bond[2] for bond in graph.bonds], [bond[3] for bond in graph.bonds]
    values = {
        "Chi0": _added(np.sqrt(1.0 / degrees[degrees > 0]).tolist()),
        "Chi1": _added(np.sqrt(1.0 / (degrees[begins] * degrees[ends])).tolist()),
    }
    plain, scaled = [], []
    for number, _, hydrogens, *_ in graph.kinds:
        outer = OUTER[number]
        valence = outer - hydrogens
        if valence < 0:
            return values  # RDKit subtracts numbers without a sign
        plain.append(1.0 / math.sqrt(valence) if valence else 0.0)
        delta = valence if number <= NEON else valence / (number - outer - 1)
        scaled.append(1.0 / math.sqrt(delta) if delta else 0.0)
    around = [[atom for atom, _ in atoms] for atoms in graph.neighbors]
    counts = {}
    for bonds, paths in ((2, _paths_of_two), (3, _paths_of_three), (4, _paths_of_four)):
        counts[bonds], values[f"Chi{bonds}n"], values[f"Chi{bonds}v"] = paths(around, plain, scaled)
    size, alpha = graph.mol.GetNumHeavyAtoms(), graph.values["HallKierAlpha"]
    two, three = counts[2] + alpha, counts[3] + alpha
    if two:
        values["Kappa2"] = (size + alpha - 1) * (size + alpha - 2) * (size + alpha - 2) / (two * two)
        values["Phi"] = graph.values["Kappa1"] * values["Kappa2"] / size
    if three:
        first = size + alpha - (1 if size % 2 else 2)
        values["Kappa3"] = first * (size + alpha - 3) * (size + alpha - 3) / (three * three)
    return values


# Each of the following returns the number of paths, and for two weights the sum over the paths of the product
# of the weights of the atoms. The last atom of a path may be an earlier one, which closes a ring; its weight
# does not count if it is the first. Of paths with the same bonds, the first in lexicographic order counts.
Around = Sequence[Sequence[int]]  # the neighbors of each atom, ascending
Weights = Sequence[float]


def _paths_of_two(around: Around, plain: Weights, scaled: Weights) -> tuple[int, float, float]:
    count, total, other = 0, 0.0, 0.0
    for a, of_a in enumerate(around):
        for b in of_a:
            for c in around[b]:
                if a < c:
                    count += 1
                    total += plain[a] * plain[b] * plain[c]
                    other += scaled[a] * scaled[b] * scaled[c]
    return count, total, other


def _paths_of_three(around: Around, plain: Weights, scaled: Weights) -> tuple[int, float, float]:
    count, total, other = 0, 0.0, 0.0
    for a, of_a in enumerate(around):
        for b in of_a:
            for c in around[b]:
                if c == a:
                    continue
                for d in around[c]:
                    if a < d != b or (a == d and a < b < c):
                        last, last_scaled = (1.0, 1.0) if a == d else (plain[d], scaled[d])
                        count += 1
                        total += plain[a] * plain[b] * plain[c] * last
                        other += scaled[a] * scaled[b] * scaled[c] * last_scaled
    return count, total, other


def _paths_of_four(around: Around, plain: Weights, scaled: Weights) -> tuple[int, float, float]:
    count, total, other = 0, 0.0, 0.0
    for a, of_a in enumerate(around):
        for b in of_a:
            for c in around[b]:
                if c == a:
                    continue
                for d in around[c]:
                    if d in (a, b):
                        continue
                    for e in around[d]:
                        if (a < e and e not in (b, c)) or (e == b and c < d) or (e == a < b < d and a < c):
                            last, last_scaled = (1.0, 1.0) if e == a else (plain[e], scaled[e])
                            count += 1
                            total += plain[a] * plain[b] * plain[c] * plain[d] * last
                            other += scaled[a] * scaled[b] * scaled[c] * scaled[d] * last_scaled
    return count, total, other


def _distances(graph: Graph) -> Values:
    matrix = Chem.GetDistanceMatrix(graph.mol, useBO=True, useAtomWts=False, force=True, prefix="Balaban")
    totals = np.add.reduce(matrix, axis=0)  # adds one row after the other
    pairs = [(atom, neighbor) for atom, around in enumerate(graph.neighbors) for neighbor, _ in around]
    first, second = zip(*(pair for pair in pairs if pair[0] < pair[1]), strict=True)
    parts = 1.0 / np.sqrt(totals[[*first]] * totals[[*second]])
    rings = len(graph.bonds) - len(graph.atoms) + 1
    values = {"BertzCT": _bertz(graph, matrix)}
    if rings + 1:
        values["BalabanJ"] = float(len(graph.bonds)) / float(rings + 1) * _added(parts.tolist())
    return values


def _bertz(graph: Graph, matrix: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):  # a bond without an order is infinitely long
        rows = np.rint(np.sort(matrix, axis=1)[:, :MAX_BERTZ_ATOMS] * 1e4).astype(np.int64)
    known: dict[bytes, int] = {}
    classes = [known.setdefault(row.tobytes(), len(known)) for row in rows]
    elements: dict[int, int] = {}
    connections: dict[tuple[int, ...], float] = {}
    for atom, (kind, around) in enumerate(zip(graph.kinds, graph.neighbors, strict=True)):
        elements[kind[0]] = elements.get(kind[0], 0) + 1
        center = classes[atom]
        bonded = [(neighbor, classes[neighbor], graph.orders[place]) for neighbor, place in around]
        for place, (neighbor, one, order) in enumerate(bonded, 1):
            if order > 1 and neighbor > atom:
                key: tuple[int, ...] = (center, one) if center < one else (one, center)
                connections[key] = connections.get(key, 0) + order * (order - 1) / 2
            for _, other, other_order in bonded[place:]:
                key = (one, center, other) if one < other else (other, center, one)
                connections[key] = connections.get(key, 0) + order * other_order
    counts = [*connections.values()] or [1]
    total = sum(counts)
    bits = total * (InfoEntropy(np.array(counts, float)) + math.log(total) / math.log(2))
    return len(graph.atoms) * InfoEntropy(np.array([*elements.values()], float)) + bits


def _densities(graph: Graph) -> Values:
    size = graph.mol.GetNumHeavyAtoms()
    return {
        f"FpDensityMorgan{radius}": generator.GetSparseFingerprint(graph.mol).GetNumOnBits() / size
        for radius, generator in enumerate(_MORGAN, 1)
    }


def _fragments(graph: Graph) -> Values:
    """Count the fragments, and compute `qed` from other descriptors and the alerts among them."""
    mol, values = graph.mol, graph.values
    smallest = min(map(len, mol.GetRingInfo().AtomRings()), default=math.inf)
    known = _PATTERNS.counts(graph.kinds, graph.bonds, smallest)
    of_fragments, of_acceptors = known[: len(_FRAGMENTS)], known[len(_FRAGMENTS) : -len(QED.StructuralAlerts)]
    counts: Values = {
        name: len(mol.GetSubstructMatches(query)) if count < 0 else count
        for (name, query), count in zip(_FRAGMENTS.items(), of_fragments, strict=True)
    }
    acceptors = sum(
        len(mol.GetSubstructMatches(query)) if count < 0 else count
        for query, count in zip(QED.Acceptors, of_acceptors, strict=True)
    )
    alerts = sum(
        mol.HasSubstructMatch(query) if count < 0 else count > 0
        for query, count in zip(QED.StructuralAlerts, known[-len(QED.StructuralAlerts) :], strict=True)
    )
    properties = QED.QEDproperties(
        MW=values["MolWt"],
        ALOGP=values["MolLogP"],
        HBA=acceptors,
        HBD=values["NumHDonors"],
        PSA=values["TPSA"],
        ROTB=values["NumRotatableBonds"],
        AROM=_aromatic_rings(graph),
        ALERTS=alerts,
    )
    return {**counts, "qed": QED.qed(mol, qedProperties=properties)}


def _aromatic_rings(graph: Graph) -> int:
    """Count the rings that are left without some of the atoms that are not aromatic.

    These are the ring atoms with a single bond to an atom that is not aromatic either.
    """
    kinds = graph.kinds
    kept = [
        kind[1]
        or not kind[6]
        or all(kinds[atom][1] or graph.bonds[place][0] != Chem.BondType.SINGLE for atom, place in around)
        for kind, around in zip(kinds, graph.neighbors, strict=True)
    ]
    roots = [*range(len(kinds))]

    def root(atom: int) -> int:
        while roots[atom] != atom:
            roots[atom] = atom = roots[roots[atom]]
        return atom

    rings = 0
    for _, in_ring, begin, end in graph.bonds:
        if in_ring and kept[begin] and kept[end]:
            one, other = root(begin), root(end)
            rings += one == other  # each bond within a connected part closes another ring
            roots[one] = other
    return rings


def _spacial_score(graph: Graph) -> Values:
    mol = Chem.Mol(graph.mol)
    Chem.FindPotentialStereoBonds(mol)
    legacy = Chem.GetUseLegacyStereoPerception()
    Chem.SetUseLegacyStereoPerception(False)  # noqa: FBT003
    try:
        centers = Chem.FindPotentialStereo(mol)
    finally:
        Chem.SetUseLegacyStereoPerception(legacy)
    stereo = {center.centeredOn for center in centers if center.type == Chem.StereoType.Atom_Tetrahedral}
    for place, (kind, _, begin, end) in enumerate(graph.bonds):
        if (
            kind == Chem.BondType.DOUBLE
            and mol.GetBondWithIdx(place).GetStereo() != Chem.BondStereo.STEREONONE
        ):
            stereo |= {begin, end}
    hybrids = map(Chem.Atom.GetHybridization, graph.atoms)
    score = sum(
        HYBRIDS.get(hybrid, 4) * (1 + (atom in stereo)) * (1 + (not aromatic and rings > 0)) * degree * degree
        for atom, (hybrid, (_, aromatic, _, degree, _, _, rings, _)) in enumerate(
            zip(hybrids, graph.kinds, strict=True)
        )
    )
    return {"SPS": score / mol.GetNumHeavyAtoms()}


_PROPERTIES = rdMolDescriptors.Properties([*PROPERTIES.values()])
_CRIPPEN = CrippenContributions()
_LIMITS = {
    "SlogP_VSA": np.array(MolSurf.logpBins),
    "SMR_VSA": np.array(MolSurf.mrBins),
    "PEOE_VSA": np.array(MolSurf.chgBins),
    "VSA_EState": np.array(EState_VSA.vsaBins),
    "EState_VSA": np.array(EState_VSA.estateBins),
}
_NAMES = {name: [f"{name}{place}" for place in range(1, len(limits) + 2)] for name, limits in _LIMITS.items()}
_MORGAN = [rdFingerprintGenerator.GetMorganGenerator(radius) for radius in (1, 2, 3)]
_FRAGMENTS = {name: function.__defaults__[1] for name, function in Fragments.fns}
_PATTERNS = PatternCounter([*_FRAGMENTS.values(), *QED.Acceptors, *QED.StructuralAlerts])
