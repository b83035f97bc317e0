"""What a model makes of one column: scores or probabilities of labels as a function of its value.

The value holds what was computed (`crfield.estimators.explain.partial_dependence`), prints as a table, and is drawn
as curves. Where values of the column were missing, what a missing one does is a last row of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.data.frames import frame_of
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.displays.curves import Chart, Curve

KINDS = ("probability", "score")


@dataclass(frozen=True, eq=False, repr=False)
class PartialDependence(ShownAsTables):
    """Means over all steps, with the column set to each value of a grid.

    >>> values = np.array([[0.25, 0.75], [0.875, 0.125]])
    >>> found = PartialDependence("speed", ("go", "stop"), np.array([0.0, 2.0]), values)
    >>> found
    speed     go   stop
        0  0.250  0.750
        2  0.875  0.125
    >>> found.effects.tolist()
    [0.625, 0.625]
    """

    column: str
    labels: tuple[Hashable, ...]  # L
    grid: np.ndarray  # (G,)
    values: np.ndarray  # (G, L)
    missing: np.ndarray | None = None  # (L,) with the column missing everywhere
    kind: str = "probability"

    @property
    def effects(self) -> np.ndarray:
        """(L,) the largest less the smallest value of each label: how much the column can do."""
        rows = self.values if self.missing is None else np.concatenate([self.values, self.missing[None]])
        return np.asarray(np.ptp(rows, axis=0))

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each value of the column; None for a missing one."""
        places: list[float | None] = self.grid.tolist()
        table = [row.tolist() for row in self.values]
        if self.missing is not None:
            places, table = [*places, None], [*table, self.missing.tolist()]
        names = list(map(str, self.labels))
        return [{self.column: at, **dict(zip(names, row))} for at, row in zip(places, table)]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; InputError where pandas is not installed."""
        return frame_of(self.rows(), (self.column, *map(str, self.labels)))

    def chart(self) -> Chart:
        """The curves, for `crfield.report.displays.curves.plot_charts`; a missing value is a level line.

        >>> found = PartialDependence("speed", ("go", "stop"), np.array([0.0, 2.0]), np.eye(2), np.array([0.5, 0.5]))
        >>> [curve.name for curve in found.chart().curves]
        ['go', 'stop', 'go, missing', 'stop, missing']
        """
        places = tuple(self.grid.tolist())
        none = (float("nan"),) * len(places)
        curves = [
            Curve(str(label), places, tuple(own.tolist()), none, none)
            for label, own in zip(self.labels, self.values.T)
        ]
        if self.missing is not None:
            curves += [
                Curve(f"{label}, missing", places, (float(own),) * len(places), none, none, faint=True)
                for label, own in zip(self.labels, self.missing)
            ]
        return Chart(f"{self.kind} by {self.column}", self.column, self.kind, tuple(curves))

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = [self.column, *map(str, self.labels)]
        body = []
        for row in self.rows():
            at, *own = row.values()
            body.append(["missing" if at is None else f"{at:.4g}", *(f"{value:.3f}" for value in own)])
        return head, body

    def _tables(self) -> list[Table]:
        head, body = self._cells()
        return [Table(head, body, title=f"{self.kind} by {self.column}")]

    def __repr__(self) -> str:
        head, body = self._cells()
        widths = [max(len(row[k]) for row in (head, *body)) for k in range(len(head))]
        return "\n".join("  ".join(cell.rjust(wide) for cell, wide in zip(row, widths)) for row in (head, *body))
