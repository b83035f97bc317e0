"""Threads and processes: the same bits again, nearly the same with other numbers of threads, safe after fork."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF
from crfield.core.potentials import Potentials
from crfield.kernels import chain, linear
from tests.cases.chains import INF, LinearCase, Options, linear_case, random_potentials

LENGTHS = tuple(int(n) for n in np.random.default_rng(0).integers(0, 25, 120))
CASES = [
    Options(lengths=LENGTHS, columns=200),
    Options(lengths=LENGTHS, labels=9, feature_pairs="all", values=True, dense=3, bias=True),
    Options(lengths=LENGTHS, labels=5, partial=True, weighted=True, columns=200),
    Options(lengths=LENGTHS[:40], edge_columns=4, edge_dense=1, partial=True),
    Options(lengths=LENGTHS[:14], labels=50, columns=100),
]
NAMES = ["plain", "dense", "partial", "edges", "many labels"]
every_case = pytest.mark.parametrize("o", CASES, ids=NAMES)
PATIENCE = 60.0  # seconds for a child; it needs a fraction of one


def problem_of(case: LinearCase) -> linear.Problem:
    return linear.Problem(case.layout, case.batch, case.target.labels, case.target.allowed, case.target.weight)


def evaluate(problem: linear.Problem, weights: np.ndarray, n_jobs: int) -> tuple[float, np.ndarray]:
    gradient = np.empty(len(weights))
    return problem.evaluate(weights, gradient, n_jobs=n_jobs), gradient


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Results of calls made at the same time, each in a thread of its own."""
    out: list[Any] = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def run(k: int) -> None:
        gate.wait()
        try:
            out[k] = calls[k]()
        except BaseException as error:
            out[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in out:
        if isinstance(result, BaseException):
            raise result
    return out


# ----------------------------------------------------------------------------------------- determinism


@every_case
def test_same_threads_same_bits(body: str, o: Options) -> None:
    rng = np.random.default_rng(1)
    case = linear_case(rng, o)
    weights, elsewhere = case.weights(rng), case.weights(rng, 2.0)
    problem = problem_of(case)
    for n_jobs in (1, 2, 4):
        value, gradient = evaluate(problem, weights, n_jobs)
        evaluate(problem, elsewhere, 3)
        for again in (problem, problem_of(case)):
            other, same = evaluate(again, weights, n_jobs)
            assert other == value
            np.testing.assert_array_equal(same, gradient)
        np.testing.assert_array_equal(
            problem.curvature(weights, n_jobs=n_jobs), problem_of(case).curvature(weights, n_jobs=n_jobs)
        )


@every_case
def test_any_number_of_threads_agrees(body: str, o: Options) -> None:
    rng = np.random.default_rng(2)
    case = linear_case(rng, o)
    weights, problem = case.weights(rng), problem_of(case)
    tagger = linear.Tagger(case.layout, weights)
    value, gradient = evaluate(problem, weights, 1)
    curvature = problem.curvature(weights)
    node, edge = tagger.scores(case.batch)
    path, total = tagger.decode(case.batch)
    for n_jobs in (2, 4, 7, 1000):
        other, same = evaluate(problem, weights, n_jobs)
        np.testing.assert_allclose(other, value, rtol=1e-10)
        np.testing.assert_allclose(same, gradient, rtol=1e-10, atol=1e-10 * np.abs(gradient).max())
        np.testing.assert_allclose(problem.curvature(weights, n_jobs=n_jobs), curvature, rtol=1e-10, atol=1e-12)
        # sequences do not meet each other here, so not one bit may differ
        for found, expected in zip(tagger.scores(case.batch, n_jobs=n_jobs), (node, edge)):
            np.testing.assert_array_equal(found, expected)
        for found, expected in zip(tagger.decode(case.batch, n_jobs=n_jobs), (path, total)):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_chain_kernels_with_threads(body: str, shared: bool, scale: float) -> None:
    potentials = random_potentials(np.random.default_rng(3), list(LENGTHS), 4, shared=shared, scale=scale)
    potentials.edge[:, 0, 1] = -INF
    offsets = potentials.topology.offsets
    total, node, edge = chain.sum_product(offsets, potentials.node, potentials.edge)
    best, path = chain.max_product(offsets, potentials.node, potentials.edge)
    for n_jobs in (2, 4, 500):
        again = [chain.sum_product(offsets, potentials.node, potentials.edge, n_jobs=n_jobs) for _ in range(2)]
        for a, b in zip(*again):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(again[0][0], total)
        np.testing.assert_array_equal(again[0][1], node)
        np.testing.assert_allclose(again[0][2], edge, rtol=1e-12, atol=1e-13)
        for a, b in zip(chain.max_product(offsets, potentials.node, potentials.edge, n_jobs=n_jobs), (best, path)):
            np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------ several threads of Python


@every_case
def test_threads_share_a_problem(body: str, o: Options) -> None:
    """Different weights, different numbers of threads and different questions at once: each as if alone."""
    rng = np.random.default_rng(4)
    case = linear_case(rng, replace(o, lengths=o.lengths[:40]))
    problem, rounds = problem_of(case), 5
    points = [case.weights(rng, 0.3 + k) for k in range(3)]
    alone = [evaluate(problem, w, 1 + k) for k, w in enumerate(points)]
    curvature = problem.curvature(points[0])

    def asking(k: int) -> list[tuple[float, np.ndarray]]:
        return [evaluate(problem, points[k], 1 + k) for _ in range(rounds)]

    *found, spreads = together(
        *(lambda k=k: asking(k) for k in range(3)), lambda: [problem.curvature(points[0]) for _ in range(rounds)]
    )
    for (value, gradient), answers in zip(alone, found):
        for other, same in answers:
            assert other == value
            np.testing.assert_array_equal(same, gradient)
    for spread in spreads:
        np.testing.assert_array_equal(spread, curvature)


@every_case
def test_threads_share_a_tagger(body: str, o: Options) -> None:
    rng = np.random.default_rng(5)
    case = linear_case(rng, o)
    others = linear_case(rng, replace(o, lengths=o.lengths[::-1][:30]))
    tagger = linear.Tagger(case.layout, case.weights(rng))
    batches = [case.batch, others.batch]
    if case.layout.n_columns:
        assert others.batch.node.width == case.layout.n_columns

    def asking(k: int) -> list[np.ndarray]:
        return [*tagger.decode(batches[k], n_jobs=1 + k), *tagger.scores(batches[k], n_jobs=2)]

    alone = [asking(0), asking(1)]
    for _ in range(3):
        for expected, found in zip(alone, together(lambda: asking(0), lambda: asking(1))):
            for a, b in zip(found, expected):
                np.testing.assert_array_equal(a, b)


def test_threads_share_the_chain_kernels(body: str) -> None:
    rng = np.random.default_rng(6)
    cases = [random_potentials(rng, list(LENGTHS), 5, scale=scale, forbidden=0.1) for scale in (1.0, 500.0)]

    def asking(potentials: Potentials) -> list[np.ndarray]:
        arrays = potentials.topology.offsets, potentials.node, potentials.edge
        return [*chain.sum_product(*arrays, n_jobs=2), *chain.max_product(*arrays, n_jobs=2)]

    alone = [asking(p) for p in cases]
    for _ in range(3):
        for expected, found in zip(alone, together(*(lambda p=p: asking(p) for p in cases))):
            for a, b in zip(found, expected):
                np.testing.assert_array_equal(a, b)


def test_threads_share_a_model(body: str) -> None:
    """A fitted estimator may be asked from several threads, also for the first time."""
    rng = np.random.default_rng(7)
    X = [rng.standard_normal((length, 3)) for length in LENGTHS[:30] if length]
    y = [["ab"[int(row[0] > 0)] for row in x] for x in X]
    model = ChainCRF(n_jobs=2).fit(X, y)
    asked = together(*(lambda: (model.predict_proba(X), model.predict(X)) for _ in range(4)))
    for proba, labels in asked:
        for a, b, c, d in zip(proba, asked[0][0], labels, asked[0][1]):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(c, d)


# ------------------------------------------------------------------------------------------ after fork

needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)


def in_a_child(call: Callable[[], Any]) -> Any:
    """The result of a call in a forked child; a child that hangs or dies is a failure, not a wait."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def report(pipe: Connection) -> None:
        pipe.send(call())
        pipe.close()

    child = context.Process(target=report, args=(there,))
    child.start()
    there.close()
    try:
        if not here.poll(PATIENCE):
            pytest.fail(f"the child did not answer within {PATIENCE:g} seconds")
        try:
            return here.recv()
        except EOFError:
            child.join(PATIENCE)
            pytest.fail(f"the child died with exit code {child.exitcode}")
    finally:
        if child.is_alive():
            child.join(1.0)
        if child.is_alive():
            child.kill()
        child.join()


@needs_fork
@pytest.mark.parametrize("threads_before", [False, True])
@every_case
def test_evaluating_after_fork(body: str, o: Options, threads_before: bool) -> None:
    rng = np.random.default_rng(8)
    case = linear_case(rng, replace(o, lengths=o.lengths[:40]))
    weights, problem = case.weights(rng), problem_of(case)
    tagger = linear.Tagger(case.layout, weights)
    if threads_before:
        evaluate(problem, weights, 4)
        together(lambda: evaluate(problem, weights, 2), lambda: tagger.decode(case.batch, n_jobs=2))

    def ask() -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient = evaluate(problem, weights, 2)
        return value, gradient, tagger.decode(case.batch, n_jobs=2)[0]

    value, gradient, path = in_a_child(ask)
    expected = ask()
    assert value == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])
    np.testing.assert_array_equal(path, expected[2])


@needs_fork
def test_forking_while_another_thread_works(body: str) -> None:
    """The child inherits whatever state the working thread was in; nothing of it may be waited for."""
    rng = np.random.default_rng(9)
    case = linear_case(rng, replace(CASES[0], lengths=LENGTHS[:30]))
    weights, problem = case.weights(rng), problem_of(case)
    expected = evaluate(problem, weights, 2)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            evaluate(problem, weights, 2)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            value, gradient = in_a_child(lambda: evaluate(problem, weights, 2))
            assert value == expected[0]
            np.testing.assert_array_equal(gradient, expected[1])
    finally:
        stop.set()
        worker.join()


@needs_fork
def test_fitting_after_fork(body: str) -> None:
    rng = np.random.default_rng(10)
    X = [rng.standard_normal((length, 2)) for length in (5, 3, 8, 1, 6)]
    y = [["ab"[int(row.sum() > 0)] for row in x] for x in X]
    expected = ChainCRF(n_jobs=2).fit(X, y)

    def fit() -> tuple[float, list[list[str]]]:
        model = ChainCRF(n_jobs=2).fit(X, y)
        return model.objective_, [labels.tolist() for labels in model.predict(X)]

    objective, labels = in_a_child(fit)
    assert objective == expected.objective_
    assert labels == [row.tolist() for row in expected.predict(X)]
