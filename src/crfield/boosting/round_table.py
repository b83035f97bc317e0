"""The history of boosting: what was picked when.

One row for each round: the learner that won, its gain, the mean −log p of the true labels that followed, and the same
on held-out data where there is some. Gains of features and of relations are on one scale and may be compared; a
relation that was proposed and not accepted (verified mode) is a row as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from crfield.data.frames import frame_of
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.storage.state import State, refuse

SHOWN, LAST = 20, 4  # rounds that repr shows, and how many of them are the last ones
_NUMBERS = ("gain", "nll", "held_out")
HEAD = ("round", "kind", "pick", "gain", "nll", "held_out", "kept")


@dataclass(frozen=True)
class Round:
    """One round; ``nll`` is the mean −log p of true labels after it, NaN where it was not taken."""

    number: int
    kind: str  # "feature" or "relation"
    pick: str
    gain: float
    nll: float = float("nan")
    held_out: float | None = None
    kept: bool = True  # False for a relation that was not accepted, or a round that was rolled back


class RoundTable(ShownAsTables, Sequence[Round]):
    """Rounds in their order, to be read and to be counted.

    >>> table = RoundTable([Round(1, "feature", "x[4] > 0.5", 12.5, 0.69), Round(2, "relation", "+1", 3.25, 0.6)])
    >>> table
    round  kind      pick           gain     nll
        1  feature   x[4] > 0.5    12.50  0.6900
        2  relation  +1             3.25  0.6000
    >>> table.picks, table[1].gain, len(table)
    (['x[4] > 0.5', '+1'], 3.25, 2)
    """

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._rounds = tuple(rounds)

    @overload
    def __getitem__(self, at: int) -> Round: ...
    @overload
    def __getitem__(self, at: slice) -> RoundTable: ...
    def __getitem__(self, at: int | slice) -> Round | RoundTable:
        return RoundTable(self._rounds[at]) if isinstance(at, slice) else self._rounds[at]

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundTable) and str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def picks(self) -> list[str]:
        """What each round picked."""
        return [round_.pick for round_ in self._rounds]

    @property
    def relations(self) -> dict[str, int]:
        """How many rounds went to each relation."""
        counts: dict[str, int] = {}
        for round_ in self._rounds:
            if round_.kind == "relation" and round_.kept:
                counts[round_.pick] = counts.get(round_.pick, 0) + 1
        return counts

    def rows(self) -> list[dict[str, Any]]:
        """One dict for each round."""
        return [
            {
                "round": r.number,
                "kind": r.kind,
                "pick": r.pick,
                "gain": r.gain,
                "nll": r.nll,
                "held_out": r.held_out,
                "kept": r.kept,
            }
            for r in self._rounds
        ]

    # ------------------------------------------------------------------ model files

    def to_json(self) -> list[list[Any]]:
        """A list for each round; numbers that are not finite are None.

        >>> RoundTable([Round(1, "tree", "(2 leaves)", 3.5, 0.25)]).to_json()
        [[1, 'tree', '(2 leaves)', 3.5, 0.25, None, True]]
        """
        return [
            [r.number, r.kind, r.pick, _finite(r.gain), _finite(r.nll), _finite(r.held_out), bool(r.kept)]
            for r in self._rounds
        ]

    @classmethod
    def from_json(cls, rows: Any) -> RoundTable:
        """The table whose `to_json` this is; ModelFileError where it cannot be one."""
        try:
            return cls(
                [
                    Round(int(n), str(kind), str(pick), _number(gain), _number(nll), _outside(held), bool(kept))
                    for n, kind, pick, gain, nll, held, kept in rows
                ]
            )
        except (TypeError, ValueError, OverflowError):
            refuse("the model file's rounds cannot be read")

    def state(self) -> State:
        """Words as a header ``rounds``, numbers as arrays: the form of models of rows, whose rounds are many."""
        numbers = {name: [getattr(r, name) for r in self._rounds] for name in _NUMBERS}
        return State(
            {"rounds": [[r.kind, r.pick, r.kept] for r in self._rounds]},
            {f"rounds/{name}": np.array(column, np.float64) for name, column in numbers.items()},
        )

    @classmethod
    def from_state(cls, state: State) -> RoundTable:
        """The table whose `state` this is; ModelFileError where it cannot be one."""
        words = state.listed("rounds")
        if any(not isinstance(row, list) or [type(word) for word in row] != [str, str, bool] for row in words):
            refuse("the model file's rounds cannot be read")
        columns = [state.array(f"rounds/{name}", (len(words),), finite=False).tolist() for name in _NUMBERS]
        return cls(
            [
                Round(number, kind, pick, gain, nll, None if np.isnan(held) else held, kept)
                for number, ((kind, pick, kept), gain, nll, held) in enumerate(zip(words, *columns), 1)
            ]
        )

    # ---------------------------------------------------------------------- display

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame; InputError where pandas is not installed."""
        return frame_of(self.rows(), HEAD)

    def _tables(self) -> list[Table]:
        return [Table.of_dicts(self.rows(), HEAD, left=3)]

    def __repr__(self) -> str:
        return self._table(SHOWN)

    def __str__(self) -> str:
        return self._table(len(self))

    def _table(self, most: int) -> str:
        """The first and the last rounds, ``most`` of them or a few more."""
        if not self._rounds:
            return "no rounds"
        held = any(r.held_out is not None for r in self._rounds)
        width = max(10, *(len(r.pick) for r in self._rounds))
        lines = [f"round  kind      {'pick':<{width}}  {'gain':>7}  {'nll':>6}{'  held out' if held else ''}"]
        for r in self._rounds:
            outside = "" if r.held_out is None else f"  {r.held_out:8.4f}"
            mark = "" if r.kept else "  not kept"
            lines.append(f"{r.number:5}  {r.kind:<8}  {r.pick:<{width}}  {r.gain:7.2f}  {r.nll:6.4f}{outside}{mark}")
        left_out = len(self) - most
        if left_out > LAST:
            lines[1 + most - LAST : -LAST] = [f"    …  {left_out} more rounds; print() shows all"]
        return "\n".join(lines)


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _outside(value: Any) -> float | None:
    return None if value is None else float(value)
