"""Scores of segments: worked examples, a slow twin of the definitions, and what happens at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from crfield import ChainCRF
from crfield.errors import InputError, ShapeError
from crfield.metrics import edit_score, edit_scorer, segment_f1, segment_f1_scorer, segment_report, segments


def slow_f1(truth: list[str], said: list[str], overlap: float) -> float:
    """The script of Lea et al., sets of steps in place of ends."""
    gold = [(set(range(a, b)), label) for a, b, label in segments(truth)]
    free, right = [True] * len(gold), 0
    runs = segments(said)
    for start, stop, label in runs:
        own = set(range(start, stop))
        shares = [len(own & g) / len(own | g) if label == other else 0.0 for g, other in gold]
        best = max(range(len(gold)), key=lambda k: shares[k])
        if shares[best] >= overlap and free[best]:
            free[best] = False
            right += 1
    return 2 * right / (len(gold) + len(runs))


def slow_distance(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return len(one) + len(other)
    change = slow_distance(one[1:], other[1:]) + (one[0] != other[0])
    return min(change, slow_distance(one[1:], other) + 1, slow_distance(one, other[1:]) + 1)


def random_pair(seed: int) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    truth = np.repeat(rng.choice(list("abc"), n), rng.integers(1, 6, n))[:n]
    said = np.where(rng.random(n) < 0.3, rng.choice(list("abc"), n), truth)
    return truth.tolist(), said.tolist()


@pytest.mark.parametrize("overlap", [0.1, 0.25, 0.5, 1.0])
def test_f1_against_the_definition(overlap: float) -> None:
    for seed in range(40):
        truth, said = random_pair(seed)
        assert segment_f1([truth], [said], overlap=overlap) == pytest.approx(slow_f1(truth, said, overlap))


def test_edit_score_against_the_definition() -> None:
    for seed in range(12):
        truth, said = (labels[:12] for labels in random_pair(seed))
        one, other = ([label for *_, label in segments(labels)] for labels in (truth, said))
        expected = 1 - slow_distance(one, other) / max(len(one), len(other))
        assert edit_score([truth], [said]) == pytest.approx(expected)


def test_a_perfect_prediction() -> None:
    truth = [list("aabbba"), list("cc")]
    report = segment_report(truth, truth)
    assert set(report.f1.values()) == {1.0}
    assert report.edit == 1.0
    assert (report.gold, report.predicted, report.steps) == (4, 4, 8)
    counts = (
        report.deletions,
        report.fragmented,
        report.merged,
        report.insertions,
        report.underfill,
        report.overfill,
    )
    assert counts == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("truth", "said", "kind", "count"),
    [
        ("aabbaa", "aaaaaa", "deletions", 1),
        ("aabbaa", "aaaaaa", "merged", 2),
        ("aaaaaa", "aabaaa", "insertions", 1),
        ("aaaaaa", "aabaaa", "fragmented", 1),
        ("aabbaa", "aabaaa", "underfill", 1),
        ("aabbaa", "aabaaa", "overfill", 1),
        ("aabbaa", "bbaabb", "deletions", 3),
        ("aabbaa", "bbaabb", "insertions", 3),
    ],
)
def test_mistakes_by_kind(truth: str, said: str, kind: str, count: int) -> None:
    assert getattr(segment_report([list(truth)], [list(said)]), kind) == count


def test_fragments_cost_in_f1_and_edit_score_but_hardly_in_steps() -> None:
    truth, said = list("a" * 20 + "b" * 20), list("a" * 20 + "b" * 20)
    said[5], said[12], said[30] = "b", "b", "a"
    assert segment_f1([truth], [said], overlap=0.5) < 0.4
    assert edit_score([truth], [said]) == pytest.approx(2 / 8)


def test_counts_are_added_over_sequences() -> None:
    truth, said = [list("ab"), list("aaaa")], [list("ab"), list("bbbb")]
    assert segment_f1(truth, said) == pytest.approx(2 * 2 / 6)
    assert edit_score(truth, said) == pytest.approx(0.5)


def test_unknown_steps_are_taken_out_of_both_sides() -> None:
    truth = [["a", "a", None, None, "a", "b"]]
    said = [["a", "a", "c", "b", "a", "b"]]
    assert segment_f1(truth, said) == 1.0
    assert segment_report(truth, said).predicted == 2


def test_nothing_to_judge() -> None:
    for truth, said in (([], []), ([[]], [[]]), ([[None]], [["a"]])):
        assert segment_f1(truth, said) == 0.0
        assert edit_score(truth, said, zero_division=1.0) == 1.0
        assert segment_report(truth, said).gold == 0


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="≤ 1, got 50"):
        segment_f1([["a"]], [["a"]], overlap=50)
    with pytest.raises(InputError, match="> 0"):
        segment_f1_scorer(overlap=0.0)
    with pytest.raises(ShapeError, match="sequence 0"):
        segment_f1([["a"]], [["a", "b"]])


def test_scorers_fit_a_search() -> None:
    from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

    rng = np.random.default_rng(0)
    y = [["a"] * 5 + ["b"] * 5 for _ in range(4)]
    X = [rng.normal(size=(10, 1)) + np.array([[0.0]] * 5 + [[3.0]] * 5) for _ in y]
    search = GridSearchCV(ChainCRF(), {"l2": [0.1, 1.0]}, cv=LeaveOneGroupOut(), scoring=segment_f1_scorer())
    search.fit(X, y, groups=["ann", "ann", "bob", "cy"])
    assert search.best_score_ > 0.5
    assert edit_scorer(search.best_estimator_, X, y) > 0.5


def test_where_there_is_nothing_the_report_says_zero_unless_told() -> None:
    nothing = segment_report([[]], [[]])
    assert set(nothing.f1.values()) == {0.0}
    assert nothing.edit == 0.0
    assert set(segment_report([[]], [[]], zero_division=1.0).f1.values()) == {1.0}
