"""Selection among worse and worse copies: figures 3.4 to 3.9 of Vail's thesis.

Ten groups of n columns, of which one is informative and n − 1 are fading copies of it (`simulate.weak_features`; Vail
2008, section 3.3). A chain is trained on T steps with each value and its square; models are chosen on 1,000 held-out
steps and judged on 1,000 others. What varies:

    grafting, 1, 8 or 32 features a round                          figure 3.4
    gains on all steps, or on mistakes only                        figure 3.5
    T, with five columns a group                                   figures 3.6 and 3.7
    n, with 1,024 steps                                            figures 3.8 and 3.9

All candidates here are linked to labels, so the gain does not ask who the neighbours are unless it conditions on
them: the thesis's two variants (true neighbours, likeliest neighbours) are one; the third row of gains conditions.
Intercepts and transitions are in every model and not counted; the thesis counts them (206 features, not 200). Beside
the thesis's three methods stand m-grafting, a filter, and the model with everything.

The thesis prints no numbers for these figures. The claims are its sentences, and the figures that an independent
prototype had on the same data with four seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.features.lazy_columns import MatrixColumns
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.selection import choice
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.simulate.weak_features import WeakFeatures, make_weak_features, powers
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, curve, gap_text, where

ALL, GRAFT, GRAFT_8, GRAFT_32, L1 = (
    "all features",
    "grafting",
    "grafting, 8 a round",
    "grafting, 32 a round",
    "ℓ1 path",
)
GAIN, MISTAKES, CONDITIONAL = "gain", "gain, mistakes only", "gain, given neighbours"
M_GRAFT, FILTER = "m-grafting", "mutual information"
ERROR, FEATURES, STRONG, WEAK, SPOT, SECONDS = range(6)
THREE = (GRAFT, GAIN, L1)
SIZES = (0, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 100, 120)
_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    GRAFT: ("grafting", {"l2": 0.0}),
    GRAFT_8: ("grafting", {"m": 8, "l2": 0.0}),
    GRAFT_32: ("grafting", {"m": 32, "l2": 0.0}),
    L1: ("l1-path", {}),
    GAIN: ("gain", {"l2": 0.0, "variance": None}),
    MISTAKES: ("gain", {"l2": 0.0, "variance": None, "where": "mistakes"}),
    CONDITIONAL: ("gain", {"l2": 0.0, "variance": None, "base": "conditional"}),
    M_GRAFT: ("m-grafting", {"l2": 0.0, "block": 5}),
    FILTER: ("mutual-information", {"m": 2, "l2": 0.0}),
}
# An independent prototype on the same data, mean of four seeds at T = 1,024: error in %, features.
NOTED = {
    GRAFT: (22.8, 16),
    GRAFT_8: (23.0, 44),
    GRAFT_32: (23.1, 64),
    GAIN: (22.6, 18),
    MISTAKES: (25.8, 72),
    L1: (23.5, 65),
}


def cases(settings: Settings) -> list[Case]:
    """A case is one world: a seed, T steps, n columns a group."""
    varied = [(length, 5) for length in settings["lengths"]] + [
        (settings["lengths"][-1], copies) for copies in settings["copies"] if copies != 5
    ]
    return [{"seed": seed, "T": T, "n": n} for seed in settings["seeds"] for T, n in varied]


def run(settings: Settings, case: Case) -> Outcome:
    """Method → [test error, features, strong, weak, sweet spot, CPU seconds]; "curves": method → errors at SIZES."""
    rng = np.random.default_rng([case["seed"], case["T"], case["n"]])
    worlds = [make_weak_features(steps, n_copies=case["n"], random_state=rng) for steps in (case["T"], 1000, 1000)]
    train, held, test = map(candidates_of, worlds)
    problem = SelectionProblem(*train, held_out=held)
    judge = SelectionProblem(*train, held_out=test, scale=problem.scale)
    strong = np.tile(worlds[0].rank == 0, 2)
    chief = (case["T"], case["n"]) == (settings["lengths"][-1], 5)
    told: Outcome = {"curves": {}}
    everything = problem.fit(np.flatnonzero(problem.usable))
    told[ALL] = [judge.held_out(everything).error, *_made_of(problem, everything, strong), None, None]
    for name, (method, options) in _METHODS.items():
        if not chief and name not in (*THREE, M_GRAFT):
            continue
        most = {"max_features": settings["max_features"], "patience": settings["patience"]}
        path = choice.run(method, problem, **most, **options)
        best = path.best
        told[name] = [
            judge.held_out(best.model).error,
            *_made_of(problem, best.model, strong),
            _sweet_spot(path),
            best.seconds,
        ]
        told["curves"][name] = _by_size(path, judge)
    return told


def candidates_of(world: WeakFeatures) -> tuple[MatrixColumns, Target]:
    """Values and squares of a world with their labels."""
    chains = Chains.from_lengths([len(y) for y in world.labels])
    names = [*world.names, *(f"{name}²" for name in world.names)]
    columns = MatrixColumns(powers(np.concatenate(world.features)), chains=chains, n_labels=2, names=names)
    return columns, Target(chains, 2, np.concatenate(world.labels))


def _made_of(problem: SelectionProblem, model: SelectionModel, strong: np.ndarray) -> list[int]:
    """Features, and how many of them are of strong and of weak columns."""
    of_strong = int(strong[problem.candidates.places(model.active).column].sum())
    return [len(model.active), of_strong, len(model.active) - of_strong]


def _sweet_spot(path: SelectionPath) -> int:
    """How many sizes of models, from the smallest to the largest, are within one point of the best held-out error."""
    near = [one.n_features for one in path if one.held_error <= path.best.held_error + 0.01]
    return max(near) - min(near)


def _by_size(path: SelectionPath, judge: SelectionProblem) -> list[float | None]:
    """Test error of the largest model up to every size; None beyond the end of the path."""
    errors = {one.n_features: judge.held_out(one.model).error for one in path}
    end = next((size for size in SIZES if size >= max(errors)), SIZES[-1])
    return [errors[max(n for n in errors if n <= size)] if size <= end else None for size in SIZES]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Tables by T and by n, and the curves of figures 3.4 to 3.9."""
    longest = settings["lengths"][-1]
    chief = where(outcomes, T=longest, n=5)
    rows: list[tuple[Any, ...]] = []
    for name in (ALL, *_METHODS):
        rows.append((f"T = {longest}, n = 5: {name}", *_cells(chief, name), _noted(name, longest)))
    for length in settings["lengths"][:-1]:
        some = where(outcomes, T=length, n=5)
        rows += [(f"T = {length}, n = 5: {name}", *_cells(some, name), None) for name in (ALL, *THREE, M_GRAFT)]
    for copies in settings["copies"]:
        some = where(outcomes, T=longest, n=copies)
        if copies != 5:
            rows += [(f"T = {longest}, n = {copies}: {name}", *_cells(some, name), None) for name in THREE]
    return Findings(
        "Fading copies of ten informative columns: models chosen on 1,000 held-out steps, error on 1,000 test steps",
        ("model", "error", "features", "strong", "weak", "sweet spot", "prototype"),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over seeds; differences are taken seed by seed",
            "sweet spot: from the smallest to the largest model within one point of the best held-out error",
            "prototype: error and features of an independent program (mean of four seeds); it counts intercepts",
        ),
        charts=_charts(settings, outcomes, chief),
    )


def _cells(some: Outcomes, name: str) -> list[Any]:
    cells: list[Any] = [mean_interval(by_seed(some, lambda outcome: outcome[name][ERROR]))]
    for what in (FEATURES, STRONG, WEAK, SPOT):
        known = [outcome[name][what] for _, outcome in some]
        cells.append(None if known[0] is None else f"{np.mean(known):.1f}")
    return cells


def _noted(name: str, longest: int) -> str | None:
    return "{:.1f} % / {}".format(*NOTED[name]) if longest == 1024 and name in NOTED else None


def _values(outcomes: Outcomes, name: str, what: int, **where: Any) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][what], **where)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The thesis's, and ours on what its text leaves open."""
    lengths, longest, copies = settings["lengths"], settings["lengths"][-1], settings["copies"]
    chief = where(outcomes, T=longest, n=5)

    def larger(whose: str, sentence: str, one: str, other: str, what: int, **where: Any) -> Claim:
        some = outcomes if where else chief
        return above(f"{whose}: {sentence}", _values(some, one, what, **where), _values(some, other, what, **where))

    claims = [
        larger("paper", "more features a round, larger models (8 against 1)", GRAFT_8, GRAFT, FEATURES),
        larger("paper", "more features a round, larger models (32 against 8)", GRAFT_32, GRAFT_8, FEATURES),
        larger("paper", "gains on mistakes only give larger models", MISTAKES, GAIN, FEATURES),
        larger("paper", "and worse ones", MISTAKES, GAIN, ERROR),
        *(
            larger("paper", f"T = {T}: the ℓ1 path gives larger models than grafting", L1, GRAFT, FEATURES, T=T, n=5)
            for T in lengths
        ),
        *(larger("paper", f"T = {T}: and than gains", L1, GAIN, FEATURES, T=T, n=5) for T in lengths),
        larger("paper", "the ℓ1 path has the wider sweet spot, against grafting", L1, GRAFT, SPOT),
        larger("paper", "and against gains", L1, GAIN, SPOT),
        larger("paper", f"T = {lengths[0]}: grafting is worse than the ℓ1 path", GRAFT, L1, ERROR, T=lengths[0], n=5),
    ]
    gap = paired_interval(_values(chief, GRAFT, ERROR), _values(chief, L1, ERROR))
    claims.append(Claim(f"paper: T = {longest}: the gap between them is gone", gap.holds(0.0), gap_text(gap)))
    if len(copies) > 1:
        ends = (copies[0], copies[-1])
        weak = [[_values(outcomes, name, WEAK, T=longest, n=n) for n in ends] for name in THREE]
        claims.append(
            above(
                f"paper: the ℓ1 path takes more weak features with n = {ends[1]} than with {ends[0]}",
                weak[2][1],
                weak[2][0],
            )
        )
        for name in (GRAFT, L1):
            few, many = (_values(outcomes, name, ERROR, T=longest, n=n) for n in ends)
            gap = paired_interval(many, few)
            claims.append(Claim(f"paper: {name}: the error does not change with n", gap.holds(0.0), gap_text(gap)))
    error, features = (float(np.mean(_values(chief, GRAFT, what))) for what in (ERROR, FEATURES))
    ratio = float(np.mean(_values(chief, L1, FEATURES))) / features
    if longest == 1024:
        claims += [
            Claim(
                "ours: grafting within 2.5 points of the prototype's 22.8 %",
                abs(error - 0.228) <= 0.025,
                f"{100 * error:.1f} %",
            ),
            Claim("ours: with at most 30 features", features <= 30, f"{features:.1f}"),
            Claim("ours: the ℓ1 path takes at least twice as many", ratio >= 2, f"{ratio:.1f} times"),
        ]
    gap = paired_interval(_values(chief, M_GRAFT, ERROR), _values(chief, GRAFT, ERROR))
    claims.append(Claim("ours: m-grafting within a point of grafting", gap.within(-0.01, 0.01), gap_text(gap)))
    claims.append(larger("ours", "a filter takes more features than grafting", FILTER, GRAFT, FEATURES))
    return claims


def _charts(settings: Settings, outcomes: Outcomes, chief: Outcomes) -> tuple[Chart, ...]:
    def by_size(title: str, some: Outcomes, names: tuple[str, ...]) -> Chart:
        curves = []
        for name in names:
            told = [outcome["curves"][name] for _, outcome in some]
            kept = [k for k in range(len(SIZES)) if all(own[k] is not None for own in told)]
            curves.append(curve(name, [SIZES[k] for k in kept], [[own[k] for own in told] for k in kept]))
        return Chart(title, "features", "test error", tuple(curves))

    def along(title: str, axis: str, places: list[int], what: int, names: tuple[str, ...], shown: str) -> Chart:
        fixed = {"n": 5} if axis == "T" else {"T": settings["lengths"][-1]}
        curves = [
            curve(
                name,
                [np.log2(p) if axis == "T" else p for p in places],
                [_values(outcomes, name, what, **{axis: p}, **fixed) for p in places],
            )
            for name in names
        ]
        return Chart(title, "log2 T" if axis == "T" else "columns a group", shown, tuple(curves))

    lengths, copies = list(settings["lengths"]), list(settings["copies"])
    shortest = [(case, outcome) for case, outcome in outcomes if (case["T"], case["n"]) == (lengths[0], 5)]
    charts = [
        by_size("grafting (3.4)", chief, (GRAFT, GRAFT_8, GRAFT_32)),
        by_size("gains (3.5)", chief, (GAIN, MISTAKES, CONDITIONAL)),
        by_size(f"T = {lengths[0]} (3.6)", shortest, (*THREE, M_GRAFT)),
        by_size(f"T = {lengths[-1]} (3.6)", chief, (*THREE, M_GRAFT)),
        along("chosen models (3.7a)", "T", lengths, ERROR, (*THREE, M_GRAFT), "test error"),
        along("their size (3.7b)", "T", lengths, FEATURES, (*THREE, M_GRAFT), "features"),
    ]
    if len(copies) > 1:
        charts += [
            along("weak copies (3.9)", "n", copies, ERROR, THREE, "test error"),
            along("weak features (3.9)", "n", copies, WEAK, THREE, "weak features"),
        ]
    return tuple(charts)


STUDY = Study(
    {
        "seeds": list(range(1, 21)),
        "lengths": [128, 256, 512, 1024],
        "copies": [2, 5, 10],
        "max_features": 120,
        "patience": None,
    },
    {"seeds": [1, 2, 3, 4, 5, 6, 7, 8], "lengths": [256, 1024], "copies": [5], "max_features": 80, "patience": 20},
    cases,
    run,
    report,
    claims,
)
