"""Probabilities of semi-Markov models by enumeration: those of all that can be said sum to one."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import SemiMarkovCRF
from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import LabelError
from crfield.kernels.segments import Marks
from crfield.metrics import tags_from_spans
from crfield.scoring.segments import SegmentData, SegmentLayout
from crfield.training.segments import FusedSegments
from tests.cases.segment_oracle import segmentations

WORDS = ["a b c a", "b b c", "a a a b a c", "c a b b b"]
LABELS = [list("AABA"), list("BBA"), list("AAABBA"), list("ABBBB")]
STEPS = 5
STORED = Path(__file__).parents[2] / "stored"


def sentences() -> list[list[dict[str, str]]]:
    return [[{"word": word} for word in text.split()] for text in WORDS]


def asked() -> list[dict[str, str]]:
    return [{"word": word} for word in "abcab"][:STEPS]


def total(model: SemiMarkovCRF, labellings: list[Any]) -> float:
    return float(np.exp(model.log_prob([asked()] * len(labellings), labellings)).sum())


def all_labels(labels: str = "AB") -> list[list[str]]:
    return [list(way) for way in product(labels, repeat=STEPS)]


@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 1},
        {"max_length": 2},
        {"max_length": 3, "segment_text": ["word"], "step_features": ("sum", "mean", "first", "last")},
        {"max_length": STEPS},
        {"max_length": 10},
        {"max_length": {"A": 2, "B": 1}},
        {"max_length": {"A": 4, "B": 6}, "transition_pairs": "none"},
        {"max_length": 2, "transition_features": "all", "length_features": "none"},
    ],
    ids=["1", "2", "3", "5", "10", "2 and 1", "4 and 6", "edges"],
)
def test_labellings_of_runs_sum_to_one(body: str, options: dict[str, Any]) -> None:
    model = SemiMarkovCRF(l2=0.1, **options).fit(sentences(), LABELS)
    assert total(model, all_labels()) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_answers_are_those_of_the_labellings(body: str, most: int) -> None:
    """Marginals are sums over labellings, and the best one is predicted."""
    model = SemiMarkovCRF(l2=0.1, max_length=most).fit(sentences(), LABELS)
    ways = all_labels()
    chances = np.exp(model.log_prob([asked()] * len(ways), ways))
    wanted = np.array([[chances @ [way[t] == label for way in ways] for label in "AB"] for t in range(STEPS)])
    np.testing.assert_allclose(model.predict_proba([asked()])[0], wanted, atol=1e-10)
    assert model.predict([asked()])[0].tolist() == ways[int(np.argmax(chances))]
    spans = model.predict_segments([asked()])[0]
    assert all(before[2] != after[2] for before, after in pairwise(spans))


@pytest.mark.parametrize("scheme", ["iob2", "iob1", "bioes", "bilou"])
def test_tags_sum_to_one(scheme: str) -> None:
    """Over all tags whose spans are no longer than may be; longer ones are told of as their pieces."""
    kinds = [["O" if label == "B" else "X" for label in labels] for labels in LABELS]
    y = [crfield.metrics.convert([f"I-{k}" if k != "O" else k for k in tags], "iob1", scheme) for tags in kinds]
    model = SemiMarkovCRF(l2=0.1, max_length=3, scheme=scheme).fit(sentences(), y)
    said = set()
    for cut in segmentations(STEPS, 3, 2):
        if all(b - a == 1 for a, b, label in cut if label == 0):
            spans = [(a, b, "X") for a, b, label in cut if label == 1]
            said.add(tuple(tags_from_spans(spans, STEPS, scheme)))
    assert total(model, [list(tags) for tags in said]) == pytest.approx(1.0, abs=1e-10)


def test_segments_that_touch_sum_to_one() -> None:
    """Where y tells neighbours of one label apart, every segmentation is something that can be said."""
    y = [[(0, 1, "A"), (1, 2, "A"), (2, 3, "B"), (3, 4, "A")], [(0, 2, "B"), (2, 3, "A")]]
    model = SemiMarkovCRF(l2=0.1, max_length=3).fit(sentences()[:2], y)
    ways = [[(a, b, "AB"[label]) for a, b, label in cut] for cut in segmentations(STEPS, 3, 2)]
    assert total(model, ways) == pytest.approx(1.0, abs=1e-10)


def test_neighbours_of_one_label_are_one_run() -> None:
    model = SemiMarkovCRF(l2=0.1, max_length=4).fit(sentences(), LABELS)
    apart, whole = [(0, 1, "A"), (1, 4, "A"), (4, 5, "B")], [(0, 4, "A"), (4, 5, "B")]
    assert model.log_prob([asked()], [apart]) == model.log_prob([asked()], [whole])
    tables = model.segment_marginals([asked()])[0]
    assert tables.shape == (STEPS, 4, 2)
    assert tables[-1].sum() == pytest.approx(1.0, abs=1e-12), "one segment ends with the last step"


@pytest.mark.parametrize("roles", [("sum", "mean", "first", "last"), ("first",)])
def test_the_gradient_of_runs(body: str, roles: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([5, 1, 0, 4])
    node = Columns(np.arange(0, 21, 2), rng.integers(0, 4, 20), 4, rng.standard_normal(20))
    batch = Batch(chains, node, Columns(np.arange(8), rng.integers(0, 2, 7), 2))
    gold = Segmentation(chains, [0, 2, 3, 5, 6, 9], [2, 3, 5, 6, 9, 10], [0, 0, 1, 1, 1, 0])
    texts = (np.array([[0, 1, 0, 1, -1, 1]]), 2)
    layout = SegmentLayout.observe(
        batch, gold, limit=np.array([2, 3]), bins=np.array([0, 1, 1], np.int32), roles=roles, texts=texts, runs=True
    )
    items = (layout.item_ptr, layout.item_label)
    ptr = np.array([0, 0, 1, 2, 2, 4, 5, 5, 5, 5, 6])
    marks = Marks(ptr, np.array([2, 1, 2, 1, 1, 1], np.int32), np.array([0, 1, 0, 1, 1, 1], np.int32), *items)
    problem = FusedSegments(layout, SegmentData(batch, marks), gold, weight=np.array([1.0, 2.0, 1.0, 0.5]))
    weights, gradient = rng.standard_normal(problem.n_weights), np.empty(problem.n_weights)
    assert problem.evaluate(weights, gradient) > 0
    spare = np.empty(problem.n_weights)
    for own in (slice(None), *layout.part.values()):
        step = np.zeros(problem.n_weights)
        step[own] = rng.standard_normal(len(step[own]))
        ends = [problem.evaluate(weights + sign * 1e-5 * step, spare) for sign in (1, -1)]
        assert gradient @ step == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)
    apart = Segmentation(chains, [0, 1, 3, 5, 6, 9], [1, 3, 5, 6, 9, 10], [0, 0, 1, 1, 1, 0])
    with pytest.raises(LabelError, match="two gold segments of one label touch"):
        FusedSegments(layout, SegmentData(batch, marks), apart)


def test_files_of_before_keep_their_normaliser(tmp_path: Path) -> None:
    """They say nothing of runs: any label may follow itself, and labellings do not have all of the probability."""
    old = crfield.load(STORED / "0.1.0" / "semi-markov.crfield")
    ways = [list(way) for way in product("ABC", repeat=3)]
    X = [[["word=1"], ["word=4"], ["word=1"]]] * len(ways)
    assert np.exp(old.log_prob(X, ways)).sum() < 0.99
    old.save(tmp_path / "again.crfield")
    np.testing.assert_array_equal(crfield.load(tmp_path / "again.crfield").log_prob(X, ways), old.log_prob(X, ways))
    new = SemiMarkovCRF(max_length=2).fit(X[:3], ways[4:7])
    new.save(tmp_path / "new.crfield")
    np.testing.assert_array_equal(crfield.load(tmp_path / "new.crfield").log_prob(X, ways), new.log_prob(X, ways))
    assert np.exp(new.log_prob(X, ways)).sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
@pytest.mark.parametrize("most", [2, 10])
@pytest.mark.parametrize("roles", [("sum", "first", "last"), ("sum",), ("mean", "last")])
def test_steps_are_sums_of_segments(body: str, most: int, roles: tuple[str, ...]) -> None:
    """What `predict_proba` and marginal labels read is what the probabilities of all segments add up to."""
    model = SemiMarkovCRF(max_length=most, segment_text=["word"], step_features=roles).fit(sentences(), LABELS)
    fitted, X = model._fitted, [*sentences(), []]
    chains, inside, starts = fitted.steps(X, n_jobs=1)
    found = [beliefs for _, beliefs in fitted.beliefs(X, n_jobs=1)]
    np.testing.assert_allclose(inside, np.concatenate([b.node for b in found]), atol=1e-12)
    np.testing.assert_allclose(starts, np.concatenate([b.starts for b in found]), atol=1e-12)
    assert [len(table) for table in model.predict_proba(X)] == chains.lengths.tolist()
