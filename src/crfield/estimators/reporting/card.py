"""The facts of a model card: what the model is, how it was trained, what it was judged on, and with what."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from crfield.core.estimator import BaseEstimator
from crfield.core.parameters import declared_parameters
from crfield.errors import CrfieldError
from crfield.estimators.base.facts import is_pipeline, labels_of, last_step, model_lines
from crfield.estimators.reporting.answers import Labeller
from crfield.report.page.judged import Judged
from crfield.report.page.sample import plural
from crfield.storage.digests import digest

_RUN = ("n_jobs", "verbose", "warm_start", "callback")
_LABELS = 30


def card_of(model: Labeller, judged: Judged) -> dict[str, dict[str, str]]:
    """Facts by heading and name."""
    last = last_step(model)
    kind = type(model).__name__
    if is_pipeline(model):
        kind += f" of {', '.join(type(step).__name__ for _, step in steps_of(model))}"
    lines = model_lines(model)
    training: dict[str, str] = {name: lines.pop(name) for name in ("objective", "training") if name in lines}
    lines.pop("labels", None)
    labels = {f"labels {of}".strip(): _listed(own) for of, own in labels_of(model).items()}
    told = getattr(last, "explain_plan", None)
    if callable(told):
        training["plan"] = _asked(told)
    return {
        "Model": {"kind": kind, **labels, **lines, "parameters": _parameters(last), "digest": model_digest(model)},
        "Training": training,
        "Judged on": {
            plural(judged.item, 2): f"{len(judged.items):,}",
            plural(judged.step, 2): f"{judged.n_steps:,}, {judged.n_judged:,} of them with a known label",
            "digest of labels": digest([item.gold for item in judged.items])[:16],
        },
        "Made with": {"crfield": _version("crfield"), "Python": platform.python_version(), **_others()},
    }


def steps_of(model: Labeller) -> list[tuple[str, Any]]:
    """The steps of a pipeline."""
    return list(getattr(model, "steps", ()))


def model_digest(model: Labeller) -> str:
    """Sixteen hexadecimal digits of what a model file would hold; of a model that no file holds, that it is so."""
    steps = [step for _, step in steps_of(model)] if is_pipeline(model) else [model]
    try:
        states = [step._state() for step in steps if hasattr(step, "_state")]
        return digest([[state.header, dict(state.arrays)] for state in states])[:16]
    except CrfieldError:
        return "none: it holds functions, which no file does"


def _listed(labels: list[Any]) -> str:
    more = f", … ({len(labels)} in all)" if len(labels) > _LABELS else ""
    return ", ".join(map(str, labels[:_LABELS])) + more


def _parameters(model: BaseEstimator) -> str:
    """Those that are not the defaults."""
    declared = declared_parameters(type(model))
    told = []
    for name, value in model.get_params(deep=False).items():
        default = declared[name].default if name in declared else None
        if name not in _RUN and value is not default and repr(value) != repr(default):
            words = " ".join(repr(value).split())
            told.append(f"{name}={words if len(words) <= 80 else words[:79] + '…'}")
    return ", ".join(told) or "all as by default"


def _asked(told: Any) -> str:
    try:
        return str(told())
    except (CrfieldError, AttributeError):
        return ""


def _others() -> dict[str, str]:
    return {name: _version(name) for name in ("numpy", "scipy")}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
