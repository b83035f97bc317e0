"""Losses beside the likelihood: a margin, labels by themselves, and truth that is smoothed.

They are made of the sums of `ChainSums` by ordinary torch, so that both backends have them. `crfield.torch.layer`
says what they mean.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from crfield.torch.chains.sums import ChainSums

Maybe = Tensor | None


def tags_left(sums: ChainSums, tags: Maybe, allowed: Maybe) -> Tensor:
    """(B, T, L) bool, the tags that are left at every step."""
    score = sums.steps.score
    left = torch.ones(score.shape, dtype=torch.bool, device=score.device)
    if tags is not None:
        every = torch.arange(score.shape[2], device=tags.device)
        left = (tags[..., None] == every) | (tags == sums.unknown)[..., None]
    return left if allowed is None else left & allowed


def _weights(weight: Tensor, left: Tensor) -> Tensor:
    """(B, T) the weight of the tag that is left, the mean where there are several."""
    return (left * weight.to(left.device)).sum(-1) / left.sum(-1).clamp_min(1)


def with_margin(sums: ChainSums, tags: Maybe, allowed: Maybe, cost: Tensor) -> ChainSums:
    """The sums with every tag that is not left helped by ``cost`` (L,) of the one that is: the softmax margin.

    The likelihood of these scores is score(y) − log Σ_y' exp(score(y') + cost of y'), since the truth costs nothing.
    """
    left, score = tags_left(sums, tags, allowed), sums.steps.score
    return sums.with_score(score + (_weights(cost, left)[..., None] * ~left).to(score.dtype))


def label_likelihood(sums: ChainSums, tags: Maybe, allowed: Maybe, weight: Tensor) -> Tensor:
    """(B,) Σ_t weight(y_t) log p(y_t | x)."""
    left, mask = tags_left(sums, tags, allowed), sums.steps.mask
    right = (sums.wide().beliefs(None, None) * left).sum(-1)  # (B, T)
    own = _weights(weight, left) * right.clamp(1e-300, 1.0).log()
    return (own if mask is None else torch.where(mask, own, 0.0)).sum(-1)


def smoothed(sums: ChainSums, tags: Maybe, allowed: Maybe, share: float) -> Tensor:
    """(B,) (1 − ε) log p(y | x) + ε (E_u score(u) − log Z), with u uniform over all possible labellings."""
    wide = sums.wide()
    with torch.no_grad():
        flat = [
            torch.zeros_like(x).masked_fill(torch.isneginf(x), -torch.inf)
            for x in (wide.steps.score, wide.edge, wide.start, wide.end)
        ]
        uniform = replace(wide.with_score(flat[0]), edge=flat[1], start=flat[2], end=flat[3])
        node, pairs = uniform.beliefs(None, None), uniform.pairs(None, None)
    spread = expected_score(wide, node, pairs) - wide.totals(None, None, contrast=False)
    return (1.0 - share) * wide.totals(tags, allowed, contrast=True) + share * spread


def expected_score(sums: ChainSums, node: Tensor, pairs: Tensor) -> Tensor:
    """(B,) the expectation of the score under marginals of steps and pairs; what is impossible adds nothing."""
    score, mask = sums.steps.score, sums.steps.mask
    total = _mean(node, score).sum((1, 2)) + _mean(pairs.sum(1), sums.edge).sum((1, 2))
    batch, steps, labels = score.shape
    if not steps:
        return total
    kept = torch.ones((batch, steps), dtype=torch.bool, device=score.device) if mask is None else mask
    for table, at in ((sums.start, kept.int().argmax(1)), (sums.end, steps - 1 - kept.flip(1).int().argmax(1))):
        ends = node.gather(1, at[:, None, None].expand(batch, 1, labels))[:, 0]
        total = total + _mean(ends, table).sum(1)
    return total


def _mean(chance: Tensor, score: Tensor) -> Tensor:
    return chance * torch.where(torch.isneginf(score), 0.0, score)
