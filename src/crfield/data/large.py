"""Numbers that would overflow, by name: which sequence, which step, which feature.

A feature may be any finite number, but what a model makes of it must be finite too. Training sums squares, so that a
cell of 10¹⁵⁵ is past the range of doubles there; a fitted model of weights bears cells up to what keeps every score
below 10²⁹⁰, with room for as many steps as there may be. Encoders read cells of any size, since models of thresholds
(trees, stumps) bear them all and standardised columns become small; models that multiply look here, once a call.

The cost is one pass over the numeric cells for their extremes. A place is looked for only where there is one to name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.data.batch import Batch, Columns
from crfield.errors import FeatureError

if TYPE_CHECKING:
    from crfield.data.graphs.batch import GraphBatch

LARGEST = 1e140  # of a cell to train on: squares, and sums of them, stay finite
ROOM = 1e290  # of a score, so that sums over steps stay finite
USUAL = 1e100  # cells up to here need no look at the weights
ADVICE = "If it stands for a missing value, leave it out or fill it in; otherwise bring the feature to another unit"


def refuse_large(
    batch: Batch | GraphBatch,
    encoder: Any,
    *,
    most: float = LARGEST,
    doing: str = "train on",
    sequences: bool = False,
) -> None:
    """FeatureError for the first cell of a batch whose size is above ``most``, with its place and name.

    ``encoder`` names the columns. A batch of graphs that were ``sequences`` is told of as such.

    >>> from crfield.features.matrices import MatrixEncoder
    >>> encoder = MatrixEncoder()
    >>> refuse_large(encoder.fit([np.array([[1.0], [1e155]])]), encoder)
    Traceback (most recent call last):
    crfield.errors.FeatureError: sequence 0, step 1: feature 'x[0]' is 1e+155, too large to train on: ...
    """
    for columns, place, names in _parts(batch, encoder, sequences):
        found = _first_above(columns, most)
        if found is not None:
            row, column, value, dense = found
            if getattr(encoder, "standardize", False):
                doing += ", once standardised"
            raise FeatureError(f"{place(row)}: {too_large(names[dense](column), value, most, doing)}")


def refuse_unbearable(
    batch: Batch | GraphBatch, encoder: Any, weights: np.ndarray, *, sequences: bool = False
) -> None:
    """FeatureError for the first cell with which a model of these weights would leave the range of numbers."""
    if any(_first_above(part[0], USUAL) is not None for part in _parts(batch, encoder, sequences)):
        refuse_large(batch, encoder, most=bearable(weights), doing="be scored", sequences=sequences)


def refuse_large_rows(
    rows: Any, name: Callable[[int], str], *, most: float = LARGEST, doing: str = "train on"
) -> None:
    """The same as `refuse_large` for a plain table (N, K), dense or CSR, whose columns have names.

    >>> refuse_large_rows(np.array([[0.0], [-1e308]]), "x[{}]".format)
    Traceback (most recent call last):
    crfield.errors.FeatureError: row 1: feature 'x[0]' is -1e+308, too large to train on: ...
    """
    if isinstance(rows, np.ndarray):
        columns = Columns(np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int32), 0, None, rows)
    else:
        columns = Columns(rows.indptr, rows.indices, rows.shape[1], rows.data)
    found = _first_above(columns, most)
    if found is not None:
        raise FeatureError(f"row {found[0]}: {too_large(name(found[1]), found[2], most, doing)}")


def too_large(name: str, value: float, most: float, doing: str) -> str:
    """What is to be said of a cell.

    >>> too_large("speed", 1e155, LARGEST, "train on").split(":")[0]
    "feature 'speed' is 1e+155, too large to train on"
    """
    return (
        f"feature {name!r} is {value:.6g}, too large to {doing}: results would not be finite numbers (at most "
        f"{most:.3g} here). {ADVICE}."
    )


def bearable(weights: np.ndarray) -> float:
    """The largest cell with which Σ |weight · cell| is below `ROOM`, whatever cells a step has.

    >>> bearable(np.array([0.5, -1.5])), bearable(np.zeros(3))
    (5e+289, 1e+290)
    """
    with np.errstate(over="ignore"):
        return float(ROOM / max(1.0, float(np.abs(weights).sum())))


def largest_cell(
    batch: Batch | GraphBatch, encoder: Any, row: int, *, sequences: bool = False, column: int | None = None
) -> str:
    """Place, name and value of a row's cell of largest size, or of its cell ``column`` (sparse ones first).

    >>> from crfield.features.matrices import MatrixEncoder
    >>> encoder = MatrixEncoder()
    >>> largest_cell(encoder.fit([np.array([[1.0, 2.0]]), np.array([[3.0, -9.0]])]), encoder, 1)
    "sequence 1, step 0: feature 'x[1]' is -9"
    """
    columns, place, names = _parts(batch, encoder, sequences)[0]
    first, last = columns.indptr[row : row + 2].tolist()
    values = np.ones(last - first) if columns.values is None else columns.values[first:last]
    cells = list(zip(columns.indices[first:last].tolist(), values.tolist(), [False] * len(values)))
    if columns.dense is not None:
        cells += [(k, value, True) for k, value in enumerate(columns.dense[row].tolist())]
    if column is not None:
        wanted = (column, False) if column < columns.width else (column - columns.width, True)
        cells = [cell for cell in cells if (cell[0], cell[2]) == wanted] or cells
    if not cells:
        return f"{place(row)}, which has no known feature"
    k, value, dense = max(cells, key=lambda cell: abs(cell[1]))
    return f"{place(row)}: feature {names[dense](k)!r} is {value:.6g}"


def place_of(batch: Batch | GraphBatch, row: int, *, sequences: bool = False) -> str:
    """A node's place in words: "sequence 3, step 0", or "graph 3, node 0"."""
    offsets = batch.topology.offsets
    number = int(np.searchsorted(offsets, row, side="right")) - 1
    of_graphs = not isinstance(batch, Batch) and not sequences
    words = ("graph", "node") if of_graphs else ("sequence", "step")
    return f"{words[0]} {number}, {words[1]} {row - int(offsets[number])}"


Part = tuple[Columns, Callable[[int], str], tuple[Callable[[int], str], Callable[[int], str]]]


def _parts(batch: Batch | GraphBatch, encoder: Any, sequences: bool) -> list[Part]:
    """Columns of the nodes and of the edges, with words for a row and names of sparse and of dense columns."""

    def node(row: int) -> str:
        return place_of(batch, row, sequences=sequences)

    parts: list[Part] = [(batch.node, node, (encoder.node_name, encoder.dense_name))]
    if isinstance(batch, Batch):
        if batch.edge is not None:
            heads = batch.topology.heads
            names = (encoder.edge_name, encoder.edge_dense_name)
            parts.append((batch.edge, lambda row: node(int(heads[row])), names))
        return parts
    for number, columns in enumerate(batch.edge):
        if columns is not None:
            parts.append((columns, _edge_place(batch, number, node), _edge_names(encoder, number)))
    return parts


def _edge_place(batch: GraphBatch, number: int, node: Callable[[int], str]) -> Callable[[int], str]:
    def place(row: int) -> str:
        edge = int(batch.edges_of(number)[row])
        tail, head = int(batch.topology.tails[edge]), int(batch.topology.heads[edge])
        return f"{node(tail)}, edge to {node(head).split(', ')[1]}"

    return place


def _edge_names(encoder: Any, number: int) -> tuple[Callable[[int], str], Callable[[int], str]]:
    return (lambda k: encoder.edge_name(number, k)), (lambda k: encoder.edge_dense_name(number, k))


def _within(cells: np.ndarray, most: float) -> bool:
    """Whether no cell is above ``most`` in size; False where one is NaN.

    A sum of squares below most² says so at once, in one pass; only a larger one, or one that overflows, does not.
    """
    flat = cells.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(flat.dot(flat) <= min(most, LARGEST) ** 2) or bool(flat.max() <= most and flat.min() >= -most)


def _first_above(columns: Columns, most: float) -> tuple[int, int, float, bool] | None:
    """Row, column, value, and whether it is a dense one, of the first cell above ``most`` in size."""
    values, dense = columns.values, columns.dense
    if dense is not None and dense.size and not _within(dense, most):
        above = np.abs(dense) > most
        if above.any():  # and no missing value, for models that bear them
            row, column = divmod(int(np.argmax(above)), dense.shape[1])
            return row, column, float(dense[row, column]), True
    if values is not None and values.size and not _within(values, most):
        entry = int(np.argmax(np.abs(values) > most))
        row = int(np.searchsorted(columns.indptr, entry, side="right")) - 1
        return row, int(columns.indices[entry]), float(values[entry]), False
    return None
