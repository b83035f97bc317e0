"""Couplings: a relation as a weak learner, and what becomes of it in the model.

A neighbour's label is not known, only believed: λ_k(d). A weak learner α(c, d) on it, "own label c beside a neighbour
of label d", is fitted to the working responses as a stump is, in expectation over the neighbours' labels
(Liao, Choudhury, Fox & Kautz 2007). With the sums of `crfield.kernels.virtual.listen`,

    paper   α_cd = moment_cd / (mass_cd + ridge)                    gain = Σ_cd moment² / (mass + ridge)
    exact   (diag mass_c + square_c + ridge) α_c = moment_c         gain = Σ_c moment_c' α_c

The second minimises Σ w E(Σ_k α(c, y_k) − z)²; the first is equation 9 of the paper and the same thing where a node
has one neighbour of the relation. Where it has two, equation 9 asks each of them alone to explain the response and
counts what they explain twice: with messages that know nothing its gain is that of a constant times the number of
neighbours, so that under unequal classes a relation beats every feature in the first round and its step puts all
nodes into the larger class. Gains are on the scale of stumps.

From the step W_cd = (K − 1)/K (α_cd − mean_c α_cd) = r_c + I_cd, with r_c = mean_d W_cd, to the score table of a
symmetric relation, which both ends share:

    joint   ½ (I + I') + r_c + r_d      each end sees its own W, and a joint model exists (the default)
    patch   W, read by the receiver     the paper's words; no joint model if r ≠ 0
    avg     ½ (W + W')                  half of the bias r
    sum     W + W'                      twice the interaction
    pure    ½ (I + I')                  no bias

A directed relation has two weak learners, one for each end, and one table: no rule is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crfield.core.checks import one_of
from crfield.data.graphs.batch import GraphSchema

POTENTIALS = ("joint", "patch", "avg", "sum", "pure")
MOST = 15.0  # largest score of a pair of labels; beyond it messages hold no more than yes and no


class Sums(NamedTuple):
    """Sums of the regression on neighbours, as `crfield.kernels.virtual.listen` gives them."""

    moment: np.ndarray  # (G, L, L)
    mass: np.ndarray  # (G, L, L)
    square: np.ndarray | None = None  # (G, L, L, L)


@dataclass(frozen=True)
class Group:
    """One weak learner of a relation: who hears (``own`` kind, K_c labels) of whom (``other`` kind, K_d labels)."""

    relation: int
    own: int
    other: int
    to_head: bool
    symmetric: bool


@dataclass(frozen=True, eq=False)
class Coupling:
    """The best α of a group: raw, (L, L) with rows for the own label, and its gain."""

    group: int
    values: np.ndarray
    gain: float


def groups_of(schema: GraphSchema, relations: tuple[int, ...] | None = None) -> list[Group]:
    """The weak learners of relations: one for a symmetric relation, two for a directed one.

    >>> from crfield.data.graphs.batch import NodeKind, Relation
    >>> schema = GraphSchema((NodeKind("node"),), (Relation("near", symmetric=True), Relation("next")))
    >>> [(group.relation, group.to_head) for group in groups_of(schema)]
    [(0, True), (1, True), (1, False)]
    """
    made = []
    for number, relation in enumerate(schema.relations):
        if relations is not None and number not in relations:
            continue
        made.append(Group(number, relation.head, relation.tail, True, relation.symmetric))
        if not relation.symmetric:
            made.append(Group(number, relation.tail, relation.head, False, False))
    return made


def fit_couplings(sums: Sums, groups: list[Group], sizes: tuple[int, ...], *, ridge: float = 0.0) -> list[Coupling]:
    """The best coupling of every group; exact if the sums have squares, else equation 9.

    >>> one = [Group(0, 0, 0, True, True)]
    >>> moment, mass = np.array([[[2.0, -2.0], [-2.0, 2.0]]]), np.full((1, 2, 2), 4.0)
    >>> found = fit_couplings(Sums(moment, mass), one, (2,))[0]
    >>> found.values.tolist(), found.gain
    ([[0.5, -0.5], [-0.5, 0.5]], 4.0)
    """
    found = []
    for number, group in enumerate(groups):
        own, other = sizes[group.own], sizes[group.other]
        moment, mass = sums.moment[number, :own, :other], sums.mass[number, :own, :other]
        values = np.zeros_like(sums.moment[number])
        if sums.square is None:
            below = mass + ridge
            values[:own, :other] = np.divide(moment, below, out=np.zeros_like(moment), where=below > 1e-12)
        else:
            square = sums.square[number, :own, :other, :other]
            matrix = square.copy()
            matrix[:, np.arange(other), np.arange(other)] += mass + ridge
            values[:own, :other] = _solved(matrix, moment, definite=ridge > 0)
        found.append(Coupling(number, values, float((moment * values[:own, :other]).sum())))
    return found


def _solved(matrices: np.ndarray, right: np.ndarray, *, definite: bool) -> np.ndarray:
    """(K, D) solutions of K symmetric systems; the smallest where one is singular, as labels never met make it."""
    if definite and matrices.shape[1] == 2:
        (a, b), (_, c) = matrices.transpose(1, 2, 0)
        x, y = right.T
        return np.asarray(np.stack([c * x - b * y, a * y - b * x], axis=1) / (a * c - b * b)[:, None])
    if definite:
        return np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0])
    return np.stack([np.linalg.lstsq(one, side, rcond=1e-10)[0] for one, side in zip(matrices, right)])


def table_step(values: np.ndarray, group: Group, sizes: tuple[int, ...], form: str) -> np.ndarray:
    """What a coupling α (L, L) adds to its group's table (L, L): rows the sender's label, columns the receiver's.

    >>> near = Group(0, 0, 0, True, True)
    >>> table_step(np.array([[1.0, 0.0], [-1.0, 0.0]]), near, (2,), "joint").tolist()
    [[0.75, -0.25], [-0.25, -0.25]]
    >>> table_step(np.array([[1.0, 0.0], [-1.0, 0.0]]), near, (2,), "patch").tolist()
    [[0.5, -0.5], [0.0, 0.0]]
    """
    one_of(*POTENTIALS)("potential", form)
    own, other = sizes[group.own], sizes[group.other]
    alpha = values[:own, :other]
    step = (own - 1) / own * (alpha - alpha.mean(axis=0))  # W, rows the own label
    out = np.zeros_like(values)
    if not group.symmetric or form == "patch":
        out[:other, :own] = step.T
        return out
    bias = step.mean(axis=1)
    pure = step - bias[:, None]
    pure = (pure + pure.T) / 2
    if form == "joint":
        step = pure + bias[:, None] + bias
    elif form == "pure":
        step = pure
    else:
        step = (step + step.T) * (0.5 if form == "avg" else 1.0)
    out[:own, :own] = step
    return out
