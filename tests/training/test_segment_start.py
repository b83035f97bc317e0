"""Where runs of labels begin: a chain in other weights, and covariances of what it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, SemiMarkovCRF
from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.kernels.segments import Marks
from crfield.optimize.basis import Basis, second_derivative
from crfield.optimize.penalty import Penalty
from crfield.scoring.segments import SegmentData, SegmentLayout
from crfield.training import segment_start
from crfield.training.segments import FusedSegments, fit_segments, segment_basis


def runs(n: int, seed: int = 0, columns: int = 2) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels that last three to six steps, and noisy columns that tell of them."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(np.cumsum(rng.integers(1, 3, 6)) % 3, rng.integers(3, 7, 6))
        X.append(rng.normal(size=(len(labels), columns)) + np.eye(3)[labels, :columns] * 1.5)
        y.append(labels)
    return X, y


def problem_of(n: int = 6, *, most: int = 4, roles: tuple[str, ...] = ("sum", "first", "last")) -> FusedSegments:
    X, y = runs(n)
    chains = Chains.from_lengths([len(x) for x in X])
    table = np.concatenate(X)
    batch = Batch(chains, Columns(np.zeros(len(table) + 1), np.zeros(0), 0, dense=table))
    limit = np.full(3, most, np.int32)
    gold, _ = Segmentation.of_runs(chains, np.concatenate(y)).limited(limit)
    bins = np.arange(most, dtype=np.int32)
    layout = SegmentLayout.observe(
        batch, gold, limit=limit, bins=bins, roles=roles, runs=True, transition_pairs="all"
    )
    return FusedSegments(layout, SegmentData(batch, Marks.none(chains.n_nodes)), gold)


def test_the_weights_of_a_chain_score_labellings_as_it_does() -> None:
    problem = problem_of(most=3)  # runs are longer than that: pieces must not count twice
    found = segment_start.ChainOfRuns.within(problem.scorer.layout)
    assert found is not None
    rng = np.random.default_rng(1)
    of_chain = rng.normal(size=found.chain.n_weights)
    batch = problem.data.batch
    chain = segment_start.FusedChain(
        found.chain, batch, segment_start.Target(batch.topology, 3, problem.gold.node_labels)
    )
    expected = chain.evaluate(of_chain, np.empty(chain.n_weights))
    made = problem.evaluate(found.weights(of_chain), np.empty(problem.n_weights))
    assert made == pytest.approx(expected, rel=1e-12)


def test_the_covariance_of_draws_is_the_second_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_start, "DRAWS", 4000)
    monkeypatch.setattr(segment_start, "ROWS", 10**6)
    problem = problem_of(4)
    layout, batch = problem.scorer.layout, problem.data.batch
    found = segment_start.ChainOfRuns.within(layout)
    assert found is not None
    of_chain = np.random.default_rng(2).normal(size=found.chain.n_weights) * 0.3
    pieces = segment_start._pieces(batch, problem.weight, most=10**6)
    counts = segment_start._counts(layout, pieces, segment_start._drawn(found.chain, of_chain, pieces))
    weights, gradient = found.weights(of_chain), np.empty(layout.n_weights)

    def slope(there: np.ndarray) -> np.ndarray:
        problem.evaluate(there, gradient)
        return gradient.copy()

    exact = second_derivative(slope, weights, slope(weights))
    about = counts.T @ counts
    size = np.sqrt(np.maximum(np.diag(exact), 1e-3))
    np.testing.assert_allclose(about / np.outer(size, size), exact / np.outer(size, size), atol=0.12)


def test_a_few_evaluations_to_the_optimum_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, penalty = problem_of(20, most=6), Penalty(l2=0.1)
    zero = np.zeros(problem.n_weights)
    begun = fit_segments(problem, penalty, zero, tol=1e-4)
    monkeypatch.setattr(segment_start, "MOST_WEIGHTS", 0)
    before = fit_segments(problem, penalty, zero, tol=1e-4)
    best = fit_segments(problem, penalty, zero, tol=1e-9, max_iter=2000)
    assert begun.converged
    assert begun.value <= best.value * (1 + 1e-4)
    assert begun.n_evaluations < 0.6 * before.n_evaluations


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "iob2"},
        {"segment_text": ["word"]},
        {"step_features": ("first", "last")},
        {"intercept": False},
    ],
)
def test_what_is_no_chain_starts_at_zero(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [[{"word": "a", "size": 0.5 * k} for k in range(5)], [{"word": "b", "size": 0.3} for _ in range(4)]]
    y = [["O", "B-X", "I-X", "O", "O"], ["B-X", "I-X", "O", "O"]]
    seen: list[Any] = []
    real = segment_start.started

    def spy(*given: Any) -> Any:
        seen.append(real(*given))
        return seen[-1]

    monkeypatch.setattr("crfield.training.segments.started", spy)
    SemiMarkovCRF(max_length=3, **options).fit(words, y)
    assert all(found is None for found in seen)


def test_kinds_of_columns_and_weights_of_sequences() -> None:
    """Dicts of numbers beside words, sequences of other weight: as a start at zero, to the optimum."""
    X, y = runs(12, columns=2)
    rows = [[{"a": float(a), "b": float(b), "word": f"w{int(a > 0)}"} for a, b in x] for x in X]
    weight = np.linspace(0.2, 2.0, 12)
    for data in (X, rows):
        found = SemiMarkovCRF(max_length=6, l2=0.3, tol=1e-7).fit(data, y, sample_weight=weight)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segment_start, "MOST_WEIGHTS", 0)
            before = SemiMarkovCRF(max_length=6, l2=0.3, tol=1e-7).fit(data, y, sample_weight=weight)
        assert found.objective_ == pytest.approx(before.objective_, rel=2e-7)


def test_the_basis_of_the_start_is_one_of_the_weights() -> None:
    problem, penalty = problem_of(10), Penalty(l2=1.0)
    basis = segment_basis(problem, penalty)
    assert basis is not None
    found = segment_start.started(problem, penalty, basis)
    assert found is not None
    weights, made = found
    assert isinstance(made, Basis)
    np.testing.assert_allclose(made.outward(made.inward(weights)), weights, atol=1e-8)
    again = segment_start.started(problem, penalty, basis)
    assert again is not None
    assert again[1].blocks[0][1].tobytes() == made.blocks[0][1].tobytes()


def test_a_model_of_runs_is_no_worse_than_the_chain_in_it() -> None:
    X, y = runs(15)
    chain, model = ChainCRF(l2=1e-3).fit(X, y), SemiMarkovCRF(max_length=6, l2=1e-3).fit(X, y)
    assert model.log_prob(X, y).sum() > chain.log_prob(X, y).sum()
