"""Columns of neighbouring steps: what a model of one step may see of those around it.

A label is scored from its own step unless the columns of others are laid beside it. For ``reach`` w a table (N, F)
becomes (N, (2w + 1) F): first the step itself, then one before, one after, two before, and so on. Beyond the ends of
a sequence there are zeros. Memory grows with the reach, dense tables being copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.topology import Chains

MOST = 4096  # steps on either side; more is a slip, or a model file that was edited


def window_offsets(reach: int) -> list[int]:
    """The steps a window of this reach sees, in the order of its blocks.

    >>> window_offsets(2)
    [0, -1, 1, -2, 2]
    """
    return [0, *(sign * d for d in range(1, reach + 1) for sign in (-1, 1))]


def windowed(table: Any, chains: Chains, *, reach: int) -> Any:
    """The table (N, F), dense or CSR, with the columns of the steps up to ``reach`` before and after.

    >>> windowed(np.array([[1.0], [2.0], [3.0]]), Chains.from_lengths([2, 1]), reach=1).tolist()
    [[1.0, 0.0, 2.0], [2.0, 1.0, 0.0], [3.0, 0.0, 0.0]]
    """
    if not reach:
        return table
    steps, owner = np.arange(chains.n_nodes), chains.sequence_of_node
    blocks = []
    near = min(reach, max(int(chains.lengths.max(initial=0)) - 1, 0))  # blocks beyond it are zero, and stand last
    for offset in window_offsets(near):
        other = np.clip(steps + offset, 0, max(chains.n_nodes - 1, 0))
        inside = (steps + offset == other) & (owner[other] == owner)
        blocks.append(_moved(table, other, inside))
    width = (2 * reach + 1) * table.shape[1]
    if not hasattr(table, "tocsr"):
        return np.concatenate([*blocks, np.zeros((len(table), 2 * (reach - near) * table.shape[1]))], axis=1)
    from scipy.sparse import csr_array, hstack

    joined = hstack(blocks, format="csr")
    return csr_array((joined.data, joined.indices, joined.indptr), shape=(joined.shape[0], width))


def _moved(table: Any, other: np.ndarray, inside: np.ndarray) -> Any:
    """Rows ``other`` of the table, zero where they do not lie inside."""
    if not hasattr(table, "tocsr"):
        return np.where(inside[:, None], table[other], 0.0)
    from scipy.sparse import csr_array

    here = np.flatnonzero(inside)
    choose = csr_array((np.ones(len(here)), (here, other[here])), shape=(len(other), table.shape[0]))
    return choose @ table
