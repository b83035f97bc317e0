"""Parameters of the boosted fields, looked at before any work is done, and the graphs that their data mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.boosting.virtual_evidence.couplings import POTENTIALS
from crfield.boosting.virtual_evidence.rounds import LEARNERS
from crfield.boosting.virtual_evidence.verified import PROPOSALS
from crfield.core.checks import random_generator
from crfield.data.graphs.batch import GraphSchema
from crfield.data.graphs.builders import chain
from crfield.data.graphs.graph import Graph
from crfield.errors import FeatureError, InputError
from crfield.estimators.graph.checks import check_answering

MODES = ("exact", "paper", "verified")
STARTS = ("prior", "zero")
_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "learner": LEARNERS,
    "potential": POTENTIALS,
    "proposals": PROPOSALS,
}
_COUNTS = {"max_depth": 1, "max_bins": 2, "patience": 1}


def check_virtual_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `VirtualEvidenceBoosting` has a value that can be used.

    >>> from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
    >>> check_virtual_parameters(VirtualEvidenceBoosting(mode="best").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: mode must be one of 'exact', 'paper', 'verified', got 'best'.
    """
    for name, choices in _CHOICES.items():
        check_choice(name, parameters[name], choices)
    if parameters["start"] is not None:
        check_choice("start", parameters["start"], STARTS)
    for name, least in _COUNTS.items():
        check_count(name, parameters[name], least)
    if parameters["n_rounds"] is not None:
        check_count("n_rounds", parameters["n_rounds"], 1)
    check_number("l2", parameters["l2"])
    for name in ("ridge", "response_limit", "learning_rate"):
        if parameters[name] is not None:
            check_number(name, parameters[name], positive=name != "ridge")
    check_fraction(parameters["validation"])
    if parameters["validation"] is not None and parameters["mode"] == "verified":
        raise InputError("mode='verified' needs no held-out data (validation): relations are verified by BIC.")
    check_sequence_options(parameters)


def check_sequence_options(parameters: Mapping[str, Any]) -> None:
    """InputError unless the parameters that all boosted fields share can be used.

    >>> from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
    >>> check_sequence_options(VirtualEvidenceBoosting(relations="+1").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: relations must be a list of names or of distances, got '+1'. ...
    """
    relations = parameters["relations"]
    if relations is not None and (
        isinstance(relations, str)
        or not isinstance(relations, Sequence | set | frozenset | np.ndarray)
        or not all(isinstance(r, str | Integral) and not isinstance(r, bool) for r in relations)
    ):
        raise InputError(
            f"relations must be a list of names or of distances, got {relations!r}. Graphs have names, ['near']; "
            "sequences have distances between steps, [1, 2]."
        )
    if not isinstance(parameters["directed"], bool | np.bool_):
        raise InputError(f"directed must be True or False, got {parameters['directed']!r}.")
    discrete = parameters["discrete"]
    if isinstance(discrete, str) or not all(isinstance(c, Integral) and int(c) >= 0 for c in discrete):
        raise InputError(f"discrete must be a list of numbers of columns, got {discrete!r}.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    check_answering(parameters)
    random_generator(parameters["random_state"])


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """InputError unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_count(name: str, value: Any, least: int) -> None:
    """InputError unless the value is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def check_number(name: str, value: Any, *, positive: bool = False) -> None:
    """InputError unless the value is a finite number, at least 0 or above it."""
    good = isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
    if not good or value < 0 or (positive and value == 0):
        raise InputError(f"{name} must be a finite number {'above' if positive else 'of at least'} 0, got {value!r}.")


def check_fraction(value: Any) -> None:
    """InputError unless the share of held-out graphs is None or lies between 0 and 1."""
    if value is None:
        return
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < 1:
        raise InputError(f"validation must be None or the share of graphs held out, between 0 and 1, got {value!r}.")


def graphs_of(X: Any, relations: Any, directed: bool) -> list[Graph]:
    """X as graphs: graphs are themselves, sequences chains with an edge for every distance in ``relations``.

    >>> graphs_of([np.zeros((3, 2))], (1, 2), False)
    [Graph(3 nodes, 3 edges: +1 2 symmetric, +2 1 symmetric)]
    """
    if isinstance(X, Graph):
        raise InputError("X is a single Graph, expected a list of graphs. Write [X].")
    if isinstance(X, str | bytes | Mapping) or not hasattr(X, "__len__") or getattr(X, "ndim", 1) == 0:
        raise FeatureError(f"X must be a list of sequences or of graphs, got {type(X).__name__}.")
    if getattr(X, "ndim", 1) == 2 or hasattr(X, "tocsr"):
        raise FeatureError(f"X is a single matrix of shape {X.shape}, expected a list of them. Write [X].")
    items = list(X)
    if any(isinstance(item, Graph) for item in items):
        return items  # the encoder says which of them is none
    distances = _distances(relations)
    made = []
    for number, item in enumerate(items):
        if isinstance(item, Mapping | str | bytes) or not hasattr(item, "__len__"):
            raise FeatureError(
                f"X[{number}] is a {type(item).__name__}, expected a sequence: a 2-D array (steps, features), or a "
                "list with one dict or one list of feature strings for each step. Write [X] for a single sequence."
            )
        try:
            made.append(chain(item if len(item) else 0, distances=distances, symmetric=not directed))
        except InputError as error:
            raise type(error)(f"sequence {number}: {error}") from None
    return made


def relation_numbers(schema: GraphSchema, relations: Any) -> tuple[int, ...]:
    """The relations that may be used, by number; InputError for one that has edge features."""
    if relations is None:
        chosen = range(len(schema.relations))
    else:
        names = [r if isinstance(r, str) else f"+{r}" for r in relations]
        chosen = sorted({schema.relation(name) for name in names})  # type: ignore[assignment]
    for number in chosen:
        if schema.relations[number].has_features:
            raise InputError(
                f"relation {schema.relations[number].name!r} has edge features, which boosted fields do not read. "
                "Leave them out, put what they say on the nodes, or use GraphCRF."
            )
    return tuple(chosen)


def _distances(relations: Any) -> tuple[int, ...]:
    if relations is None:
        return (1,)
    found = []
    for relation in relations:
        text = str(relation).removeprefix("+")
        if not text.isdigit() or int(text) < 1:
            raise InputError(f"relations of sequences are distances, 1 or more steps, got {relation!r}.")
        found.append(int(text))
    return tuple(sorted(set(found)))
