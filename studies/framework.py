"""Experiments that are repeated: settings, cases, outcomes, and what they say together.

A table of a paper is the mean of many trainings: seeds × held-out sequences × whatever the horizontal axis shows. A
`Study` splits such an experiment into *cases* that share nothing, so that they run in any order and in several
processes, and a run that was interrupted goes on where it stood. Settings, cases and outcomes are plain values for
JSON; a case is known by its text, and an outcome is never computed twice.

    cases(settings)             →  every case, as a dict
    run(settings, case)         →  the outcome of one: a dict of numbers
    report(settings, outcomes)  →  table, claims and charts

`settings["seeds"]` are the independent repetitions: intervals are taken over their means, never over the folds within
one, which share their training data and the world that made them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.report.displays.curves import Chart, Curve
from crfield.report.findings import Findings, Interval, mean_interval, paired_interval
from crfield.training.parallel import run_each

Settings = Mapping[str, Any]
Case = dict[str, Any]
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Reproduced:
    """What came of an experiment: a table with claims, and charts to draw."""

    findings: Findings
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Study:
    """An experiment in cases. ``run`` is a function of a module, not a lambda: it travels to other processes.

    >>> coins = Study("throws of coins", {"seeds": [1, 2, 3]}, {"seeds": [1]}, needs_data=False,
    ...     cases=lambda settings: [{"seed": seed} for seed in settings["seeds"]],
    ...     run=lambda settings, case: {"heads": case["seed"] % 2},
    ...     report=lambda settings, outcomes: Reproduced(Findings("coins", ("coin", "heads"), (("mine",
    ...         mean_interval(outcome["heads"] for _, outcome in outcomes)),))))
    >>> settings = settings_of(coins, quick=True, repetitions=3, seed=5)
    >>> settings
    {'seeds': [5, 6, 7]}
    >>> coins.report(settings, run_study(coins, settings)).findings["mine", "heads"].mean
    0.666...
    """

    summary: str
    full: Settings
    quick: Settings
    cases: Callable[[Settings], list[Case]]
    run: Callable[[Settings, Case], Outcome]
    report: Callable[[Settings, list[tuple[Case, Outcome]]], Reproduced]
    needs_data: bool = False  # then settings["data"] names the folder


def settings_of(
    study: Study, *, quick: bool = False, repetitions: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """The settings of the whole or the quick form; other seeds are ``seed``, ``seed`` + 1, … ."""
    settings = dict(study.quick if quick else study.full)
    usual = list(settings["seeds"])
    if repetitions is not None and repetitions < 1:
        raise InputError(f"an experiment needs at least one repetition, got {repetitions}.")
    if repetitions is not None or seed is not None:
        first = usual[0] if seed is None else seed
        settings["seeds"] = list(range(first, first + (repetitions or len(usual))))
    return settings


def case_name(case: Case) -> str:
    """The text by which a case is known.

    >>> case_name({"seed": 1, "p": 0.9})
    '{"p": 0.9, "seed": 1}'
    """
    return json.dumps(case, sort_keys=True)


def run_study(
    study: Study,
    settings: Settings,
    *,
    n_jobs: int = 1,
    known: Mapping[str, Outcome] | None = None,
    after: Callable[[str, Outcome, int, int], None] | None = None,
) -> list[tuple[Case, Outcome]]:
    """Run every case that is not ``known`` yet; ``after(name, outcome, done, all)`` is called when one has ended."""
    cases = study.cases(settings)
    found = {name: outcome for name, outcome in (known or {}).items() if name in set(map(case_name, cases))}
    missing = [case for case in cases if case_name(case) not in found]
    for number, outcome in run_each(study.run, [(dict(settings), case) for case in missing], n_jobs=n_jobs):
        name = case_name(missing[number])
        found[name] = outcome
        if after is not None:
            after(name, outcome, len(found), len(cases))
    return [(case, found[case_name(case)]) for case in cases]


# ------------------------------------------------------------------------------------------------ over repetitions


def by_seed(outcomes: Iterable[tuple[Case, Outcome]], value: Callable[[Outcome], float], **where: Any) -> list[float]:
    """The mean of a value over the cases of each seed, for cases that agree with ``where``; seeds in order.

    >>> runs = [({"seed": 1, "p": 0.5}, {"right": 0.25}), ({"seed": 1, "p": 0.5}, {"right": 0.75}),
    ...         ({"seed": 2, "p": 0.5}, {"right": 0.5}), ({"seed": 2, "p": 0.9}, {"right": 1.0})]
    >>> by_seed(runs, lambda outcome: outcome["right"], p=0.5)
    [0.5, 0.5]
    """
    values: dict[int, list[float]] = {}
    for case, outcome in outcomes:
        if all(case[name] == wanted for name, wanted in where.items()):
            values.setdefault(case["seed"], []).append(float(value(outcome)))
    return [sum(own) / len(own) for _, own in sorted(values.items())]


def above(one: Sequence[float], other: Sequence[float]) -> tuple[bool, str]:
    """Whether one is above the other, seed by seed: the interval of the difference is above zero.

    >>> above([0.75, 0.80, 0.78], [0.70, 0.74, 0.72])
    (True, '+0.057, 95 % interval +0.042 … +0.071')
    """
    gap = paired_interval(one, other)
    return bool(gap.low > 0), gap_text(gap)


def gap_text(gap: Interval) -> str:
    """A difference in words."""
    if np.isnan(gap.low):
        return f"{gap.mean:+.3f} (one repetition)"
    return f"{gap.mean:+.3f}, 95 % interval {gap.low:+.3f} … {gap.high:+.3f}"


def curve(name: str, places: Sequence[Any], values: Sequence[Sequence[float]], *, faint: bool = False) -> Curve:
    """A curve of means with intervals; ``values`` has the repetitions of every place.

    >>> curve("mine", [1, 2], [[0.5, 0.7], [0.25, 0.25]]).mean
    (0.6, 0.25)
    """
    intervals = [mean_interval(own) for own in values]
    return Curve(
        name,
        tuple(places),
        tuple(interval.mean for interval in intervals),
        tuple(interval.low for interval in intervals),
        tuple(interval.high for interval in intervals),
        faint,
    )
