"""Virtual evidence as input: a distribution over an attribute's values where the value itself is not known.

A sensor may say "moving, probably": not a value x of the attribute but ve(x), how strongly each value is supported.
LogitBoost then minimises the expected weighted error, and the best table of values f(x) is again a weighted mean
(Liao et al. 2007, *Training conditional random fields using virtual evidence boosting*, algorithm 1):

    α_dc = Σ_i w_ic z_ic ve_i(d) / (Σ_i w_ic ve_i(d) + ridge)        gain = Σ_c Σ_d (Σ w z ve)² / (Σ w ve + ridge)

How a class is scored by a table A_dc, the sum of all that were fitted for the attribute, has two forms (`FORMS`):

    "scores"        Σ_d ve(d) A_dc              the expected score: the attribute is a mixture of its values
    "potentials"    log Σ_d ve(d) exp A_dc      the expected potential, equation 4 of the paper: what a message of
                                                belief propagation does; the attribute has one value, which is unknown

The paper sums over the joint values of all attributes. Attributes are given one by one, hence independent, and a
weak learner asks one of them, so the joint sum is a product and the logs add up (`Expectations`). The two forms agree
where every distribution is a point mass: then this is a discrete attribute of the classical algorithm, with the same
values and the same gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import FeatureError, InputError, ShapeError

FORMS = ("scores", "potentials")  # how evidence scores a class


@dataclass(frozen=True, eq=False)
class EvidenceTable:
    """A value for each value of an attribute that is known by its distribution.

    >>> EvidenceTable("motion", np.array([[-1.0, 1.0], [3.0, -3.0]]), 2.0).expected(np.array([[0.5, 0.5]])).tolist()
    [[1.0, -1.0]]
    """

    name: str
    values: np.ndarray  # (D, K)
    gain: float

    def expected(self, distribution: np.ndarray) -> np.ndarray:
        """Σ_d ve(d) α_dc, (N, K) from distributions (N, D)."""
        return distribution @ self.values


class Evidence:
    """Named distributions (N, D) of one data set, checked.

    >>> ev = Evidence({"motion": [[0.9, 0.1], [0.2, 0.8]]}, 2)
    >>> ev.sizes
    {'motion': 2}
    """

    def __init__(self, tables: Mapping[str, Any] | None, n_rows: int) -> None:
        self.n_rows = n_rows
        self.tables: dict[str, np.ndarray] = {}
        if tables is None:
            return
        if not isinstance(tables, Mapping):
            raise InputError(
                f"evidence must be a dict of name: (n_rows, n_values) distributions, got {type(tables).__name__}."
            )
        for name, given in tables.items():
            if not isinstance(name, str):
                raise InputError(f"evidence is named by strings, got {name!r}.")
            self.tables[name] = _distribution(name, given, n_rows)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of values of each attribute by its name, in the order given."""
        return {name: table.shape[1] for name, table in self.tables.items()}

    def rows(self, chosen: np.ndarray) -> Evidence:
        """The evidence of some rows."""
        some = Evidence(None, len(np.arange(self.n_rows)[chosen]))
        some.tables = {name: table[chosen] for name, table in self.tables.items()}
        return some


def _distribution(name: str, given: Any, n_rows: int) -> np.ndarray:
    try:
        table = np.ascontiguousarray(given, np.float64)
    except (TypeError, ValueError):
        raise FeatureError(f"evidence {name!r} must be numbers.") from None
    if table.ndim != 2 or len(table) != n_rows or table.shape[1] < 1:
        raise ShapeError(f"evidence {name!r} must be ({n_rows}, n_values) for {n_rows} rows, got {table.shape}.")
    # NaN and infinity fail these comparisons as well
    good = np.asarray((table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= 1e-6))
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise FeatureError(
            f"evidence {name!r} must be a distribution in every row: numbers ≥ 0 that sum to 1; "
            f"row {row} is {np.array2string(table[row], threshold=8, precision=4)}. Where nothing is known, give all "
            "values the same."
        )
    return table


def log_expected(distribution: np.ndarray, table: np.ndarray) -> np.ndarray:
    """log Σ_d ve(d) exp A_dc, (N, K) from distributions (N, D) and a table (D, K).

    >>> log_expected(np.array([[0.5, 0.5], [1.0, 0.0]]), np.log([[1.0, 4.0], [3.0, 2.0]])).round(4).tolist()
    [[0.6931, 1.0986], [0.0, 1.3863]]
    """
    with np.errstate(divide="ignore"):  # a value without support has log 0 and adds nothing
        logs = np.log(distribution)
    return np.stack([np.logaddexp.reduce(logs + column, axis=1) for column in table.T], axis=1)


class Expectations:
    """What tables on the evidence of some rows add to their scores, one table after another.

    >>> rows = Expectations(Evidence({"motion": [[0.5, 0.5]]}, 1), "potentials")
    >>> step = EvidenceTable("motion", np.log([[1.0, 4.0], [3.0, 2.0]]), 1.0)
    >>> (rows.added(step) + rows.added(step)).round(4).tolist()  # log (1 + 9)/2 and log (16 + 4)/2
    [[1.6094, 2.3026]]
    """

    def __init__(self, evidence: Evidence, form: str) -> None:
        self._evidence = evidence
        self._form = form
        self._tables: dict[str, np.ndarray] = {}  # of each attribute, the sum of its tables (D, K)
        self._logs: dict[str, np.ndarray] = {}  # and the logs of its expected potentials (N, K)

    def added(self, step: EvidenceTable) -> np.ndarray:
        """The change of the scores (N, K) by one more table."""
        given = self._evidence.tables[step.name]
        if self._form == "scores":
            return step.expected(given)
        self._tables[step.name] = self._tables.get(step.name, 0.0) + step.values
        before = self._logs.get(step.name, 0.0)
        self._logs[step.name] = log_expected(given, self._tables[step.name])
        return self._logs[step.name] - before


def best_evidence(evidence: Evidence, pairs: np.ndarray, *, ridge: float = 0.0) -> EvidenceTable | None:
    """The attribute of largest gain for working pairs (C, N, 2), with raw values (D, C); None without any.

    >>> pairs = np.array([[[1.0, 2.0], [1.0, -2.0]]])
    >>> best = best_evidence(Evidence({"sure": [[1, 0], [0, 1]], "vague": [[0.6, 0.4], [0.4, 0.6]]}, 2), pairs)
    >>> best.name, best.values.ravel().tolist(), best.gain
    ('sure', [2.0, -2.0], 8.0)
    """
    best: EvidenceTable | None = None
    for name, table in evidence.tables.items():
        sums = np.einsum("nd,cnk->cdk", table, pairs)  # (C, D, 2)
        weight, product = sums[..., 0], sums[..., 1]
        values = np.divide(product, weight + ridge, out=np.zeros_like(product), where=weight > 0)
        gain = float((values * product).sum())
        if best is None or gain > best.gain:
            best = EvidenceTable(name, np.ascontiguousarray(values.T), gain)
    return best
