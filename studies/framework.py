"""What every study is: settings, cases, outcomes, and what they say together.

A table of a paper is the mean of many trainings: seeds × held-out sequences × whatever the horizontal axis shows. A
`Study` splits such an experiment into *cases* that share nothing, so that they run in any order and in several
processes, and a run that was interrupted goes on where it stood. Settings, cases and outcomes are plain values for
JSON; a case is known by its text, and an outcome is never computed twice.

    cases(settings)             →  every case, as a dict
    run(settings, case)         →  the outcome of one: a dict of numbers
    report(settings, outcomes)  →  the table, and charts if there are any
    claims(settings, outcomes)  →  what was claimed, whether it holds, and the number that decides it

`settings["seeds"]` are the independent repetitions, or the folds of data that is what it is: intervals are taken over
their means, never over parts within one, which share their training data and the world that made them. A study
without seeds has no repetitions. `settings["n_jobs"]`, which `run_study` adds, are the threads that one case may use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.report.displays.curves import Curve
from crfield.report.findings import Claim, Findings, Interval, mean_interval, paired_interval
from crfield.training.parallel import run_each

Settings = Mapping[str, Any]
Case = dict[str, Any]
Outcome = dict[str, Any]
Outcomes = list[tuple[Case, Outcome]]


@dataclass(frozen=True)
class Study:
    """An experiment in cases. ``run`` is a function of a module, not a lambda: it travels to other processes.

    >>> coins = Study({"seeds": [1, 2, 3]}, {"seeds": [1]},
    ...     cases=by_seeds,
    ...     run=lambda settings, case: {"heads": case["seed"] % 2},
    ...     report=lambda settings, outcomes: Findings("coins", ("coin", "heads"), (("mine",
    ...         mean_interval(each(outcomes, "heads"))),)),
    ...     claims=lambda settings, outcomes: [Claim("heads at all", any(o["heads"] for _, o in outcomes), "yes")])
    >>> coins.settings(quick=True, repetitions=3, seed=5)
    {'seeds': [5, 6, 7]}
    >>> found = coins(seeds=[5, 6, 7])
    >>> found["mine", "heads"].mean, found.verdict
    (0.666..., 'all 1 claims hold')
    """

    full: Settings
    quick: Settings
    cases: Callable[[Settings], list[Case]]
    run: Callable[[Settings, Case], Outcome]
    report: Callable[[Settings, Outcomes], Findings]
    claims: Callable[[Settings, Outcomes], Sequence[Claim]]
    folds: bool = False  # whether seeds are numbers of folds

    def __call__(self, *, quick: bool = False, n_jobs: int = 1, **changes: Any) -> Findings:
        """Run it with some settings changed; ``data`` is the folder with the corpora."""
        settings = dict(self.quick if quick else self.full)
        unknown = sorted(set(changes) - {*settings, "data"})
        if unknown:
            raise InputError(f"there is no setting {', '.join(unknown)}; there are {', '.join(settings)}.")
        settings.update(changes)
        return self.found(settings, run_study(self, settings, n_jobs=n_jobs))

    def settings(
        self,
        *,
        quick: bool = False,
        repetitions: int | None = None,
        seed: int | None = None,
        folds: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """The settings of the whole or the quick form; other seeds are ``seed``, ``seed`` + 1, … ."""
        settings = dict(self.quick if quick else self.full)
        if repetitions is not None and repetitions < 1:
            raise InputError(f"an experiment needs at least one repetition, got {repetitions}.")
        if folds is not None:
            if not self.folds:
                raise InputError("this experiment has no folds to choose from. Leave out --folds.")
            settings["seeds"] = list(folds)
        elif repetitions is not None or seed is not None:
            if "seeds" not in settings:
                raise InputError("this experiment has no seeds. Leave out --repetitions and --seed.")
            first = settings["seeds"][0] if seed is None else seed
            settings["seeds"] = list(range(first, first + (repetitions or len(settings["seeds"]))))
        return settings

    def found(self, settings: Settings, outcomes: Outcomes) -> Findings:
        """Table, claims and charts."""
        return replace(self.report(settings, outcomes), claims=tuple(self.claims(settings, outcomes)))


def crossed(**axes: str | Iterable[Any]) -> Callable[[Settings], list[Case]]:
    """Cases for all combinations: an axis is a setting by name, a list or how many, or the values themselves.

    >>> crossed(world=("near", "far"), out="folds")({"folds": 2})
    [{'world': 'near', 'out': 0}, {'world': 'near', 'out': 1}, {'world': 'far', 'out': 0}, {'world': 'far', 'out': 1}]
    """

    def cases(settings: Settings) -> list[Case]:
        found: list[Case] = [{}]
        for name, axis in axes.items():
            values = settings[axis] if isinstance(axis, str) else list(axis)
            if not values:
                raise InputError(f"at least one {name} is needed, got none.")
            chosen = range(values) if isinstance(values, int) else values
            found = [{**case, name: value} for case in found for value in chosen]
        return found

    return cases


by_seeds = crossed(seed="seeds")


def folds_of(n: int) -> Callable[[Settings], list[Case]]:
    """`by_seeds` for numbers of n folds.

    >>> folds_of(10)({"seeds": [0, 9]})
    [{'seed': 0}, {'seed': 9}]
    """

    def cases(settings: Settings) -> list[Case]:
        folds = settings["seeds"]
        if not folds or not set(folds) <= set(range(n)):
            raise InputError(f"folds are numbers of 0 … {n - 1}, got {list(folds)}.")
        return by_seeds(settings)

    return cases


def data_path(settings: Settings, *parts: str) -> str:
    """A file in the folder with the corpora."""
    folder = settings.get("data") or os.environ.get("CRFIELD_DATA")
    if not folder:
        raise InputError(
            "this experiment reads files: name the folder that holds them with --data FOLDER, or in the environment "
            "as CRFIELD_DATA."
        )
    return os.path.join(folder, *parts)


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
) -> Outcomes:
    """Run every case that is not ``known`` yet; ``after(name, outcome, done, all)`` is called when one has ended."""
    cases = study.cases(settings)
    found = {name: outcome for name, outcome in (known or {}).items() if name in set(map(case_name, cases))}
    missing = [case for case in cases if case_name(case) not in found]
    own = {**settings, "n_jobs": max(1, n_jobs // max(1, len(missing)))}
    for number, outcome in run_each(study.run, [(own, case) for case in missing], n_jobs=n_jobs):
        name = case_name(missing[number])
        found[name] = outcome
        if after is not None:
            after(name, outcome, len(found), len(cases))
    return [(case, found[case_name(case)]) for case in cases]


# ------------------------------------------------------------------------------------------------ over repetitions


def where(outcomes: Outcomes, **wanted: Any) -> Outcomes:
    """The outcomes of cases that agree with what is wanted.

    >>> where([({"seed": 1, "p": 0.5}, {}), ({"seed": 2, "p": 0.9}, {})], p=0.9)
    [({'seed': 2, 'p': 0.9}, {})]
    """
    return [one for one in outcomes if all(one[0].get(name) == value for name, value in wanted.items())]


def by_seed(outcomes: Outcomes, value: Callable[[Outcome], float], **wanted: Any) -> list[float]:
    """The mean of a value over the cases of each seed, for cases that agree with what is wanted; seeds in order.

    >>> runs = [({"seed": 1, "p": 0.5}, {"right": 0.25}), ({"seed": 1, "p": 0.5}, {"right": 0.75}),
    ...         ({"seed": 2, "p": 0.5}, {"right": 0.5}), ({"seed": 2, "p": 0.9}, {"right": 1.0})]
    >>> by_seed(runs, lambda outcome: outcome["right"], p=0.5)
    [0.5, 0.5]
    """
    values: dict[int, list[float]] = {}
    for case, outcome in where(outcomes, **wanted):
        values.setdefault(case["seed"], []).append(float(value(outcome)))
    return [sum(own) / len(own) for _, own in sorted(values.items())]


def each(outcomes: Outcomes, *path: Any) -> list[Any]:
    """What stands at a place of every outcome, such as (model, score).

    >>> each([({}, {"mine": {"words": 0.5}}), ({}, {"mine": {"words": 0.75}})], "mine", "words")
    [0.5, 0.75]
    """
    return [reduce(getitem, path, outcome) for _, outcome in outcomes]


def above(
    sentence: str, one: Sequence[float], other: Sequence[float], *, single: bool = False, digits: int = 3
) -> Claim:
    """Whether one is above the other, seed by seed: the interval of the difference is above zero, or below, or open.

    There is none of one repetition, which decides by itself only if it is ``single``.

    >>> print(above("mine above theirs", [0.75, 0.80, 0.78], [0.70, 0.74, 0.72]))
    yes  mine above theirs: +0.057, 95 % interval +0.042 … +0.071
    """
    gap = paired_interval(one, other)
    alone = single and np.isnan(gap.low)
    return Claim(sentence, gap.mean > 0 if alone else gap.within(0.0), gap_text(gap, digits))


def gap_text(gap: Interval, digits: int = 3) -> str:
    """A difference in words."""
    mean, low, high = (f"{value:+.{digits}f}" for value in (gap.mean, gap.low, gap.high))
    return f"{mean} (one repetition)" if np.isnan(gap.low) else f"{mean}, 95 % interval {low} … {high}"


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
