"""Intervals over sequences against a plain loop, and what they are of."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.errors import ShapeError
from crfield.metrics import intervals
from crfield.metrics.intervals import ratio_intervals, score_intervals
from crfield.metrics.span_scores import span_counts, span_report


def some_counts(size: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    whole = rng.integers(1, 9, (size, 2))
    return rng.binomial(whole, [0.9, 0.4]), whole


def test_a_plain_loop_gives_the_same() -> None:
    part, whole = some_counts()
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(500):
        times = rng.multinomial(30, np.full(30, 1 / 30))
        sums = [sum(int(n) * table[k] for k, n in enumerate(times)) for table in (part, whole)]
        drawn.append(sums[0] / sums[1])
    np.testing.assert_allclose(ratio_intervals(part, whole), np.quantile(drawn, [0.025, 0.975], axis=0).T, rtol=1e-12)


def test_many_sequences_are_drawn_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    part, whole = some_counts()
    at_once = ratio_intervals(part, whole, seed=4)
    monkeypatch.setattr(intervals, "_CELLS", 30 * 7)  # 500 is not a multiple of seven
    np.testing.assert_allclose(ratio_intervals(part, whole, seed=4), at_once, rtol=1e-12)
    assert (ratio_intervals(part, whole, seed=5) != at_once).any()


def test_they_cover_what_they_are_of_about_as_often_as_they_say() -> None:
    rng, held = np.random.default_rng(1), 0
    for seed in range(200):
        whole = rng.integers(1, 9, (60, 1))
        low, high = ratio_intervals(rng.binomial(whole, 0.8), whole, n_draws=200, seed=seed)[0]
        held += low <= 0.8 <= high
    assert 0.88 <= held / 200 <= 0.99


def test_few_sequences_have_none() -> None:
    part, whole = some_counts(7)
    assert np.isnan(ratio_intervals(part, whole)).all()
    part, whole = some_counts(8)
    assert np.isfinite(ratio_intervals(part, whole)).all()


def test_a_label_that_is_seldom_there_has_none() -> None:
    part = np.zeros((20, 1))
    part[3] = 1
    assert np.isnan(ratio_intervals(part, part)).all(), "a third of the drawings do not have it"


def test_scores_lie_within_their_intervals() -> None:
    right, whole = some_counts()
    ends = score_intervals(right, whole, whole + 1)
    c, p, s = right.sum(axis=0), whole.sum(axis=0), (whole + 1).sum(axis=0)
    for k, value in enumerate((c / p, c / s, 2 * c / (p + s))):
        assert (ends[:, k, 0] < value).all()
        assert (value < ends[:, k, 1]).all()


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"\(sequences, ratios\) alike, got \(9, 1\) and \(9, 2\)"):
        ratio_intervals(np.ones((9, 1)), np.ones((9, 2)))


def test_counts_of_spans_add_up_to_the_report() -> None:
    rng = np.random.default_rng(0)
    tags = ["O", "B-a", "I-a", "B-b", "I-b"]
    gold = [rng.choice(tags, rng.integers(0, 9)).tolist() for _ in range(60)]
    said = [[t if rng.random() < 0.8 else str(rng.choice(tags)) for t in row] for row in gold]
    kinds, right, predicted, true = span_counts(gold, said)
    report = span_report(gold, said)
    assert kinds == ("a", "b")
    for k, kind in enumerate(kinds):
        row = report[kind]
        assert (right[:, k].sum(), predicted[:, k].sum(), true[:, k].sum()) == (
            row.correct,
            row.predicted,
            row.support,
        )
    for k, (one, other) in enumerate(zip(gold, said)):
        alone = span_report([one], [other]).micro
        assert (right[k].sum(), predicted[k].sum(), true[k].sum()) == (alone.correct, alone.predicted, alone.support)
