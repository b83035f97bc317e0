"""The table of a comparison on groups: means with intervals, scores of all together, claims, and chosen settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from crfield.estimators.tuning.group_folds import GroupPredictions, macro_f1
from crfield.metrics import segment_f1, token_accuracy
from crfield.report.findings import Claim, Findings, Interval, mean_interval, paired_interval
from crfield.training.parallel import run_each
from studies.activities.models import CHAINS, RIVALS
from studies.activities.rivals import Plan, Recorded, run_fold, settings_told

MEASURED = ("accuracy", "macro F1", "segment F1@25", "segment F1@50")
POOLED: Mapping[str, Callable[[Any, Any], float]] = {
    "accuracy": token_accuracy,
    "macro F1": macro_f1,
    "segment F1@50": lambda truth, said: segment_f1(truth, said, overlap=0.5),
}


def run_folds(reader: str, folder: str, options: tuple[Any, ...], plan: Plan, *, n_jobs: int = 1) -> list[Any]:
    """Every fold of the data that ``reader`` ("module:function") makes of a folder, in ``n_jobs`` processes."""
    cases = [(reader, folder, options, plan, number) for number in range(plan.folds)]
    return [found for _, found in sorted(run_each(_one_fold, cases, n_jobs=n_jobs), key=lambda pair: pair[0])]


def _one_fold(reader: str, folder: str, options: tuple[Any, ...], plan: Plan, number: int) -> dict[str, Any]:
    return run_fold(recorded(reader, folder, options), plan, number)


@lru_cache(maxsize=1)
def recorded(reader: str, folder: str, options: tuple[Any, ...]) -> Recorded:
    """The data, read once in each process."""
    module, _, function = reader.partition(":")
    data: Recorded = getattr(import_module(module), function)(folder, *options)
    return data


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


def table_of(
    title: str,
    found: Sequence[Mapping[str, Any]],
    data: Recorded,
    plan: Plan,
    *,
    to_beat: Mapping[str, float],
    together: bool,
    notes: Sequence[str] = (),
) -> Findings:
    """The findings of all folds; figures ``to_beat`` are of all groups ``together``, or means over groups."""
    said = predictions(found, data, plan.models)
    scores = {model: own.scores() for model, own in said.items()}
    pooled = {model: {n: f(own.truth, own.predicted) for n, f in POOLED.items()} for model, own in said.items()}
    rows = [
        (
            model,
            *(mean_interval(scores[model][name].values()) for name in MEASURED),
            *(pooled[model][name] for name in POOLED),
        )
        for model in plan.models
    ]
    chosen = Counter(name for fold in found for name in fold["columns"])
    common = "; ".join(f"{name} ({count})" for name, count in chosen.most_common(6))
    count = np.mean([len(fold["columns"]) for fold in found])
    return Findings(
        title,
        ("model", *MEASURED, *(f"{name}, pooled" for name in POOLED)),
        tuple(rows),
        tuple(_claims(scores, pooled, plan, to_beat, together)),
        (
            *_winners(scores, plan),
            *notes,
            f"{len(data.names):,} candidate columns, {count:.0f} selected in a fold; most often: {common}",
            "± is half of a 95 % interval over groups; pooled scores are of all steps and segments together",
            *(f"{model}, setting × factor (folds): {settings_told(found, model)}" for model in plan.models[:-1]),
        ),
    )


def _claims(
    scores: Mapping[str, Mapping[str, Mapping[Hashable, float]]],
    pooled: Mapping[str, Mapping[str, float]],
    plan: Plan,
    to_beat: Mapping[str, float],
    together: bool,
) -> list[Claim]:
    """Each chain against the figures ``to_beat`` and, group by group, against every rival."""
    ours = [model for model in CHAINS if model in plan.models]
    claims = []
    for model in ours:
        for name, level in to_beat.items():
            value = pooled[model][name] if together else float(np.mean(list(scores[model][name].values())))
            claims.append(Claim(f"{model}: {name} above {level:.3f}", value > level, f"{value:.3f}"))
    for model in ours:
        for rival in (rival for rival in RIVALS if rival in plan.models):
            for name in ("macro F1", "segment F1@50"):
                own = _gap(scores[model][name], scores[rival][name])
                around = f"{own.mean:+.3f}, 95 % interval {own.low:+.3f} … {own.high:+.3f}"
                claims.append(Claim(f"{model} above {rival}, {name}", bool(own.low > 0), around))
    return claims


def _winners(scores: Mapping[str, Mapping[str, Mapping[Hashable, float]]], plan: Plan) -> list[str]:
    """A sentence: the best chain, the best rival, and what is between them, group by group."""

    def mark(model: str) -> float:
        return float(np.mean([[*scores[model][name].values()] for name in ("macro F1", "segment F1@50")]))

    ours = [model for model in CHAINS if model in plan.models]
    rivals = [model for model in RIVALS if model in plan.models]
    if not ours or not rivals:
        return []
    best, rival = max(ours, key=mark), max(rivals, key=mark)
    gaps = {name: _gap(scores[best][name], scores[rival][name]) for name in MEASURED}
    told = "; ".join(f"{name} {g.mean:+.3f} ({g.low:+.3f} … {g.high:+.3f})" for name, g in gaps.items())
    return [f"by macro F1 + segment F1@50 the best chain is {best!r}, the best rival {rival!r}; difference: {told}"]


def _gap(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> Interval:
    return paired_interval(one.values(), other.values())
