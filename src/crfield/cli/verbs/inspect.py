"""``crfield inspect``: what a model file holds and what the model has learnt, whatever kind of model it is."""

from __future__ import annotations

import os
from inspect import signature
from math import isfinite
from typing import Annotated, Any

import numpy as np
import typer

import crfield
from crfield.cli.messages import WrongVerb, emit, listing, say, size_of
from crfield.cli.model import label_of, what_it_reads
from crfield.cli.options import Json, ModelArgument
from crfield.estimators.base.facts import REPORT, is_pipeline, labels_of, last_step, model_facts, model_lines
from crfield.report.weights import FeatureList, TransitionTable

_CODE = ("functions", "transition_functions", "label_functions", "callback")
_RUN = ("n_jobs", "verbose", "warm_start")
_SHOWN = (
    "classes_",
    "coef_",
    "history_",
    "n_seen_",
    "plan_",
    "source_",
    "transitions_",
    "transition_probabilities_",
)
_MOST_LABELS = 40


def inspect(
    model: ModelArgument,
    *,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the strongest features to show.")] = 20,
    label: Annotated[str | None, typer.Option(metavar="LABEL", help="Only features of this label.")] = None,
    transitions: Annotated[bool, typer.Option(help="Show the weights or probabilities of label pairs.")] = True,
    as_json: Json = False,
) -> None:
    """Show what a model has learnt: labels, sizes, training, transitions, strongest features."""
    found = crfield.load(model)
    size = os.stat(model).st_size
    features, pairs = _features(found, top, label), _transitions(found) if transitions else None
    parameters = {k: v for k, v in last_step(found).get_params(deep=False).items() if k not in _CODE + _RUN}
    if parameters.get("features") is not None:
        parameters["features"] = " ".join(repr(parameters["features"]).split())
    if as_json:
        labels = labels_of(found)
        facts = {
            "model": model,
            "kind": type(found).__name__,
            "bytes": size,
            **model_facts(found),
            "labels": labels.get("", labels),
            "reads": what_it_reads(found),
            "parameters": parameters,
            "learnt": _learnt(found),
        }
        if features is not None:
            facts["top_features"] = features.to_dicts()
        if pairs is not None:
            weights = pairs.to_dict().items()
            facts["transitions"] = [{"from": a, "to": b, "weight": weight} for (a, b), weight in weights]
        emit(facts)
        return
    say(_text(found, model, size, parameters))
    if isinstance(found, crfield.GraphCRF):
        say(f"\nplan\n{found.explain()}")
    if pairs is not None:
        none = "none: neighbouring labels have no weights of their own"
        what = "transitions" if hasattr(found, "transitions_") else "transition probabilities"
        say(f"\n{what}\n{pairs if pairs.to_dict() else none}")
    if top and features is not None:
        say(f"\nstrongest features{'' if label is None else f' of {label}'}\n{features}")
    elif top and getattr(found, "rounds_", None) is not None:
        say(f"\nrounds of boosting\n{found.rounds_}")


def _features(model: Any, n: int, label: str | None) -> FeatureList | None:
    """The strongest features of a model that names them, of one label if asked."""
    asked = {} if label is None else {"label": label_of(model, label)}
    strongest = getattr(model, "top_features", None)
    if strongest is not None and set(asked) <= set(signature(strongest).parameters):
        return strongest(n, **asked)
    if label is not None:
        raise WrongVerb(f"a {type(model).__name__} has no features of single labels: leave out --label.")
    kept = getattr(model, "features_", None)
    return kept[:n] if isinstance(kept, FeatureList) else None


def _transitions(model: Any) -> TransitionTable | None:
    """Weights or probabilities of pairs of labels, where the model has them."""
    if hasattr(model, "transition_probabilities_"):
        return TransitionTable(model.classes_, model.transition_probabilities_)
    return getattr(model, "transitions_", None)


def _learnt(model: Any) -> dict[str, Any]:
    """What else ``fit`` has set: numbers and words as they are, of all else what it is."""
    names = [name for name in dir(last_step(model)) if name.endswith("_") and not name.startswith("_")]
    values = {name: getattr(last_step(model), name) for name in names if name not in (*_SHOWN, *REPORT.values())}
    return {name: _short(value) for name, value in values.items() if value is not None}


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | np.generic):
        return value if not isinstance(value, float) or isfinite(value) else None
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__


def _text(model: Any, path: str, size: int, parameters: dict[str, Any]) -> str:
    kind = type(model).__name__
    if is_pipeline(model):
        kind += f" ({', '.join(type(step).__name__ for _, step in model.steps)})"
    lines = {"model": f"{kind}, {path}, {size_of(size)}"}
    if what_it_reads(model):
        lines["reads"] = what_it_reads(model)
    for of, labels in labels_of(model).items():
        shown = " ".join(map(str, labels[:_MOST_LABELS])) + (" …" if len(labels) > _MOST_LABELS else "")
        lines[f"labels {of}".strip()] = f"{len(labels):,}: {shown}"
    lines |= {name: told for name, told in model_lines(model).items() if name != "labels"}
    lines["parameters"] = " ".join(
        f"{name}={value}" for name, value in parameters.items() if name != "template" and value is not None
    )
    told = ", ".join(f"{name} {value}" for name, value in _learnt(model).items())
    return listing(lines | ({"learnt": told} if told else {}))
