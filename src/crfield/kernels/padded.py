"""Chains as neural networks hand them over, padded to one length: the contract.

``score`` (B, T, L) of 32 or 64 bits is read where it lies. ``mask`` (B, T) keeps steps, any of them: what it leaves
out does not exist, so that a sequence may have gaps, begin late or be empty. Of sequence b with kept steps t_1 < …
< t_n

    score_b(y) = start(y_1) + Σ_k score_{b, t_k}(y_k) + Σ_k edge(y_{k-1}, y_k) + end(y_n)

``tags`` (B, T) and ``allowed`` (B, T, L) say which labels are left at a step: one, or, where the tag is ``unknown``,
all; of these the allowed ones. Outside the mask nothing is looked at. Scores are finite or −∞, sums are in doubles
whatever the scores are, and gradients come in the kind and the places of the scores. One sweep serves the value and
the gradient; where every step of a sequence has one label left, its score is a sum over the path, without a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError, LabelError, ShapeError
from crfield.kernels import choice

UNKNOWN = -100  # PyTorch's ``ignore_index``


@dataclass(frozen=True, eq=False)
class Slopes:
    """Totals, and the gradient of Σ_b weight_b total_b in all scores."""

    total: np.ndarray  # (B,)
    score: np.ndarray  # (B, T, L)
    edge: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)


@dataclass(frozen=True, eq=False)
class Packed:
    """The kept steps of padded chains, end to end."""

    offsets: np.ndarray  # (B + 1,)
    node: np.ndarray  # (N, L) scores, those of the ends among them
    left: np.ndarray  # (N, L) bool, which labels are left
    place: np.ndarray  # (N,) of each step among B · T


def pack(
    score: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    mask: np.ndarray | None = None,
    tags: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    unknown: int = UNKNOWN,
) -> Packed:
    """Padded chains as the other kernels read chains; nothing is checked.

    >>> packed = pack(np.zeros((2, 3, 1)), np.ones(1), np.zeros(1), np.array([[0, 1, 1], [0, 0, 0]]))
    >>> packed.offsets.tolist(), packed.place.tolist(), packed.node.tolist()
    ([0, 2, 2], [1, 2], [[1.0], [0.0]])
    """
    labels = score.shape[2]
    kept = np.ones(score.shape[:2], bool) if mask is None else mask.astype(bool)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept.sum(axis=1))])
    place = np.flatnonzero(kept)
    node = score.reshape(-1, labels)[place].astype(np.float64)
    left = np.ones(node.shape, bool) if allowed is None else allowed.reshape(-1, labels)[place].astype(bool)
    if tags is not None:
        tag = tags.reshape(-1)[place]
        left &= (tag == unknown)[:, None] | (tag[:, None] == np.arange(labels))
    filled = np.diff(offsets) > 0
    node[offsets[:-1][filled]] += start
    node[offsets[1:][filled] - 1] += end
    return Packed(offsets, node, left, place)


def padded_sums(
    score: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    edge: np.ndarray,
    *,
    mask: np.ndarray | None = None,
    tags: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    unknown: int = UNKNOWN,
    contrast: bool = False,
    weight: np.ndarray | None = None,
    n_jobs: int = 1,
) -> Slopes:
    """Log Z over the labels that are left, or with ``contrast`` the log-likelihood: that less log Z over all labels.

    Sequence b counts ``weight[b]`` times in the gradient. A sequence in which nothing is possible has the total −∞
    and a gradient of zero; a contrast refuses it.

    >>> score, none = np.log([[[1.0, 3.0], [1.0, 1.0]]]), np.zeros(2)
    >>> found = padded_sums(score, none, none, np.zeros((2, 2)), tags=np.array([[1, -100]]), contrast=True)
    >>> np.exp(found.total).round(6).tolist(), found.score.round(6).tolist()
    ([0.75], [[[-0.25, 0.25], [0.0, 0.0]]])
    """
    given = _asked(score, start, end, edge, mask, tags, allowed, unknown)
    if contrast and tags is None and allowed is None:
        raise InputError("a contrast needs tags or allowed labels.")
    score = given[0]
    weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
    if weight is not None and (weight.shape != score.shape[:1] or not np.isfinite(weight).all()):
        raise ShapeError(f"weight must have a finite number for each of {len(score)} sequences, got {weight.shape}.")
    total, labels = np.empty(len(score)), score.shape[2]
    out = Slopes(total, np.empty_like(score), np.empty((labels, labels)), np.empty(labels), np.empty(labels))
    answer = choice.body("padded").padded_sums(
        *given, contrast, weight, out.total, out.score, out.edge, out.start, out.end, max(1, int(n_jobs))
    )
    _refuse(answer, score, tags, unknown)
    return out


def padded_best(
    score: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    edge: np.ndarray,
    *,
    mask: np.ndarray | None = None,
    tags: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    unknown: int = UNKNOWN,
    fill: int = UNKNOWN,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Score (B,) and labels (B, T) int64 of the best path over the labels that are left; ``fill`` outside the mask.

    Where nothing is possible the score is −∞ and the labels mean nothing. Of several best paths the one is taken
    whose last label is smallest, then the one before it, and so on.

    >>> score, none = np.array([[[0.0, 1.0], [9.0, 9.0], [0.0, 0.0]]]), np.zeros(2)
    >>> padded_best(score, none, none, np.array([[2.0, 0.0], [0.0, 0.0]]), mask=np.array([[True, False, True]]))
    (array([2.]), array([[   0, -100,    0]]))
    """
    given = _asked(score, start, end, edge, mask, tags, allowed, unknown)
    score = given[0]
    total, path = np.empty(len(score)), np.full(score.shape[:2], fill, np.int64)
    _refuse(choice.body("padded").padded_best(*given, total, path, max(1, int(n_jobs))), score, tags, unknown)
    return total, path


def _asked(
    score: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    edge: np.ndarray,
    mask: np.ndarray | None,
    tags: np.ndarray | None,
    allowed: np.ndarray | None,
    unknown: int,
) -> tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None, int
]:
    """The arguments as the kernels read them, all of one size."""
    score = np.ascontiguousarray(score, np.float32 if score.dtype == np.float32 else np.float64)
    if score.ndim != 3 or score.shape[2] < 1:
        raise ShapeError(f"scores must be (sequences, steps, labels), got {score.shape}.")
    labels, steps = score.shape[2], score.shape[:2]
    start, end, edge = (np.ascontiguousarray(x, np.float64) for x in (start, end, edge))
    if start.shape != (labels,) or end.shape != (labels,) or edge.shape != (labels, labels):
        raise ShapeError(
            f"scores of {labels} labels need start and end ({labels},) and edge ({labels}, {labels}), got "
            f"{start.shape}, {end.shape} and {edge.shape}."
        )
    for name, table in (("start", start), ("end", end), ("edge", edge)):
        if not table.max() < np.inf:
            place = np.argwhere(~(table < np.inf))[0].tolist()
            raise InputError(f"{name} scores must be finite or -inf, got {table[tuple(place)]} at {place}.")
    mask = None if mask is None else np.ascontiguousarray(mask, bool).view(np.uint8)
    tags = None if tags is None else np.ascontiguousarray(tags, np.int64)
    allowed = None if allowed is None else np.ascontiguousarray(allowed, bool).view(np.uint8)
    for name, given, wanted in (("mask", mask, steps), ("tags", tags, steps), ("allowed", allowed, score.shape)):
        if given is not None and given.shape != wanted:
            raise ShapeError(f"{name} must be {wanted} for scores of {score.shape}, got {given.shape}.")
    return score, start, end, edge, mask, tags, allowed, int(unknown)


def _refuse(answer: tuple[int, int], score: np.ndarray, tags: np.ndarray | None, unknown: int) -> None:
    """Say what a body found wrong: a score, a tag, or a sequence without a labelling."""
    trouble, where = answer
    if trouble == 1:
        place = np.unravel_index(where, score.shape)
        raise InputError(
            f"scores must be finite or -inf (forbidden), got {score[place]} at sequence {place[0]}, step {place[1]}, "
            f"label {place[2]}. Check the network they come from: its loss may have diverged."
        )
    if trouble == 2 and tags is not None:
        b, t = divmod(where, score.shape[1])
        raise LabelError(
            f"tags within the mask must lie in 0 … {score.shape[2] - 1} or be {unknown} (unknown), got "
            f"{int(np.asarray(tags)[b, t])} at sequence {b}, step {t}. Mask out what is padding."
        )
    if trouble == 3:
        raise LabelError(
            f"sequence {where} has no labelling that its tags and the constraints allow together. Correct the tags, "
            "relax the constraints, or mark the step as unknown."
        )
