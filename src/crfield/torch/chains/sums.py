"""One batch of padded chains and what can be asked of it, by whichever backend: kernels or plain torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from crfield.torch.chains import ops, plain
from crfield.torch.steps import Steps, read_tags

Maybe = Tensor | None


@dataclass(frozen=True, eq=False)
class ChainSums:
    """Scores of steps, of pairs and of both ends; tags and allowed tags are handed to each question.

    >>> none, cpu = torch.zeros(2), torch.device("cpu")
    >>> steps = Steps(torch.zeros(1, 3, 2), None, cpu, True)
    >>> sums = ChainSums(steps, torch.zeros(2, 2), none, none, -100, "kernels", 1)
    >>> sums.totals(None, None, contrast=False).exp().round()
    tensor([8.], dtype=torch.float64)
    """

    steps: Steps
    edge: Tensor  # (L, L)
    start: Tensor  # (L,)
    end: Tensor  # (L,)
    unknown: int
    backend: str
    n_jobs: int

    def given(self, tags: Maybe, allowed: Maybe, name: str) -> tuple[Maybe, Maybe]:
        """What the caller says of the tags, checked and beside the scores."""
        steps = self.steps
        return read_tags(steps, tags, name), steps.here(allowed, "allowed", labels=True, kind=torch.bool)

    def answer(self, x: Tensor) -> Tensor:
        """A number, or one for each sequence, in the precision and on the device of the caller."""
        return x.to(device=self.steps.device, dtype=self.steps.score.dtype)

    def with_score(self, score: Tensor) -> ChainSums:
        """The same steps with other scores."""
        return replace(self, steps=replace(self.steps, score=score))

    def wide(self) -> ChainSums:
        """All scores in doubles."""
        edge, start, end = self.edge.double(), self.start.double(), self.end.double()
        return replace(self.with_score(self.steps.score.double()), edge=edge, start=start, end=end)

    def likelihood(self, tags: Maybe, allowed: Maybe, weight: Maybe) -> Tensor:
        """Σ_b weight_b log p(what is left of b), by the kernels; the gradient comes with the value."""
        scores = self.steps.score, self.edge, self.start, self.end
        return ops.chain_sums(*scores, tags, allowed, self.steps.mask, weight, self.unknown, True, self.n_jobs)[0]

    def totals(self, tags: Maybe, allowed: Maybe, *, contrast: bool) -> Tensor:
        """(B,) log Z of what is left, or its log-likelihood."""
        given = self.steps.score, self.edge, self.start, self.end, tags, allowed, self.steps.mask
        if self.backend == "torch":
            return plain.chain_totals(*given, self.unknown, contrast)
        return ops.chain_sums(*given, None, self.unknown, contrast, self.n_jobs)[1]

    def beliefs(self, tags: Maybe, allowed: Maybe) -> Tensor:
        """(B, T, L) marginals of steps."""
        given = self.steps.score, self.edge, self.start, self.end, tags, allowed, self.steps.mask
        if self.backend == "torch":
            return plain.chain_beliefs(*given, self.unknown).to(self.steps.score.dtype)
        return ops.chain_sums(*given, None, self.unknown, False, self.n_jobs)[2]

    def pairs(self, tags: Maybe, allowed: Maybe) -> Tensor:
        """(B, T − 1, L, L) marginals of neighbours."""
        given = self.steps.score, self.edge, self.start, self.end, tags, allowed, self.steps.mask
        if self.backend == "torch":
            return plain.chain_pairs(*given, self.unknown).to(self.steps.score.dtype)
        return ops.chain_pairs(*given, self.unknown, self.n_jobs)

    def best(self, tags: Maybe, allowed: Maybe) -> tuple[Tensor, Tensor]:
        """Score (B,) and labels (B, T) of the best labelling."""
        given = self.steps.score, self.edge, self.start, self.end, tags, allowed, self.steps.mask
        if self.backend == "torch":
            return plain.chain_best(*given, self.unknown)
        return ops.chain_best(*given, self.unknown, self.n_jobs)
