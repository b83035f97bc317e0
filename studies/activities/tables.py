"""The table of a comparison on groups: means with intervals, scores of all together, claims, and chosen settings."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from crfield.estimators.tuning.group_folds import GroupPredictions, macro_f1
from crfield.metrics import segment_f1, token_accuracy
from crfield.report.findings import Claim, Findings, Interval, mean_interval, paired_interval
from studies.activities.models import CHAINS, RIVALS
from studies.activities.rivals import Plan, Recorded, run_fold
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, each

Scores = Mapping[str, Mapping[str, Mapping[Hashable, float]]]  # model → score → group
MEASURED = ("accuracy", "macro F1", "segment F1@25", "segment F1@50")
POOLED: Mapping[str, Callable[[Any, Any], float]] = {
    "accuracy": token_accuracy,
    "macro F1": macro_f1,
    "segment F1@50": lambda truth, said: segment_f1(truth, said, overlap=0.5),
}


@dataclass(frozen=True)
class Comparison:
    """All models on the same folds of groups: what one set of recordings has of its own.

    Its methods travel to other processes, so its fields are functions of modules.
    """

    read: Callable[[Settings], Recorded]
    plan: Callable[[Settings], Plan]
    title: Callable[[Settings, Recorded], str]
    to_beat: Mapping[str, float]  # figures of all groups together, or means over groups
    together: bool
    others: str  # within which everything is chosen

    def study(self, full: Settings, quick: Settings) -> Study:
        """The comparison as a study of these settings."""
        return Study(full, quick, self.cases, self.run, self.report, self.claims)

    def data(self, settings: Settings) -> Recorded:
        """The recordings, read once in each process."""
        known = {name: value for name, value in settings.items() if name != "n_jobs"}
        return _recorded(self.read, json.dumps(known, sort_keys=True), os.environ.get("CRFIELD_DATA"))

    def cases(self, settings: Settings) -> list[Case]:
        """A case for each fold that is left out."""
        return [{"fold": number} for number in range(self.plan(settings).folds)]

    def run(self, settings: Settings, case: Case) -> Outcome:
        """Everything about one fold, with settings as text."""
        found = run_fold(self.data(settings), self.plan(settings), case["fold"])
        chosen = {model: f"{own['setting']} × {own['factor']:g}" for model, own in found["settings"].items()}
        return {**found, "settings": chosen}

    def report(self, settings: Settings, outcomes: Outcomes) -> Findings:
        """Means with intervals, scores of all together, and what was chosen."""
        data, models = self.data(settings), self.plan(settings).models
        scores, pooled = self._scores(settings, outcomes)
        rows = [
            (
                model,
                *(mean_interval(scores[model][name].values()) for name in MEASURED),
                *(pooled[model][name] for name in POOLED),
            )
            for model in models
        ]
        columns = each(outcomes, "columns")
        common = _counted((name for own in columns for name in own), "; ", most=6)
        count = np.mean([len(own) for own in columns])
        chosen = {model: _counted(each(outcomes, "settings", model), ", ") for model in models[:-1]}
        return Findings(
            self.title(settings, data),
            ("model", *MEASURED, *(f"{name}, pooled" for name in POOLED)),
            tuple(rows),
            notes=(
                *_winners(scores, models),
                f"everything is chosen by {settings['inner_folds']} folds {self.others}",
                f"{len(data.names):,} candidate columns, {count:.0f} selected in a fold; most often: {common}",
                "± is half of a 95 % interval over groups; pooled scores are of all steps and segments together",
                *(f"{model}, setting × factor (folds): {counts}" for model, counts in chosen.items()),
            ),
        )

    def claims(self, settings: Settings, outcomes: Outcomes) -> list[Claim]:
        """Each chain against the figures to beat and, group by group, against every rival."""
        plan, (scores, pooled) = self.plan(settings), self._scores(settings, outcomes)
        ours = [model for model in CHAINS if model in plan.models]
        claims = []
        for model in ours:
            for name, level in self.to_beat.items():
                value = pooled[model][name] if self.together else float(np.mean(list(scores[model][name].values())))
                claims.append(Claim(f"{model}: {name} above {level:.3f}", value > level, f"{value:.3f}"))
        for model in ours:
            for rival in (rival for rival in RIVALS if rival in plan.models):
                for name in ("macro F1", "segment F1@50"):
                    both = (list(scores[one][name].values()) for one in (model, rival))
                    claims.append(above(f"{model} above {rival}, {name}", *both))
        return claims

    def _scores(self, settings: Settings, outcomes: Outcomes) -> tuple[Scores, dict[str, dict[str, float]]]:
        found = [outcome for _, outcome in outcomes]
        said = predictions(found, self.data(settings), self.plan(settings).models)
        pooled = {model: {n: f(own.truth, own.predicted) for n, f in POOLED.items()} for model, own in said.items()}
        return {model: own.scores() for model, own in said.items()}, pooled


@lru_cache(maxsize=1)
def _recorded(read: Callable[[Settings], Recorded], settings: str, folder: str | None) -> Recorded:
    return read(json.loads(settings))


def _counted(names: Iterable[str], between: str, *, most: int | None = None) -> str:
    """Names with their counts, the most frequent first.

    >>> _counted("abca", ", ", most=2)
    'a (2), b (1)'
    """
    return between.join(f"{name} ({count})" for name, count in Counter(names).most_common(most))


def predictions(
    found: Sequence[Mapping[str, Any]], data: Recorded, models: Sequence[str]
) -> dict[str, GroupPredictions]:
    """What every model said of every sequence."""
    out = {}
    for model in models:
        rows: list[Any] = [None] * len(data.labels)
        for fold in found:
            for k, labels in zip(fold["test"], fold["labels"][model], strict=True):
                rows[k] = np.array([*labels, None], dtype=object)[:-1]
        out[model] = GroupPredictions(tuple(data.groups), tuple(data.labels), tuple(rows))
    return out


def _winners(scores: Scores, models: Sequence[str]) -> list[str]:
    """A sentence: the best chain, the best rival, and what is between them, group by group."""

    def mark(model: str) -> float:
        return float(np.mean([[*scores[model][name].values()] for name in ("macro F1", "segment F1@50")]))

    ours = [model for model in CHAINS if model in models]
    rivals = [model for model in RIVALS if model in models]
    if not ours or not rivals:
        return []
    best, rival = max(ours, key=mark), max(rivals, key=mark)
    gaps = {name: _gap(scores[best][name], scores[rival][name]) for name in MEASURED}
    told = "; ".join(f"{name} {g.mean:+.3f} ({g.low:+.3f} … {g.high:+.3f})" for name, g in gaps.items())
    return [f"by macro F1 + segment F1@50 the best chain is {best!r}, the best rival {rival!r}; difference: {told}"]


def _gap(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> Interval:
    return paired_interval(one.values(), other.values())
