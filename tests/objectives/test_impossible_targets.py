"""Targets that allow only what the scores forbid: refused with words, never NaN; on both bodies."""

from __future__ import annotations

import numpy as np
import pytest

from crfield import ChainCRF
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import FeatureError, LabelError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.objectives.contrast import Contrast, Engine
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.tables import FunctionTables, TableScorer, tabulate
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import fit_likelihood
from tests.cases.chains import INF

pytestmark = pytest.mark.usefixtures("body")
PAIR = "every labelling it allows uses a forbidden pair"
IMPOSSIBLE = {
    # node scores of the second sequence (nodes 1 and 2), edge scores, its labels, what is allowed at −1, the reason
    "gold label": ([[0, -INF], [0, 0]], [[0, 0], [0, 0]], [1, 0], None, "at step 0 every label it allows"),
    "gold pair": ([[0, 0], [0, 0]], [[0, -INF], [0, 0]], [0, 1], None, PAIR),
    "allowed labels": ([[0, 0], [0, -INF]], [[0, 0], [0, 0]], [0, -1], [0, 1], "at step 1 every label it allows"),
    "allowed pairs": ([[-INF, 0], [0, 0]], [[0, 0], [-INF, -INF]], [-1, -1], [1, 1], PAIR),
    "anything": ([[-INF, -INF], [0, 0]], [[0, 0], [0, 0]], [-1, -1], [1, 1], "at step 0 every label it allows"),
    "any pair": ([[0, 0], [0, 0]], [[-INF, -INF], [-INF, -INF]], [0, 1], None, PAIR),
}


def impossible(case: str, *, weight: list[float] | None) -> tuple[Potentials, Target]:
    """A sequence that can be, then one that cannot, then an empty one."""
    second, table, labels, allowed, _ = IMPOSSIBLE[case]
    chains = Chains.from_lengths([1, 2, 0])
    potentials = Potentials(np.array([[0.0, 1.0], *second]), np.array([table]), chains)
    rows = None if allowed is None else np.array([[0, 1], allowed, allowed], dtype=bool)
    target = Target(chains, 2, np.array([1, *labels]), rows, None if weight is None else np.array(weight))
    return potentials, target


@pytest.mark.parametrize("engine", [ChainEngine(), BruteEngine()], ids=["chain", "brute"])
@pytest.mark.parametrize("semiring", list(Semiring))
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_truth_is_refused(case: str, semiring: Semiring, engine: Engine) -> None:
    """Whether other labellings are possible or none at all: never NaN, never a slope that leads nowhere."""
    reason = IMPOSSIBLE[case][-1]
    for weight in (None, [1.0, 0.5, 1.0]):
        potentials, target = impossible(case, weight=weight)
        with pytest.raises(LabelError, match=f"in sequence 1 {reason}.*weight 0"):
            Contrast(semiring).evaluate(potentials, target, engine)


@pytest.mark.parametrize("semiring", list(Semiring))
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_truth_of_weight_zero_is_left_out(case: str, semiring: Semiring) -> None:
    potentials, target = impossible(case, weight=[2.0, 0.0, 1.0])
    result = Contrast(semiring).evaluate(potentials, target, ChainEngine())
    alone = Potentials(potentials.node[:1], np.zeros((1, 2, 2)), Chains.from_lengths([1]))
    gold = Target(alone.topology, 2, target.labels[:1], weight=np.array([2.0]))
    expected = Contrast(semiring).evaluate(alone, gold, ChainEngine())
    assert result.value == expected.value
    np.testing.assert_array_equal(result.node, [*expected.node, [0, 0], [0, 0]])
    np.testing.assert_array_equal(result.edge, np.zeros((1, 2, 2)))


def test_a_total_of_nothing_stays_minus_infinity() -> None:
    potentials, _ = impossible("anything", weight=None)
    for semiring in Semiring:
        beliefs = ChainEngine().infer(potentials, semiring)
        assert np.isneginf(beliefs.total).tolist() == [False, True, False]
        np.testing.assert_array_equal(beliefs.node[1:], 0.0)


def test_training_on_an_impossible_truth_says_which() -> None:
    """Scores that forbid a pair, and partial labels that allow no other: the words reach whoever trains."""

    class Forbidding(TableScorer):
        def score(self, weights: np.ndarray, batch: FunctionTables) -> Potentials:
            scores = super().score(weights, batch)
            edge = scores.edge.copy()
            edge[:, 0, 1] = -INF
            return Potentials(scores.node, edge, scores.topology)

    tables = tabulate([lambda before, label, x, t: x[t] * (label == "b")], ["a", "b"], [[1.0, 2.0], [3.0, 1.0]])

    def train(second: list[bool]) -> Result:
        allowed = np.array([[1, 0], [1, 0], second, [0, 1]], dtype=bool)
        target = Target(tables.topology, 2, np.array([0, 0, -1, 1]), allowed)
        problem = FullBatch(Forbidding(1, 2), tables, target, objective=Contrast(), engine=ChainEngine())
        return fit_likelihood(problem, Penalty(l2=1.0), rng=np.random.default_rng(0))

    assert np.isfinite(train([True, True]).value)
    with pytest.raises(LabelError, match=f"in sequence 1 {PAIR}"):
        train([True, False])


def test_no_fit_reaches_it() -> None:
    """What a ChainCRF is given can forbid nothing, and its partial labels must allow something."""
    X = [["a"], ["b", "a"]]

    def never_ab(before: str | None, label: str, x: list[str], t: int) -> float:
        return -INF if (before, label) == ("A", "B") else float(x[t] == "a" and label == "A")

    with pytest.raises(FeatureError, match="never_ab gave -inf at sequence 1, step 1; a finite number"):
        ChainCRF(label_functions=[never_ab]).fit(X, [["A"], [{"A", "B"}, "B"]])
    with pytest.raises(LabelError, match=r"sequence 1, step 0.*empty set allows nothing"):
        ChainCRF().fit([["a"], ["b", "a"]], [["A"], [set(), "B"]])
    with pytest.raises(FeatureError, match="-inf"):
        ChainCRF().fit([[{"a": -INF}]], [["A"]])
