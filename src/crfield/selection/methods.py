"""All selectors by name: each takes a problem and options of its own, and gives a `SelectionPath`.

Options that all of them have: ``max_features``, ``patience``, ``criterion``, ``l2``, ``tol``, ``watch``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from crfield.errors import InputError
from crfield.selection.filters import filter_path
from crfield.selection.gain import gain_path
from crfield.selection.grafting import graft
from crfield.selection.l1_path import l1_path
from crfield.selection.m_grafting import m_graft
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.stability import stability_path
from crfield.selection.wrapper import wrapper_path

METHODS: Mapping[str, Callable[..., SelectionPath]] = MappingProxyType(
    {
        "grafting": graft,
        "l1-path": l1_path,
        "gain": gain_path,
        "m-grafting": m_graft,
        "stability": stability_path,
        "mutual-information": partial(filter_path, score="mutual-information"),
        "relieff": partial(filter_path, score="relieff"),
        "wrapper": wrapper_path,
    }
)


def options_of(method: str) -> list[str]:
    """Names of the options of a method.

    >>> "m" in options_of("grafting"), "decay" in options_of("grafting"), "score" in options_of("relieff")
    (True, False, False)
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}.")
    found = METHODS[method]
    fixed = found.keywords if isinstance(found, partial) else {}
    return [name for name in inspect.signature(found).parameters if name != "problem" and name not in fixed]


def select(problem: SelectionProblem, method: str = "grafting", **options: Any) -> SelectionPath:
    """Run a method by its name.

    >>> import numpy as np
    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([200]), np.repeat(rng.integers(0, 2, 40), 5)
    >>> x = rng.normal(size=(200, 4)) + np.outer(y, [0, 2, 0, 1])
    >>> problem = SelectionProblem(MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y))
    >>> [select(problem, method, max_features=2).entered()[0][1][:2] for method in METHODS]
    ['s1', 's1', 's1', 's1', 's1', 's1', 's1', 's1']
    >>> select(problem, "grafting", decay=0.9)
    Traceback (most recent call last):
    crfield.errors.InputError: method 'grafting' has no option 'decay'; it has ...
    """
    known = options_of(method)
    for name in options:
        if name not in known:
            raise InputError(f"method {method!r} has no option {name!r}; it has {', '.join(known)}.")
    return METHODS[method](problem, **options)
