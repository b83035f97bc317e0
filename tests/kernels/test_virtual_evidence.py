"""The virtual-evidence kernel, on both bodies: against plain belief propagation and against the sums written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.boosting.weak_learners.responses import working_responses
from crfield.errors import ShapeError
from crfield.kernels import virtual


def case(seed: int, labels: int, *, nodes: int = 40, edges: int = 70, groups: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    tails = rng.integers(0, nodes, edges)
    heads = (tails + rng.integers(1, nodes, edges)) % nodes
    to_head, to_tail = rng.integers(0, groups, (2, edges))
    wiring = virtual.wire(nodes, tails, heads, to_head, to_tail)
    local, beliefs = rng.uniform(0.1, 2.0, (2, nodes, labels))
    if labels > 2:
        local[::3, -1] = 0.0  # a kind with fewer labels
    beliefs[local == 0] = 0.0
    beliefs /= beliefs.sum(axis=1, keepdims=True)
    messages = rng.uniform(0.05, 1.0, (wiring.n_messages, labels))
    truth = np.minimum(rng.integers(-1, labels, nodes), np.where(local[:, -1] > 0, labels, labels - 1) - 1)
    return {
        "wiring": wiring,
        "local": local,
        "beliefs": beliefs,
        "messages": messages / messages.sum(axis=1, keepdims=True),
        "tables": rng.normal(size=(groups, labels, labels)),
        "labels": truth,
        "weight": rng.uniform(0.5, 2.0, nodes),
        "held": rng.random(nodes) < 0.2,
    }


def plainly(c: dict[str, Any], *, maximise: bool, limit: float) -> dict[str, Any]:
    """The contract's formulas, message by message and node by node."""
    w, labels = c["wiring"], c["local"].shape[1]
    groups = len(c["tables"])
    evidence, messages = np.zeros((w.n_messages, labels)), np.zeros((w.n_messages, labels))
    beliefs = c["local"].copy()
    for n in range(w.n_nodes):
        for s in range(w.indptr[n], w.indptr[n + 1]):
            evidence[s] = c["beliefs"][w.other[s]] / c["messages"][w.mate[s]]
            evidence[s] /= evidence[s].sum()
            terms = np.exp(c["tables"][w.group[s]]) * evidence[s][:, None]
            messages[s] = terms.max(axis=0) if maximise else terms.sum(axis=0)
            messages[s] /= messages[s].sum()
            beliefs[n] *= messages[s]
    beliefs /= beliefs.sum(axis=1, keepdims=True)
    taught = np.where(c["held"], -1, c["labels"])
    weight, response = working_responses(beliefs, taught, limit=limit)
    weight = np.where(c["local"] > 0, weight, 0.0) * c["weight"][:, None]
    moment, mass = np.zeros((2, groups, labels, labels))
    square = np.zeros((groups, labels, labels, labels))
    for n in range(w.n_nodes):
        for g in range(groups):
            own = [evidence[s] for s in range(w.indptr[n], w.indptr[n + 1]) if w.group[s] == g]
            count = sum(own, np.zeros(labels))
            moment[g] += np.outer(weight[n] * response[n], count)
            mass[g] += np.outer(weight[n], count)
            both = np.outer(count, count) - sum((np.outer(one, one) for one in own), np.zeros((labels, labels)))
            square[g] += weight[n][:, None, None] * both
    pairs = np.stack([weight, weight * response], axis=2).swapaxes(0, 1)
    known = c["labels"] >= 0
    costs = -c["weight"] * np.log(np.where(known, beliefs[np.arange(w.n_nodes), c["labels"]], 1.0))
    return {
        "messages": messages,
        "beliefs": beliefs,
        "pairs": pairs[1:] if labels == 2 else pairs,
        "loss": [costs[~c["held"]].sum(), costs[c["held"]].sum()],
        "moment": moment,
        "mass": mass,
        "square": square,
    }


@pytest.mark.parametrize("labels", [1, 2, 4])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("maximise", [False, True])
def test_the_formulas(body: str, labels: int, groups: int, maximise: bool) -> None:
    c = case(labels, labels, groups=groups)
    found = virtual.listen(**c, limit=3.0, maximise=maximise, squares=True)
    for name, wanted in plainly(c, maximise=maximise, limit=3.0).items():
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("labels", [2, 3])
def test_threads_and_old_memory_change_nothing(body: str, labels: int) -> None:
    c = case(7, labels, nodes=5_000, edges=9_000)
    one = virtual.listen(**c, squares=True)
    again = virtual.listen(**c, squares=True, out=virtual.listen(**c))
    many = virtual.listen(**c, squares=True, n_jobs=3)
    for name in one._fields:
        assert np.array_equal(getattr(one, name), getattr(again, name)), name
        np.testing.assert_allclose(getattr(one, name), getattr(many, name), rtol=1e-9, atol=1e-12, err_msg=name)


def test_sure_messages_stay_in_range(body: str) -> None:
    """Fifty neighbours of one node that all but exclude a label."""
    tails = np.arange(1, 51)
    wiring = virtual.wire(51, tails, np.zeros(50, int), np.zeros(50, int), np.zeros(50, int))
    local = np.full((51, 2), 0.5)
    local[1:] = [1.0, 1e-25]
    tables = np.array([[[20.0, -20.0], [-20.0, 20.0]]])
    beliefs, messages = local / local.sum(axis=1, keepdims=True), np.full((100, 2), 0.5)
    for _ in range(4):
        found = virtual.listen(wiring, local, beliefs, messages, tables, np.zeros(51, int), np.ones(51))
        beliefs, messages = found.beliefs, found.messages
    for array in (found.messages, found.beliefs, found.pairs, found.loss):
        assert np.isfinite(array).all()
    np.testing.assert_allclose(found.beliefs.sum(axis=1), 1.0, atol=1e-12)
    assert found.beliefs[0, 0] > 1 - 1e-9


def test_a_step_scales_both_arrays(body: str) -> None:
    rng = np.random.default_rng(0)
    local, beliefs = rng.random((2, 6, 3))
    factors, codes = rng.random((4, 3)), np.array([0, 3, 1, 1, 2, 0])
    wanted = local * factors[codes], beliefs * factors[codes]
    for kind in (np.int64, np.uint16):
        found = local.copy(), beliefs.copy()
        virtual.scale(*found, codes.astype(kind), factors)
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    with pytest.raises(ValueError, match="code"):
        virtual.scale(local, beliefs, np.array([0, 4, 1, 1, 2, 0]), factors)


@pytest.mark.parametrize("wrong", ["local", "beliefs", "messages", "tables", "labels", "weight", "held"])
def test_what_does_not_fit_is_refused(body: str, wrong: str) -> None:
    c = case(1, 3)
    with pytest.raises(ShapeError):
        virtual.listen(**{**c, wrong: c[wrong][:-1]})


def test_numbers_out_of_range_are_refused(body: str) -> None:
    c = case(1, 3)
    w = c["wiring"]
    for field in ("other", "mate", "group"):
        numbers = np.array(getattr(w, field))
        for bad in (-1, 10**6):
            numbers[0] = bad
            parts = {"indptr": w.indptr, "other": w.other, "mate": w.mate, "group": w.group, field: numbers}
            with pytest.raises(ShapeError):
                virtual.listen(**{**c, "wiring": virtual.Wiring(**parts)})
    with pytest.raises(ShapeError):
        virtual.listen(**{**c, "labels": np.full(40, 3)})
    for short in ("indptr", "other", "mate", "group"):
        parts = {"indptr": w.indptr, "other": w.other, "mate": w.mate, "group": w.group}
        with pytest.raises(ShapeError):
            virtual.listen(**{**c, "wiring": virtual.Wiring(**{**parts, short: parts[short][:-1]})})
    with pytest.raises(ShapeError, match="out"):
        virtual.listen(**{**c, "out": virtual.listen(**c)._replace(messages=c["messages"])})
