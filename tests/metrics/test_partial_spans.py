"""Strict, exact, partial and type scores: by hand, and equal to nervaluate where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.errors import ShapeError
from crfield.metrics import partial_span_report
from crfield.metrics.partial_spans import QUESTIONS

COUNTS = ("correct", "incorrect", "partial", "missed", "spurious", "possible", "actual", "precision", "recall", "f1")
NAMES = {"strict": "strict", "exact": "exact", "partial": "partial", "type": "ent_type"}


def random_tags(rng: np.random.Generator, length: int) -> list[str]:
    tags: list[str] = []
    while len(tags) < length:
        kind, size = rng.choice(["PER", "LOC", "ORG"]), int(rng.integers(1, 5))
        tags += ["O"] * size if rng.random() < 0.4 else [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
    return tags[:length]


def test_the_five_cases_by_hand() -> None:
    #            right kind, cut        other kind      nothing there   made up
    gold = [["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "B-ORG", "O", "O"]]
    said = [["B-PER", "O", "O", "B-ORG", "I-ORG", "O", "O", "O", "B-PER"]]
    report = partial_span_report(gold, said)
    counted = {name: [getattr(report[name], each) for each in COUNTS[:5]] for name in QUESTIONS}
    assert counted == {
        "strict": [0, 2, 0, 1, 1],
        "exact": [1, 1, 0, 1, 1],
        "partial": [1, 0, 1, 1, 1],
        "type": [1, 1, 0, 1, 1],
    }
    assert report["partial"].precision == 0.5
    assert "partial" in report._repr_html_()


def test_one_gold_span_serves_one_predicted_span() -> None:
    report = partial_span_report([["B-A", "I-A", "I-A", "I-A"]], [["B-A", "I-A", "B-A", "I-A"]])
    assert (report["type"].correct, report["type"].spurious) == (1, 1)
    assert (report["partial"].partial, report["partial"].spurious) == (1, 1)


def test_a_span_is_of_the_nearest_of_its_kind() -> None:
    gold, said = [["B-A", "I-A", "I-A", "B-A", "I-A", "I-A"]], [["O", "O", "B-A", "I-A", "I-A", "B-A"]]
    report = partial_span_report(gold, said)  # the first is nearer to the second of gold, and takes it from the other
    assert [getattr(report["type"], each) for each in COUNTS[:5]] == [1, 0, 0, 1, 1]


def test_an_overlap_has_a_hundredth_of_the_gold_span() -> None:
    long = [["B-A", *["I-A"] * 149]]
    short = [["B-A", *["O"] * 149]]
    assert partial_span_report(long, short)["type"].spurious == 1
    assert partial_span_report(short, long)["type"].correct == 1


def test_lengths_that_differ() -> None:
    with pytest.raises(ShapeError, match="sequence 1 has 2 tags in y_true and 1"):
        partial_span_report([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ShapeError, match="2 sequences"):
        partial_span_report([["O"], ["O"]], [["O"]])


@pytest.mark.parametrize("seed", range(6))
def test_counts_equal_nervaluate(seed: int) -> None:
    nervaluate = pytest.importorskip("nervaluate")
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, 40)
    gold, said = ([random_tags(rng, int(n)) for n in lengths] for _ in range(2))
    mixed = [one if rng.random() < 0.4 else other for one, other in zip(gold, said)]
    theirs = nervaluate.Evaluator(gold, mixed, tags=["PER", "LOC", "ORG"], loader="list").evaluate()
    ours = partial_span_report(gold, mixed)
    for question in QUESTIONS:
        told = theirs["overall"][NAMES[question]]
        for name in COUNTS:
            assert getattr(ours[question], name) == pytest.approx(getattr(told, name), abs=1e-15), (question, name)
        for kind, rows in ours.kinds.items():
            told = theirs["entities"][kind][NAMES[question]]
            assert [getattr(rows[question], name) for name in COUNTS[:5]] == [
                getattr(told, name) for name in COUNTS[:5]
            ]
