"""What tests of the layers share: every labelling written out, and batches with awkward masks."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor

from crfield.torch import CRFLayer

NAMES = ("transitions", "start_transitions", "end_transitions")


def batch(
    shape: tuple[int, int, int], *, seed: int = 0, mask: str = "holes", dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Emissions, tags and a mask: with holes and an empty row, of lengths, or none; −100 outside of it."""
    made = torch.Generator().manual_seed(seed)
    count, steps, labels = shape
    emissions = (2.0 * torch.randn(shape, generator=made, dtype=torch.float64)).to(dtype)
    tags = torch.randint(labels, shape[:2], generator=made)
    if mask == "none":
        return emissions, tags, None
    if mask == "holes":
        kept = torch.rand(shape[:2], generator=made) < 0.7
        kept[count // 2] = False
    else:
        lengths = torch.randint(1, steps + 1, (count,), generator=made)
        lengths[0] = steps
        kept = torch.arange(steps) < lengths[:, None]
    return emissions, tags.masked_fill(~kept, -100), kept


def labellings(layer: CRFLayer, emissions: Tensor, kept: Tensor) -> list[tuple[tuple[int, ...], Tensor]]:
    """Every labelling of the kept steps of one row (T, L), and its score as torch adds it up."""
    edge, start, end = layer.transitions, layer.start_transitions, layer.end_transitions
    if layer.fixed_edge is not None:
        edge, start, end = edge + layer.fixed_edge, start + layer.fixed_start, end + layer.fixed_end
    rows = emissions[kept]
    out = []
    for y in product(range(layer.num_tags), repeat=len(rows)):
        score = rows.new_zeros(())
        for t, j in enumerate(y):
            score = score + rows[t, j]
        for i, j in pairwise(y):
            score = score + edge[i, j]
        out.append((y, score + start[y[0]] + end[y[-1]] if y else score))
    return out


def log_total(scores: list[Tensor]) -> Tensor:
    return torch.logsumexp(torch.stack(scores), 0)


def gradients(value: Tensor, layer: Any, emissions: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, (emissions, *(getattr(layer, name) for name in NAMES))))
