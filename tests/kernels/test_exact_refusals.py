"""The exact kernels on graphs check every size and index before they use it: damaged plans, graphs and labels."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.inference.graphs.forest import graph_scores
from crfield.kernels import choice, forest
from tests.cases.chains import needs_native


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node", [0, 0, 2, 3]),
        ("node", [0, 1, 2]),
        ("node", [0, 1, 2, 9]),
        ("parent", [-1, 3, 1, 1]),
        ("parent", [-1, 0, -7, 1]),
        ("parent", [0, 0, 0, 0]),
        ("level", [0, 1, 9]),
        ("level", [1, 4]),
        ("level", []),
        ("link_ptr", [0, 0, 1, 2]),
        ("link_ptr", [0, 2, 1, 2, 3]),
        ("link", [0, 1, 7]),
        ("link", [0, -1, 2]),
    ],
)
def test_damaged_orders_are_refused(body: str, name: str, value: list[int]) -> None:
    """Kernels check every index before they use it."""
    potentials = Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([4]))
    plan = forest.ForestOrder(
        node=np.array([1, 0, 2, 3]),
        parent=np.array([-1, 0, 0, 2]),
        level=np.array([0, 1, 3, 4]),
        link_ptr=np.array([0, 0, 1, 2, 3]),
        link=np.array([0, 1, 2]),
    )
    scores = graph_scores(potentials)
    np.testing.assert_allclose(forest.sum_product(plan, scores)[0], [4 * np.log(2)])
    damaged = forest.ForestOrder(**{**vars(plan), name: np.array(value, np.int64)})
    with pytest.raises(ValueError):
        forest.sum_product(damaged, scores)
    with pytest.raises(ValueError):
        forest.max_product(damaged, scores)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offsets", [0, 5]),
        ("offsets", [1, 4]),
        ("tails", [0, 1, 9]),
        ("heads", [0, 2, 3]),
        ("table", [0, 0, 1]),
        ("table", [0, 0]),
        ("node", [[0.0, 0.0]]),
        ("edge", [[[0.0]]]),
    ],
)
def test_damaged_graphs_are_refused(body: str, name: str, value: list[int]) -> None:
    potentials = Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([4]))
    scores = graph_scores(potentials)
    plan = forest.order(scores.offsets, scores.tails, scores.heads)[1]
    assert plan is not None
    cliques = forest.eliminate(scores.offsets, scores.tails, scores.heads)
    damaged = forest.GraphScores(**{**vars(scores), name: np.array(value)})
    every = np.arange(0, 9, 2), np.tile([0, 1], 4)
    for ask in (
        lambda: forest.sum_product(plan, damaged),
        lambda: forest.max_product(plan, damaged),
        lambda: forest.clique_sum_product(cliques, damaged, *every),
        lambda: forest.clique_max_product(cliques, damaged, *every),
    ):
        with pytest.raises(ValueError):
            ask()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node", [0, 1, 2, 2]),
        ("scope_ptr", [0, 2, 4, 5]),
        ("scope", [3, 1, 3, 0, 3]),
        ("scope", [3, 1, 3, 9, 3]),
        ("scope", [1, 3, 3, 2, 3]),
        ("scope", [2, 1, 3, 2, 2]),
        ("edge_ptr", [0, 0, 2, 3, 4]),
        ("edge", [0, 3, 1, 9]),
        ("edge", [0, 3, 1, -1]),
        ("unit", [0, 5]),
    ],
)
@needs_native
def test_damaged_eliminations_are_refused(name: str, value: list[int]) -> None:
    """The compiled kernels check every index before they use it."""
    square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    potentials = Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2)), square)
    every = np.arange(0, 9, 2), np.tile([0, 1], 4)
    with choice.use("native"):
        whole = forest.eliminate(square.offsets, square.tails, square.heads)
        damaged = forest.Elimination(**{**vars(whole), name: np.array(value, np.int64)})
        for ask in (forest.clique_sum_product, forest.clique_max_product):
            ask(whole, graph_scores(potentials), *every)
            with pytest.raises(ValueError):
                ask(damaged, graph_scores(potentials), *every)


@pytest.mark.parametrize("every", [([0, 2, 4, 6], [0, 1] * 3), ([0, 2, 4, 6, 8], [0, 1, 0, 1, 0, 2, 0, 1]),
                                   ([0, 2, 2, 6, 8], [0, 1] * 4)])  # fmt: skip
def test_damaged_labels_are_refused(body: str, every: tuple[list[int], list[int]]) -> None:
    square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    scores = graph_scores(Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2)), square))
    whole = forest.eliminate(square.offsets, square.tails, square.heads)
    with pytest.raises(ValueError):
        forest.clique_sum_product(whole, scores, np.array(every[0]), np.array(every[1]))
