"""Whether the gold labels satisfy the constraints, and what to say where they do not.

A gold labelling that breaks a hard rule has the probability 0 whatever the weights: no likelihood, no margin, nothing
to learn. It is refused before any work is done, with the sequence, the step and the labels in question. Where labels
are partial it is enough that some allowed labelling is legal, which one sweep of max-product decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from crfield.core.constraints import FixedScores
from crfield.core.target import Target
from crfield.errors import LabelError
from crfield.kernels import chain

_ADVICE = (
    "Correct its labels (crfield.metrics.convert_sequences rewrites tags that are ill-formed), relax the "
    "constraints, make them costs, or leave the sequence out by sample_weight 0."
)


def refuse_illegal(fixed: FixedScores, target: Target, names: Sequence[Hashable] | None = None) -> None:
    """LabelError if all labellings that the target allows a sequence that counts are forbidden by the fixed scores.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> fixed = FixedScores(np.array([[0.0, -np.inf], [0.0, 0.0]]), np.zeros(2), np.zeros(2))
    >>> refuse_illegal(fixed, Target(Chains.from_lengths([2]), 2, np.array([0, 1])), ["O", "I"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    crfield.errors.LabelError: sequence 0, step 1: 'I' after 'O' violates the constraints. Correct its labels ...
    """
    if not fixed.forbids:
        return
    topology = target.topology
    broken = fixed.first_broken(target)
    if broken is not None:
        sequence, step = broken
        first, length = int(topology.offsets[sequence]), int(topology.lengths[sequence])
        said = [repr(int(k) if names is None else names[k]) for k in target.labels[first : first + length]]
        what = (
            f"{said[0]} at the start"
            if step == 0
            else f"{said[-1]} at the end"
            if step == length
            else f"{said[step]} after {said[step - 1]}"
        )
        raise LabelError(
            f"sequence {sequence}, step {min(step, length - 1)}: {what} violates the constraints. {_ADVICE}"
        )
    if target.complete.all():
        return
    node = np.where(target.mask, 0.0, -np.inf)
    seen = topology.lengths > 0
    node[topology.offsets[:-1][seen]] += fixed.start
    node[topology.offsets[1:][seen] - 1] += fixed.end
    total, _ = chain.max_product(topology.offsets, node, fixed.edge[None])
    impossible = np.isneginf(total) if target.weight is None else np.isneginf(total) & (target.weight > 0)
    if impossible.any():
        raise LabelError(
            f"sequence {int(np.argmax(impossible))}: every labelling that its partial labels allow violates the "
            f"constraints. {_ADVICE}"
        )
