"""Which sequences to label next: doubts against enumeration of all labellings, diversity, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, rank_for_labelling
from crfield.errors import InputError

RNG = np.random.default_rng(3)
X = [[[f"w{RNG.integers(6)}", f"v{RNG.integers(4)}"] for _ in range(int(RNG.integers(1, 5)))] for _ in range(14)]
Y = [[str(RNG.choice(["a", "b", "c"])) for _ in x] for x in X]


@pytest.fixture(scope="module")
def model() -> ChainCRF:
    return ChainCRF(l2=0.5).fit(X, Y)


def enumerated(model: ChainCRF, x: Any) -> np.ndarray:
    """Probabilities of all labellings of one sequence, the largest first."""
    every = [list(path) for path in product(model.classes_.tolist(), repeat=len(x))]
    return np.sort(np.exp(model.log_prob([x] * len(every), every)))[::-1]


@pytest.mark.parametrize("by", ["least_confidence", "margin", "entropy", "n_best_entropy"])
def test_doubts_are_those_of_all_labellings(model: ChainCRF, by: str) -> None:
    ranking = rank_for_labelling(model, X, by=by, per_step=False, n_best=4)
    assert sorted(ranking.numbers.tolist()) == list(range(len(X)))
    assert (np.diff(ranking.doubts) <= 1e-12).all()
    for s, doubt in zip(ranking.numbers, ranking.doubts):
        p = enumerated(model, X[s])
        top = p[:4] / p[:4].sum()
        expected = {
            "least_confidence": 1 - p[0],
            "margin": p[1] - p[0],
            "entropy": -(p * np.log(p)).sum(),
            "n_best_entropy": -(top * np.log(top)).sum(),
        }
        assert doubt == pytest.approx(expected[by], abs=1e-9)


def test_per_step_divides_by_the_length(model: ChainCRF) -> None:
    whole, shares = (rank_for_labelling(model, X, by="entropy", per_step=per_step) for per_step in (False, True))
    lengths = np.array([len(x) for x in X])
    assert shares.doubts == pytest.approx(np.sort(whole.doubts / lengths[whole.numbers])[::-1])


def test_what_is_known_is_not_doubted(model: ChainCRF) -> None:
    known = [["a"] * len(x) if s != 5 else None for s, x in enumerate(X)]
    known = [labels if labels is not None else [None] * len(X[5]) for labels in known]
    for by in ("least_confidence", "entropy", "margin"):
        ranking = rank_for_labelling(model, X, 1, by=by, known=known)
        assert ranking.numbers.tolist() == [5]


def test_diversity_picks_unlike_sequences(model: ChainCRF) -> None:
    doubtful = max(range(len(X)), key=lambda s: float(model.entropy([X[s]])[0]))
    twice = [X[doubtful], X[doubtful], [["w0"]], [["w5"]]]
    assert sorted(rank_for_labelling(model, twice, 2, per_step=False).numbers.tolist()) == [0, 1]
    picked = rank_for_labelling(model, twice, 2, per_step=False, diversity=0.9).numbers.tolist()
    assert picked[0] == 0
    assert picked[1] in (2, 3)
    # as a slow program says it
    pool = X + twice
    ranking = rank_for_labelling(model, pool, 6, per_step=False, diversity=0.4)
    assert ranking.numbers.tolist() == slowly(model, pool, 6, 0.4)


def slowly(model: ChainCRF, pool: list[Any], count: int, diversity: float) -> list[int]:
    doubts = model.entropy(pool)
    scaled = (doubts - doubts.min()) / (doubts.max() - doubts.min())

    def bag(x: Any) -> dict[str, float]:
        out: dict[str, float] = {}
        for step in x:
            for name in step:
                out[name] = out.get(name, 0.0) + 1.0
        return out

    def cosine(one: dict[str, float], other: dict[str, float]) -> float:
        dot = sum(value * other.get(name, 0.0) for name, value in one.items())
        return dot / np.sqrt(sum(v * v for v in one.values()) * sum(v * v for v in other.values()))

    bags, chosen = [bag(x) for x in pool], []
    for _ in range(count):
        worth = {
            s: (1 - diversity) * scaled[s] - diversity * max((cosine(bags[s], bags[c]) for c in chosen), default=0.0)
            for s in range(len(pool))
            if s not in chosen
        }
        chosen.append(max(worth, key=lambda s: (round(worth[s], 9), -s)))
    return chosen


def test_empty_sequences_come_last_and_numeric_columns_work() -> None:
    rng = np.random.default_rng(0)
    numbers = [rng.normal(size=(int(n), 3)) for n in (4, 3, 5, 2)]
    chain = ChainCRF().fit(numbers, [[str(int(row[0] > 0)) for row in x] for x in numbers])
    pool = [np.zeros((0, 3)), *numbers]
    for diversity in (0.0, 0.5):
        ranking = rank_for_labelling(chain, pool, by="entropy", diversity=diversity)
        assert ranking.numbers[-1] == 0
        assert len(ranking.numbers) == 5


def test_other_models_that_know_probabilities() -> None:
    rng = np.random.default_rng(1)
    numbers = [rng.normal(size=(6, 2)) for _ in range(8)]
    labels = [["u" if row[0] > 0 else "d" for row in x] for x in numbers]
    for model in (crfield.HMM(), crfield.MEMM(), crfield.LatentDynamicCRF(max_iter=20, tol=0.1)):
        model.fit(numbers, labels)
        ranking = rank_for_labelling(model, numbers, 2, by="least_confidence", per_step=False)
        assert len(ranking.numbers) == 2
        assert ((ranking.doubts >= 0) & (ranking.doubts <= 1)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "doubt"}, "least_confidence"),
        ({"diversity": 2.0}, "diversity"),
        ({"k": 0}, "k must be"),
        ({"n_best": 1}, "n_best"),
    ],
)
def test_what_is_refused(model: ChainCRF, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        rank_for_labelling(model, X, **options)
    with pytest.raises(InputError, match="LogitBoost has not"):
        rank_for_labelling(crfield.LogitBoost().fit([[0.0], [1.0]], [0, 1]), [[1.0]])
