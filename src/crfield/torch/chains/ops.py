"""Sums and best paths of padded chains as operators of PyTorch (`crfield.torch.operators`), with derivatives.

    chain_sums      Σ_b w_b total_b, the totals, and the gradient of that sum in all scores; `kernels.padded`
    chain_tangent   the derivative of that gradient along a direction: products with the second derivative
    chain_pairs     marginals of neighbouring labels at every step; `pairs_tangent` is its derivative
    chain_best      the best labelling

A gradient is an *output* of `chain_sums`, made by the sweep that makes the value: going back multiplies it by one
number. As an output it has a derivative of its own, so a second backward pass arrives at `chain_tangent`, which is
exact (`crfield.inference.tangent`). Totals that are weighted later and otherwise (``reduction="none"``) cost a
second sweep on the way back, with the weights that have come. Third derivatives are refused; ``backend="torch"``
has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.inference.labellings import segment_sums
from crfield.inference.tangent import chain_tangent as belief_change
from crfield.kernels import chain
from crfield.kernels.padded import Packed, pack, padded_best, padded_sums
from crfield.torch.operators import Maybe, as_array, keep, operator

SCORES = 4  # score, edge, start, end come first everywhere


class Given(NamedTuple):
    """What every operator is given first: scores, and what is known of labels and steps."""

    score: Tensor  # (B, T, L)
    edge: Tensor  # (L, L)
    start: Tensor  # (L,)
    end: Tensor  # (L,)
    tags: Maybe = None  # (B, T)
    allowed: Maybe = None  # (B, T, L)
    mask: Maybe = None  # (B, T)

    def padded(self) -> dict[str, Any]:
        """As `kernels.padded` wants them."""
        return {name: as_array(tensor) for name, tensor in zip(self._fields, self)}

    def packed(self, unknown: int) -> Packed:
        """Steps of the mask side by side."""
        own = self.padded()
        return pack(own["score"], own["start"], own["end"], own["mask"], own["tags"], own["allowed"], unknown)

    def empty(self) -> tuple[Tensor, ...]:
        """What a gradient in the scores looks like, for the compiler."""
        return tuple(torch.empty_like(x).contiguous() for x in self.scores)

    @property
    def scores(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What gradients are taken in."""
        return self.score, self.edge, self.start, self.end


_SCHEMA = "Tensor score, Tensor edge, Tensor start, Tensor end, Tensor? tags, Tensor? allowed, Tensor? mask, "


def _operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    return operator(Given, _SCHEMA, schema, fake)


def _like(array: np.ndarray, other: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(other.dtype)


def _each_total(given: Given) -> Tensor:
    return given.score.new_empty((given.score.shape[0],), dtype=torch.float64)


# ------------------------------------------------------------------------------------------------- sums


def _sums_shapes(given: Given, *options: Any) -> tuple[Tensor, ...]:
    total = _each_total(given)
    return total.new_empty(()), total, *given.empty()


@_operator(
    "Tensor? weight, int unknown, bool contrast, int n_jobs -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _sums_shapes,
)
def chain_sums(given: Given, weight: Maybe, unknown: int, contrast: bool, n_jobs: int) -> tuple[Tensor, ...]:
    """Σ_b w_b total_b, totals (B,) and the gradient of the sum in score, edge, start and end."""
    by = as_array(weight)
    found = padded_sums(**given.padded(), unknown=unknown, contrast=contrast, weight=by, n_jobs=n_jobs)
    value = found.total.sum() if by is None else found.total @ by.astype(np.float64)
    return (
        torch.tensor(value, dtype=torch.float64),
        torch.from_numpy(found.total),
        torch.from_numpy(found.score),
        _like(found.edge, given.edge),
        _like(found.start, given.start),
        _like(found.end, given.end),
    )


def _sums_backward(ctx: Any, value: Maybe, totals: Maybe, *slopes: Maybe) -> tuple[Any, ...]:
    """Upstream gradients of the value, the totals, and the gradient itself."""
    given, output = ctx.saved_tensors[:8], ctx.saved_tensors[8:]
    grads: list[Any] = [None] * SCORES
    by = None

    def add(parts: Any) -> None:
        for k, part in enumerate(parts):
            grads[k] = part if grads[k] is None else grads[k] + part

    if value is not None:
        add([value * part for part in output[2:]])
        by = value * output[1]
    if totals is not None:
        add(chain_sums(*given[:7], totals, *ctx.options)[2:])
    if any(slope is not None for slope in slopes):
        directions = [torch.zeros_like(x) if d is None else d for x, d in zip(given[:SCORES], slopes)]
        *second, along = chain_tangent(*given, *directions, *ctx.options)
        add(second)
        by = along if by is None else by + along
    weight = given[7]
    return (*grads, None, None, None, None if weight is None or by is None else by.to(weight.dtype), None, None, None)


chain_sums.register_autograd(_sums_backward, setup_context=keep)


# ---------------------------------------------------------------------------------------------- tangent


@_operator(
    "Tensor? weight, Tensor score_dot, Tensor edge_dot, Tensor start_dot, Tensor end_dot, int unknown, "
    "bool contrast, int n_jobs -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda given, *others: (*given.empty(), _each_total(given)),
)
def chain_tangent(
    given: Given,
    weight: Maybe,
    score_dot: Tensor,
    edge_dot: Tensor,
    start_dot: Tensor,
    end_dot: Tensor,
    unknown: int,
    contrast: bool,
    n_jobs: int,
) -> tuple[Tensor, ...]:
    """How the gradient of `chain_sums` changes along a direction of the scores, and the gradient times the direction.

    The second is (B,), for each sequence by itself and without its weight: the derivative of the gradient, taken
    along the direction, in the weights.
    """
    along_node = pack(as_array(score_dot), as_array(start_dot), as_array(end_dot), as_array(given.mask)).node
    along_edge = as_array(edge_dot).astype(np.float64)[None]
    by = None if weight is None else as_array(weight).astype(np.float64)
    packed = given.packed(unknown)
    node, table, along = np.zeros_like(packed.node), np.zeros_like(along_edge), np.zeros(len(given.score))
    for sign, clamped in ((1.0, True), (-1.0, False)) if contrast else ((1.0, True),):
        scores = _potentials(packed, given.edge, clamped=clamped)
        found = belief_change(scores, along_node, along_edge, weight=by, n_jobs=n_jobs)
        node += sign * found[0]
        table += sign * found[1]
        if by is not None:
            along += sign * _expected(scores, along_node, along_edge[0], n_jobs=n_jobs)
    return *_spread(packed, node, table[0], given), torch.from_numpy(along)


def _third(ctx: Any, *slopes: Maybe) -> None:
    raise NotImplementedError(
        "crfield's kernels have first and second derivatives; a third was asked for. Use backend='torch', which "
        "differentiates as often as you like."
    )


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    pass


chain_tangent.register_autograd(_third, setup_context=_keep_nothing)


def _potentials(packed: Packed, edge: Tensor, *, clamped: bool) -> Potentials:
    """Scores of the labels that are left, or of all."""
    node = np.where(packed.left, packed.node, -np.inf) if clamped else packed.node
    return Potentials(node, as_array(edge)[None], Chains(packed.offsets))


def _expected(scores: Potentials, node: np.ndarray, edge: np.ndarray, *, n_jobs: int) -> np.ndarray:
    """(B,) the expectation of Σ_t node_t(y_t) + Σ_t edge(y_{t-1}, y_t) in each sequence."""
    chains = scores.topology
    assert isinstance(chains, Chains)
    _, p, q = chain.sum_product(chains.offsets, scores.node, scores.edge, each=True, n_jobs=n_jobs)
    return segment_sums((p * node).sum(axis=1), chains.offsets) + segment_sums(
        (q * edge).sum(axis=(1, 2)), chains.edge_offsets
    )


def _spread(packed: Packed, node: np.ndarray, table: np.ndarray, given: Given) -> tuple[Tensor, ...]:
    """A gradient of packed steps (N, L) and pairs (L, L) in the shapes of score, edge, start and end."""
    out = np.zeros(tuple(given.score.shape))
    out.reshape(-1, given.score.shape[2])[packed.place] = node
    filled = np.diff(packed.offsets) > 0
    first, last = packed.offsets[:-1][filled], packed.offsets[1:][filled] - 1
    parts = (out, table, node[first].sum(axis=0), node[last].sum(axis=0))
    return tuple(_like(part, like) for part, like in zip(parts, given.scores))


# ------------------------------------------------------------------------------------------------ pairs


def _pairs_shape(given: Given, *options: Any) -> Tensor:
    batch, steps, labels = given.score.shape
    return given.score.new_empty((batch, torch.sym_max(steps - 1, 0), labels, labels))


@_operator("int unknown, int n_jobs -> Tensor", _pairs_shape)
def chain_pairs(given: Given, unknown: int, n_jobs: int) -> Tensor:
    """(B, T − 1, L, L): at [b, t − 1] the probabilities of the labels of step t and of the kept step before it."""
    packed = given.packed(unknown)
    scores = _potentials(packed, given.edge, clamped=True)
    _, _, pairs = chain.sum_product(packed.offsets, scores.node, scores.edge, each=True, n_jobs=n_jobs)
    batch, steps, labels = given.score.shape
    out = torch.zeros((batch, max(steps - 1, 0), labels, labels), dtype=given.score.dtype)
    out.reshape(-1, labels, labels)[_edge_places(packed, steps)] = _like(pairs, given.score)
    return out


def _edge_places(packed: Packed, steps: int) -> Tensor:
    """(E,) where the edges of packed chains lie among B · (T − 1)."""
    head = packed.place[Chains(packed.offsets).heads]
    return torch.from_numpy(head - head // max(steps, 1) - 1)


def _keep_pairs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, unknown, n_jobs = inputs
    ctx.save_for_backward(*tensors)
    ctx.options = (unknown, n_jobs)


def _pairs_backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
    return *pairs_tangent(*ctx.saved_tensors, slope, *ctx.options), None, None, None, None, None


chain_pairs.register_autograd(_pairs_backward, setup_context=_keep_pairs)


@_operator(
    "Tensor pairs_dot, int unknown, int n_jobs -> (Tensor, Tensor, Tensor, Tensor)",
    lambda given, *others: given.empty(),
)
def pairs_tangent(given: Given, pairs_dot: Tensor, unknown: int, n_jobs: int) -> tuple[Tensor, ...]:
    """The gradient of ⟨pairs_dot, `chain_pairs`⟩ in all scores."""
    packed = given.packed(unknown)
    _, steps, labels = given.score.shape
    along = pairs_dot.detach().reshape(-1, labels, labels)[_edge_places(packed, steps)]
    scores = _potentials(packed, given.edge, clamped=True).each()
    node, pairs = belief_change(scores, np.zeros_like(packed.node), as_array(along.double()), n_jobs=n_jobs)
    return _spread(packed, node, pairs.sum(axis=0), given)


pairs_tangent.register_autograd(_third, setup_context=_keep_nothing)


# ------------------------------------------------------------------------------------------- best labelling


def _best_shapes(given: Given, *options: Any) -> tuple[Tensor, Tensor]:
    return _each_total(given), given.score.new_empty(given.score.shape[:2], dtype=torch.int64)


@_operator("int unknown, int n_jobs -> (Tensor, Tensor)", _best_shapes)
def chain_best(given: Given, unknown: int, n_jobs: int) -> tuple[Tensor, Tensor]:
    """Score (B,) and labels (B, T) of the best labelling; ``unknown`` outside the mask."""
    total, path = padded_best(**given.padded(), unknown=unknown, fill=unknown, n_jobs=n_jobs)
    return torch.from_numpy(total), torch.from_numpy(path)
