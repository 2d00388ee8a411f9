"""The program that times the conversion of SMILES, on a few molecules."""

import json

import numpy as np
from ogb.utils import smiles2graph
from scipy.sparse.csgraph import shortest_path

from tests.programs import load_program

SMILES = "CC(C)c1ccc2c(c1)CCO2.[Na+]"


def test_graphormers_inputs_are_those_of_the_shortest_paths():
    program = load_program("graphormer_rewrite")
    graph = smiles2graph(SMILES)
    item = program.graphormer_item(graph)
    n, ends = graph["num_nodes"], graph["edge_index"]
    adjacent = np.zeros((n, n))
    adjacent[ends[0], ends[1]] = 1
    distances = shortest_path(adjacent, unweighted=True)
    np.testing.assert_array_equal(item["spatial_pos"], np.where(np.isinf(distances), 510, distances))
    np.testing.assert_array_equal(item["in_degree"], adjacent.sum(1))
    np.testing.assert_array_equal(item["x"][:, 1], graph["node_feat"][:, 1] + 513)
    edges = item["edge_input"]
    assert edges.shape == (n, n, 5, 3)
    for i in range(n):
        for j in range(n):
            hops = 0 if np.isinf(distances[i, j]) else min(int(distances[i, j]), 5)
            assert (edges[i, j, :hops] > 0).all()
            assert (edges[i, j, hops:] == -1).all()
            if distances[i, j] == 1:
                np.testing.assert_array_equal(edges[i, j, 0], item["attn_edge_type"][i, j])
    first = next(k for k in range(n) if adjacent[0, k] and distances[k, 3] == distances[0, 3] - 1)
    np.testing.assert_array_equal(edges[0, 3, 0], item["attn_edge_type"][0, first])


def test_all_functions_are_timed_on_the_same_rows(tmp_path):
    program = load_program("featurizing")
    (tmp_path / "a.smi").write_text(f"CCO\nnot one\nc1ccccc1\n{SMILES}\nCCCCCC\n")
    program.main([str(tmp_path / "a.smi"), "--rounds", "1", "--max-atoms", "20", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "featurizing.json").read_text())
    assert (found["rows"], found["median_atoms"]) == (4, 6.0)
    assert [one["name"] for one in found["results"]] == list(program.FUNCTIONS)
    assert all(one["microseconds"] > 0 for one in found["results"])
    assert found["results"][0]["ratio_to_rdkit"] == found["results"][1]["ratio_to_molslice"] == 1.0
