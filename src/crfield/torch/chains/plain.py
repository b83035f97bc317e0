"""The sums of a chain in plain torch, on any device and differentiable as often as one likes.

The same functions as the operators of `crfield.torch.chains.ops`, with logs and one step of the sequence at a time:

    α_0 = start + x_0              α_t(j) = log Σ_i exp(α_{t-1}(i) + edge(i, j)) + x_t(j)
    total = log Σ_j exp(α_T(j) + end(j))

Kept steps are moved to the front of their rows first, so that any mask becomes a length. Nothing is checked on the
way, since looking at a value would make a device wait.
"""

from __future__ import annotations

import torch
from torch import Tensor

Maybe = Tensor | None


def log_sum(x: Tensor, dim: int) -> Tensor:
    """log Σ exp along one axis, with gradients of zero, not NaN, where everything is −∞.

    >>> log_sum(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]), 1)
    tensor([0.6931,   -inf])
    """
    top = x.detach().amax(dim=dim, keepdim=True)
    top = top.masked_fill(torch.isneginf(top), 0.0)
    total = (x - top).exp().sum(dim=dim)
    possible = total > 0
    return torch.where(possible, torch.where(possible, total, 1.0).log(), -torch.inf) + top.squeeze(dim)


class PackedChains:
    """Padded chains with their kept steps in front: scores (B, T, L) of the labels that are left, in doubles."""

    def __init__(
        self,
        score: Tensor,
        edge: Tensor,
        start: Tensor,
        end: Tensor,
        mask: Maybe,
        tags: Maybe,
        allowed: Maybe,
        unknown: int,
    ) -> None:
        wide = torch.float32 if score.device.type == "mps" else torch.float64
        self.edge, self.start, self.end = (x.to(wide) for x in (edge, start, end))
        x, labels = score.to(wide), score.shape[2]
        if tags is not None:
            every = torch.arange(labels, device=score.device)
            x = x.masked_fill(~((tags[..., None] == every) | (tags == unknown)[..., None]), -torch.inf)
        if allowed is not None:
            x = x.masked_fill(~allowed, -torch.inf)
        self.order: Maybe = None
        if mask is None:
            self.lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            self.order = torch.argsort((~mask).to(torch.int8), dim=1, stable=True)
            self.lengths = mask.sum(dim=1)
            x = x.gather(1, self.order[..., None].expand_as(x))
        self.score = x
        self.running = torch.arange(x.shape[1], device=x.device) < self.lengths[:, None]  # (B, T)

    def back(self, packed: Tensor) -> Tensor:
        """Values of packed steps (B, T, …) at the steps where they belong, zero outside the mask."""
        kept = self.running.reshape(*self.running.shape, *[1] * (packed.ndim - 2))
        packed = torch.where(kept, packed, torch.zeros((), dtype=packed.dtype, device=packed.device))
        if self.order is None:
            return packed
        place = self.order.reshape(*self.order.shape, *[1] * (packed.ndim - 2)).expand_as(packed)
        return torch.zeros_like(packed).scatter(1, place, packed)

    def forward(self) -> list[Tensor]:
        """α of every packed step (B, L); behind the last step of a sequence it stays as it was."""
        alpha = [self.start + self.score[:, 0]] if self.score.shape[1] else []
        for t in range(1, self.score.shape[1]):
            new = log_sum(alpha[-1][:, :, None] + self.edge, 1) + self.score[:, t]
            alpha.append(torch.where(self.running[:, t, None], new, alpha[-1]))
        return alpha

    def totals(self, alpha: list[Tensor]) -> Tensor:
        """(B,) log Z, 0 of an empty sequence."""
        if not alpha:
            return self.score.new_zeros(self.score.shape[:1])
        return torch.where(self.lengths > 0, log_sum(alpha[-1] + self.end, 1), 0.0)

    def beliefs(self) -> tuple[Tensor, Tensor]:
        """Marginals of packed steps (B, T, L) and of pairs (B, T − 1, L, L)."""
        batch, steps, labels = self.score.shape
        alpha = self.forward()
        total = self.totals(alpha)[:, None]
        total = total.masked_fill(torch.isneginf(total), 0.0)
        beta = [self.end.expand(batch, labels)]
        pairs: list[Tensor] = []
        for t in range(steps - 1, 0, -1):
            later = self.edge + (self.score[:, t] + beta[0])[:, None, :]  # (B, L, L)
            pair = (alpha[t - 1][:, :, None] + later - total[..., None]).exp()
            pairs.insert(0, torch.where(self.running[:, t, None, None], pair, 0.0))
            beta.insert(0, torch.where(self.running[:, t, None], log_sum(later, 2), beta[0]))
        if not alpha:
            return self.score, self.score.new_zeros((batch, 0, labels, labels))
        node = (torch.stack(alpha, 1) + torch.stack(beta, 1) - total[..., None]).exp()
        every = torch.stack(pairs, 1) if pairs else self.score.new_zeros((batch, 0, labels, labels))
        return node, every


def chain_totals(
    score: Tensor,
    edge: Tensor,
    start: Tensor,
    end: Tensor,
    tags: Maybe,
    allowed: Maybe,
    mask: Maybe,
    unknown: int,
    contrast: bool,
) -> Tensor:
    """Totals (B,) as `chain_sums` has them.

    >>> x, none = torch.zeros(1, 3, 2), torch.zeros(2)
    >>> chain_totals(x, torch.zeros(2, 2), none, none, None, None, None, -100, False).exp().round()
    tensor([8.], dtype=torch.float64)
    """
    left = PackedChains(score, edge, start, end, mask, tags, allowed, unknown)
    total = left.totals(left.forward())
    if not contrast:
        return total
    free = PackedChains(score, edge, start, end, mask, None, None, unknown)
    value = total - free.totals(free.forward())
    return value - value.detach().clamp_min(0.0)  # rounding must not make a probability of more than one


def chain_beliefs(
    score: Tensor, edge: Tensor, start: Tensor, end: Tensor, tags: Maybe, allowed: Maybe, mask: Maybe, unknown: int
) -> Tensor:
    """Marginals (B, T, L) of every step, zero outside the mask."""
    packed = PackedChains(score, edge, start, end, mask, tags, allowed, unknown)
    return packed.back(packed.beliefs()[0])


def chain_pairs(
    score: Tensor, edge: Tensor, start: Tensor, end: Tensor, tags: Maybe, allowed: Maybe, mask: Maybe, unknown: int
) -> Tensor:
    """(B, T − 1, L, L) as `ops.chain_pairs` has them."""
    packed = PackedChains(score, edge, start, end, mask, tags, allowed, unknown)
    pairs = packed.beliefs()[1]
    first = pairs.new_zeros((len(pairs), min(1, score.shape[1]), *pairs.shape[2:]))
    return packed.back(torch.cat([first, pairs], 1))[:, 1:]


def chain_best(
    score: Tensor, edge: Tensor, start: Tensor, end: Tensor, tags: Maybe, allowed: Maybe, mask: Maybe, unknown: int
) -> tuple[Tensor, Tensor]:
    """Score (B,) and labels (B, T) of the best labelling; ``unknown`` outside the mask."""
    packed = PackedChains(score, edge, start, end, mask, tags, allowed, unknown)
    x, running = packed.score, packed.running
    batch, steps = x.shape[:2]
    if not steps:
        return x.new_zeros(batch), torch.zeros((batch, 0), dtype=torch.int64, device=x.device)
    best, before = packed.start + x[:, 0], []
    for t in range(1, steps):
        top, at = (best[:, :, None] + packed.edge).max(dim=1)
        before.append(at)
        best = torch.where(running[:, t, None], top + x[:, t], best)
    total, label = (best + packed.end).max(dim=1)
    path = [label]
    for t in range(steps - 1, 0, -1):
        label = torch.where(running[:, t], before[t - 1].gather(1, label[:, None])[:, 0], label)
        path.insert(0, label)
    found = torch.stack(path, 1)
    kept = torch.ones_like(running) if mask is None else mask
    return torch.where(packed.lengths > 0, total, 0.0), torch.where(kept, packed.back(found), unknown)
