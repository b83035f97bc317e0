"""The state of a run of an optimiser, handed over so that another process can resume it.

A run *offers* its state after every step; whether it is written anywhere, and how often, is up to the `RunState`, so
the state is handed over as a function that makes it. A later run of the same problem asks what was *found* and, if
anything, resumes there. A state is a header that JSON can hold and arrays, with all that the next step depends on:
the run that is resumed takes the same steps, bit for bit, as the one that was never broken off.

Runs have phases (stochastic epochs, then a batch optimiser), each with a state under its own name; what was offered
last counts.

A state comes from a file, so it is checked where it is taken over: `Found` gives its numbers and vectors only if they
are what the run needs, and whatever else is wrong with it ends in `ModelFileError` (`taking_over`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from typing import Any, NoReturn, Protocol

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.optimize.history import Step
from crfield.optimize.penalty import Penalised, Point

State = tuple[dict[str, Any], dict[str, np.ndarray]]


class RunState(Protocol):
    """Where the state of a run is kept, and found again."""

    def found(self, phase: str) -> State | None:
        """The last state that an earlier run offered, if it was in this phase."""
        ...

    def offer(self, phase: str, state: Callable[[], State]) -> None:
        """The state can be kept now: ``state()`` makes it."""
        ...


class Found:
    """A state of an earlier run; every value is checked when it is read.

    >>> found = Found(({"epoch": 3}, {"weights": np.ones(2)}))
    >>> found.integer("epoch", most=10), found.vector("weights", 2).tolist()
    (3, [1.0, 1.0])
    >>> found.number("step")
    Traceback (most recent call last):
    crfield.errors.ModelFileError: the checkpoint cannot be resumed: 'step' is None, not a finite number. ...
    """

    def __init__(self, state: State) -> None:
        self.header, self.arrays = state

    def number(self, name: str, *, within: Any = None, least: float = -math.inf) -> float:
        """A finite number of the header, or of a part ``within`` it."""
        value: Any = self.header.get(name) if within is None else within
        if type(value) not in (int, float) or not math.isfinite(value) or value < least:
            refuse_state(f"{name!r} is {str(value)[:40]}, not a finite number")
        return float(value)

    def integer(self, name: str, *, within: Any = None, least: int = 0, most: int = 2**53) -> int:
        """An integer of the header, or of a part ``within`` it."""
        value = self.header.get(name) if within is None else within
        if type(value) is not int or not least <= value <= most:
            refuse_state(f"{name!r} is {str(value)[:40]}, not an integer from {least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.header.get(name)
        if type(value) is not bool:
            refuse_state(f"{name!r} is {str(value)[:40]}, not true or false")
        return value

    def listed(self, name: str, length: int) -> list[Any]:
        """A list of the header of this length."""
        value = self.header.get(name)
        if not isinstance(value, list) or len(value) != length:
            refuse_state(f"{name!r} is {str(value)[:40]}, not a list of {length}")
        return value

    def vector(self, name: str, length: int) -> np.ndarray:
        """(length,) finite numbers."""
        return self.array(name, (length,))

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Finite numbers in this shape."""
        value = self.arrays.get(name)
        if value is None or value.dtype != np.float64 or value.shape != shape or not np.isfinite(value).all():
            refuse_state(f"its array {name!r} is not {' × '.join(f'{size:,}' for size in shape)} finite numbers")
        return value


def refuse_state(problem: str) -> NoReturn:
    """The error for a state that no run can resume."""
    raise ModelFileError(f"the checkpoint cannot be resumed: {problem}. Delete it to begin anew.")


def refuse_other_value(objective: Penalised, there: Point, value: float) -> None:
    """Refuse a state whose value is not that of its weights: it was put together, and may lead anywhere.

    ``there`` has the weights; the evaluation counts for nothing.
    """
    counted = objective.n_evaluations
    objective.evaluate(there)
    objective.n_evaluations = counted
    slack = 1e-9 + 2 * there.error / max(abs(value), 1e-9)
    if not math.isclose(there.value, value, rel_tol=slack, abs_tol=1e-9):
        refuse_state(f"its weights have the value {there.value:g}, and it says {value:g}")


@contextmanager
def taking_over() -> Iterator[None]:
    """Whatever goes wrong while a state is taken over is the fault of its file.

    >>> with taking_over():
    ...     {}["weights"]
    Traceback (most recent call last):
    crfield.errors.ModelFileError: the checkpoint cannot be resumed: KeyError: 'weights'. Delete it ...
    """
    try:
        yield
    except ModelFileError:
        raise
    except (InputError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        refuse_state(f"{type(error).__name__}: {str(error)[:200]}")


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
    if table.dtype != np.float64 or table.ndim != 2 or table.shape[1] != len(fields(Step)):
        refuse_state(f"its table of steps has the shape {table.shape}")
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


class WithModel:
    """A `RunState` that also keeps what the quasi-Newton model of a run was made with."""

    def __init__(self, run_state: RunState, memory: int, single: bool, diagonal: np.ndarray | None) -> None:
        self.run_state, self.header = run_state, {"memory": memory, "single": single}
        self.arrays = {} if diagonal is None else {"diagonal": diagonal}

    def found(self, phase: str) -> State | None:
        """The state of an earlier run."""
        return self.run_state.found(phase)

    def offer(self, phase: str, state: Callable[[], State]) -> None:
        """Hand the state on, with the model's parts."""

        def whole() -> State:
            header, arrays = state()
            return self.header | header, self.arrays | arrays

        self.run_state.offer(phase, whole)
