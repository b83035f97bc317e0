"""Small worlds with something hidden, and the definitions of the losses written out by hand.

`Direct` evaluates equations (5)–(8) of Haffari et al. (2008) and all losses by loops over data, values of h and
labels; it shares no line with the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import EnumeratedLoss
from crfield.boosting.incomplete.hidden.values import value_cells

COUNTED = ("exp", "joint", "jensen", "mix")
LOSSES = (*COUNTED, "exp-mean", "hcrf")


@dataclass
class World:
    """N data with columns X, hidden codes (N, 1) with −1 for hidden, prior Q (N, H), labels and weights."""

    X: np.ndarray
    codes: np.ndarray
    Q: np.ndarray
    y: np.ndarray
    c: np.ndarray
    n_labels: int
    interactions: bool = True

    def cells(self) -> Cells:
        return value_cells(self.codes, [self.Q], self.X if self.interactions else None)

    def loss(self, name: str, **options: Any) -> EnumeratedLoss:
        return EnumeratedLoss(
            self.X, self.cells(), self.y, loss=name, n_labels=self.n_labels, weight=self.c, **options
        )


def world(
    n: int = 40, d: int = 5, h: int = 3, labels: int = 3, *, seed: int = 0, hidden: float = 0.6, signed: bool = False
) -> World:
    """Random data in which h helps; a share of it hidden."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d)) * (rng.random((n, d)) < 0.7)
    if signed:
        X = X * rng.choice([-1.0, 1.0], size=X.shape)
    true = rng.integers(0, h, n)
    Q = rng.dirichlet(np.ones(h), n)
    scores = X @ rng.normal(size=(d, labels)) * 2 + rng.normal(size=(h, labels))[true]
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    y[:labels] = np.arange(labels)
    codes = np.where(rng.random(n) < hidden, -1, true)[:, None]
    return World(X, codes, Q, y, np.where(codes[:, 0] < 0, 1.0, 1.7), labels)


class Direct:
    """The losses and A⁺, A⁻ of a world, term by term."""

    def __init__(self, w: World, log_reference: np.ndarray | None = None) -> None:
        self.w = w
        self.d = w.X.shape[1]
        self.H = w.Q.shape[1]
        self.log_r = np.zeros((len(w.y), w.n_labels)) if log_reference is None else log_reference

    def values(self, i: int) -> list[tuple[int, float]]:
        code = int(self.w.codes[i, 0])
        return [(code, 1.0)] if code >= 0 else [(h, q) for h, q in enumerate(self.w.Q[i]) if q > 0]

    def feature(self, i: int, h: int, y: int) -> np.ndarray:
        """All features f(x_i, h, y) in the order of the weights."""
        Y, x = self.w.n_labels, self.w.X[i]
        inner = np.concatenate([[1.0], x]) if self.w.interactions else np.ones(1)
        of_h = np.zeros((self.H, len(inner)))
        of_h[h] = inner
        columns = np.concatenate([x, of_h.ravel()])
        out = np.zeros((len(columns), Y))
        out[:, y] = columns
        return out.ravel()

    def contrast(self, i: int, h: int, weights: np.ndarray) -> np.ndarray:
        own = int(self.w.y[i])
        base = self.feature(i, h, own) @ weights
        return np.array([self.feature(i, h, y) @ weights - base for y in range(self.w.n_labels)])

    def value(self, loss: str, weights: np.ndarray) -> float:
        total = 0.0
        for i, (own, c) in enumerate(zip(self.w.y.tolist(), self.w.c.tolist(), strict=True)):
            r = np.exp(self.log_r[i])
            spread = self.values(i)
            Q = np.array([q for _, q in spread])
            D = np.array([self.contrast(i, h, weights) for h, _ in spread])
            Z = (np.exp(D) * r).sum(axis=1) / r[own]
            if loss == "exp":
                term = float(Q @ Z) * r[own]
            elif loss == "exp-mean":
                term = float((np.exp(Q @ D) * r).sum())
            elif loss == "joint":
                term = np.log(Q @ Z)
            elif loss == "jensen":
                term = Q @ np.log(Z)
            elif loss == "mix":
                term = -np.log(Q @ (1 / Z))
            else:
                S = np.array([[self.feature(i, h, y) @ weights for y in range(self.w.n_labels)] for h, _ in spread])
                joint = Q[:, None] * np.exp(S) * r
                term = np.log(joint.sum()) - np.log(joint[:, own].sum())
            total += c * float(term)
        return total

    def counts(self, loss: str, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A⁺ and A⁻: sums of the positive and negative parts of W g over i, h, y."""
        plus = minus = np.zeros(len(weights))
        for i, (own, c) in enumerate(zip(self.w.y.tolist(), self.w.c.tolist(), strict=True)):
            spread = self.values(i)
            Q = np.array([q for _, q in spread])
            D = np.array([self.contrast(i, h, weights) for h, _ in spread])
            Z = np.exp(D).sum(axis=1)
            if loss == "exp":
                W = Q[:, None] * np.exp(D)
            else:
                share = {"joint": Q * Z, "jensen": Q, "mix": Q / Z}[loss]
                share = share / share.sum()
                W = share[:, None] * np.exp(D) / Z[:, None]
            for (k, (h, _)), y in product(enumerate(spread), range(self.w.n_labels)):
                g = self.feature(i, h, y) - self.feature(i, h, own)
                plus = plus + c * W[k, y] * np.maximum(g, 0)
                minus = minus + c * W[k, y] * np.maximum(-g, 0)
        return plus, minus

    def scale(self) -> float:
        """C of equation (7)."""
        w = self.w
        return max(
            float(np.abs(self.feature(i, h, y) - self.feature(i, h, int(w.y[i]))).sum())
            for i in range(len(w.y))
            for h, _ in self.values(i)
            for y in range(w.n_labels)
        )


def central_differences(value: Any, weights: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient of a function of weights, two values for each."""
    out = np.empty(len(weights))
    for k in range(len(weights)):
        up, down = weights.copy(), weights.copy()
        up[k] += step
        down[k] -= step
        out[k] = (value(up) - value(down)) / (2 * step)
    return out
