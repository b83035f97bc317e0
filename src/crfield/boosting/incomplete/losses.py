"""Losses of data of which a part is hidden.

With Z_h = Σ_y exp(s(x, h, y) − s(x, h, ỹ)) = 1 / p(ỹ | x, h) and the prior Q over h:

    exp       Σ_h Q Z_h                            E(λ): the unnormalised model                      convex
    exp-mean  Σ_y exp(Σ_h Q [s(y) − s(ỹ)])         ε(λ): E's lower bound                             convex
    joint     log Σ_h Q Z_h                        the log-loss that the paper's appendix derives    convex
    jensen    Σ_h Q log Z_h                        −ℓ(λ): what algorithm 1 minimises, read literally convex
    mix       −log Σ_h Q / Z_h                     −L(λ): the conditional likelihood as stated
    hcrf      log Σ_hy Q e^s − log Σ_h Q e^s(ỹ)    hidden conditional random field (Quattoni, Collins & Darrell 2005)

mix ≤ jensen ≤ joint always: they are the logs of the harmonic, geometric and arithmetic mean of Z_h. All three are
the ordinary logistic loss where nothing is hidden. For all but hcrf the gradient is one of

    Σ W(i, h, y) g(i, h, y)       g = f(x, h, y) − f(x, h, ỹ)         W = c · w(h) · p(y | x, h)

with positive weights W (h-weights w below), which is what the updates of boosting need: A⁺ and A⁻ are the sums of
its positive and negative parts. To minimise *mix* by them w must be the posterior of h given the label: with the
prior, as the paper prints it, the same updates minimise *jensen*.

    w(h)      joint: Q Z_h / Σ Q Z_h      jensen: Q      mix: (Q / Z_h) / Σ (Q / Z_h)      exp: W = c · Q · exp(…)

Arrays have labels first, (Y, M), since sums over a handful of labels are then sums of long rows.
"""

from __future__ import annotations

import numpy as np

from crfield.boosting.incomplete.cells import Cells

LOSSES = ("mix", "jensen", "joint", "exp", "exp-mean", "hcrf")
CONVEX = ("jensen", "joint", "exp", "exp-mean")
UNNORMALISED = ("exp", "exp-mean")
FACTORISING = ("joint", "exp", "exp-mean", "hcrf")


def log_partition(scores: np.ndarray) -> np.ndarray:
    """log Σ_y exp s, (Y, M) to (M,).

    >>> log_partition(np.log([[1.0, 2.0], [3.0, 2.0]])).round(6).tolist() == np.log([4.0, 4.0]).round(6).tolist()
    True
    """
    top = scores.max(axis=0)
    return top + np.log(np.exp(scores - top).sum(axis=0))


def softmax(scores: np.ndarray) -> np.ndarray:
    """(N, Y) probabilities of the labels from scores (Y, N).

    >>> softmax(np.log([[1.0], [3.0]])).round(6).tolist()
    [[0.25, 0.75]]
    """
    return np.exp(scores - log_partition(scores)).T


def cell_weights(loss: str, contrast: np.ndarray, cells: Cells, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss Σ_i c_i ℓ_i and W (Y, M) from s(y) − s(ỹ), ``contrast`` (Y, M), and c, ``weight`` (N,).

    *exp-mean* is *exp* on `Cells.expected`.

    >>> import scipy.sparse as sp
    >>> cells = Cells(np.array([0, 2]), np.array([0.5, 0.5]), sp.csr_array((2, 0)))
    >>> contrast = np.log([[1.0, 1.0], [1.0, 3.0]])  # Z = 2, 4
    >>> for loss in ("mix", "jensen", "joint", "exp"):
    ...     print(round(float(np.exp(cell_weights(loss, contrast, cells, np.ones(1))[0])), 3))
    2.667
    2.828
    3.0
    20.086
    """
    if loss in UNNORMALISED:
        share = (weight if cells.single else weight[cells.owner]) * cells.prior
        with np.errstate(over="ignore", invalid="ignore"):
            heavy = np.exp(contrast)
            heavy *= share
            return float(heavy.sum()), heavy
    log_z = log_partition(contrast)
    if cells.single:
        value, share = float(weight @ log_z), weight
    elif loss == "jensen":
        share = cells.prior * weight[cells.owner]
        value = float(share @ log_z)
    else:
        sign = 1.0 if loss == "joint" else -1.0
        total, share = cells.log_sums(cells.log_prior + sign * log_z)
        value = sign * float(weight @ total)
        share *= weight[cells.owner]
    heavy = np.exp(contrast - log_z)
    heavy *= share
    return value, heavy


def contrasted(heavy: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The residual R (Y, M) whose pull is the gradient: W off the label, −Σ_{y ≠ ỹ} W on it. Overwrites W.

    >>> contrasted(np.array([[0.2, 0.5], [0.8, 0.5]]), np.array([1, 0])).round(6).tolist()
    [[0.2, -0.5], [-0.2, 0.5]]
    """
    at = np.arange(len(labels))
    heavy[labels, at] = 0.0
    heavy[labels, at] = -heavy.sum(axis=0)
    return heavy


def joint_residual(
    scores: np.ndarray, labels: np.ndarray, cells: Cells, weight: np.ndarray
) -> tuple[float, np.ndarray]:
    """The loss *hcrf* and its residual (Y, M), p(h, y | x) − p(h | x, ỹ) 1[y = ỹ], from scores (Y, M).

    ``labels`` (M,) are those of the data of the cells.
    """
    at = np.arange(cells.n_cells)
    log_z = log_partition(scores)
    total, share = cells.log_sums(log_z + cells.log_prior)
    own, own_share = cells.log_sums(scores[labels, at] + cells.log_prior)
    residual = scores - log_z
    np.exp(residual, out=residual)
    residual *= share
    residual[labels, at] -= own_share
    residual *= weight if cells.single else weight[cells.owner]
    return float(weight @ (total - own)), residual
