"""States below labels in streams: sizes that are refused, layers by row and by dict, rounds that are replayed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crfield import FactorialCRF, GraphCRF, edge_list, load
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import ConvergenceWarning, FeatureError, InputError
from crfield.estimators.export.states import remembered
from crfield.inference.chain import ChainEngine
from tests.cases.step_models import FORMS, fitted, layered, series


def named(name: str) -> Any:
    return fitted(next(form for form in FORMS if form.name == name))


def test_remembered_states_score_as_the_graph_does() -> None:
    """Two layers, distances 1 and 3, against the sum over all labellings, written out."""
    rng = np.random.default_rng(0)
    sizes, steps = (2, 2), 5
    along = {(0, 1): rng.normal(size=(2, 2)), (0, 3): rng.normal(size=(2, 2)), (1, 1): rng.normal(size=(2, 2))}
    beside = {(0, 1): rng.normal(size=(2, 2))}
    node = rng.normal(size=(steps, 4))
    memory = remembered(sizes, along, beside)
    assert memory.states.n_states == 4 + 16 + 64
    scores = memory.offset + node[:, memory.parts].sum(axis=2)
    scores[0] += memory.start
    chain = Potentials(scores, memory.transitions[None], Chains.from_lengths([steps]))
    total = 0.0
    for code in range(4**steps):
        y = np.array([(code // 4**t) % 4 for t in range(steps)])
        a, b = y // 2, y % 2
        value = node[np.arange(steps), a].sum() + node[np.arange(steps), 2 + b].sum() + beside[0, 1][a, b].sum()
        for (layer, d), table in along.items():
            own = (a, b)[layer]
            value += table[own[:-d], own[d:]].sum()
        total += np.exp(value)
    assert ChainEngine().infer(chain, Semiring.LOG).total[0] == pytest.approx(np.log(total), abs=1e-10)


def test_too_many_states_are_refused() -> None:
    X, _ = series(0)
    rng = np.random.default_rng(0)
    many = [np.stack([rng.integers(9, size=len(x)) for _ in range(3)], axis=1) for x in X]
    model = FactorialCRF(max_iter=1, objective="pseudo_likelihood", between=[("layer 0", "layer 1")])
    with pytest.warns(ConvergenceWarning):
        model.fit(X, many)
    with pytest.raises(InputError, match=r"9 × 9 × 9 labels: 729 states are more than the 500 .* fewer labels"):
        model.stream()
    with pytest.raises(InputError, match="3 labels at distances up to 6: 1,092 states are more"):
        remembered([3], {(0, 6): np.zeros((3, 3))})


def test_graphs_without_an_order_in_time_are_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 2))
    ring = edge_list(4, {"near": [(0, 1), (1, 2), (2, 3), (3, 0)]}, features=rows)
    model = GraphCRF(max_iter=5, tol=0.5).fit([ring, ring], [["a", "b", "a", "b"]] * 2)
    with pytest.raises(InputError, match="'near' does not say how far apart in time"):
        model.stream()


def test_layers_by_row_and_by_dict(tmp_path: Any) -> None:
    X, _ = series(1, 1)
    shared, apart = named("layers"), named("far_layers")
    with pytest.raises(InputError, match="features that all layers see"):
        shared.stream().push({"layer 0": X[0][0], "layer 1": X[0][0]})
    with pytest.raises(FeatureError, match=r"step 0: feature 'place: x\[2\]' is 1e\+308, too large"):
        apart.stream().push({"motion": X[0][0, :1], "place": [0.0, 1.0, 1e308]})
    assert (shared.shared_, apart.shared_) == (True, False)
    shared.save(tmp_path / "layers.crfield")
    copy = load(tmp_path / "layers.crfield")
    assert copy.shared_ is True
    assert copy.stream().push(X[0][0]).probabilities.tolist() == shared.stream().push(X[0][0]).probabilities.tolist()
    one = FactorialCRF(tol=1e-2).fit(X, [labels[:, :1] for labels in layered(series(1, 1)[1])])
    end = one.stream()
    for row in X[0]:
        end.push(row)
    np.testing.assert_allclose(end.finish().smoothed[-1], one.predict_proba(X)[0]["layer 0"][-1], atol=1e-10)


@pytest.mark.parametrize("name", ["beliefs", "believing_stumps"])
def test_replayed_rounds_are_those_of_the_part_so_far(name: str) -> None:
    """After every step, and a while later; in many streams; and after a save."""
    model, x = named(name), series(1, 1)[0][0][:30]
    stream, many = model.stream(lag=3, viterbi=True), model.streams(2, lag=3, viterbi=True)
    state: Any = None
    for t, row in enumerate(x):
        now, together = stream.push(row), many.push([row, x[0]])
        wanted = model.predict_proba([x[: t + 1]])[0]
        np.testing.assert_allclose(now.probabilities, wanted[-1], rtol=0, atol=1e-10)
        if t >= 3:
            np.testing.assert_allclose(now.smoothed, wanted[-4], rtol=0, atol=1e-10)
        assert together.committed[0] == now.committed
        np.testing.assert_array_equal(together.probabilities[0], now.probabilities)
        if t == 20:
            state = json.loads(json.dumps(stream.state()))
    again = model.stream(lag=3, viterbi=True).restore(state)
    later = [again.push(row) for row in x[21:]]
    np.testing.assert_array_equal(later[-1].probabilities, now.probabilities)
    with pytest.raises(InputError, match="of other streams"):
        model.stream(lag=2, viterbi=True).restore(state)
    with pytest.raises(InputError, match="damaged"):
        again.restore({**state, "chains": {**state["chains"], "leaves": [10**6]}})
    hasty = model.stream(viterbi=True, max_lag=1)
    told = [hasty.push(row) for row in x]
    assert sum(len(now.committed) for now in told) == len(x) - 1
    assert {now.forced for now in told[1:]} == {1}
