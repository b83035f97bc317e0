"""Which round of a path to believe: held-out steps, or cross-validation.

Steps of one recording resemble their neighbours, so what is held out must be whole sequences. Where there are too few
of those (a single long recording is common) spans of time are held out instead, each in one piece, with the chain cut
where they meet.

`chosen_path` runs a method by its name and answers with a path whose ``best`` is the choice. With folds the method is
run on each; the held-out scores of rounds of the same number are averaged, and the method is run on everything up to
the best one. Rounds of the same number are alike in size (grafting) or in λ / λ_0 (ℓ1), which is what is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.selection.path import SelectionPath, SelectionRound, best_round
from crfield.selection.problem import SelectionProblem
from crfield.selection.views import spans_of

FEWEST = 4  # sequences, below which time is cut instead

METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {  # module, function and what its name implies
    "grafting": ("crfield.selection.grafting", "graft", {}),
    "l1-path": ("crfield.selection.l1_path", "l1_path", {}),
    "gain": ("crfield.selection.gain", "gain_path", {}),
    "m-grafting": ("crfield.selection.m_grafting", "m_graft", {}),
    "stability": ("crfield.selection.stability", "stability_path", {}),
    "mutual-information": ("crfield.selection.filters", "filter_path", {"score": "mutual-information"}),
    "relieff": ("crfield.selection.filters", "filter_path", {"score": "relieff"}),
    "wrapper": ("crfield.selection.wrapper", "wrapper_path", {}),
}

Spans = np.ndarray  # (n, 2)
MakeProblem = Callable[[Spans | None, Spans | None], SelectionProblem]


def method_options(
    method: str, options: Mapping[str, Any] | None
) -> tuple[Callable[..., SelectionPath], dict[str, Any]]:
    """The function of a method and its keywords; InputError for names that are not known.

    >>> method_options("grafting", {"m": 8})[1]
    {'m': 8}
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}.")
    module, name, implied = METHODS[method]
    function = getattr(import_module(module), name)
    given = dict(options or {})
    known = [k for k, p in signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY and k != "watch"]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"{method} has no option {unknown[0]!r}; it has {', '.join(known)}.")
    return function, {**implied, **given}


def run(
    method: str,
    problem: SelectionProblem,
    *,
    watch: Callable[[SelectionRound], bool | None] | None = None,
    **options: Any,
) -> SelectionPath:
    """The path of a method by its name.

    >>> from crfield.core.target import Target
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> labels = np.repeat([0, 1, 0, 1], 10)
    >>> columns = MatrixColumns(labels[:, None] + np.tile([0.0, 0.3], 20)[:, None],
    ...                         chains=Chains.from_lengths([40]), n_labels=2)
    >>> run("grafting", SelectionProblem(columns, Target(columns.chains, 2, labels)), max_features=1)
    SelectionPath(grafting: 2 rounds, best has 1 feature, ... s to it)
    """
    function, given = method_options(method, options)
    return function(problem, watch=watch, **given)


def _heard(method: str, **more: Any) -> dict[str, Any]:
    """Those of the keywords that a method knows."""
    known = signature(method_options(method, None)[0]).parameters
    return {name: value for name, value in more.items() if name in known}


def split(chains: Chains, share: float, rng: np.random.Generator) -> tuple[Spans, Spans]:
    """Spans to train on and to hold out, about ``share`` of the steps.

    Whole sequences at random where there are at least four; else the last part of each.

    >>> train, held = split(Chains.from_lengths([100]), 0.25, np.random.default_rng(0))
    >>> train.tolist(), held.tolist()
    ([[0, 75]], [[75, 100]])
    """
    if not 0 < share < 1:
        raise InputError(f"the share to hold out must lie between 0 and 1, got {share!r}.")
    filled = np.flatnonzero(chains.lengths > 0)
    if len(filled) >= FEWEST:
        order = rng.permutation(filled)
        steps = np.cumsum(chains.lengths[order])
        count = int(np.argmin(np.abs(steps - share * steps[-1]))) + 1
        count = min(max(count, 1), len(order) - 1)
        return spans_of(chains, np.sort(order[count:])), spans_of(chains, np.sort(order[:count]))
    first, end = chains.offsets[filled], chains.offsets[filled + 1]
    middle = end - np.rint(share * (end - first)).astype(np.int64)
    train, held = np.stack([first, middle], axis=1), np.stack([middle, end], axis=1)
    train, held = train[train[:, 1] > train[:, 0]], held[held[:, 1] > held[:, 0]]
    if not len(train) or not len(held):
        raise InputError(
            f"{chains.n_nodes} steps are too few to hold {share:g} of them out. Pass validation=None, or more data."
        )
    return train, held


def folds(chains: Chains, n: int, rng: np.random.Generator) -> list[tuple[Spans, Spans]]:
    """n pairs of spans to train on and to hold out: sequences dealt out, or where there are too few, pieces of time.

    >>> [held.tolist() for _, held in folds(Chains.from_lengths([9]), 3, np.random.default_rng(0))]
    [[[0, 3]], [[3, 6]], [[6, 9]]]
    """
    filled = np.flatnonzero(chains.lengths > 0)
    if len(filled) >= n:
        owner = rng.permutation(np.arange(len(filled)) % n)
        pieces = spans_of(chains, filled)
    else:
        cuts = [np.linspace(a, b, n + 1).astype(np.int64) for a, b in spans_of(chains, filled).tolist()]
        pieces = np.array([(c[k], c[k + 1]) for c in cuts for k in range(n)], np.int64).reshape(-1, 2)
        owner = np.tile(np.arange(n), len(cuts))
    kept = pieces[:, 1] > pieces[:, 0]
    pieces, owner = pieces[kept], owner[kept]
    found = [(pieces[owner != k], pieces[owner == k]) for k in range(n)]
    if any(not len(train) or not len(held) for train, held in found):
        raise InputError(f"{chains.n_nodes} steps are too few for {n} folds. Use fewer folds, or more data.")
    return found


def chosen_path(
    make: MakeProblem,
    chains: Chains,
    method: str,
    *,
    validation: float | int | None,
    criterion: str,
    options: Mapping[str, Any],
    rng: np.random.Generator,
    watch: Callable[[SelectionRound], bool | None] | None = None,
) -> tuple[SelectionPath, SelectionRound, SelectionProblem]:
    """A path, the round chosen, and the problem they are of.

    ``make(spans, held_spans)`` gives the problem of a part. ``validation`` is a share of the steps, a number of folds
    of at least 2, or None: then the last round is taken, or the best where the problem holds something out itself.
    """
    if validation is None or isinstance(validation, float):
        parts = (None, None) if validation is None else split(chains, validation, rng)
        problem = make(*parts)
        path = run(method, problem, watch=watch, **_heard(method, criterion=criterion), **options)
        return path, path.best, problem
    heard = _heard(method, criterion=criterion)
    curves = [
        [(r.held_error, r.held_nll) for r in run(method, make(*part), **heard, **options)]
        for part in folds(chains, int(validation), rng)
    ]
    longest = max(map(len, curves))
    padded = np.array([[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves])
    mean = padded.mean(axis=0)
    wanted = best_round([(float(a), float(b)) for a, b in mean], criterion)

    def enough(one: SelectionRound) -> bool:
        told = watch(one) if watch is not None else False
        return bool(told) or one.number >= wanted

    problem = make(None, None)
    path = run(method, problem, watch=enough, **{**heard, **options, **_heard(method, patience=None)})
    rounds = tuple(
        replace(one, held_error=float(error), held_nll=float(nll)) for one, (error, nll) in zip(path.rounds, mean)
    )
    path = replace(path, rounds=rounds, stop_reason=f"best of {int(validation)} folds")
    return path, path[min(wanted, len(path) - 1)], problem
