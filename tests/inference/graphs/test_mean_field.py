"""Mean field: below log Z, at a stationary point, the best of its restarts, and products for edges."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.mean_field import MeanFieldEngine, edge_products
from crfield.inference.labellings import path_scores
from tests.cases.chains import examples
from tests.cases.sites import fields, random_field

pytestmark = pytest.mark.usefixtures("body")


@examples(60)
@given(fields(scales=(0.5, 2.0, 30.0)), st.integers(0, 1000))
def test_the_total_is_a_lower_bound(potentials: Potentials, seed: int) -> None:
    """Below log Z always, −∞ only where nothing is possible, and beliefs that are distributions."""
    exact = BruteEngine().infer(potentials, Semiring.LOG).total
    beliefs = MeanFieldEngine(restarts=2, random_state=seed, max_sweeps=50).infer(potentials, Semiring.LOG)
    assert beliefs.bound == "lower"
    assert not beliefs.exact
    assert (beliefs.total <= exact + 1e-9).all()
    np.testing.assert_array_equal(np.isneginf(beliefs.total), np.isneginf(exact))
    possible = np.isfinite(exact)[potentials.topology.sequence_of_node]
    np.testing.assert_allclose(beliefs.node.sum(axis=1), possible, atol=1e-12)
    assert (beliefs.node[np.isneginf(potentials.node)] == 0).all()
    assert (beliefs.edge[np.isneginf(potentials.edge)] == 0).all()


@examples(40)
@given(fields(), st.integers(0, 1000))
def test_the_bound_is_that_of_its_beliefs(potentials: Potentials, seed: int) -> None:
    """E_q[score] + H(q) from the beliefs alone, edges included."""
    beliefs = MeanFieldEngine(random_state=seed, max_sweeps=3).infer(potentials, Semiring.LOG)
    with np.errstate(invalid="ignore", divide="ignore"):
        node = np.where(beliefs.node > 0, beliefs.node * (potentials.node - np.log(beliefs.node)), 0.0)
        edge = np.where(beliefs.edge > 0, beliefs.edge * potentials.edge, 0.0)
    finite = beliefs.total[np.isfinite(beliefs.total)]
    np.testing.assert_allclose(finite.sum(), node.sum() + edge.sum(), rtol=1e-9, atol=1e-9)


def test_independent_nodes_are_exact() -> None:
    potentials = random_field(np.random.default_rng(0), [5, 3], 3, density=0.0)
    exact, found = (e.infer(potentials, Semiring.LOG) for e in (BruteEngine(), MeanFieldEngine()))
    np.testing.assert_allclose(found.total, exact.total, atol=1e-10)
    np.testing.assert_allclose(found.node, exact.node, atol=1e-10)
    assert found.converged
    assert found.sweeps == 1


def test_the_end_is_stationary() -> None:
    """No small change of the beliefs raises the bound: q equals its own update."""
    potentials = random_field(np.random.default_rng(1), [8], 3, scale=0.5)
    q = MeanFieldEngine(tol=1e-12).infer(potentials, Semiring.LOG).node
    topology, scores = potentials.topology, potentials.node.copy()
    for e, k in enumerate(potentials.tables.tolist()):
        tail, head = topology.tails[e], topology.heads[e]
        scores[tail] += potentials.edge[k] @ q[head]
        scores[head] += q[tail] @ potentials.edge[k]
    update = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(q, update / update.sum(axis=1, keepdims=True), atol=1e-9)


def test_restarts_find_a_higher_bound() -> None:
    """Softmax(node) leads to the poorer of two sides: node scores mislead, and the edges say so."""
    square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    edge = np.array([[[0.0, 0.0], [0.0, 5.0]]])
    potentials = Potentials(np.tile([4.0, 0.0], (4, 1)), edge, square)
    one = MeanFieldEngine().infer(potentials, Semiring.LOG)
    many = MeanFieldEngine(restarts=20).infer(potentials, Semiring.LOG)
    assert many.total[0] > one.total[0] + 0.1
    assert many.node[:, 1].min() > 0.9
    assert one.node[:, 0].min() > 0.9


def test_max_is_a_labelling_with_its_score() -> None:
    potentials = random_field(np.random.default_rng(4), [7, 0, 6], 3, forbidden=0.1)
    beliefs = MeanFieldEngine(restarts=3).infer(potentials, Semiring.MAX)
    exact = BruteEngine().infer(potentials, Semiring.MAX).total
    np.testing.assert_allclose(beliefs.total, path_scores(potentials, beliefs.node.argmax(axis=1)), atol=1e-12)
    assert (beliefs.total <= exact + 1e-12).all()
    np.testing.assert_array_equal(np.unique(beliefs.node), [0, 1])


def test_few_sweeps_are_said_to_be_few() -> None:
    potentials = random_field(np.random.default_rng(5), [10], 3)
    few = MeanFieldEngine(max_sweeps=2).infer(potentials, Semiring.LOG)
    assert not few.converged
    assert few.sweeps == 2


@examples(30)
@given(fields())
def test_edge_products(potentials: Potentials) -> None:
    topology = potentials.topology
    q = np.random.default_rng(0).random(potentials.node.shape)
    expected = np.zeros_like(potentials.edge)
    for e, k in enumerate(potentials.tables.tolist()):
        expected[k] += np.outer(q[topology.tails[e]], q[topology.heads[e]])
    np.testing.assert_allclose(edge_products(potentials, q), expected, rtol=1e-12)


def test_options_and_scores_are_checked() -> None:
    for wrong in ({"max_sweeps": 0}, {"restarts": 0}, {"tol": -1.0}, {"tol": np.nan}):
        with pytest.raises(InputError, match="mean field needs"):
            MeanFieldEngine(**wrong)  # type: ignore[arg-type]
    bad = Potentials(np.array([[0.0, np.inf]]), np.zeros((1, 2, 2)), Chains.from_lengths([1]))
    with pytest.raises(InputError, match="finite or -inf"):
        MeanFieldEngine().infer(bad, Semiring.LOG)
    assert pickle.loads(pickle.dumps(MeanFieldEngine(tol=1e-3))) == MeanFieldEngine(tol=1e-3)
