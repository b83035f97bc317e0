"""Sums over segmentations in plain torch, on any device and differentiable as often as one likes.

    α_n(j) = log Σ_d exp( segment(n, d, j) + γ_{n-d}(j) )        γ_n(j) = log Σ_i exp( α_n(i) + edge(i, j) )

where a segment of d steps ends with step n, and γ before the first step is 0. Scores of all segments are written out,
B · T · D · L numbers. Kept steps are moved to the front first, as in `crfield.torch.chains.plain`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from crfield.torch.chains.plain import PackedChains, log_sum

Maybe = Tensor | None


def segment_totals(
    score: Tensor,
    first: Maybe,
    last: Maybe,
    edge: Tensor,
    start: Tensor,
    end: Tensor,
    length: Tensor,
    limit: Tensor,
    tags: Maybe,
    begins: Maybe,
    allowed: Maybe,
    mask: Maybe,
    *,
    unknown: int,
    contrast: bool,
) -> Tensor:
    """(B,) log Z over the segmentations that are left, or with ``contrast`` that less log Z over all of them."""
    free = PackedChains(score, edge, start, end, mask, None, None, unknown)
    if tags is None and allowed is None:
        return _totals(free, _segments(free, free.score, first, last, length, limit))
    left = PackedChains(score, edge, start, end, mask, tags, allowed, unknown)
    table = _segments(left, left.score, first, last, length, limit)
    if contrast and tags is not None:
        table = _only_true(left, table, tags, begins, limit, unknown)
    total = _totals(left, table)
    if not contrast:
        return total
    value = total - _totals(free, _segments(free, free.score, first, last, length, limit))
    return value - value.detach().clamp_min(0.0)


def _packed(chains: PackedChains, x: Tensor) -> Tensor:
    """(B, T, …) with kept steps in front."""
    if chains.order is None:
        return x
    place = chains.order.reshape(*chains.order.shape, *[1] * (x.ndim - 2)).expand_as(x)
    return x.gather(1, place)


def _shifted(x: Tensor, back: int, fill: float) -> Tensor:
    """(B, T, L) the rows ``back`` steps before."""
    if not back:
        return x
    pad = torch.full_like(x[:, :back], fill)
    return torch.cat([pad, x[:, : x.shape[1] - pad.shape[1]]], 1)


def _segments(chains: PackedChains, node: Tensor, first: Maybe, last: Maybe, length: Tensor, limit: Tensor) -> Tensor:
    """(B, T, D, L) scores of the segments of d + 1 steps that end with each step; −∞ where there is none."""
    steps = node.shape[1]
    at = torch.arange(steps, device=node.device)
    begin = torch.zeros_like(node) if first is None else _packed(chains, first.to(node.dtype))
    final = torch.zeros_like(node) if last is None else _packed(chains, last.to(node.dtype))
    begin = begin + (at == 0)[None, :, None] * torch.where(torch.isneginf(chains.start), 0.0, chains.start)
    begin = begin.masked_fill((at == 0)[None, :, None] & torch.isneginf(chains.start), -torch.inf)
    is_last = (at == chains.lengths[:, None] - 1)[..., None]  # (B, T, 1)
    final = final + is_last * torch.where(torch.isneginf(chains.end), 0.0, chains.end)
    final = final.masked_fill(is_last & torch.isneginf(chains.end), -torch.inf)
    out, inside = [], torch.zeros_like(node)
    for d in range(length.shape[0]):
        inside = inside + _shifted(node, d, 0.0)
        own = inside + _shifted(begin, d, 0.0) + final + length[d].to(node.dtype)
        beyond = (at < d)[None, :, None] | (limit.to(node.device) <= d)
        out.append(own.masked_fill(beyond, -torch.inf))
    return torch.stack(out, 2)


def _totals(chains: PackedChains, table: Tensor) -> Tensor:
    steps, most = table.shape[1:3]
    total = table.new_zeros(table.shape[:1])
    gamma: list[Tensor] = []
    for n in range(steps):
        ways = [table[:, n, d] + gamma[n - d - 1] for d in range(min(most, n))]
        if n < most:  # the segment begins with the sequence
            ways.append(table[:, n, n])
        alpha = log_sum(torch.stack(ways, 1), 1)
        gamma.append(log_sum(alpha[:, :, None] + chains.edge, 1))
        total = torch.where(chains.lengths == n + 1, log_sum(alpha, 1), total)
    return total


def _only_true(
    chains: PackedChains, table: Tensor, tags: Tensor, begins: Maybe, limit: Tensor, unknown: int
) -> Tensor:
    """Scores of the true segments alone, in sequences all of whose tags are known."""
    tag = _packed(chains, tags)
    steps = tag.shape[1]
    at = torch.arange(steps, device=tag.device).expand_as(tag)
    starts = torch.ones_like(tag, dtype=torch.bool)
    starts[:, 1:] = tag[:, 1:] != tag[:, :-1]
    if begins is not None:
        given = _packed(chains, begins.bool())
        starts = starts | given
    # pieces that are not too long
    origin = torch.where(starts, at, 0).cummax(1).values
    most = limit.to(tag.device)[tag.clamp(0, len(limit) - 1)]
    starts = starts | ((at - origin) % most == 0)
    stops = torch.ones_like(starts)
    stops[:, :-1] = starts[:, 1:]
    stops = stops | (at == chains.lengths[:, None] - 1)
    number = starts.int().cumsum(1)
    complete = ((tag != unknown) | ~chains.running).all(1)
    kept = []
    for d in range(table.shape[2]):
        own = torch.zeros_like(starts)
        if d < steps:
            own[:, d:] = starts[:, : steps - d] & stops[:, d:] & (number[:, : steps - d] == number[:, d:])
        kept.append(own)
    true = torch.stack(kept, 2) | ~complete[:, None, None]
    return table.masked_fill(~true[..., None], -torch.inf)
