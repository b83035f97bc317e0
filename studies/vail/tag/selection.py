"""Selecting features of robot tag: tables 3.1 and 3.2 and figures 3.2 and 3.12 of Vail's thesis.

1,200 candidates (`features.relational.examples.TAG_LARGE`; Vail 2008, section 3.4) on games of three robots, ten
minutes each to train, to choose on and to test on. Table 3.1 trains on the simulator, table 3.2 on robots. Ours are
not robots but the simulator seen through `robot_vision` (noise, frames that are lost, a tracker, labels that come
late), so what is said here of robots is said of them. Columns of the table:

    simulation, robots     error of the chosen weights on either world
    l2, simulation         the chosen features with weights trained on the simulator under a ridge, tested there
    l2, robots             the same with weights trained on robots, tested there

Models and ridges are chosen by the error on held-out games; the ℓ1 path ends when the loss there has turned. Gains
take 16 features a round and look at candidates of the steepest slopes; they come in the thesis's two forms, true and
likeliest neighbours, and in a third that conditions on true neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.features.lazy_columns import LazyColumns
from crfield.features.relational.catalogue import Specification
from crfield.features.relational.examples import TAG_LARGE
from crfield.features.relational.recordings import Recordings
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.report.displays.curves import Chart, Curve
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.selection import choice
from crfield.selection.active import ActiveColumns
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.simulate.tag import TagGames, make_tag
from crfield.simulate.tag_vision import robot_vision
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve, where

NONE, GRAFT, PL, ML, L1 = "none", "grafting", "gain, true neighbours", "gain, likeliest neighbours", "ℓ1 path"
GIVEN, M_GRAFT = "gain, given neighbours", "m-grafting"
SIM, ROBOTS = "simulation", "robots"
FEATURES, ON_SIM, ON_ROBOTS, L2_SIM, L2_ROBOTS, SECONDS = range(6)
SIZES = (0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 200, 240)
RIDGES = (0.1, 1.0, 10.0)
_SHOWN = 12  # features of figure 3.2
# Tables 3.1 and 3.2: features, error in % on simulation and on robots, and with l2 on simulation and on robots.
THESIS: dict[tuple[str, str], tuple[Any, ...]] = {
    (SIM, NONE): (1164, 8.8, 26.7, 3.4, None),
    (SIM, GRAFT): (37, 6.2, 12.5, 2.2, 7.5),
    (SIM, PL): (165, 1.6, 13.5, 1.4, 5.9),
    (SIM, ML): (132, 3.8, 56.8, 2.6, 4.6),
    (SIM, L1): (161, 1.8, 8.2, 3.2, 7.4),
    (ROBOTS, NONE): (1200, 23.5, 16.1, None, 9.7),
    (ROBOTS, GRAFT): (11, 3.3, 7.0, 2.8, 7.0),
    (ROBOTS, PL): (190, 3.0, 7.6, 0.8, 7.7),
    (ROBOTS, ML): (190, 13.8, 25.6, 1.5, 7.2),
    (ROBOTS, L1): (227, 7.1, 5.9, 2.8, 7.3),
}
METHODS = (NONE, GRAFT, PL, ML, GIVEN, L1, M_GRAFT)


cases = crossed(seed="seeds", train=(SIM, ROBOTS))  # a case is one set of games and what is trained on


def run(settings: Settings, case: Case) -> Outcome:
    """Method → [features, four errors, CPU seconds]; "curves" and "weights" for the figures."""
    games = [make_tag(settings["minutes"], random_state=100 * case["seed"] + k) for k in range(3)]
    seen = [robot_vision(game, random_state=100 * case["seed"] + k) for k, game in enumerate(games)]
    worlds = {SIM: [_candidates(game) for game in games], ROBOTS: [_candidates(game) for game in seen]}
    problems = {
        name: SelectionProblem(*parts[0], held_out=parts[1], base_l2=settings["base_l2"])
        for name, parts in worlds.items()
    }
    problem = problems[case["train"]]
    judges = {
        name: SelectionProblem(*worlds[case["train"]][0], held_out=parts[2], scale=problem.scale)
        for name, parts in worlds.items()
    }
    told: Outcome = {"curves": {}}
    for name, (method, options) in _methods(settings).items():
        path = replace(choice.run(method, problem, **options), criterion="error")
        best = path.best
        errors = [judges[world].held_out(best.model).error for world in (SIM, ROBOTS)]
        smoothed = [
            _smoothed(problems[world], worlds[world], best.model, same=world == case["train"])
            for world in (SIM, ROBOTS)
        ]
        told[name] = [best.n_features, *errors, *smoothed, best.seconds]
        told["curves"][name] = _by_size(path, judges[case["train"]])
        if name == L1:
            told["weights"] = _weights(path)
    told[NONE] = _everything(problem, judges, case["train"], settings["all_steps"])
    return told


def _methods(settings: Settings) -> dict[str, tuple[str, dict[str, Any]]]:
    gain = {"m": 16, "shortlist": settings["shortlist"], "max_features": settings["max_features"], "patience": 3}
    return {
        GRAFT: ("grafting", {"max_features": settings["max_features"]}),
        PL: ("gain", gain),
        ML: ("gain", {**gain, "neighbours": "model"}),
        GIVEN: ("gain", {**gain, "base": "conditional"}),
        # Its first models hardly differ from none, so errors go up and down at first; the loss does not.
        L1: (
            "l1-path",
            {
                "max_features": 2 * settings["max_features"],
                "n_lambdas": settings["lambdas"],
                "patience": 15,
                "criterion": "nll",
            },
        ),
        M_GRAFT: ("m-grafting", {"max_features": settings["max_features"], "patience": 5}),
    }


def _candidates(game: TagGames) -> tuple[LazyColumns, Target]:
    """The 1,200 candidates on a game; speeds and their thresholds are millimetres a second, as in the thesis."""
    catalogue = Specification.parse(TAG_LARGE).expand(labels=3, agents=3)
    columns = catalogue.on(Recordings.of([game.positions], rate=game.rate))
    return columns, Target(columns.chains, 3, game.labels)


def _smoothed(
    problem: SelectionProblem, parts: list[tuple[LazyColumns, Target]], model: SelectionModel, *, same: bool
) -> float:
    """Test error in a world of the features of a model, trained there with the ridge that held-out games like."""
    start = model if same else None
    usable = model.active[problem.usable[model.active]]
    found: list[tuple[float, float, int, SelectionModel]] = []
    for l2 in RIDGES:
        start = problem.fit(usable, start, l2=l2, tol=1e-4, max_iter=40)
        held = problem.held_out(start)
        found.append((held.error, held.nll, len(found), start))
    best = min(found, key=lambda one: one[:3])[3]
    return SelectionProblem(*parts[0], held_out=parts[2], scale=problem.scale).held_out(best).error


def _everything(
    problem: SelectionProblem, judges: dict[str, SelectionProblem], world: str, steps: int
) -> list[float | None]:
    """All usable candidates, without and with a ridge of 1, by L-BFGS."""
    active = np.flatnonzero(problem.usable)
    columns = ActiveColumns(problem.train, problem.scale, base=problem.base)
    columns.use(active)
    errors: list[list[float]] = []
    for l2 in (0.0, 1.0):
        found = minimize(columns, np.zeros(columns.n_weights), Penalty(l2=l2), tol=1e-6, max_iter=steps)
        base, weights = found.weights[: columns.n_base], found.weights[columns.n_base :]
        model = SelectionModel(active, weights, base, found.value, found.value)
        errors.append([judges[world].held_out(model).error for world in (SIM, ROBOTS)])
    smoothed = [error if name == world else None for name, error in zip((SIM, ROBOTS), errors[1])]
    return [len(active), *errors[0], *smoothed, None]


def _by_size(path: SelectionPath, judge: SelectionProblem) -> list[list[float] | None]:
    """Test error of, and CPU seconds to, the largest model up to every size; None beyond the end of the path."""
    rounds = {one.n_features: one for one in path}
    end = next((size for size in SIZES if size >= max(rounds)), SIZES[-1])
    chosen = {size: rounds[max(n for n in rounds if n <= size)] for size in SIZES if size <= end}
    errors = {id(one): judge.held_out(one.model).error for one in {id(o): o for o in chosen.values()}.values()}
    return [[errors[id(chosen[size])], chosen[size].seconds] if size in chosen else None for size in SIZES]


def _weights(path: SelectionPath) -> dict[str, Any]:
    """Figure 3.2: the weights of a few features along the path, over ‖w‖₁ / ‖w‖₁ at its end."""
    last = path[-1].model
    some = last.active[np.argsort(-np.abs(last.weights))[:_SHOWN]]
    norms = [float(np.abs(one.model.weights).sum()) for one in path]
    lines = {}
    for k in some.tolist():
        known = [dict(zip(one.model.active.tolist(), one.model.weights.tolist())).get(k, 0.0) for one in path]
        lines[path.names[k]] = known
    return {"share": [norm / max(norms[-1], 1e-300) for norm in norms], "lines": lines}


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Both tables with the thesis's numbers in brackets; errors in %."""
    rows: list[tuple[Any, ...]] = []
    for world in (SIM, ROBOTS):
        some = where(outcomes, train=world)
        for name in METHODS:
            thesis = THESIS.get((world, name), (None,) * 5)
            cells = [f"{np.mean([outcome[name][FEATURES] for _, outcome in some]):.0f}" + _bracket(thesis[0])]
            for what in (ON_SIM, ON_ROBOTS, L2_SIM, L2_ROBOTS):
                known = some[0][1][name][what] is not None
                cells.append(
                    _percent(some, name, what) + _bracket(thesis[what]) if known else "·" + _bracket(thesis[what])
                )
            seconds = some[0][1][name][SECONDS]
            times = [outcome[name][SECONDS] / outcome[GRAFT][SECONDS] for _, outcome in some if seconds is not None]
            rows.append((f"{world}: {name}", *cells, f"{np.mean(times):.1f}" if times else None))
    return Findings(
        f"Tag, 1,200 candidates: trained, chosen and tested on {settings['minutes']:g} minutes each; error in %, "
        "thesis in brackets",
        ("trained on", "features", "simulation", "robots", "l2, simulation", "l2, robots", "time ÷ grafting"),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over sets of games; differences are taken set by set",
            "robots are simulated games seen through noise, dropout, a tracker and late labels, not robots",
            "time is that to the chosen model; intercepts and transitions are in every model and not counted",
        ),
        charts=_charts(outcomes),
    )


def _percent(some: Outcomes, name: str, what: int) -> str:
    interval = mean_interval(by_seed(some, lambda outcome: 100 * outcome[name][what]))
    reach = "" if np.isnan(interval.low) else f" ± {(interval.high - interval.low) / 2:.1f}"
    return f"{interval.mean:.1f}{reach}"


def _bracket(value: Any) -> str:
    return "" if value is None else f" [{value:g}]"


def _values(outcomes: Outcomes, world: str, name: str, what: int) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][what], train=world)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The thesis's, table by table."""

    def larger(sentence: str, world: str, one: tuple[str, int], other: tuple[str, int]) -> Claim:
        return above(sentence, _values(outcomes, world, *one), _values(outcomes, world, *other))

    claims = []
    for world, own in ((SIM, ON_SIM), (ROBOTS, ON_ROBOTS)):
        claims += [
            larger(
                f"paper, {world}: the ℓ1 path takes more features than grafting",
                world,
                (L1, FEATURES),
                (GRAFT, FEATURES),
            ),
            larger(
                f"paper, {world}: gains take more features than grafting", world, (PL, FEATURES), (GRAFT, FEATURES)
            ),
            larger(f"paper, {world}: the ℓ1 path has fewer errors than grafting", world, (GRAFT, own), (L1, own)),
            larger(f"paper, {world}: no selection has more errors than grafting", world, (NONE, own), (GRAFT, own)),
            larger(f"paper, {world}: the ℓ1 path takes longer than grafting", world, (L1, SECONDS), (GRAFT, SECONDS)),
            larger(f"paper, {world}: gains take longer than the ℓ1 path", world, (PL, SECONDS), (L1, SECONDS)),
        ]
    claims += [
        larger("paper, simulation: all are worse on robots (grafting)", SIM, (GRAFT, ON_ROBOTS), (GRAFT, ON_SIM)),
        larger("paper, simulation: a ridge helps what grafting chose", SIM, (GRAFT, ON_SIM), (GRAFT, L2_SIM)),
        Claim(
            "paper, simulation: gains, likeliest neighbours: ten times the errors on robots (3.8 to 56.8 %)",
            np.mean(_values(outcomes, SIM, ML, ON_ROBOTS)) >= 10 * np.mean(_values(outcomes, SIM, ML, ON_SIM)),
            " and ".join(
                f"{100 * np.mean(_values(outcomes, SIM, ML, place)):.1f} %" for place in (ON_SIM, ON_ROBOTS)
            ),
        ),
        *(
            larger(
                f"paper, simulation: the ℓ1 path generalises better to robots than {rival}",
                SIM,
                (rival, ON_ROBOTS),
                (L1, ON_ROBOTS),
            )
            for rival in (GRAFT, PL, ML)
        ),
        larger(
            "ours, simulation: m-grafting has fewer errors than grafting", SIM, (GRAFT, ON_SIM), (M_GRAFT, ON_SIM)
        ),
        larger(
            "ours, simulation: gains given true neighbours have more errors than gains over marginals",
            SIM,
            (GIVEN, ON_SIM),
            (PL, ON_SIM),
        ),
    ]
    return claims


def _charts(outcomes: Outcomes) -> tuple[Chart, ...]:
    charts = []
    for world in (SIM, ROBOTS):
        told = [outcome["curves"] for case, outcome in outcomes if case["train"] == world]
        sizes, times = [], []
        for name in (GRAFT, PL, L1, M_GRAFT):
            kept = [k for k in range(len(SIZES)) if all(own[name][k] is not None for own in told)]
            errors = [[own[name][k][0] for own in told] for k in kept]
            seconds = [float(np.mean([own[name][k][1] for own in told])) for k in kept]
            sizes.append(curve(name, [SIZES[k] for k in kept], errors))
            times.append(curve(name, seconds, errors))
        charts += [
            Chart(f"{world} (3.12a)", "features", "test error", tuple(sizes)),
            Chart(f"{world} (3.12b)", "CPU seconds", "test error", tuple(times)),
        ]
    weights = next(outcome["weights"] for case, outcome in outcomes if case["train"] == ROBOTS)
    none = (float("nan"),) * len(weights["share"])
    lines = tuple(
        Curve(name, tuple(weights["share"]), tuple(values), none, none) for name, values in weights["lines"].items()
    )
    return (*charts, Chart("ℓ1 path of one set of games (3.2)", "‖w‖₁ / ‖w‖₁ at the end", "weight", lines))


STUDY = Study(
    {
        "seeds": [1, 2, 3, 4, 5],
        "minutes": 10.0,
        "shortlist": 100,
        "max_features": 160,
        "base_l2": 0.01,
        "all_steps": 100,
        "lambdas": 100,
    },
    {
        "seeds": [1, 2, 3],
        "minutes": 2.0,
        "shortlist": 40,
        "max_features": 48,
        "base_l2": 0.01,
        "all_steps": 30,
        "lambdas": 60,
    },
    cases,
    run,
    report,
    claims,
)
