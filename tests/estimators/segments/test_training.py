"""Training a semi-Markov model: weights that would be copies, histories, going on from the last fit, choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, SemiMarkovCRF
from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError, LabelError
from crfield.optimize.penalty import Penalty
from crfield.scoring.segments import SegmentLayout
from crfield.training import segments as training
from studies.text import spanish_segments
from studies.text.spanish_segments import Part, chosen, gap_interval, token_features

TEXTS = ["Ann saw New York", "New York saw Ann Lee", "he saw Ann", "Ann Lee saw him", "Bob saw New York City"]
TAGS = [
    ["B-PER", "O", "B-LOC", "I-LOC"],
    ["B-LOC", "I-LOC", "O", "B-PER", "I-PER"],
    ["O", "O", "B-PER"],
    ["B-PER", "I-PER", "O", "O"],
    ["B-PER", "O", "B-LOC", "I-LOC", "I-LOC"],
]
X = [token_features(text.split(), ["N"] * len(text.split())) for text in TEXTS]


def model(**options: Any) -> SemiMarkovCRF:
    return SemiMarkovCRF(**{"max_length": 3, "scheme": "iob2", "l2": 0.1, "tol": 1e-10, "max_iter": 2000, **options})


# --------------------------------------------------------------------------------- labels that last one step


def layout(limit: list[int], **options: Any) -> SegmentLayout:
    """Three steps with one column each, the first two in a segment of label 0, the third of label 1."""
    chains = Chains.from_lengths([3])
    batch = Batch(chains, Columns.from_rows([[0], [1], [2]], width=3))
    gold = Segmentation(chains, [0, 2], [2, 3], [0, 1])
    return SegmentLayout.observe(
        batch, gold, limit=np.array(limit), bins=np.arange(max(limit), dtype=np.int32), **options
    )


def test_a_label_of_one_step_has_its_columns_once() -> None:
    """Items are role · L + label: sum 0, sum 1, first 0, first 1, last 0, last 1; label 1 is met at the third."""
    steps = layout([2, 1]).steps
    found = [steps.feature_label[a:b].tolist() for a, b in zip(steps.feature_ptr, steps.feature_ptr[1:])]  # type: ignore[index,arg-type]
    assert found == [[0, 2], [0, 4], [1]]
    longer = layout([2, 2]).steps
    assert longer.feature_label[longer.feature_ptr[2] :].tolist() == [1, 3, 5]  # type: ignore[index]
    both = layout([2, 1], feature_pairs="all").steps
    assert both.feature_label.tolist() == [0, 1, 2, 4] * 3  # type: ignore[union-attr]
    assert layout([2, 2], feature_pairs="all").steps.feature_label is None


@pytest.mark.filterwarnings("ignore::crfield.errors.ConvergenceWarning")
def test_with_segments_of_one_step_all_roles_are_one() -> None:
    labels = [["O" if tag == "O" else tag[2:] for tag in tags] for tags in TAGS]
    options: dict[str, Any] = {"max_length": 1, "scheme": "runs", "length_features": "none"}
    three = model(**options).fit(X, labels)
    chain = ChainCRF(l2=0.1, tol=1e-10, max_iter=2000).fit(X, labels)
    assert len(three.coef_) == len(chain.coef_)
    assert three.objective_ == pytest.approx(chain.objective_, rel=1e-8)


def test_a_label_that_lasts_may_follow_itself() -> None:
    """Pieces of a long segment do, though no two gold segments of the label meet."""
    assert layout([2, 1]).base.pairs.tolist() == [0, 1]
    assert layout([2, 2]).base.pairs.tolist() == [0, 1, 3]
    assert layout([2, 2], transition_pairs="all").base.pairs.tolist() == [0, 1, 2, 3]


def test_a_template_says_whether_there_are_transitions() -> None:
    rows = [[(step["word"],) for step in x] for x in X]
    with_them = model(tol=1e-3, template="U00:%x[0,0]\nB").fit(rows, TAGS)
    without = model(tol=1e-3, template="U00:%x[0,0]").fit(rows, TAGS)
    assert with_them._model.layout.base.pairs.tolist() == [0, 1, 3, 4, 5, 7, 8]  # LOC never beside PER
    assert len(without._model.layout.base.pairs) == 0


# --------------------------------------------------------------------------------------------- the optimiser


def test_the_history_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert training.segment_pairs(2_000_000, Penalty(l2=1.0)) == 16
    assert training.segment_pairs(10**9, Penalty(l2=1.0)) is None
    assert training.segment_pairs(600_000, Penalty(l1=1.0)) is None
    asked: list[Any] = []
    plain = training.minimize

    def watched(*given: Any, **options: Any) -> Any:
        asked.append((options["memory"], options["n_jobs"]))
        return plain(*given, **options)

    monkeypatch.setattr(training, "minimize", watched)
    monkeypatch.setattr(training, "history_pairs", lambda n_weights, penalty: None)
    model(tol=1e-4, n_jobs=2).fit(X, TAGS)
    assert asked == [(training.PAIRS, 2)]


def test_a_sequence_that_counts_twice_is_two() -> None:
    weighted = model().fit(X, TAGS, sample_weight=[2.0, 1.0, 1.0, 1.0, 1.0])
    assert weighted.objective_ == pytest.approx(model().fit([X[0], *X], [TAGS[0], *TAGS]).objective_, rel=1e-8)


def test_warm_start_goes_on() -> None:
    warm = model(warm_start=True, segment_text=["word"]).fit(X, TAGS)
    before, evaluations = warm.coef_.copy(), warm.n_evaluations_
    warm.fit(X, TAGS)
    assert warm.n_evaluations_ < evaluations / 3
    np.testing.assert_allclose(warm.coef_, before, atol=1e-4)
    warm.set_params(l2=0.2).fit(X, TAGS)
    cold = model(l2=0.2, segment_text=["word"]).fit(X, TAGS)
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-8)
    assert model(segment_text=["word"]).fit(X, TAGS).fit(X, TAGS).n_evaluations_ == evaluations


def test_warm_start_keeps_what_it_knows() -> None:
    warm = model(warm_start=True, segment_text=["word"]).fit(X, TAGS)
    weights, texts = len(warm.coef_), warm.top_texts(99)
    new = [token_features(["Bob", "saw", "Eve"], ["N", "N", "N"])]
    warm.fit(new, [["B-PER", "O", "O"]])
    assert len(warm.coef_) == weights
    assert {text for text, _, _ in warm.top_texts(99)} == {text for text, _, _ in texts}
    with pytest.raises(LabelError, match="ORG"):
        warm.fit(new, [["B-ORG", "O", "O"]])
    with pytest.raises(InputError, match="warm_start must be True or False"):
        model(warm_start=1).fit(X, TAGS)


# ---------------------------------------------------------------------------------------------- the experiment


class Told:
    """A model that answers by its penalty."""

    def __init__(self, answers: dict[float, list[str]]) -> None:
        self.answers, self.l2, self.seen = answers, 0.0, []  # type: ignore[var-annotated]

    def set_params(self, *, l2: float) -> Told:
        self.l2 = l2
        return self

    def fit(self, X: Any, y: Any) -> Told:
        self.seen.append(self.l2)
        return self

    def predict(self, X: Any) -> list[np.ndarray]:
        return [np.array(self.answers[self.l2], dtype=object) for _ in X]


def test_the_penalty_is_chosen_by_the_part_for_choosing() -> None:
    right, wrong = ["B-X", "O"], ["O", "B-X"]
    told = Told({1.0: wrong, 2.0: right, 4.0: wrong})
    choice = chosen(told, (1.0, 4.0, 2.0), Part([], []), Part([[{}, {}]], [right]))
    assert told.seen == [4.0, 2.0, 1.0]
    assert (choice.l2, choice.f1, dict(choice.tried)) == (2.0, 1.0, {4.0: 0.0, 2.0: 1.0, 1.0: 0.0})
    assert choice.model.l2 == 2.0


def test_only_the_chosen_model_meets_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that is worse on testa is not looked at on testb, where it would win."""
    gold = ["B-X", "O"]
    parts = {name: Part([[{"part": name}] * 2] * 4, [gold] * 4) for name in ("train", "testa", "testb")}
    asked = []

    class Model(Told):
        n_split_, coef_ = 0, np.zeros(1)

        def __init__(self, name: str) -> None:
            super().__init__({})
            self.name = name

        def predict(self, X: Any) -> list[np.ndarray]:
            part = X[0][0]["part"]
            asked.append((self.name, part))
            good = (self.name == spanish_segments.LENGTHS) == (part == "testa")
            return [np.array(gold if good else ["O", "O"], dtype=object) for _ in X]

    monkeypatch.setattr(spanish_segments, "read_part", lambda path, most: parts[path.split(".")[-2]])
    monkeypatch.setattr(spanish_segments, "_model", lambda name, **options: Model(name))
    found = spanish_segments.STUDY(data="nowhere", penalties=(1.0,))
    assert [name for name, part in asked if part == "testb"] == [spanish_segments.CHAIN, spanish_segments.LENGTHS]
    assert found[spanish_segments.TEXTS, "F1 testb"] is None
    assert (found[spanish_segments.LENGTHS, "F1 testb"], found[spanish_segments.CHAIN, "F1 testb"]) == (0.0, 1.0)
    assert not found.claims[0].holds
    with pytest.raises(InputError, match="at least one l2"):
        spanish_segments.STUDY(data="nowhere", penalties=())


def test_intervals_hold_the_gap() -> None:
    truth = [["B-X", "O"]] * 30
    half = [["B-X", "O"]] * 15 + [["O", "O"]] * 15
    gap, low, high = gap_interval(truth, truth, half)
    assert gap == pytest.approx(1 - 2 / 3)
    assert 0.1 < low < gap < high < 0.6
    assert gap_interval(truth, half, truth)[0] == pytest.approx(-gap)
