"""From beliefs to labels.

``viterbi``, or ``map``, the word for graphs, gives the most probable labelling as a whole; ``marginal`` gives each
step its most probable label on its own, which makes the fewest expected errors per step but may join labels that
cannot stand together.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import InputError

DECODERS = ("viterbi", "map", "marginal")


def check_decoder(name: str) -> str:
    """The name itself, "viterbi" for "map", or an error that lists the ones there are.

    >>> check_decoder("viterbi"), check_decoder("map")
    ('viterbi', 'viterbi')
    """
    if not isinstance(name, str) or name not in DECODERS:
        raise InputError(f"decode must be one of {', '.join(map(repr, DECODERS))}, got {name!r}.")
    return "viterbi" if name == "map" else name


def best_marginals(node: np.ndarray) -> np.ndarray:
    """(N,) the most probable label of every node; the smallest code wins a tie.

    >>> import numpy as np
    >>> best_marginals(np.array([[0.2, 0.8], [0.5, 0.5]])).tolist()
    [1, 0]
    """
    return np.argmax(node, axis=1).astype(np.int32)
