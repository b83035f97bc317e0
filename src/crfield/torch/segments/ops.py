"""Sums and best segmentations of padded sequences as operators of PyTorch.

    segment_sums    Σ_b w_b total_b, the totals, and the gradient of that sum in all scores; `kernels.segments`
    segment_best    the best segmentation

As in `crfield.torch.chains.ops` a gradient is an output of the sweep that makes the value, and has a derivative of
its own. There is no tangent sweep for segments, so second derivatives are those of `crfield.torch.segments.plain`:
exact, but with the time and the memory, B · T · D · L numbers, of plain torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.labellings import segment_sums as sums_of_runs
from crfield.kernels import segments
from crfield.kernels.padded import pack
from crfield.kernels.segments import Marks, Parts
from crfield.torch.operators import Maybe, as_array, keep, operator
from crfield.torch.segments import plain

_SCORES = "Tensor score, Tensor? first, Tensor? last, Tensor edge, Tensor start, Tensor end, Tensor length, "
_GIVEN = "Tensor limit, Tensor? tags, Tensor? begins, Tensor? allowed, Tensor? mask, "
SCORES, TENSORS = 7, 13  # gradients are taken in the first seven; the weight is the last tensor


class Given(NamedTuple):
    """What every operator is given first: scores, and what is known of labels, steps and segments."""

    score: Tensor  # (B, T, L)
    first: Maybe  # (B, T, L)
    last: Maybe  # (B, T, L)
    edge: Tensor  # (L, L)
    start: Tensor  # (L,)
    end: Tensor  # (L,)
    length: Tensor  # (D, L)
    limit: Tensor  # (L,)
    tags: Maybe = None  # (B, T)
    begins: Maybe = None  # (B, T)
    allowed: Maybe = None  # (B, T, L)
    mask: Maybe = None  # (B, T)

    def each_total(self) -> Tensor:
        """What totals look like, for the compiler."""
        return self.score.new_empty((self.score.shape[0],), dtype=torch.float64)


def _operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    return operator(Given, _SCORES + _GIVEN, schema, fake)


@dataclass(frozen=True, eq=False)
class Sequences:
    """The kept steps of a batch end to end, and the parts that segment scores are summed from."""

    chains: Chains
    parts: Parts
    limit: np.ndarray  # (L,)
    edge: np.ndarray  # (1, L, L)
    left: np.ndarray  # (N, L) bool
    label: np.ndarray  # (N,) the tag, below 0 where unknown or nothing was said
    begins: np.ndarray | None  # (N,) bool
    place: np.ndarray  # (N,) of the step among B · T

    @classmethod
    def read(cls, given: Given, unknown: int) -> Sequences:
        """From tensors; LabelError for a tag that is no label."""
        score, tags, begins = given.score, given.tags, given.begins
        x, none = as_array(score), np.zeros(score.shape[2])
        packed = pack(x, none, none, as_array(given.mask), as_array(tags), as_array(given.allowed), unknown)
        place, offsets = packed.place, packed.offsets
        if not (packed.node < np.inf).all():
            raise InputError("emissions must be finite or -inf (forbidden), got NaN or +inf.")

        def rows(tensor: Maybe) -> np.ndarray:
            if tensor is None:
                return np.zeros_like(packed.node)
            return as_array(tensor).reshape(-1, score.shape[2])[place].astype(np.float64)

        label = np.full(len(place), -1) if tags is None else as_array(tags).reshape(-1)[place]
        wrong = (label != unknown) & ((label < 0) | (label >= score.shape[2]))
        if tags is not None and wrong.any():
            b, t = divmod(int(place[np.argmax(wrong)]), score.shape[1])
            raise LabelError(
                f"tags within the mask must lie in 0 … {score.shape[2] - 1} or be {unknown} (unknown), got "
                f"{int(label[np.argmax(wrong)])} at sequence {b}, step {t}. Mask out what is padding."
            )
        filled = np.diff(offsets) > 0
        at_first, at_last = rows(given.first), rows(given.last)
        at_first[offsets[:-1][filled]] += as_array(given.start)
        at_last[offsets[1:][filled] - 1] += as_array(given.end)
        return cls(
            Chains(offsets),
            Parts(packed.node, as_array(given.length), at_first, at_last),
            as_array(given.limit),
            as_array(given.edge).astype(np.float64)[None],
            packed.left,
            np.where(label == unknown, -1, label),
            None if begins is None else as_array(begins).reshape(-1)[place],
            place,
        )

    @property
    def clamped(self) -> Parts:
        """Scores of the labels that are left."""
        node = np.where(self.left, self.parts.node, -np.inf)
        return Parts(node, self.parts.length, self.parts.first, self.parts.last)

    def totals(self, parts: Parts, factor: np.ndarray | None, n_jobs: int) -> tuple[np.ndarray, Parts, np.ndarray]:
        """Totals (B,) and the gradient of their sum with factors."""
        marks = Marks.none(len(parts.node))
        return segments.expectations(
            self.chains.offsets, self.limit, parts, marks, self.edge, factor=factor, n_jobs=n_jobs
        )

    def truth(self) -> Segmentation:
        """Runs of one tag, or what ``begins`` cuts, in pieces that are not too long."""
        label = np.maximum(self.label, 0)
        if self.begins is None:
            cut = Segmentation.of_runs(self.chains, label)
        else:
            begins = self.begins.astype(bool)
            begins[self.chains.offsets[:-1][self.chains.lengths > 0]] = True
            begins[1:] |= label[1:] != label[:-1]
            start = np.flatnonzero(begins)
            cut = Segmentation(self.chains, start, np.append(start, len(label))[1:], label[start])
        return cut.limited(self.limit)[0]

    def path(self, weight: np.ndarray, complete: np.ndarray) -> tuple[np.ndarray, Parts, np.ndarray]:
        """Scores (B,) of the true segmentations and their gradient; only of sequences that are ``complete``."""
        cut, parts = self.truth(), self.parts
        assert parts.first is not None
        assert parts.last is not None
        sequence, stop = cut.sequence, cut.stop - 1
        node = sums_of_runs(
            parts.node[np.arange(len(parts.node)), cut.node_labels], np.append(cut.start, len(parts.node))
        )
        own = node + parts.first[cut.start, cut.label] + parts.last[stop, cut.label]
        own = own + parts.length[cut.lengths - 1, cut.label]
        later = np.flatnonzero(cut.follows)
        own[later] += self.edge[0, cut.label[later - 1], cut.label[later]]
        total = np.zeros(len(complete))
        np.add.at(total, sequence, own)
        by = (weight * complete)[sequence]
        node_part, length, first, last = (
            np.zeros_like(x) for x in (parts.node, parts.length, parts.first, parts.last)
        )
        found = Parts(node_part, length, first, last)
        pairs = np.zeros_like(self.edge)
        assert found.first is not None
        assert found.last is not None
        found.node[np.arange(len(parts.node)), cut.node_labels] = np.repeat(by, cut.lengths)
        np.add.at(found.length, (cut.lengths - 1, cut.label), by)
        found.first[cut.start, cut.label] = by
        found.last[stop, cut.label] = by
        np.add.at(pairs[0], (cut.label[later - 1], cut.label[later]), by[later])
        return total, found, pairs


def _plus(one: Parts, sign: float, other: Parts) -> Parts:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("node", "length", "first", "last"))
    return Parts(*(a + sign * b for a, b in pairs))


def _contrast(given: Sequences, weight: np.ndarray | None, n_jobs: int) -> tuple[np.ndarray, Parts, np.ndarray]:
    """Log-likelihoods and their gradient: what is left less all."""
    by = np.ones(given.chains.n_sequences) if weight is None else weight
    free, slope, pairs = given.totals(given.parts, by, n_jobs)
    sure = (given.label >= 0) & given.left[np.arange(len(given.label)), np.maximum(given.label, 0)]
    complete = sums_of_runs(sure.astype(float), given.chains.offsets) == given.chains.lengths
    total, found, own_pairs = given.path(by, complete)
    if not complete.all():
        left, more, more_pairs = given.totals(given.clamped, by * ~complete, n_jobs)
        total, found, own_pairs = np.where(complete, total, left), _plus(found, 1.0, more), own_pairs + more_pairs
    if not (total > -np.inf).all():
        raise LabelError(
            f"sequence {int(np.argmin(total > -np.inf))} has no segmentation that its tags and the constraints allow "
            "together. Correct the tags, relax the constraints, or mark the step as unknown."
        )
    return np.minimum(total - free, 0.0), _plus(found, -1.0, slope), own_pairs - pairs


def _sums_shapes(given: Given, *options: Any) -> tuple[Tensor, ...]:
    total = given.each_total()
    like = (
        total.new_empty((0,), dtype=given.score.dtype) if x is None else torch.empty_like(x) for x in given[:SCORES]
    )
    return total.new_empty(()), total, *(x.contiguous() for x in like)


@_operator(
    "Tensor? weight, int unknown, bool contrast, int n_jobs -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _sums_shapes,
)
def segment_sums(given: Given, weight: Maybe, unknown: int, contrast: bool, n_jobs: int) -> tuple[Tensor, ...]:
    """Σ_b w_b total_b, totals (B,) and the gradient of the sum in each of the scores (empty for those not given)."""
    read, score = Sequences.read(given, unknown), given.score
    by = None if weight is None else as_array(weight).astype(np.float64)
    total, slope, pairs = _contrast(read, by, n_jobs) if contrast else read.totals(read.clamped, by, n_jobs)
    value = total.sum() if by is None else total @ by
    filled = read.chains.lengths > 0
    offsets = read.chains.offsets

    def rows(x: np.ndarray | None, other: Maybe) -> Tensor:
        if other is None or x is None:
            return score.new_empty((0,))
        out = np.zeros(tuple(score.shape))
        out.reshape(-1, score.shape[2])[read.place] = x
        return torch.from_numpy(out).to(other.dtype)

    assert slope.first is not None
    assert slope.last is not None
    return (
        torch.tensor(value, dtype=torch.float64),
        torch.from_numpy(total),
        rows(slope.node, score),
        rows(slope.first, given.first),
        rows(slope.last, given.last),
        torch.from_numpy(pairs[0]).to(given.edge.dtype),
        torch.from_numpy(slope.first[offsets[:-1][filled]].sum(axis=0)).to(given.start.dtype),
        torch.from_numpy(slope.last[offsets[1:][filled] - 1].sum(axis=0)).to(given.end.dtype),
        torch.from_numpy(slope.length).to(given.length.dtype),
    )


def _tangent(given: Any, directions: list[Tensor], unknown: int, contrast: bool) -> list[Maybe]:
    """How the gradient of `segment_sums` changes along directions of the scores, and the gradient times them (B,).

    With u for the weights, both are the gradient of ⟨∇ Σ_b u_b total_b, direction⟩: in the scores, and in u.
    """
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        scores = [
            x if x is None or x.requires_grad else x.detach().requires_grad_()
            for x in (*given[:SCORES], given[TENSORS - 1])
        ]
        by = scores.pop()
        if by is None:
            by = torch.ones(given[0].shape[:1], dtype=torch.float64, requires_grad=True)
        total = plain.segment_totals(*scores, *given[SCORES : TENSORS - 1], unknown=unknown, contrast=contrast)
        there = [x for x in scores if x is not None]
        slopes = torch.autograd.grad(total, there, by, create_graph=True)
        along = [dot for x, dot in zip(scores, directions) if x is not None]
        product = sum(((slope * dot).sum() for slope, dot in zip(slopes, along)), start=total.new_zeros(()))
        found = iter(torch.autograd.grad(product, [*there, by], create_graph=further, materialize_grads=True))
    return [*(None if x is None else next(found) for x in scores), next(found)]


def _backward(ctx: Any, value: Maybe, totals: Maybe, *slopes: Maybe) -> tuple[Any, ...]:
    given, output = ctx.saved_tensors[:TENSORS], ctx.saved_tensors[TENSORS:]
    grads: list[Any] = [None] * SCORES
    by = None

    def add(parts: Any) -> None:
        for k, (x, part) in enumerate(zip(given, parts)):
            if x is not None:
                grads[k] = part if grads[k] is None else grads[k] + part

    if value is not None:
        add([value * part for part in output[2:]])
        by = value * output[1]
    if totals is not None:
        add(segment_sums(*given[: TENSORS - 1], totals, *ctx.options)[2:])
    if any(slope is not None for slope in slopes):
        directions = [torch.zeros_like(x) if d is None else d for x, d in zip(output[2:], slopes)]
        *second, along = _tangent(given, directions, *ctx.options[:2])
        add(second)
        by = along if by is None else by + along
    weight = given[TENSORS - 1]
    along = None if weight is None or by is None else by.to(weight.dtype)
    return *grads, None, None, None, None, None, along, None, None, None


segment_sums.register_autograd(_backward, setup_context=keep)


def _best_shapes(given: Given, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    path = given.score.new_empty(given.score.shape[:2], dtype=torch.int64)
    return given.each_total(), path, torch.empty_like(path, dtype=torch.bool)


@_operator("int unknown, int n_jobs -> (Tensor, Tensor, Tensor)", _best_shapes)
def segment_best(given: Given, unknown: int, n_jobs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Score (B,), tags (B, T) and where segments begin (B, T) of the best segmentation."""
    read = Sequences.read(given, unknown)
    every = segments.expand(read.chains.offsets, read.limit, read.clamped, Marks.none(len(read.place)), n_jobs=n_jobs)
    total, many, label = segments.max_product(read.chains.offsets, every, read.edge, n_jobs=n_jobs)
    path = np.full(given.score.shape[:2], unknown, np.int64)
    starts = np.zeros(given.score.shape[:2], bool)
    path.reshape(-1)[read.place] = label
    stops = np.flatnonzero(many)
    starts.reshape(-1)[read.place[stops + 1 - many[stops]]] = True
    return torch.from_numpy(total), torch.from_numpy(path), torch.from_numpy(starts)
