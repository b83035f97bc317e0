"""`model.report(X, y)`: a fitted model is asked everything that a report shows, and the answers become one value.

The value (`crfield.report.page.model_report.ModelReport`) knows no model. What a model does not have is left out,
and the report says so in a sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from crfield.core.checks import integer
from crfield.errors import CrfieldError, InputError
from crfield.estimators.base.facts import answering, last_step
from crfield.estimators.reporting.answers import Labeller, answers_of
from crfield.estimators.reporting.card import card_of
from crfield.estimators.reporting.items import renamed_columns, shown_items
from crfield.features.transformed import SENSORS
from crfield.report.model_catalogue import model_named
from crfield.report.page.charts import FEWEST_STEPS
from crfield.report.page.model_report import Curve, ModelReport
from crfield.report.page.sample import plural, sampled
from crfield.report.weights import FeatureList, TransitionTable

_STEPS = 20_000  # of all items shown
_FEATURES, _OF_LABEL, _LABELS = 400, 40, 40


def model_report(
    model: object,
    X: Any,
    y: Any,
    *,
    n_shown: int = 48,
    n_best: int = 5,
    explained: int = 1200,
    title: str | None = None,
    names: Sequence[str] | None = None,
    show: Callable[[Any, int], str] | None = None,
    feature_names: Sequence[str] | None = None,
    signals: Sequence[np.ndarray] | None = None,
    signal_names: Sequence[str] | None = None,
    seconds: float | None = None,
) -> ModelReport:
    """The report of a fitted model on labelled data; the options are those of ``report`` of every estimator."""
    for name, value in (("n_shown", n_shown), ("n_best", n_best), ("explained", explained)):
        integer(0)(name, value)
    asked = cast(Labeller, answering(model))
    answers = answers_of(asked, X, y, names=names)
    renamed = renamed_columns(asked, feature_names)
    judged = answers.judged
    sample = sampled(judged, most=n_shown, most_steps=max(_STEPS, *map(len, judged.items), 1))
    items = shown_items(
        asked,
        X,
        answers,
        sample.numbers,
        n_best=n_best,
        explained=explained,
        show=show,
        renamed=renamed,
        signals=signals,
        signal_names=signal_names,
        seconds=_seconds(asked) if seconds is None else seconds,
    )
    last = last_step(asked)
    transitions, probabilities = _transitions(last)
    features, curve = _features(asked, renamed), _curve(last)
    kind = type(last).__name__
    return ModelReport(
        title=f"{kind}: {len(judged.labels)} labels on {len(judged.items):,} {judged.item}s"
        if title is None
        else title,
        kind=kind,
        about=_about(kind),
        card=card_of(asked, judged),
        judged=judged,
        sample=sample,
        items=items,
        curve=curve,
        transitions=transitions,
        probabilities=probabilities,
        features=features,
        missing=_missing(
            kind,
            no_chances=not any(item.chance is not None for item in judged.items),
            features=features,
            transitions=transitions,
            no_curve=_no_curve(last, curve),
        ),
    )


def _about(kind: str) -> str:
    try:
        found = model_named(kind)
    except InputError:
        return ""
    return f"It labels {found.labels}. It takes for granted: {found.assumes}."


def _missing(kind: str, *, no_chances: bool, features: Any, transitions: Any, no_curve: str) -> tuple[str, ...]:
    told = []
    if no_chances:
        told.append(f"This {kind} gives no probabilities, so there is no calibration and nothing on how sure it was.")
    if features is None:
        told.append(f"A {kind} has no weights of named features to list.")
    if transitions is None:
        told.append(f"A {kind} has no table of transitions to show.")
    if no_curve:
        told.append(no_curve)
    return tuple(told)


def _no_curve(model: Labeller, curve: Curve | None) -> str:
    """Why the page draws no learning curve; nothing if it draws one."""
    if curve is None:
        return "There is no learning curve: the training told no steps, or the model comes from a file."
    looked = len(curve.step)
    if looked >= FEWEST_STEPS:
        return ""
    took = max(int(getattr(model, "n_iter_", looked)), looked)
    return (
        f"There is no learning curve: training took {took:,} {plural('step', took)} or epochs, the objective was "
        f"looked at after {looked:,} of them, and a curve needs {FEWEST_STEPS}."
    )


def _seconds(model: Labeller) -> float | None:
    """Between two steps, where features of sensors before the model tell."""
    steps = [step for _, step in getattr(model, "steps", ())] or [getattr(model, "features", None)]
    return next(
        (float(step.hop) for step in steps if getattr(step, "kind", "") == SENSORS and hasattr(step, "hop")), None
    )


def _transitions(model: Labeller) -> tuple[TransitionTable | None, bool]:
    chances = getattr(model, "transition_probabilities_", None)
    labels = getattr(model, "classes_", None)
    if chances is not None and not isinstance(labels, Mapping) and np.shape(chances) == (len(labels),) * 2:  # type: ignore[arg-type]
        return TransitionTable(labels, chances), True  # type: ignore[arg-type]
    try:
        found = getattr(model, "transitions_", None)
    except CrfieldError:
        return None, False
    return (found, False) if isinstance(found, TransitionTable) else (None, False)


def _features(model: Labeller, renamed: Mapping[str, str]) -> FeatureList | None:
    """The strongest features, of every label some."""
    asked = getattr(model, "top_features", None)
    if asked is None:
        kept = getattr(last_step(model), "features_", None)
        return kept[:_FEATURES] if isinstance(kept, FeatureList) else None
    labels = getattr(model, "classes_", {})
    try:
        found = list(asked(_FEATURES // 2))
        if (
            "label" in inspect.signature(asked).parameters
            and not isinstance(labels, Mapping)
            and len(labels) <= _LABELS
        ):
            for label in labels.tolist():
                found += asked(min(_OF_LABEL, _FEATURES // len(labels)), label=label)
    except CrfieldError:
        return None
    strongest = sorted(set(found), key=lambda item: (-abs(item.weight), item.name, str(item.label)))
    kept = [item._replace(name=renamed.get(item.name, item.name)) for item in strongest if item.weight]
    return FeatureList(kept[:_FEATURES])


def _curve(model: Labeller) -> Curve | None:
    steps = [step for step in getattr(model, "history_", None) or [] if hasattr(step, "value")]
    if not steps:
        return None
    scores = [getattr(step, "score", None) for step in steps]
    return Curve(
        np.array([getattr(step, "n_iter", k) for k, step in enumerate(steps)], float),
        np.array([step.value for step in steps], float),
        np.array([np.nan if score is None else score for score in scores], float),
    )
