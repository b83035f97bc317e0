"""Parameters that models of graphs have in common: the engine that infers, and what couples neighbours.

An engine is a name or an object with options of its own. A model file holds such an object by its name and its
options, which are numbers and words; an engine of the user's own is code and is not stored: the loaded model chooses
for itself until ``set_params`` gives it back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from crfield.core.checks import Check
from crfield.core.estimator import Estimator
from crfield.core.parameters import parameter
from crfield.data.label_json import label_from_json, label_to_json
from crfield.errors import InputError
from crfield.estimators.base.fitted import json_value
from crfield.inference.graphs.catalogue import ENGINES, engine_named
from crfield.scoring.graph_layout import TABLES
from crfield.training.graph.plan import resolve_engine


def check_engine(name: str, engine: Any) -> None:
    """InputError unless it is "auto", the name of an engine or one itself.

    >>> from crfield.inference.graphs.brute import BruteEngine
    >>> check_engine("engine", BruteEngine)
    Traceback (most recent call last):
    crfield.errors.InputError: engine must be an engine object, got the class BruteEngine. Write BruteEngine().
    """
    if isinstance(engine, type):
        raise InputError(
            f"{name} must be an engine object, got the class {engine.__name__}. Write {engine.__name__}()."
        )
    if not (isinstance(engine, str) and engine == "auto"):
        resolve_engine(engine)


def check_optional_engine(name: str, engine: Any) -> None:
    """InputError unless it is None or passes `check_engine`."""
    if engine is not None:
        check_engine(name, engine)


def engine_to_json(engine: Any) -> Any:
    """An engine as JSON has it; "auto" for one that only its user's code knows.

    >>> from crfield.inference.graphs.forest import ForestEngine
    >>> engine_to_json("loopy"), engine_to_json(ForestEngine())
    ('loopy', {'engine': 'forest', 'options': {'n_jobs': 1}})
    """
    if not callable(getattr(engine, "infer", None)):
        return json_value(engine)
    name = resolve_engine(engine)[1]
    if name not in ENGINES or not is_dataclass(engine):
        return "auto"
    return {"engine": name, "options": {f.name: json_value(getattr(engine, f.name)) for f in fields(engine)}}


def engine_from_json(found: Any) -> Any:
    """The engine whose `engine_to_json` this is."""
    if not isinstance(found, dict):
        return found
    if not isinstance(found.get("engine"), str) or not isinstance(found.get("options"), dict):
        raise InputError(f"the engine is damaged: {found!r:.60}.")
    return engine_named(found["engine"], **found["options"])


def pairs_to_json(pairs: Any) -> list[list[Any]]:
    """Pairs (relation, label, label) as JSON has them, labels exactly."""
    return [[label_to_json(each.item() if isinstance(each, np.generic) else each) for each in pair] for pair in pairs]


def pairs_from_json(found: Any) -> Any:
    """The pairs whose `pairs_to_json` this is."""
    if not isinstance(found, list):
        return found
    return [tuple(map(label_from_json, pair)) if isinstance(pair, list) else pair for pair in found]


FORMS = Check(
    f"a dict of relation names and forms ({' or '.join(map(repr, TABLES))}), or None",
    lambda value: value is None or (isinstance(value, Mapping) and all(form in TABLES for form in value.values())),
)
FORBIDDEN = Check("a list of (relation, label, label)", lambda value: isinstance(value, list | tuple))


class Coupled(Estimator):
    """The parameters of models that have a table of weights for each relation."""

    relations: Mapping[str, str] | None = parameter(FORMS, default=None)
    forbidden: Sequence[tuple[str, Hashable, Hashable]] = parameter(
        FORBIDDEN, default=(), to_json=pairs_to_json, from_json=pairs_from_json
    )
