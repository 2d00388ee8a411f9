from collections import deque

import pytest
import torch

from tests.ops.last_steps import last_steps


def slow_paths(size, bonds):
    """Return distances and predecessors by breadth-first search from each atom, lowest predecessor first."""
    neighbors = [
        sorted([j for i, j in bonds if i == a] + [i for i, j in bonds if j == a]) for a in range(size)
    ]
    distance = [[-1] * size for _ in range(size)]
    for start in range(size):
        distance[start][start] = 0
        queue = deque([start])
        while queue:
            atom = queue.popleft()
            for other in neighbors[atom]:
                if distance[start][other] < 0:
                    distance[start][other] = distance[start][atom] + 1
                    queue.append(other)
    previous = [
        [
            min((k for k in neighbors[j] if distance[i][k] == distance[i][j] - 1), default=-1)
            if distance[i][j] > 0
            else -1
            for j in range(size)
        ]
        for i in range(size)
    ]
    return distance, previous


GRAPHS = {
    "single atom": (1, []),
    "pair": (2, [(0, 1)]),
    "ring": (6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]),
    "fragments": (7, [(0, 3), (3, 6), (1, 2)]),
    "chain": (9, [(i, i + 1) for i in range(8)]),
    "star": (8, [(0, i) for i in range(1, 8)]),
    "cube": (8, [(i, i ^ b) for i in range(8) for b in (1, 2, 4) if i < i ^ b]),
}


LARGE = {  # more atoms than the bits of a word, lengths beyond eight bits, a degree beyond a few slots
    "chain": (300, [(i, i + 1) for i in range(299)]),
    "ladder": (130, [(i, i + 2) for i in range(128)] + [(i, i + 1) for i in range(0, 130, 2)]),
    "star": (70, [(35, i) for i in range(70) if i != 35]),
    "all bonds": (18, [(i, j) for j in range(18) for i in range(j)]),
}


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("graphs", [GRAPHS, LARGE], ids=["small", "large"])
def test_paths_equal_a_search_from_every_atom(graphs, padding):
    width = max(size for size, _ in graphs.values()) + padding
    rows = [(m, i, j) for m, (_, bonds) in enumerate(graphs.values()) for i, j in bonds]
    index = torch.tensor(rows)
    paths = last_steps(index, len(graphs), width)
    for molecule, (size, bonds) in enumerate(graphs.values()):
        distance, previous = slow_paths(size, bonds)
        assert paths.distance[molecule, :size, :size].tolist() == distance
        assert paths.previous[molecule, :size, :size].tolist() == previous
        for i in range(size):
            for j in range(size):
                row = int(paths.last_bond[molecule, i, j])
                if previous[i][j] < 0:
                    assert row == -1
                else:
                    assert set(rows[row][1:]) == {previous[i][j], j}
                    assert rows[row][0] == molecule


def test_padding_is_reachable_from_nowhere():
    paths = last_steps(torch.tensor([[0, 0, 1]]), 1, 4)
    assert paths.distance[0, 2:, :2].eq(-1).all()
    assert paths.distance[0, :2, 2:].eq(-1).all()


def test_a_batch_without_bonds():
    paths = last_steps(torch.zeros(0, 3, dtype=torch.long), 2, 3)
    assert paths.distance.eq(torch.eye(3).long() - 1).all()
    assert paths.previous.eq(-1).all()
