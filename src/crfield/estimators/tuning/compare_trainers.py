"""Trainers side by side on one data set: `compare_trainers`.

The data are encoded once, and every trainer gets the same columns, weights of zero and the same penalty. Its clock is
the CPU time of this process; it stands still while its weights are judged, at moments ever further apart. The
packing of the data that a solver asks for is part of its time, since a user would wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.typing import Labels, Sequences, Weights
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.training import chain_penalty
from crfield.kernels import linear
from crfield.metrics.span_scores import span_f1
from crfield.metrics.tokens import token_accuracy
from crfield.optimize.history import CALLBACK, Step
from crfield.optimize.penalty import Penalty
from crfield.report.comparisons.trainers import Moment, TrainerComparison, TrainerRow
from crfield.training.chain.plan import TRAINERS, ChainParts, Plan, fit_chain, plan_chain, prepare

SPACING = 1.25  # CPU seconds of a moment over those of the one before
TIME_LIMIT = "time limit"


def compare_trainers(
    X: Sequences,
    y: Labels,
    *,
    X_test: Sequences,
    y_test: Labels,
    trainers: Sequence[str] | None = None,
    scheme: str | None = None,
    time_limit: float = 30.0,
    sample_weight: Weights = None,
    told: Callable[[TrainerRow], None] | None = None,
    **options: Any,
) -> TrainerComparison:
    """Train on (X, y) by each of the trainers and judge it on (X_test, y_test) on the way.

    ``trainers`` are names of solvers, or "solver:objective" (by default all solvers, each with what it trains
    first). Scores are token accuracy, or F1 of spans in the tag ``scheme``. ``time_limit`` ends a trainer after so
    many CPU seconds, ``told`` hears of each row as soon as it is there, and ``options`` are parameters of `ChainCRF`
    (l1, l2, tol, max_iter, template, random_state, …). A trainer that cannot be run, because it has no l1 penalty for
    instance, has its reason in the row.

    >>> from crfield import make_phrases, phrase_features
    >>> phrases = make_phrases(60)
    >>> X = [phrase_features(tokens) for tokens in phrases.tokens]
    >>> split = {"X_test": X[40:], "y_test": phrases.labels[40:]}
    >>> found = compare_trainers(X[:40], phrases.labels[:40], trainers=["lbfgs", "cg"], **split)
    >>> [row.ended for row in found.rows], found["cg"].gap < 1e-3, len(found["cg"].moments) > 2
    (['tolerance', 'tolerance'], True, True)
    """
    named = {name: _plan(name) for name in (TRAINERS if trainers is None else trainers)}
    if not named:
        raise InputError(f"name at least one trainer: {', '.join(TRAINERS)}.")
    front = ChainCRF(**options)
    front.check()
    if front.label_functions is not None or front.order != 1:
        raise InputError("trainers are compared on plain chains of columns; leave label_functions and order out.")
    coder = LabelCoder().fit(y)
    model, batch, target, _ = front.read_training(coder, X, y, sample_weight)
    jobs = resolve_jobs(front.n_jobs)
    parts = ChainParts.columns(model.layout, batch, target, n_jobs=jobs)
    penalty = chain_penalty(front, model)
    judge = _Judge(parts, penalty, coder, model.encode(X_test), list(y_test), scheme)
    common: dict[str, Any] = {"tol": front.tol, "max_iter": front.max_iter, "n_jobs": jobs}
    rows = []
    for name, plan in named.items():
        rng = random_generator(front.random_state)
        rows.append(_run(name, plan, parts, penalty, judge, time_limit=time_limit, rng=rng, **common))
        if told is not None:
            told(rows[-1])
    best = min((row.value for row in rows if row.value is not None), default=float("nan"))
    return TrainerComparison(
        rows=tuple(_against(row, best) for row in rows),
        score_name="accuracy" if scheme is None else "span F1",
        n_sequences=target.topology.n_sequences,
        n_steps=target.topology.n_nodes,
        n_weights=model.layout.n_weights,
        l1=penalty.l1,
        l2=penalty.l2,
    )


class _Judge:
    """Both numbers of any weights: the penalised −log-likelihood, and the held-out score."""

    def __init__(
        self, parts: ChainParts, penalty: Penalty, coder: LabelCoder, batch: Any, y: list[Any], scheme: str | None
    ) -> None:
        self._problem, self._penalty, self._layout = parts.problem("likelihood"), penalty, parts.layout
        self._batch, self._scheme, self._spare = batch, scheme, np.empty(parts.scorer.n_weights)
        self._labels, self._y = np.array(coder.labels, dtype=object), y
        self._jobs = parts.engine.n_jobs
        if len(y) != batch.topology.n_sequences:
            raise InputError(f"X_test has {batch.topology.n_sequences} sequences and y_test {len(y)}.")

    def value(self, weights: np.ndarray) -> float:
        mask = self._penalty.penalised
        kept = weights if mask is None else weights[mask != 0]
        loss = self._problem.evaluate(np.ascontiguousarray(weights), self._spare)
        return loss + self._penalty.l1 * float(np.abs(kept).sum()) + 0.5 * self._penalty.l2 * float(kept @ kept)

    def score(self, weights: np.ndarray) -> float | None:
        if not self._y:
            return None
        tagger = linear.Tagger(self._layout, np.ascontiguousarray(weights))
        codes = tagger.decode(self._batch, n_jobs=self._jobs)[0]
        predicted = np.split(self._labels[codes], self._batch.topology.offsets[1:-1])
        if self._scheme is None:
            return float(token_accuracy(self._y, predicted))
        return float(span_f1(self._y, predicted, scheme=self._scheme))


def _plan(name: str) -> Plan:
    solver, _, objective = name.partition(":")
    if solver not in TRAINERS:
        raise InputError(f"a trainer is a solver ({', '.join(TRAINERS)}) or solver:objective, got {name!r}.")
    return plan_chain(objective or "auto", solver)


def _run(
    name: str,
    plan: Plan,
    parts: ChainParts,
    penalty: Penalty,
    judge: _Judge,
    *,
    time_limit: float,
    **common: Any,
) -> TrainerRow:
    moments: list[Moment] = []
    began, lost, due, late = time.process_time(), 0.0, 0.0, False

    def watch(step: Step, weights: np.ndarray) -> bool:
        nonlocal lost, due, late
        now = time.process_time()
        spent = now - began - lost
        late = spent > time_limit
        if spent >= due and not late:
            moments.append(Moment(spent, step.n_iter, judge.value(weights), judge.score(weights)))
            due = spent * SPACING
        lost += time.process_time() - now
        return late

    try:
        result = fit_chain(plan, prepare(plan, parts), penalty, callback=watch, **common)
    except InputError as error:
        return TrainerRow(name, plan.solver, plan.objective, reason=str(error))
    seconds = time.process_time() - began - lost
    value, score = judge.value(result.weights), judge.score(result.weights)
    moments.append(Moment(seconds, result.n_iter, value, score))
    return TrainerRow(
        name,
        plan.solver,
        plan.objective,
        n_iter=result.n_iter,
        seconds=seconds,
        value=value,
        score=score,
        n_active=int(np.count_nonzero(result.weights)),
        ended=TIME_LIMIT if late and result.reason == CALLBACK else result.reason,
        moments=tuple(moments),
    )


def _against(row: TrainerRow, best: float) -> TrainerRow:
    """The row with what can be said only when all are there."""
    if row.value is None:
        return row
    scale = max(abs(best), 1e-300)
    near = [moment.seconds for moment in row.moments if moment.value - best <= 0.01 * scale]
    return replace(row, gap=(row.value - best) / scale, to_percent=near[0] if near else None)
