"""Chains that grow: the filter on every prefix, the smoother on every window, the path that is committed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import CrfieldError, InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.streaming import ChainStreams
from crfield.kernels import choice
from crfield.kernels import stream as kernel

SCORES = {
    "plain": {},
    "edges": {"varied": True},
    "large": {"scale": 2000.0, "varied": True},
    "forbidden": {"forbidden": 0.15},
    "forbidden edges": {"forbidden": 0.15, "varied": True, "scale": 300.0},
    "one label": {"labels": 1},
}


def scores(
    steps: int = 24, labels: int = 4, *, varied: bool = False, scale: float = 1.0, forbidden: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Node scores (T, L), edge tables (T, L, L) of which the first is not used, scores of start and end."""
    rng = np.random.default_rng(steps + labels)
    node = rng.normal(size=(steps, labels)) * scale
    edge = rng.normal(size=(steps, labels, labels)) * scale + 0.5 * scale * np.eye(labels)
    start, end = rng.normal(size=(2, labels)) * scale
    node[:, 1:][rng.random((steps, labels - 1)) < forbidden] = -np.inf
    edge[:, 1:][rng.random((steps, labels - 1, labels)) < forbidden] = -np.inf
    return node, edge if varied else np.repeat(edge[:1], steps, axis=0), start, end


def offline(node: np.ndarray, edge: np.ndarray, start: np.ndarray, end: np.ndarray | float = 0.0) -> Potentials:
    node = node.copy()
    node[0] += start
    node[-1] += end
    return Potentials(node, edge[1 : len(node)], Chains.from_lengths([len(node)]), np.arange(len(node) - 1))


@pytest.mark.parametrize("case", SCORES)
@pytest.mark.parametrize("lag", [0, 3])
def test_every_prefix_and_window_is_exact(body: str, case: str, lag: int) -> None:
    node, edge, start, end = scores(**SCORES[case])
    varied = SCORES[case].get("varied", False)
    streams = ChainStreams(start, edge[0], end, lag=lag, max_lag=1000, varied=varied)
    path: list[int] = []
    for t in range(len(node)):
        found, smoothed, committed, counts = streams.push(node[t : t + 1], edge[t : t + 1] if varied else None)
        beliefs = ChainEngine().infer(offline(node[: t + 1], edge, start), Semiring.LOG)
        np.testing.assert_allclose(found[0], beliefs.node[-1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(streams.totals, beliefs.total, rtol=1e-12)
        if t >= lag:
            np.testing.assert_allclose(smoothed[0], beliefs.node[t - lag], rtol=0, atol=1e-10)
        else:
            assert np.isnan(smoothed).all()
        path += committed[0, : counts[0, 0]].tolist()
        assert counts[0, 1] == 0
        assert streams.committed[0] == len(path)
    ending = streams.finish(0)
    whole = offline(node, edge, start, end)
    beliefs = ChainEngine().infer(whole, Semiring.LOG)
    np.testing.assert_allclose(ending.marginals, beliefs.node[-lag - 1 :], rtol=0, atol=1e-10)
    np.testing.assert_allclose(ending.total, beliefs.total[0], rtol=1e-12)
    assert [*path, *ending.path.tolist()] == ChainEngine().best_path(whole)[1].tolist()
    assert streams.steps[0] == 0


def test_what_is_committed_can_no_longer_change(body: str) -> None:
    """The committed part begins the best path of every continuation, whatever comes."""
    node, edge, start, _ = scores(40, 3)
    streams = ChainStreams(start, edge[0], max_lag=1000)
    path: list[int] = []
    rng = np.random.default_rng(1)
    for t in range(len(node)):
        _, _, committed, counts = streams.push(node[t : t + 1])
        path += committed[0, : counts[0, 0]].tolist()
        for _ in range(2):
            more = np.concatenate([node[: t + 1], rng.normal(size=(4, 3)) * 20])
            best = ChainEngine().best_path(offline(more, np.repeat(edge[:1], len(more), axis=0), start))[1]
            assert best[: len(path)].tolist() == path
    assert len(path) > 25  # survivors do agree, so something is tested


@pytest.mark.parametrize("max_lag", [0, 1, 4])
def test_a_forced_path_is_a_path_and_says_so(body: str, max_lag: int) -> None:
    """Labels that hold on for ever never agree: max_lag decides, and what follows fits what was said."""
    steps, labels = 50, 3
    rng = np.random.default_rng(0)
    node, table = rng.normal(size=(steps, labels)), np.where(np.eye(labels), 0.0, -np.inf)
    streams = ChainStreams(np.zeros(labels), table, max_lag=max_lag)
    said, forced = [], 0
    for t in range(steps):
        _, _, committed, counts = streams.push(node[t : t + 1])
        said += committed[0, : counts[0, 0]].tolist()
        forced += int(counts[0, 1])
        assert t - len(said) < max_lag
    said += streams.finish(0).path.tolist()
    # the first label that had to be said decides all others
    assert said == [int(np.argmax(node[: max_lag + 1].sum(axis=0)))] * steps
    assert forced == 1


def test_the_end_may_change_the_path(body: str) -> None:
    """Survivors that have not met are weighed with the scores of the end."""
    node, table, end = np.array([[2.0, 0.0]]), np.where(np.eye(2), 0.0, -9.0), np.array([0.0, 12.0])
    streams = ChainStreams(np.zeros(2), table, end, max_lag=50)
    for _ in range(4):
        counts = streams.push(node)[3]
        assert counts[0, 0] == 0
    whole = offline(np.repeat(node, 4, axis=0), np.repeat(table[None], 4, axis=0), np.zeros(2), end)
    best = ChainEngine().best_path(whole)[1].tolist()
    assert best != [0, 0, 0, 0]
    assert streams.finish(0).path.tolist() == best


def test_the_bodies_agree() -> None:
    """Filter, smoother and forced commitments of many streams that begin at different times."""
    pytest.importorskip("crfield.kernels._stream")
    found = []
    for name in ("native", "numpy"):
        with choice.use(name):
            node, edge, start, _ = scores(200, 5, varied=True, forbidden=0.1)
            streams = ChainStreams(start, edge[0], n_streams=4, lag=2, max_lag=3, varied=True)
            rng = np.random.default_rng(3)
            rows: list[Any] = []
            for t in range(150):
                which = np.flatnonzero(rng.random(4) < 0.7)
                if t % 29 == 28:
                    streams.reset([1])
                if not len(which):
                    continue
                one, two, said, counts = streams.push(node[t + which], edge[t + which], which)
                rows += [*one, *two, counts.ravel().astype(float)]
                rows += [row[:count].astype(float) for row, count in zip(said, counts[:, 0], strict=True)]
            found.append(np.concatenate(rows))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-12)


def test_nothing_is_possible(body: str) -> None:
    """Probabilities of zero, no crash, bounded memory; a reset begins anew."""
    streams = ChainStreams(np.zeros(2), np.zeros((2, 2)), lag=1, max_lag=3)
    streams.push(np.zeros((1, 2)))
    for _ in range(10):
        found, smoothed, _, counts = streams.push(np.full((1, 2), -np.inf))
        assert not found.any()
        assert not smoothed.any()
        assert counts[0, 1] == counts[0, 0] <= 4
    streams.reset()
    assert streams.push(np.zeros((1, 2)))[0].tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2e300])
def test_scores_that_cannot_be_leave_the_stream_where_it_was(body: str, bad: float) -> None:
    streams = ChainStreams(np.zeros(2), np.zeros((2, 2)), max_lag=3)
    streams.push(np.zeros((1, 2)))
    with pytest.raises(InputError, match="up to 1e300"):
        streams.push(np.array([[0.0, bad]]))
    assert streams.steps[0] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.push(np.zeros((2, 2))),
        lambda s: s.push(np.zeros((1, 3))),
        lambda s: s.push(np.zeros((1, 2)), np.zeros((1, 2, 2))),
        lambda s: s.push(np.zeros((1, 2)), None, np.array([1])),
        lambda s: s.push(np.zeros((1, 2)), None, np.array([-1])),
    ],
    ids=["rows", "labels", "edges", "stream 1", "stream -1"],
)
def test_shapes_that_do_not_fit_are_refused(body: str, call: Any) -> None:
    streams = ChainStreams(np.zeros(2), np.zeros((2, 2)), max_lag=3)
    with pytest.raises((InputError, TypeError)):
        call(streams)
    assert streams.steps[0] == 0


def test_a_damaged_state_never_crashes(body: str) -> None:
    streams = ChainStreams(np.zeros(2), np.zeros((2, 2)), max_lag=3)
    for _ in range(3):
        streams.push(np.zeros((1, 2)))
    for name, value in (("oldest", 9), ("oldest", -1), ("steps", -5), ("back", 7), ("back", -1)):
        array = streams._memory.arrays()[name]
        kept = array.copy()
        array[...] = value
        with pytest.raises(InputError, match="damaged"):
            streams.push(np.zeros((1, 2)))
        array[...] = kept
    tables = (np.zeros(1), np.ones(1), np.zeros((1, 2)), np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="linked column"):
        kernel.Scores(*tables, np.array([1], np.int32), np.zeros((1, 2, 2)))


def test_without_a_lag_a_step_is_answered_when_it_comes() -> None:
    streams = ChainStreams(np.zeros(2), np.log([[0.9, 0.1], [0.1, 0.9]]))
    for score in ([2.0, 0.0], [0.0, 0.5]):
        filtered, smoothed, _, _ = streams.push(np.array([score]))
        np.testing.assert_array_equal(smoothed, filtered)
    assert len(streams.finish(0).marginals) == 1


def test_forbidden_scores_survive_a_save() -> None:
    streams = ChainStreams(np.array([0.0, -np.inf]), np.zeros((2, 2)))
    streams.push(np.zeros((1, 2)))
    state = json.loads(json.dumps(streams.state(), allow_nan=False))
    other = ChainStreams(np.array([0.0, -np.inf]), np.zeros((2, 2)))
    other.restore(state)
    assert other.push(np.zeros((1, 2)))[0].tolist() == [[0.5, 0.5]]


def test_errors_are_of_the_tree() -> None:
    for arguments in ((np.zeros(2), np.zeros((3, 3))), (np.zeros(2), np.full((2, 2), np.nan))):
        with pytest.raises(CrfieldError):
            ChainStreams(*arguments)
    with pytest.raises(CrfieldError):
        ChainStreams(np.zeros(2), np.zeros((2, 2)), lag=-1)
