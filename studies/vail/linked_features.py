"""Linked to labels or to changes of labels? Figures 3.10 and 3.11 of Vail's thesis.

Pairs of columns: one depends on the label, one on whether the label has just changed (`simulate.weak_features`; Vail
2008, section 3.3.4). Every value and every square is offered linked to labels and linked to pairs of labels, so that
of 24 features a pair of columns 12 are right, 8 say more than needed (a column of labels linked to pairs), and 4 can
say nothing (a column of changes linked to labels). Which do selectors take? A chain is trained on T steps, chosen on
1,000 held-out ones and judged on 1,000 others.

The gains come in three forms: true neighbours and marginals (the thesis's PL), likeliest neighbours and marginals
(its ML), and true neighbours with the distribution of a step given them, which is pseudo-likelihood to the letter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.features.lazy_columns import MatrixColumns
from crfield.report.displays.curves import Chart, Curve
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.selection import choice
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.simulate.weak_features import LinkedFeatures, make_linked_features, powers
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve, where

GRAFT, L1, M_GRAFT = "grafting", "ℓ1 path", "m-grafting"
PL, ML, GIVEN = "gain, true neighbours", "gain, likeliest neighbours", "gain, given neighbours"
_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    GRAFT: ("grafting", {"l2": 0.0}),
    PL: ("gain", {"l2": 0.0, "variance": None}),
    ML: ("gain", {"l2": 0.0, "variance": None, "neighbours": "model"}),
    GIVEN: ("gain", {"l2": 0.0, "variance": None, "base": "conditional"}),
    L1: ("l1-path", {}),
    M_GRAFT: ("m-grafting", {"l2": 0.0, "block": 5}),
}
RIGHT_STATE, RIGHT_CHANGE, OVER, IRRELEVANT = range(4)
SORTS = ("right, of labels", "right, of changes", "more than needed", "irrelevant")
AVAILABLE = (4, 8, 8, 4)  # features of each sort for a pair of columns
ERROR, FEATURES, OF_SORT = 0, 1, 2
SIZES = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 100, 120)
# An independent prototype, ten pairs, T = 1,024, four seeds: error in %, features, over-parametrised, irrelevant.
NOTED = {GRAFT: (19.9, 39, 4.2, 1.2), L1: (19.6, 108, 25, 5), PL: (19.3, 38, 1.8, 0), ML: (20.0, 46, 8.5, 0.8)}


cases = crossed(seed="seeds", pairs="pairs")  # a case is one world: a seed and a number of pairs


def run(settings: Settings, case: Case) -> Outcome:
    """Method → [test error, features, four counts by sort]; "order": method → counts by sort at SIZES."""
    rng = np.random.default_rng([case["seed"], case["pairs"]])
    worlds = [
        make_linked_features(steps, n_pairs=case["pairs"], random_state=rng)
        for steps in (settings["length"], 1000, 1000)
    ]
    train, held, test = map(candidates_of, worlds)
    problem = SelectionProblem(*train, held_out=held)
    judge = SelectionProblem(*train, held_out=test, scale=problem.scale)
    sorts = _sorts(problem, worlds[0])
    told: Outcome = {"order": {}}
    for name, (method, options) in _METHODS.items():
        most = {"max_features": settings["max_features"], "patience": settings["patience"]}
        path = choice.run(method, problem, **most, **options)
        model = path.best.model
        counts = np.bincount(sorts[model.active], minlength=4).tolist()
        told[name] = [judge.held_out(model).error, len(model.active), *counts]
        if case["pairs"] == settings["pairs"][-1]:
            told["order"][name] = _by_size(path, sorts)
    return told


def candidates_of(world: LinkedFeatures) -> tuple[MatrixColumns, Target]:
    """Values and squares, each linked to labels and to pairs of labels."""
    chains = Chains.from_lengths([len(y) for y in world.labels])
    names = [*world.names, *(f"{name}²" for name in world.names)]
    values = powers(np.concatenate(world.features))
    columns = MatrixColumns(values, chains=chains, n_labels=2, transition=values, names=names, transition_names=names)
    return columns, Target(chains, 2, np.concatenate(world.labels))


def _sorts(problem: SelectionProblem, world: LinkedFeatures) -> np.ndarray:
    """(n_candidates,) the sort of every candidate."""
    places = problem.candidates.places()
    of_change = np.tile(world.of_change, 4)[places.column]
    of_pair = places.previous >= 0
    return np.where(of_change, np.where(of_pair, RIGHT_CHANGE, IRRELEVANT), np.where(of_pair, OVER, RIGHT_STATE))


def _by_size(path: SelectionPath, sorts: np.ndarray) -> list[list[int] | None]:
    """How many of each sort the largest model up to every size has; None beyond the end of the path."""
    models = {one.n_features: one.model for one in path}
    end = next((size for size in SIZES if size >= max(models)), SIZES[-1])
    return [
        np.bincount(sorts[models[max(n for n in models if n <= size)].active], minlength=4).tolist()
        if size <= end
        else None
        for size in SIZES
    ]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method and number of pairs; the share of each sort that is taken, in %."""
    rows: list[tuple[Any, ...]] = []
    most = settings["pairs"][-1]
    for pairs in reversed(settings["pairs"]):
        some = where(outcomes, pairs=pairs)
        for name in _METHODS:
            shares = [f"{100 * np.mean(_share(some, name, sort)):.0f} %" for sort in range(4)]
            noted = NOTED[name] if name in NOTED and pairs == 10 and settings["length"] == 1024 else None
            rows.append(
                (
                    f"{pairs} pairs: {name}",
                    mean_interval(_errors(some, name)),
                    f"{np.mean([outcome[name][FEATURES] for _, outcome in some]):.1f}",
                    *shares,
                    None if noted is None else "{:.1f} % / {} / {} / {}".format(*noted),
                )
            )
    return Findings(
        f"Columns of labels and columns of changes: {settings['length']:,} steps, chosen on 1,000, tested on 1,000",
        ("model", "error", "features", *SORTS, "prototype"),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over seeds; differences are taken seed by seed",
            "shares are of the features of a sort that there are: 4, 8, 8 and 4 for each pair of columns",
            "prototype: error, features, more than needed and irrelevant ones of an independent program (four seeds)",
        ),
        charts=_charts(settings, [o for o in outcomes if o[0]["pairs"] == most], outcomes),
    )


def _errors(outcomes: Outcomes, name: str, **where: Any) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][ERROR], **where)


def _share(some: Outcomes, name: str, sort: int) -> list[float]:
    return by_seed(
        [
            (case, {"share": outcome[name][OF_SORT + sort] / (AVAILABLE[sort] * case["pairs"])})
            for case, outcome in some
        ],
        lambda outcome: outcome["share"],
    )


def _right(some: Outcomes, name: str) -> list[float]:
    return by_seed(
        [
            (
                case,
                {"share": sum(outcome[name][OF_SORT + sort] for sort in (RIGHT_STATE, RIGHT_CHANGE)) / case["pairs"]},
            )
            for case, outcome in some
        ],
        lambda outcome: outcome["share"],
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The thesis's: who takes what."""
    few, most = settings["pairs"][0], settings["pairs"][-1]
    some = where(outcomes, pairs=most)
    claims = []
    for name in (GRAFT, L1):
        errors = [_errors(outcomes, name, pairs=pairs) for pairs in (few, most)]
        claims.append(above(f"paper: {name}: more pairs, fewer errors", errors[0], errors[1]))
    for other in (PL, L1):
        sentence = f"paper: grafting takes fewer right features than {other}"
        claims.append(above(sentence, _right(some, other), _right(some, GRAFT)))
    for other in (PL, L1):
        sentence = f"paper: grafting takes fewer over-parametrised features than {other}"
        claims.append(above(sentence, _share(some, other, OVER), _share(some, GRAFT, OVER)))
    sentence = "paper: gains with true neighbours take more over-parametrised features than the ℓ1 path"
    claims.append(above(sentence, _share(some, PL, OVER), _share(some, L1, OVER)))
    for other in (GRAFT, PL):
        sentence = f"paper: the ℓ1 path takes more irrelevant features than {other}"
        claims.append(above(sentence, _share(some, L1, IRRELEVANT), _share(some, other, IRRELEVANT)))
    first = {
        name: by_seed(
            [(case, {"pairs": _early(outcome["order"][name])}) for case, outcome in some],
            lambda outcome: outcome["pairs"],
        )
        for name in (PL, ML)
    }
    sentence = (
        "paper: among the first 12 features, true neighbours prefer pairs of labels more than likeliest ones do"
    )
    claims.append(above(sentence, first[PL], first[ML]))
    worst = {
        name: max(np.mean(_share(some, name, IRRELEVANT)), np.mean(_share(some, name, OVER))) for name in _METHODS
    }
    right = {name: np.mean(_right(some, name)) / 12 for name in _METHODS}
    for name in _METHODS:
        sentence = f"ours: {name} takes a larger share of the right features than of either wrong sort"
        found = f"{100 * right[name]:.0f} % against {100 * worst[name]:.0f} %"
        claims.append(Claim(sentence, bool(right[name] > worst[name]), found))
    return claims


def _early(counts: list[list[int] | None]) -> float:
    """Share of features linked to pairs in the model of up to 12 features."""
    own = counts[SIZES.index(12)] or counts[0] or [1, 0, 0, 0]
    return (own[RIGHT_CHANGE] + own[OVER]) / max(sum(own), 1)


def _charts(settings: Settings, some: Outcomes, outcomes: Outcomes) -> tuple[Chart, ...]:
    charts = []
    for name in (GRAFT, PL, L1, ML):
        told = [outcome["order"][name] for _, outcome in some]
        kept = [k for k in range(len(SIZES)) if all(own[k] is not None for own in told)]
        curves: list[Curve] = [
            curve(sort, [SIZES[k] for k in kept], [[own[k][number] for own in told] for k in kept])
            for number, sort in enumerate(SORTS)
        ]
        charts.append(Chart(f"{name} (3.11)", "features", "of each sort", tuple(curves)))
    if len(settings["pairs"]) > 1:
        places = list(settings["pairs"])
        curves = [curve(name, places, [_errors(outcomes, name, pairs=p) for p in places]) for name in _METHODS]
        charts.append(Chart("chosen models (3.10)", "pairs", "test error", tuple(curves)))
    return tuple(charts)


STUDY = Study(
    {
        "seeds": [1, 2, 3, 4, 5, 6, 7, 8],
        "pairs": [1, 2, 4, 7, 10],
        "length": 1024,
        "max_features": 120,
        "patience": None,
    },
    {"seeds": [1, 2, 3, 4, 5, 6], "pairs": [2, 10], "length": 1024, "max_features": 120, "patience": 20},
    cases,
    run,
    report,
    claims,
)
