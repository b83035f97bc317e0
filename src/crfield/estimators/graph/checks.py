"""Parameters of a graph model, looked at before any work is done.

Some concern inference alone (`check_answering`): which engine answers, and what is made of its beliefs. They are
those of every model that answers for graphs, however it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.errors import InputError
from crfield.estimators.chain.checks import check_numbers
from crfield.inference.decode import check_decoder
from crfield.scoring.graph_layout import PAIRS, TABLES
from crfield.training.graph.fit import INITIAL
from crfield.training.graph.plan import OBJECTIVES, resolve_engine

_CHOICES: dict[str, tuple[str, ...]] = {
    "objective": OBJECTIVES,
    "initial": INITIAL,
    "feature_pairs": PAIRS,
}
_FLAGS = ("standardize", "intercept", "penalize_intercepts", "warm_start")


def check_graph_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `GraphCRF` has a value that can be used.

    >>> from crfield.estimators.graph.crf import GraphCRF
    >>> check_graph_parameters(GraphCRF(objective="likelyhood").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: objective must be one of 'auto', 'likelihood', ... got 'likelyhood'.
    """
    check_numbers(parameters)
    for name, choices in _CHOICES.items():
        value = parameters[name]
        if not isinstance(value, str) or value not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    for name in _FLAGS:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    check_answering(parameters)
    relations = parameters["relations"]
    if relations is not None and (
        not isinstance(relations, Mapping) or any(form not in TABLES for form in relations.values())
    ):
        raise InputError(
            f"relations must be a dict of relation names and forms ({' or '.join(map(repr, TABLES))}), "
            f"got {relations!r}."
        )
    if not isinstance(parameters["forbidden"], list | tuple):
        raise InputError(f"forbidden must be a list of (relation, label, label), got {parameters['forbidden']!r}.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
    random_generator(parameters["random_state"])


def check_answering(parameters: Mapping[str, Any]) -> None:
    """InputError unless ``engine``, ``map_engine``, ``decode`` and ``n_jobs`` can be used.

    >>> check_answering({"engine": "lopy", "map_engine": None, "decode": "map", "n_jobs": None})
    Traceback (most recent call last):
    crfield.errors.InputError: there is no engine 'lopy'. Did you mean 'loopy'? ...
    """
    if parameters["engine"] is None:
        raise InputError("engine must be 'auto', the name of one or an engine object, got None.")
    for name in ("engine", "map_engine"):
        check_engine(name, parameters[name])
    if not (isinstance(parameters["decode"], str) and parameters["decode"] == "auto"):
        check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])


def check_engine(name: str, engine: Any) -> None:
    """InputError unless the parameter of that name is None, "auto", the name of an engine or one itself.

    >>> from crfield.inference.graphs.brute import BruteEngine
    >>> check_engine("engine", BruteEngine)
    Traceback (most recent call last):
    crfield.errors.InputError: engine must be an engine object, got the class BruteEngine. Write BruteEngine().
    """
    if isinstance(engine, type):
        raise InputError(
            f"{name} must be an engine object, got the class {engine.__name__}. Write {engine.__name__}()."
        )
    if engine is not None and not (isinstance(engine, str) and engine == "auto"):
        resolve_engine(engine)
