"""``crfield inspect``: what a model file holds and what the model has learnt."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

import crfield
from crfield.cli.facts import model_facts, model_lines, what_it_reads
from crfield.cli.messages import emit, listing, say, size_of
from crfield.cli.paths import READS
from crfield.errors import LabelError

_CODE = ("functions", "transition_functions", "label_functions", "callback")
_RUN = ("n_jobs", "verbose", "warm_start")


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model file."), READS],
    *,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the strongest features to show.")] = 20,
    label: Annotated[str | None, typer.Option(metavar="LABEL", help="Only features of this label.")] = None,
    transitions: Annotated[bool, typer.Option(help="Show the weights of label pairs.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON object.")] = False,
) -> None:
    """Show what a model has learnt: labels, sizes, training, transitions, strongest features."""
    crf = crfield.load(model)
    size = os.stat(model).st_size
    features = crf.top_features(top, label=None if label is None else _label(crf, label))
    parameters = {k: v for k, v in crf.get_params(deep=False).items() if k not in _CODE + _RUN}
    if parameters.get("features") is not None:
        parameters["features"] = " ".join(repr(parameters["features"]).split())
    if as_json:
        facts = {
            "model": model,
            "kind": type(crf).__name__,
            "bytes": size,
            **model_facts(crf),
            "labels": crf.classes_.tolist(),
            "reads": what_it_reads(crf),
            "parameters": parameters,
            "top_features": features.to_dicts(),
        }
        if transitions:
            pairs = crf.transitions_.to_dict()
            facts["transitions"] = [{"from": a, "to": b, "weight": weight} for (a, b), weight in pairs.items()]
        emit(facts)
        return
    say(_text(crf, model, size, parameters))
    if transitions:
        say(f"\ntransitions\n{_transitions(crf)}")
    if top:
        of = "" if label is None else f" of {label}"
        say(f"\nstrongest features{of}\n{features}")


def _text(crf: Any, path: str, size: int, parameters: dict[str, Any]) -> str:
    names = [str(label) for label in crf.classes_.tolist()]
    lines = {"model": f"{type(crf).__name__}, {path}, {size_of(size)}", "reads": what_it_reads(crf)}
    lines |= model_lines(crf)
    shown = " ".join(names[:40]) + (" …" if len(names) > 40 else "")
    lines["labels"] = f"{len(names):,}: {shown}"
    lines["parameters"] = " ".join(
        f"{name}={value}" for name, value in parameters.items() if name != "template" and value is not None
    )
    return listing(lines)


def _transitions(crf: Any) -> str:
    table = crf.transitions_
    return str(table) if table.to_dict() else "none: neighbouring labels have no weights of their own"


def _label(crf: Any, text: str) -> Any:
    """The label that reads as the text; labels of a model made in Python need not be strings."""
    for label in crf.classes_.tolist():
        if str(label) == text:
            return label
    known = ", ".join(str(label) for label in crf.classes_.tolist()[:20])
    raise LabelError(f"the model has no label {text!r}; it has {known}{', …' if len(crf.classes_) > 20 else ''}.")
