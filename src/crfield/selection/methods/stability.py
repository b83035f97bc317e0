"""Stability selection: what is chosen again and again when half of the data is taken away.

A selector that is run on one data set gives one set of features and no idea of how much of it is chance.
Meinshausen & Bühlmann (2010, *Stability selection*) run it on many halves of the data and count. Of each half the
first ``q`` features that enter are kept, and the share of halves in which a feature is among them is its frequency.
If the selector is not worse than guessing, the expected number of features that enter by chance with a frequency of
at least π is bounded,

    E[false] ≤ q² / ((2 π − 1) n_candidates)            π > ½

whatever the selector (`expected_false`). Halves come in pairs that share nothing (Shah & Samworth 2013, *Variable
selection with error control: another look at stability selection*), which uses the data better.

Steps of a chain are not independent, so whole sequences are drawn; where there are few, they are cut into pieces
first, long against the memory of the chain, and pieces are drawn. Candidates are not computed again for that: a piece
is a span of the recordings (`crfield.selection.views`).

Near copies share their frequency among them: of twenty thresholds at nearly the same place each may be rare though
one of them is always there. A column that is linked to one label is nearly that of the same column and another label,
with two labels the very same, so halves in which a column enters with any link count for the one that enters most
often.
"""

from __future__ import annotations

import numpy as np

from crfield.core.checks import one_of
from crfield.core.target import Target
from crfield.errors import InputError
from crfield.selection.methods.grafting import Watch, check_rounds, graft
from crfield.selection.methods.l1_path import l1_path
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.record import Recorder

SELECTORS = ("grafting", "l1-path")


def stability_path(
    problem: SelectionProblem,
    *,
    selector: str = "grafting",
    n_resamples: int = 30,
    q: int | None = None,
    threshold: float = 0.6,
    pieces: int = 20,
    l2: float = 0.01,
    max_features: int = 200,
    patience: int | None = None,
    criterion: str = "error",
    tol: float = 1e-5,
    max_iter: int = 50,
    random_state: int | np.random.Generator | None = 0,
    watch: Watch | None = None,
) -> SelectionPath:
    """Rounds add what is next most frequent, down to ``threshold``; the frequency is in ``largest`` of the round.

    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([400]), np.repeat(rng.integers(0, 2, 80), 5)
    >>> x = rng.normal(size=(400, 6)) + np.outer(y, [0, 2, 0, 1, 0, 0])
    >>> problem = SelectionProblem(MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y))
    >>> path = stability_path(problem, n_resamples=10, q=2)
    >>> [name[:2] for _, name in path.entered()], path[1].largest
    (['s1', 's3'], 1.0)
    """
    check_rounds(m=n_resamples, max_features=max_features, patience=patience)
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must be a number > 0 and ≤ 1 (a share of the halves), got {threshold!r}.")
    record = Recorder(problem, "stability", criterion=criterion, patience=patience, watch=watch)
    model = problem.fit([], l2=l2, tol=tol, max_iter=max_iter)
    record.add(model)
    frequency = frequencies(
        problem, selector=selector, n_resamples=n_resamples, q=q, pieces=pieces, l2=l2, random_state=random_state
    )
    for level in np.unique(frequency[frequency >= threshold])[::-1].tolist():
        entering = np.flatnonzero(frequency == level)
        if record.stopped or len(model.active) + len(entering) > max_features:
            break
        model = problem.fit(np.concatenate([model.active, entering]), model, l2=l2, tol=tol, max_iter=max_iter)
        record.add(model, added=entering, largest=level)
    if not record.stopped:
        record.stop(f"frequency below {threshold:g}")
    return record.path()


def frequencies(
    problem: SelectionProblem,
    *,
    selector: str = "grafting",
    n_resamples: int = 30,
    q: int | None = None,
    pieces: int = 20,
    l2: float = 0.01,
    random_state: int | np.random.Generator | None = 0,
) -> np.ndarray:
    """(n_candidates,) share of halves in which a candidate is among the first ``q``.

    ``q`` is √(0.8 n_candidates) unless given: then at most one is expected to be false at a frequency of .9.
    """
    one_of(*SELECTORS)("selector", selector)
    if n_resamples < 2 or pieces < 2:
        raise InputError(f"expected at least two resamples and two pieces, got {n_resamples} and {pieces}.")
    wanted = int(np.ceil(np.sqrt(0.8 * max(int(problem.usable.sum()), 1)))) if q is None else int(q)
    if wanted < 1:
        raise InputError(f"q must be ≥ 1, got {q!r}.")
    rng = np.random.default_rng(random_state)
    whole, spans = _whole_target(problem), _pieces(problem, pieces)
    if len(spans) < 2:
        raise InputError("the training part is too short to be cut into halves.")
    counts, halves = np.zeros(problem.n_candidates), []
    column = problem.candidates.places().column
    of_column = np.zeros(problem.candidates.n_columns)
    for k in range(n_resamples):
        if k % 2 == 0:
            order = rng.permutation(len(spans))
            halves = [np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])]
        part = SelectionProblem(
            problem.candidates,
            whole,
            spans=spans[halves[k % 2]],
            scale=problem.scale,
            intercept=problem.base.intercept,
            transitions=problem.base.transitions,
            boundaries=problem.base.boundaries,
            base_l2=problem.base_l2,
            n_jobs=problem.n_jobs,
        )
        entered = _first(part, selector, wanted, l2)
        counts[entered] += 1
        of_column[np.unique(column[entered])] += 1
    order = np.lexsort((np.arange(len(counts)), -counts, column))
    first_of_column = order[np.r_[True, column[order][1:] != column[order][:-1]][: len(order)]]
    counts[first_of_column] = of_column[column[first_of_column]]
    return counts / n_resamples


def expected_false(q: int, threshold: float, n_candidates: int) -> float:
    """The bound on the number of features that enter by chance.

    >>> round(expected_false(12, 0.9, 200), 6)
    0.9
    """
    if not 0.5 < threshold <= 1:
        raise InputError(f"the bound holds for thresholds > ½, got {threshold!r}.")
    return q * q / ((2 * threshold - 1) * max(n_candidates, 1))


def _first(problem: SelectionProblem, selector: str, q: int, l2: float) -> np.ndarray:
    """Up to q candidates in the order in which they enter."""
    if selector == "grafting":
        path = graft(problem, l2=l2, max_features=q, patience=None, tol=1e-4)
    else:
        path = l1_path(problem, max_features=q, patience=None, tol=1e-4)
    entered: dict[int, None] = {}
    for one in path:
        strongest = np.argsort(-np.abs(one.model.weights), kind="stable")
        entered.update(dict.fromkeys(one.model.active[strongest].tolist()))
    return np.array(list(entered)[:q], np.int64)


def _pieces(problem: SelectionProblem, pieces: int) -> np.ndarray:
    """(n, 2) spans of the candidates' steps: the training sequences, cut until there are about ``pieces``."""
    view = problem.train
    offsets = view.chains.offsets
    first = offsets[:-1] if view.rows is None else view.rows[np.minimum(offsets[:-1], len(view.rows) - 1)]
    length = view.chains.lengths
    longest = max(int(length.sum()) // pieces, 1) if np.count_nonzero(length) < pieces else int(length.max(initial=1))
    spans = []
    for start, steps in zip(first.tolist(), length.tolist()):
        cuts = np.linspace(0, steps, max(round(steps / longest), 1) + 1).astype(np.int64) + start
        spans += [(a, b) for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist()) if b > a]
    return np.array(spans, np.int64).reshape(-1, 2)


def _whole_target(problem: SelectionProblem) -> Target:
    """The target over all steps of the candidates; outside the training part, where nobody looks, any label."""
    view = problem.train
    chains, target = problem.candidates.chains, view.target
    if view.rows is None:
        return target
    labels = np.zeros(chains.n_nodes, np.int32)
    labels[view.rows] = target.labels
    allowed = weight = None
    if target.allowed is not None:
        allowed = np.ones((chains.n_nodes, target.n_labels), bool)
        allowed[view.rows] = target.allowed
    if target.weight is not None:
        weight = np.ones(chains.n_sequences)
        filled = view.chains.lengths > 0
        owner = chains.sequence_of_node[view.rows[view.chains.offsets[:-1][filled]]]
        weight[owner] = target.weight[filled]
    return Target(chains, target.n_labels, labels, allowed, weight)
