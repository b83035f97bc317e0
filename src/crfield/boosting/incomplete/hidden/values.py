"""Hidden attributes of a few values each, observed or missing datum by datum.

One attribute is the plain case: the part of speech of a word, known for some words. With several, any may be missing
in any datum, and what is hidden in it is every combination of values of those that are: the cells of a datum are the
product of its missing attributes (section 5 of the paper, "different missing attributes"). The prior takes attributes
as independent given x.

Columns that depend on h are, for each value of each attribute, an indicator, and its products with chosen columns of
the data (``interactions``): [h = v], [h = v] x_a, …
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import isnan
from typing import Any

import numpy as np

from crfield.boosting.incomplete.cells import Cells
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ShapeError

HIDDEN = -1
MOST_CELLS = 50_000_000
MOST_FRACTIONS = 32  # different numbers with a fraction that are still taken for categories


def as_table(hidden: Any, n_data: int, *, several: bool) -> np.ndarray:
    """``hidden`` as an object array (N, A) with None where a value is missing; NaN counts as missing too.

    >>> as_table(["N", None], 2, several=False).tolist()
    [['N'], [None]]
    >>> as_table([("N", None), None], 2, several=True).tolist()
    [['N', None], [None, None]]
    """
    if hidden is None:
        hidden = [None] * n_data
    if hasattr(hidden, "to_numpy"):
        hidden = hidden.to_numpy(dtype=object)
    rows = hidden.tolist() if isinstance(hidden, np.ndarray) else list(hidden)
    if len(rows) != n_data:
        raise ShapeError(
            f"hidden must have one entry for each of {n_data} data, None where unknown, got {len(rows)}."
        )
    if not several:
        out = np.empty((n_data, 1), dtype=object)
        for i, value in enumerate(rows):
            if isinstance(value, list):
                raise ShapeError(
                    f"hidden[{i}] must be one value, got a list of {len(value)}. Use structure='attributes' for "
                    "several values per datum, or structure='chain' for a window of tags."
                )
            out[i, 0] = _plain(value)
        return out
    width = {len(row) for row in rows if row is not None and not isinstance(row, str)}
    if any(isinstance(row, str) for row in rows) or len(width) > 1:
        raise ShapeError(
            "with structure='attributes' entries of hidden must be None or lists of one and the same length, got "
            + ("a string." if len(width) <= 1 else f"lists of {sorted(width)}.")
        )
    out = np.full((n_data, width.pop() if width else 0), None, dtype=object)
    for i, row in enumerate(rows):
        for a, value in enumerate(row if row is not None else ()):
            out[i, a] = _plain(value)
    return out


def learn_values(column: np.ndarray, given: Sequence[Hashable] | None = None) -> LabelCoder | None:
    """The values of an attribute: those given, or those observed in ``column`` (N,); None where there are none.

    Many different fractions are measurements and not categories: InputError.

    >>> learn_values(np.linspace(0.1, 0.9, 120).astype(object))
    Traceback (most recent call last):
    crfield.errors.InputError: hidden holds 120 different fractions (0.1, 0.106723, 0.113445, …), ...
    """
    if given is not None:
        return LabelCoder.from_classes(given)
    fractions = sorted({float(v) for v in column if isinstance(v, float | np.floating) and not float(v).is_integer()})
    if len(fractions) > MOST_FRACTIONS:
        raise InputError(
            f"hidden holds {len(fractions)} different fractions ({', '.join(f'{v:.6g}' for v in fractions[:3])}, …), "
            f"and each would be a category with weights of its own; more than {MOST_FRACTIONS} are taken for "
            "measurements. Cut them into bins first, such as np.digitize(h, np.nanquantile(h, [0.25, 0.5, 0.75])), "
            "with None where h is hidden; or list them with hidden_values= if they are categories."
        )
    return LabelCoder().fit([list(column)]) if any(value is not None for value in column) else None


def value_codes(column: np.ndarray, coder: LabelCoder) -> np.ndarray:
    """(N,) codes of values, −1 where hidden; a value never seen is refused with its datum.

    >>> value_codes(np.array(["N", None], dtype=object), LabelCoder.from_classes(["N", "V"])).tolist()
    [0, -1]
    """
    known = {label: code for code, label in enumerate(coder.labels)} | {None: HIDDEN}
    try:
        codes = np.array([known.get(value, -9) for value in column], dtype=np.int64)
    except TypeError as error:
        raise LabelError(f"values of hidden must be hashable: {error}. Use str, numbers or tuples.") from None
    foreign = np.flatnonzero(codes == -9)
    if len(foreign):
        first = int(foreign[0])
        raise LabelError(
            f"hidden[{first}] has the value {column[first]!r}, which the model does not know: it knows "
            f"{coder.labels}. Write None where it is unknown, or name all values with hidden_values=."
        )
    return codes


def value_cells(
    codes: np.ndarray, beliefs: Sequence[np.ndarray], columns: Any = None, *, most: int = MOST_CELLS
) -> Cells:
    """Cells of attributes: ``codes`` (N, A), −1 where hidden, ``beliefs`` A of (N, H_a), ``columns`` (N, I) or None.

    Columns of a cell are Σ_a H_a (1 + I): for each value of each attribute its indicator and its interactions.

    >>> cells = value_cells(np.array([[1], [-1]]), [np.full((2, 2), 0.5)])
    >>> cells.prior.tolist(), cells.columns.toarray().tolist()
    ([1.0, 0.5, 0.5], [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    """
    from scipy.sparse import csr_array, hstack

    n = len(codes)
    owner, prior = np.arange(n), np.ones(n)
    chosen: list[np.ndarray] = []
    for a, belief in enumerate(beliefs):
        possible = belief > 0
        known = np.flatnonzero(codes[:, a] >= 0)
        possible[known] = False
        possible[known, codes[known, a]] = True
        runs = possible.sum(axis=1)[owner]
        if int(runs.sum()) > most:
            worst = int(np.argmax(np.bincount(owner, runs, n)))
            raise InputError(
                f"the missing attributes have more than {most:,} combinations in all, datum {worst} the most. Drop "
                "attributes, or merge values."
            )
        kept = np.repeat(np.arange(len(owner)), runs)
        owner, prior, chosen = owner[kept], prior[kept], [c[kept] for c in chosen]
        # The possible values of each datum stand in a row, so the turn within the run names the value.
        first = np.concatenate([[0], np.cumsum(possible.sum(axis=1))])
        turn = np.arange(len(kept)) - np.concatenate([[0], np.cumsum(runs)])[:-1][kept]
        value = np.nonzero(possible)[1][first[owner] + turn]
        prior = prior * np.where(codes[owner, a] >= 0, 1.0, belief[owner, value])
        chosen.append(value)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))])
    blocks = [
        _value_columns(value, belief.shape[1], owner, columns) for value, belief in zip(chosen, beliefs, strict=True)
    ]
    if not blocks:
        return Cells.nothing_hidden(n)
    return Cells(offsets, prior, csr_array(hstack(blocks, format="csr")) if len(blocks) > 1 else blocks[0])


def _value_columns(value: np.ndarray, n_values: int, owner: np.ndarray, columns: Any) -> Any:
    from scipy.sparse import csr_array

    cells = len(value)
    if columns is None or not columns.shape[1]:
        return csr_array((np.ones(cells), value, np.arange(cells + 1)), (cells, n_values))
    rows = csr_array(columns)[owner]
    width, runs = 1 + columns.shape[1], np.diff(rows.indptr)
    ends = np.cumsum(runs + 1)
    at = np.empty(rows.nnz + cells, dtype=np.int64)
    data = np.empty(rows.nnz + cells)
    first = ends - runs - 1
    indicator = np.zeros(rows.nnz + cells, dtype=bool)
    indicator[first] = True
    at[first], data[first] = value * width, 1.0
    at[~indicator] = np.repeat(value * width, runs) + 1 + rows.indices
    data[~indicator] = rows.data
    return csr_array((data, at, np.concatenate([[0], ends])), (cells, n_values * width))


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and isnan(value) else value
