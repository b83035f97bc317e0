"""Labels that are known or impossible: what they do to scores, and what is said where no labelling is left.

Known labels are masks on the scores, as partial labels are in training: what they say has probability one, and
everything else is exact given them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.labels import LabelCoder
from crfield.errors import LabelError


def known_potentials(potentials: Potentials, known: Any, coder: LabelCoder, states: Any = None) -> Potentials:
    """Scores in which every step may only be what ``known`` says of it; None there, or for all, says nothing.

    ``states`` tells the states of each label where scores are of states (`crfield.scoring.latent`).
    """
    if known is None:
        return potentials
    topology = potentials.topology
    labels, allowed = coder.encode(known, topology.lengths)
    target = Target(topology, coder.n_labels, labels, allowed)
    mask = (target if states is None else states.target(target)).mask
    node = np.where(mask, potentials.node, -np.inf)
    return Potentials(node, potentials.edge, topology, potentials.table)


def refuse_impossible(total: np.ndarray, *, known: bool = False) -> None:
    """LabelError if a sequence has no possible labelling: total (B,) of −∞."""
    impossible = np.isneginf(total)
    if impossible.any():
        what = "known labels and constraints" if known else "constraints"
        raise LabelError(
            f"sequence {int(np.argmax(impossible))} has no labelling that the {what} allow. "
            + ("Say less of it, or relax the constraints." if known else "Relax them.")
        )


def dead_step(potentials: Potentials, sequence: int) -> int:
    """The first step of a sequence at which no label is left that some path leads to; its lowest step if none is.

    >>> from crfield.core.topology import Chains
    >>> edge = np.array([[[0.0, -np.inf], [-np.inf, 0.0]]])
    >>> scores = Potentials(np.array([[0.0, -np.inf], [0.0, 0.0], [-np.inf, 0.0]]), edge, Chains.from_lengths([3]))
    >>> dead_step(scores, 0)
    2
    """
    first, last = potentials.topology.offsets[sequence : sequence + 2].tolist()
    edge = int(potentials.topology.edge_offsets[sequence])
    alive = ~np.isneginf(potentials.node[first])
    for step in range(last - first):
        if step:
            table = potentials.edge[potentials.tables[edge + step - 1]]
            alive = (alive[:, None] & ~np.isneginf(table)).any(axis=0) & ~np.isneginf(potentials.node[first + step])
        if not alive.any():
            return step
    return int(potentials.node[first:last].max(axis=1).argmin())
