"""The parameters of models that answer for graphs, looked at before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crfield.core.checks import resolve_jobs
from crfield.estimators.graph.parameters import check_engine, check_optional_engine
from crfield.inference.decode import check_decoder


def check_answering(parameters: Mapping[str, Any]) -> None:
    """InputError unless ``engine``, ``map_engine``, ``decode`` and ``n_jobs`` can be used.

    >>> check_answering({"engine": "lopy", "map_engine": None, "decode": "map", "n_jobs": None})
    Traceback (most recent call last):
    crfield.errors.InputError: there is no engine 'lopy'. Did you mean 'loopy'? ...
    """
    check_engine("engine", parameters["engine"])
    check_optional_engine("map_engine", parameters["map_engine"])
    if not (isinstance(parameters["decode"], str) and parameters["decode"] == "auto"):
        check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])
