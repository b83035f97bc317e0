"""Graphs as JSON lines: nothing is lost on the way, and what is wrong is named with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import crfield
from crfield import Edges, Graph, GraphCRF, read_graphs, write_graphs
from crfield.cli.main import app
from crfield.data.batch import Columns, matrix_of
from crfield.errors import FormatError, LabelError
from crfield.features.graphs.encoder import GraphEncoder

GRAPHS = [
    Graph(np.array([[1.5, -2.0], [0.0, 1e-300]]), {"near": Edges([(0, 1)], [[0.25]], symmetric=True)}),
    Graph(csr_array(np.array([[0.0, 2.0], [1.0, 0.0]])), {"near": Edges([(1, 0)], [[-1.0]], symmetric=True)}),
]
KINDS = [
    Graph(
        {"word": [{"w": "é", "x": 1.0, "v": np.array([1.0, 2.0])}, {"w": "b"}], "doc": 1},
        {"in": Edges([(0, 0), (1, 0)], between=("word", "doc")), "next": [(0, 1)]},
    )
]


def _table(columns: Columns | None) -> np.ndarray:
    """Sparse and dense columns as one table of numbers."""
    return np.zeros(0) if columns is None else matrix_of(columns) @ np.eye(columns.width + columns.n_dense)


@pytest.mark.parametrize(
    ("graphs", "labels"),
    [(GRAPHS, [["a", None], [{"a", "b"}, "b"]]), (KINDS, [{"word": [1, 2], "doc": [True]}]), (GRAPHS, None)],
)
def test_round_trip(graphs: list[Graph], labels: list | None, tmp_path: Path) -> None:
    path = tmp_path / "graphs.jsonl"
    write_graphs(path, graphs, labels)
    again, known = read_graphs(path)
    assert known == labels
    assert [repr(g) for g in again] == [repr(g) for g in graphs]
    for before, after in zip(graphs, again):
        one, other = GraphEncoder().fit([before]), GraphEncoder().fit([after])
        np.testing.assert_array_equal(one.topology.tails, other.topology.tails)
        np.testing.assert_array_equal(one.topology.heads, other.topology.heads)
        for a, b in zip((one.node, *one.edge), (other.node, *other.edge)):
            np.testing.assert_array_equal(_table(a), _table(b))
    packed = tmp_path / "graphs.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_graphs(packed)[0]) == len(graphs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "a graph is an object"),
        ('{"nodes": 2', "line 2: expected one JSON object"),
        ('{"nodes": [[NaN]]}', "NaN is no number"),
        ('{"nodes": 2, "edges": {"near": [[0, 2]]}}', "node 2 does not exist"),
        ('{"nodes": 2, "edges": {"near": {"pear": []}}}', "an object with pairs"),
        ('{"nodes": 2, "labels": "ab"}', "labels are a list"),
        ('{"nodes": 2, "labels": [1.5, "a"]}', "a label is a string"),
        ('{"nodes": 2, "colour": 1}', "a graph is an object with nodes, edges, labels"),
    ],
)
def test_what_is_wrong_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"nodes": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(FormatError, match=message) as caught:
        read_graphs(path)
    assert caught.value.line == 2
    assert "bad.jsonl" in str(caught.value)


def test_labels_of_some_graphs_only(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"nodes": 1, "labels": ["a"]}\n{"nodes": 1}\n', encoding="utf-8")
    with pytest.raises(FormatError, match="graph 1 has no labels"):
        read_graphs(path)
    with pytest.raises(LabelError, match="use a string"):
        write_graphs(path, [Graph(1)], [[1.5]])


def test_engines_are_compared_on_a_saved_graph_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graphs = [Graph(rng.normal(size=(5, 2)), [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]) for _ in range(4)]
    labels = [["on" if x[0] > 0 else "off" for x in graph.nodes["node"]] for graph in graphs]
    GraphCRF().fit(graphs, labels).save(tmp_path / "model.crfield")
    write_graphs(tmp_path / "data.jsonl", graphs, labels)
    arguments = ["compare-inference", str(tmp_path / "model.crfield"), str(tmp_path / "data.jsonl")]
    ran = CliRunner().invoke(app, [*arguments, "--engines", "junction_tree,loopy,mean_field", "--json"])
    assert ran.exit_code == 0, ran.output
    rows = {row["name"]: row for row in json.loads(ran.stdout)["engines"]}
    assert set(rows) == {"junction_tree", "loopy", "mean_field"}
    assert crfield.load(tmp_path / "model.crfield").score(graphs, labels) == pytest.approx(
        rows["junction_tree"]["map_accuracy"]
    )
