"""What an experiment found: rows, intervals, and whether each thing that was claimed is so.

A figure without its spread says little, and a table without a sentence leaves the reader to find what matters. So an
experiment returns `Findings`: columns and rows for people and for JSON, and claims, each of them a sentence, whether
it holds, and the number that decides it. Claims that fail stay in the table as failed. A claim on a mean whose
interval reaches both sides of what is claimed is neither shown nor refuted: it is *open*, and more repetitions would
decide it.

Intervals are of means over seeds, folds or items that are independent, by Student's t (Gosset 1908), never over
pixels or steps, which are not independent. Methods that met the same seeds are compared by their differences seed by
seed: what a hard seed does to all of them then cancels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.report.alignment import pad, width
from crfield.report.displays.curves import Chart

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; without one (a single value) low and high are NaN.

    >>> Interval(0.5, 0.48, 0.52)
    .500 ± .020
    >>> Interval(-0.25, -0.75, 0.25).holds(0.0)
    True
    """

    mean: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the interval has the value in it."""
        return self.low <= value <= self.high

    def within(self, least: float, most: float = float("inf")) -> bool | None:
        """Whether the mean is between the two: True or False where the whole interval says so, else None.

        >>> [Interval(0.1, *ends).within(0.0) for ends in ((0.05, 0.15), (-0.05, 0.25), (float("nan"), float("nan")))]
        [True, None, None]
        >>> Interval(-0.1, -0.2, -0.0).within(0.0)
        False
        """
        if least < self.low and self.high < most:
            return True
        return False if self.high <= least or self.low >= most else None

    def __repr__(self) -> str:
        text = _number(self.mean)
        return text if np.isnan(self.low) else f"{text} ± {_number((self.high - self.low) / 2)}"


def mean_interval(values: Iterable[float]) -> Interval:
    """The mean of independent values and its interval, mean ± t · deviation / √n.

    >>> mean_interval([0.5, 0.6, 0.7])
    .600 ± .248
    >>> mean_interval([0.5])
    .500
    """
    taken = np.array(list(values), dtype=np.float64)
    if not len(taken):
        raise InputError("an interval needs at least one value, got none.")
    mean = float(taken.mean())
    if len(taken) == 1:
        return Interval(mean, float("nan"), float("nan"))
    from scipy.stats import t

    reach = float(t.ppf(0.5 + CONFIDENCE / 2, len(taken) - 1) * taken.std(ddof=1) / np.sqrt(len(taken)))
    return Interval(mean, mean - reach, mean + reach)


def paired_interval(one: Iterable[float], other: Iterable[float]) -> Interval:
    """The mean of one − other, case by case.

    >>> paired_interval([0.5, 0.7, 0.9], [0.4, 0.6, 0.8])
    .100 ± .000
    """
    first, second = np.array(list(one)), np.array(list(other))
    if first.shape != second.shape:
        raise InputError(f"pairs need equally many values on both sides, got {len(first)} and {len(second)}.")
    return mean_interval(first - second)


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds (None: open, the interval reaches both sides), and what was found.

    >>> print(Claim("at least 99 % of cells", True, "99.2 %"))
    yes  at least 99 % of cells: 99.2 %
    >>> Claim("mine above theirs", None, "+0.01, 95 % interval -0.01 … +0.03").verdict
    'open'
    """

    sentence: str
    holds: bool | None
    found: str

    @property
    def verdict(self) -> str:
        """In a word: yes, NO or open."""
        return "open" if self.holds is None else "yes" if self.holds else "NO"

    def __str__(self) -> str:
        return f"{self.verdict:4} {self.sentence}: {self.found}"


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """The result of one experiment.

    >>> found = Findings("coins", ("coin", "heads"), (("fair", Interval(0.5, 0.4, 0.6)), ("bent", 0.75)),
    ...     (Claim("the bent coin shows heads more often", True, ".750"),), ("ten throws each",))
    >>> print(found)
    coins
    <BLANKLINE>
    coin        heads
    fair  .500 ± .100
    bent         .750
    <BLANKLINE>
    yes  the bent coin shows heads more often: .750
    <BLANKLINE>
    ten throws each
    >>> found.verdict
    'all 1 claims hold'
    >>> found["bent", "heads"]
    0.75
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # text, numbers, bools, `Interval`s, None; the first cell names the row
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(f"each row must have {len(self.columns)} cells, {self.columns}, got {row}.")

    def __getitem__(self, place: tuple[str, str]) -> Any:
        """The cell of the row and the column of these names."""
        name, column = place
        for row in self.rows:
            if row[0] == name and column in self.columns:
                return row[self.columns.index(column)]
        raise InputError(
            f"there is no cell {place}; rows are {[row[0] for row in self.rows]}, columns {list(self.columns)}."
        )

    @property
    def verdict(self) -> str:
        """Which claims hold, in a sentence."""
        if not self.claims or all(claim.holds for claim in self.claims):
            return f"all {len(self.claims)} claims hold" if self.claims else "nothing was claimed"
        told = []
        for verdict, words in (("NO", "do not hold"), ("open", "are open")):
            some = [claim.sentence for claim in self.claims if claim.verdict == verdict]
            told += [f"{len(some)} of {len(self.claims)} claims {words}: {'; '.join(some)}"] * bool(some)
        return "; ".join(told)

    def table(self) -> str:
        """The rows, aligned; the first column at the left, numbers at the right."""
        cells = [list(self.columns), *([cell_text(cell) for cell in row] for row in self.rows)]
        return aligned(cells)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; an interval is its mean, low and high."""
        return {
            "title": self.title,
            "verdict": self.verdict,
            "rows": [{name: _plain(cell) for name, cell in zip(self.columns, row)} for row in self.rows],
            "claims": [
                {"claim": c.sentence, "holds": None if c.holds is None else bool(c.holds), "found": c.found}
                for c in self.claims
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        parts = [self.title, self.table(), "\n".join(map(str, self.claims)), "\n".join(self.notes)]
        return "\n\n".join(part for part in parts if part)

    __repr__ = __str__


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a table, the first column at the left and the others at the right.

    >>> print(aligned([["k", "MPM"], ["one", ".7"]]))
    k    MPM
    one   .7
    """
    widths = [max(width(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(pad(cell, wide, right=k > 0) for k, (cell, wide) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )


def percent(share: float, digits: int = 2) -> str:
    """A share for a sentence.

    >>> percent(0.9989)
    '99.89 %'
    """
    return f"{100 * share:.{digits}f} %"


def cell_text(cell: Any) -> str:
    """A cell as it stands in the table.

    >>> [cell_text(cell) for cell in (None, True, 0.5, -0.25, 3, Interval(0.5, 0.25, 0.75))]
    ['·', 'yes', '.500', '-.250', '3', '.500 ± .250']
    """
    if cell is None:
        return "·"
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, float | np.floating):
        return _number(float(cell))
    return repr(cell) if isinstance(cell, Interval) else str(cell)


def _number(value: float) -> str:
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 and not text.endswith("1.000") else text


def _plain(cell: Any) -> Any:
    if isinstance(cell, Interval):
        low, high = (None if np.isnan(end) else end for end in (cell.low, cell.high))
        return {"mean": cell.mean, "low": low, "high": high}
    if isinstance(cell, Mapping):
        return dict(cell)
    return cell.item() if isinstance(cell, np.generic) else cell
