"""Model selection along a path: held-out steps, or cross-validation.

Steps of one recording resemble their neighbours, so what is held out must be whole sequences. Where there are too few
of those (a single long recording is common) spans of time are held out instead, each in one piece, with the chain cut
where they meet.

`chosen_path` runs a method by its name and answers with a path and the round to believe. With folds the method is run
on each; the held-out scores of rounds that are alike are averaged, and the method is run on everything up to the best
one. Rounds are alike in size (grafting and others that add so many a round) or in λ / √n: the slope of a column that
has nothing to say is a sum of n terms of chance, so it grows with √n, and a penalty that keeps out as much of chance
in a fold as in the whole must do the same. Near its minimum the mean loss is flat, and the next penalties often add
true columns that are too weak to show: one of the next `LEAN` is taken if the folds cannot tell it from the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.selection.path import CRITERIA, SelectionPath, SelectionRound, best_round
from crfield.selection.problem import SelectionProblem
from crfield.selection.views import spans_of

FEWEST = 4  # sequences, below which time is cut instead

MOST_FOLDS, FEWEST_FOLDS = 5, 3
STEPS_OF_FOLDS = 50_000  # that all folds together may train on
SHORTEST = 20  # steps of a piece of time that is held out
LEAN = 2  # penalties below the best that are looked at too
TOLD_APART = 0.5  # standard errors of a difference, above which folds tell two rounds apart
RELAX = 10.0  # ridge of the relaxed path's rounds; the last training chooses its own

METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {  # module, function and what its name implies
    "grafting": ("crfield.selection.methods.grafting", "graft", {}),
    "relaxed": ("crfield.selection.methods.l1_path", "l1_path", {"relax": RELAX, "tol": 1e-4, "patience": 6}),
    "l1-path": ("crfield.selection.methods.l1_path", "l1_path", {}),
    "gain": ("crfield.selection.methods.gain", "gain_path", {}),
    "m-grafting": ("crfield.selection.methods.m_grafting", "m_graft", {}),
    "stability": ("crfield.selection.methods.stability", "stability_path", {}),
    "mutual-information": ("crfield.selection.methods.filters", "filter_path", {"score": "mutual-information"}),
    "relieff": ("crfield.selection.methods.filters", "filter_path", {"score": "relieff"}),
    "wrapper": ("crfield.selection.methods.wrapper", "wrapper_path", {}),
    "all": ("crfield.selection.methods.everything", "everything", {}),
}

Spans = np.ndarray  # (n, 2)
Watch = Callable[[SelectionRound], bool | None]
MakeProblem = Callable[[Spans | None, Spans | None], SelectionProblem]


def method_options(
    method: str, options: Mapping[str, Any] | None
) -> tuple[Callable[..., SelectionPath], dict[str, Any]]:
    """The function of a method and its keywords; InputError for names that are not known.

    >>> method_options("grafting", {"m": 8})[1]
    {'m': 8}
    """
    if method not in METHODS:
        raise InputError(f"method must be one of 'auto', {', '.join(map(repr, METHODS))}, got {method!r}.")
    module, name, implied = METHODS[method]
    function = getattr(import_module(module), name)
    given = dict(options or {})
    known = _keywords(function)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"{method} has no option {unknown[0]!r}; it has {', '.join(known)}.")
    return function, {**implied, **given}


def _keywords(function: Callable[..., Any]) -> list[str]:
    return [k for k, p in signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY and k != "watch"]


def _known(method: str) -> set[str]:
    return set(_keywords(method_options(method, None)[0]))


def run(
    method: str,
    problem: SelectionProblem,
    *,
    watch: Watch | None = None,
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
        raise InputError(f"validation, the share to hold out, must be a number between 0 and 1, got {share!r}.")
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


AUTOMATIC = ("relaxed", "grafting")


def automatic_method(chains: Chains, options: Mapping[str, Any] | None, *, computed: bool = False) -> str:
    """What "auto" is: the relaxed path, or grafting for columns that are ``computed`` from recordings or long data.

    Computed candidates are thresholds of a few measurements, each nearly its neighbour, on recordings whose labels
    change seldom: there the greedy method is the sparsest, no worse and cheapest, and needs no folds. Options that
    only one of the two knows decide too.

    >>> chains = Chains.from_lengths([60] * 12)
    >>> automatic_method(chains, None), automatic_method(chains, {"m": 8}), automatic_method(chains, {"l0": 1})
    ('relaxed', 'grafting', 'grafting')
    """
    names = AUTOMATIC if not computed and chains.n_nodes * FEWEST_FOLDS <= STEPS_OF_FOLDS else AUTOMATIC[::-1]
    for name in names:
        if not set(options or ()) - _known(name):
            return name
    return names[0]


def automatic(method: str, chains: Chains) -> tuple[float | int, str]:
    """What "auto" holds out and judges by.

    The relaxed path is chosen by the loss in five folds, fewer where there are more than 10,000 steps: held-out
    scores are then less noisy, and folds cost more. Beyond 16,666 steps a quarter is held out once, and so it is
    where one to three sequences cannot be cut into three pieces of twenty steps. Other methods: a quarter, by errors.

    >>> automatic("relaxed", Chains.from_lengths([60] * 12)), automatic("relaxed", Chains.from_lengths([9000] * 4))
    ((5, 'nll'), (0.25, 'nll'))
    """
    if method != "relaxed":
        return 0.25, "error"
    filled = chains.lengths[chains.lengths > 0]
    room = len(filled) if len(filled) >= FEWEST else int(filled.max(initial=0)) // SHORTEST
    count = min(MOST_FOLDS, STEPS_OF_FOLDS // max(chains.n_nodes, 1), room)
    return (count if count >= FEWEST_FOLDS else 0.25), "nll"


@dataclass(frozen=True, eq=False)
class Choice:
    """A path, the round to believe, the problem they are of, and what judged it: held-out parts and their rounds."""

    path: SelectionPath
    best: SelectionRound
    problem: SelectionProblem
    judges: tuple[tuple[SelectionProblem, SelectionRound], ...] = ()


def chosen_path(
    make: MakeProblem,
    chains: Chains,
    method: str,
    *,
    validation: float | int | None,
    criterion: str,
    options: Mapping[str, Any],
    rng: np.random.Generator,
    watch: Watch | None = None,
    watch_folds: Watch | None = None,
) -> Choice:
    """A path and the round chosen.

    ``make(spans, held_spans)`` gives the problem of a part. ``validation`` is a share of the steps, a number of folds
    of at least 2, or None: then the last round is taken, or the best where the problem holds something out itself.
    ``watch_folds`` sees the rounds of folds, ``watch`` those of the path itself.
    """
    heard = _heard(method, criterion=criterion)
    if validation is None or isinstance(validation, float):
        parts = (None, None) if validation is None else split(chains, validation, rng)
        problem = make(*parts)
        path = run(method, problem, watch=watch, **heard, **options)
        judged = ((problem, path.best),) if problem.held is not None else ()
        return Choice(path, path.best, problem, judged)
    problem = make(None, None)
    grid = _grid(method, problem, options)
    curves, walked = [], []
    for part in folds(chains, int(validation), rng):
        fold = make(*part)
        given = dict(options)
        if grid is not None:
            given["lambdas"] = grid * np.sqrt(fold.n_steps / problem.n_steps)
        path = run(method, fold, watch=watch_folds, **heard, **given)
        alike = [*range(len(path))] if grid is None else _reached(path, given["lambdas"])
        walked.append((fold, path, alike))
        curves.append([(path[k].held_error, path[k].held_nll) for k in alike])
    longest = max(map(len, curves))
    padded = np.array([[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves])
    mean = padded.mean(axis=0)
    wanted = best_round([(float(a), float(b)) for a, b in mean], criterion)
    if method == "relaxed" and wanted:
        wanted = _leaned(padded[:, :, CRITERIA.index(criterion)], wanted)

    def enough(one: SelectionRound) -> bool:
        return bool(watch is not None and watch(one)) or one.number >= wanted

    given = dict(options) if grid is None else {**options, "lambdas": grid}
    path = run(method, problem, watch=enough, **{**heard, **given, **_heard(method, patience=None)})
    rounds = tuple(
        replace(one, held_error=float(error), held_nll=float(nll)) for one, (error, nll) in zip(path.rounds, mean)
    )
    stopped = len(path) <= wanted and path.stop_reason == "callback"
    reason = path.stop_reason if stopped else f"best of {int(validation)} folds"
    path = replace(path, rounds=rounds, stop_reason=reason, chosen=min(wanted, len(path) - 1))
    judges = tuple((fold, own[alike[min(wanted, len(alike) - 1)]]) for fold, own, alike in walked)
    return Choice(path, path.best, problem, judges)


def _leaned(scores: np.ndarray, best: int) -> int:
    """The last of the best and the next `LEAN` rounds within `TOLD_APART` of it, by scores (folds, rounds)."""
    more = scores[:, best : best + LEAN + 1] - scores[:, best : best + 1]
    error = more.std(axis=0, ddof=1) / np.sqrt(len(more))
    return best + int(np.flatnonzero(more.mean(axis=0) <= TOLD_APART * error)[-1])


def _grid(method: str, problem: SelectionProblem, options: Mapping[str, Any]) -> np.ndarray | None:
    """The penalties of a path on all data, for its folds to follow; None for methods without."""
    function, _ = method_options(method, options)
    known = signature(function).parameters
    if "lambdas" not in known:
        return None
    largest = float(np.abs(problem.slopes(problem.fit([], tol=1e-12))).max(initial=0.0))
    if largest == 0:
        return None
    if options.get("lambdas") is not None:
        own = np.asarray(options["lambdas"], dtype=np.float64)
        return np.concatenate([[max(largest, *own[:1])], own[own < largest]])
    decay, count = (options.get(name, known[name].default) for name in ("decay", "n_lambdas"))
    return largest * float(decay) ** np.arange(int(count) + 1)


def _reached(path: SelectionPath, lambdas: np.ndarray) -> list[int]:
    """For each λ the round that is its model: that of the least penalty down to it; none after the path's end."""
    penalties = np.array([one.penalty for one in path])
    inside = lambdas[lambdas >= penalties[-1] * (1 - 1e-9)]
    return [int(np.flatnonzero(penalties >= value * (1 - 1e-9))[-1]) if k else 0 for k, value in enumerate(inside)]
