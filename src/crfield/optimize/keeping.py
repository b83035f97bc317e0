"""What a long run hands over so that another process can go on with it.

A run *offers* its state after every step; whether it is written anywhere, and how often, is the keeper's affair, so
the state is handed over as a function that makes it. A later run of the same problem asks what was *found* and, if
anything, goes on there. A state is a header that JSON can hold and arrays, with all that the next step depends on:
the run that goes on takes the same steps, bit for bit, as the one that was never broken off.

Runs have phases (stochastic epochs, then a batch optimiser), each with a state under its own name; what was offered
last counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from typing import Any, Protocol

import numpy as np

from crfield.optimize.history import Step

State = tuple[dict[str, Any], dict[str, np.ndarray]]


class Keeper(Protocol):
    """Somebody who keeps the state of a run."""

    def found(self, phase: str) -> State | None:
        """What an earlier run offered last, if that was in this phase."""
        ...

    def offer(self, phase: str, state: Callable[[], State]) -> None:
        """The state can be kept now: ``state()`` makes it."""
        ...


def steps_table(steps: Sequence[Step]) -> np.ndarray:
    """(n, fields) float64: the steps of a run as a table.

    >>> steps_table([Step(3, 4, 12.5, 0.1, 1.0, 7, 0.02, 0.5)]).round(2).tolist()
    [[3.0, 4.0, 12.5, 0.1, 1.0, 7.0, 0.02, 0.5, nan]]
    """
    rows = [[math.nan if x is None else x for x in astuple(step)] for step in steps]
    return np.array(rows, dtype=np.float64).reshape(len(steps), len(fields(Step)))


def steps_of_table(table: np.ndarray) -> list[Step]:
    """The steps whose `steps_table` this is.

    >>> steps_of_table(steps_table([Step(3, 4, 12.5, 0.1, 1.0, 7, 0.02, 0.5)]))[0].n_active
    7
    """
    made = []
    for row in table.tolist():
        values: dict[str, Any] = {}
        for field, x in zip(fields(Step), row):
            values[field.name] = int(x) if field.type in (int, "int") else x
        values["score"] = None if math.isnan(row[-1]) else row[-1]
        made.append(Step(**values))
    return made


def random_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator as JSON can hold it.

    >>> random_state(np.random.default_rng(0))["bit_generator"]
    'PCG64'
    """
    return _listed(rng.bit_generator.state)


def set_random_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Bring a generator to a `random_state`, if it is one of the same kind; another is left as it is.

    >>> rng, other = np.random.default_rng(0), np.random.default_rng(1)
    >>> set_random_state(other, random_state(rng))
    >>> int(rng.integers(1000)), int(other.integers(1000))
    (850, 850)
    """
    if state.get("bit_generator") == rng.bit_generator.state["bit_generator"]:
        rng.bit_generator.state = state


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
