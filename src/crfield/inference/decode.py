"""Decoding: from beliefs to labels.

``viterbi``, or ``map``, the word for graphs, gives the most probable labelling as a whole; ``marginal`` gives each
step its most probable label on its own, which makes the fewest expected errors per step but may join labels that
cannot stand together. Where rules forbid pairs of labels, ``marginal`` makes the fewest expected errors among the
labellings that obey them.
"""

from __future__ import annotations

import numpy as np

from crfield.core.checks import one_of
from crfield.core.topology import Chains
from crfield.kernels import chain

DECODERS = ("viterbi", "map", "marginal")
_DECODER = one_of(*DECODERS)


def check_decoder(name: str) -> str:
    """The name itself, "viterbi" for "map", or an error that lists the ones there are.

    >>> check_decoder("viterbi"), check_decoder("map")
    ('viterbi', 'viterbi')
    """
    _DECODER("decode", name)
    return "viterbi" if name == "map" else name


def best_marginals(node: np.ndarray) -> np.ndarray:
    """(N,) the most probable label of every node; the smallest code wins a tie.

    >>> import numpy as np
    >>> best_marginals(np.array([[0.2, 0.8], [0.5, 0.5]])).tolist()
    [1, 0]
    """
    return np.argmax(node, axis=1).astype(np.int32)


def legal_marginals(node: np.ndarray, forbidden: np.ndarray, topology: Chains, *, n_jobs: int = 1) -> np.ndarray:
    """(N,) minimum Bayes risk: the labelling without a forbidden pair (L, L) that has the fewest expected errors.

        argmax over y without forbidden pairs of  Σ_t p_t(y_t)

    from marginals (N, L), by max-product; labels of probability 0 are never taken. Without forbidden pairs it is
    `best_marginals`.

    >>> import numpy as np
    >>> p = np.array([[0.6, 0.4], [0.3, 0.7]])
    >>> legal_marginals(p, np.array([[False, True], [False, False]]), Chains.from_lengths([2])).tolist()
    [1, 1]
    """
    scores = np.where(node > 0, node, -np.inf)
    edge = np.where(forbidden, -np.inf, 0.0)[None]
    return chain.max_product(topology.offsets, scores, edge, n_jobs=n_jobs)[1].astype(np.int32)
