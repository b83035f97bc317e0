"""`SemiCRFLayer`: a semi-Markov CRF on the scores of a neural network.

A labelling is cut into segments that touch, each with a tag and up to D steps (Sarawagi & Cohen 2005; as a layer,
Kong, Dyer & Smith 2016, *Segmental recurrent neural networks*):

    score = start(y_1) + Σ_k [ Σ_{t in segment k} emission_t(y_k) + first_t(y_k) + last_t'(y_k) + length(d_k, y_k) ]
            + Σ_k transition(y_{k-1}, y_k) + end(y_n)

``first`` and ``last`` are scores of a segment's first and last step, for encoders that have something to say about
boundaries; both may be left out. Two segments of one tag may touch, so spans that lie side by side stay apart. Cost
O(T (D L + L²)) a sequence, in memory T L: scores of all segments are never written out (`kernels.segments`).

Masks, lengths, unknown tags, weights and backends are as in `CRFLayer`; `crfield.torch.segments.ops` tells what
second derivatives cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from crfield.core.constraints import Constraints
from crfield.errors import InputError, LabelError
from crfield.kernels.padded import UNKNOWN
from crfield.torch.options import check_options, fixed_buffers, named_tags
from crfield.torch.segments import ops, plain
from crfield.torch.steps import Steps, check_reduction, divisor, read_steps, read_tags, read_weight, reduced, to_cpu

Maybe = Tensor | None


class SemiCRFLayer(nn.Module):
    """Semi-Markov CRF for the last layer of a segmenter.

    Parameters
    ----------
    num_tags : int or sequence of labels
        How many tags there are, or their names in the order of their numbers.
    max_length : int or sequence of L numbers
        Most steps of a segment, for all tags or for each.
    batch_first, ignore_index, backend, n_jobs
        As in `CRFLayer`.
    constraints : iterable of pairs, callable or Constraints, optional
        Rules of the tags of neighbouring segments.

    Examples
    --------
    >>> layer = SemiCRFLayer(2, max_length=3)
    >>> emissions = torch.tensor([[[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]], requires_grad=True)
    >>> layer.nll(emissions, torch.tensor([[0, 0, 1]])).backward()
    >>> for name in ("transitions", "start_transitions", "end_transitions", "length_scores"):
    ...     _ = nn.init.zeros_(getattr(layer, name))
    >>> with torch.no_grad():
    ...     layer.length_scores[1, 0] = 1.0
    >>> layer.decode(emissions)
    [[(0, 2, 0), (2, 3, 1)]]
    """

    start_transitions: nn.Parameter  # (L,)
    end_transitions: nn.Parameter  # (L,)
    transitions: nn.Parameter  # (L, L), from row to column
    length_scores: nn.Parameter  # (D, L)
    limit: Tensor  # (L,)
    fixed_edge: Any  # (L, L) scores of constraints, or None
    fixed_start: Any
    fixed_end: Any

    def __init__(
        self,
        num_tags: int | Sequence[Hashable],
        *,
        max_length: int | Sequence[int],
        batch_first: bool = True,
        constraints: Any = None,
        ignore_index: int = UNKNOWN,
        backend: str = "kernels",
        n_jobs: int = 1,
    ) -> None:
        super().__init__()
        self.labels, self.num_tags = named_tags(num_tags)
        check_options(self.num_tags, ignore_index, backend, n_jobs)
        limits = [max_length] * self.num_tags if isinstance(max_length, int) else list(max_length)
        if len(limits) != self.num_tags or not all(isinstance(x, int) and x >= 1 for x in limits):
            raise InputError(
                f"max_length must be a number of steps, or one for each of {self.num_tags} tags, got {max_length!r}."
            )
        self.batch_first, self.ignore_index, self.backend, self.n_jobs = batch_first, ignore_index, backend, n_jobs
        self.max_length = max(limits)
        for name, shape in (
            ("start_transitions", (self.num_tags,)),
            ("end_transitions", (self.num_tags,)),
            ("transitions", (self.num_tags, self.num_tags)),
            ("length_scores", (self.max_length, self.num_tags)),
        ):
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        self.register_buffer("limit", torch.tensor(limits, dtype=torch.int32), persistent=False)
        fixed = None if constraints is None else Constraints.of(constraints).scores(self.labels)
        for name, table in fixed_buffers(fixed).items():
            self.register_buffer(name, table, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start values, uniform between −0.1 and 0.1."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        """What ``print`` shows of the layer."""
        return f"num_tags={self.num_tags}, max_length={self.max_length}, backend={self.backend!r}"

    def forward(
        self,
        emissions: Tensor,
        tags: Maybe,
        mask: Maybe = None,
        lengths: Maybe = None,
        reduction: str = "sum",
        allowed: Maybe = None,
        sequence_weight: Any = None,
        begins: Maybe = None,
        first: Maybe = None,
        last: Maybe = None,
    ) -> Tensor:
        """Log-likelihood of the segments, to be maximised; (B,) for ``reduction="none"``, else one number.

        Segments are the longest runs of one tag, and where ``begins`` (B, T) is true another begins; those that are
        too long are cut. In a sequence with unknown tags, or with ``allowed`` ones, all segmentations count whose
        steps agree with what is known. ``first`` and ``last`` (B, T, L) score a segment's first and last step.

        >>> layer = SemiCRFLayer(2, max_length=2)
        >>> layer(torch.zeros(1, 2, 2), torch.tensor([[-100, -100]])).item()
        0.0
        """
        check_reduction(reduction)
        steps = self._steps(emissions, mask, lengths)
        weight = read_weight(steps, sequence_weight)
        tags = read_tags(steps, tags)
        given: tuple[Any, ...] = (
            *self._scores(steps, first, last),
            tags,
            steps.here(begins, "begins", kind=torch.bool),
            steps.here(allowed, "allowed", labels=True, kind=torch.bool),
            steps.mask,
        )
        if tags is None and given[-2] is None:
            raise LabelError("the likelihood needs tags or allowed tags; log_partition needs neither.")
        if self.backend == "torch":
            value = reduced(
                plain.segment_totals(*given, unknown=self.ignore_index, contrast=True), steps, weight, reduction
            )
        elif reduction == "none":
            total = ops.segment_sums(*given, None, self.ignore_index, True, self._jobs)[1]
            value = reduced(total, steps, weight, reduction)
        else:
            found = ops.segment_sums(*given, weight, self.ignore_index, True, self._jobs)[0]
            value = found / divisor(steps, weight, reduction)
        return value.to(device=steps.device, dtype=steps.score.dtype)

    def nll(self, emissions: Tensor, tags: Maybe, mask: Maybe = None, **options: Any) -> Tensor:
        """Negative log-likelihood, the loss; divided by the number of sequences unless ``reduction`` says otherwise.

        >>> SemiCRFLayer(2, max_length=2).nll(torch.zeros(1, 3, 2), torch.tensor([[0, 1, 1]])).ndim
        0
        """
        return -self(emissions, tags, mask, **{"reduction": "mean", **options})

    def log_partition(
        self,
        emissions: Tensor,
        mask: Maybe = None,
        lengths: Maybe = None,
        known: Maybe = None,
        allowed: Maybe = None,
        first: Maybe = None,
        last: Maybe = None,
    ) -> Tensor:
        """(B,) log Z over the segmentations whose steps agree with ``known`` and ``allowed`` tags.

        >>> layer = SemiCRFLayer(1, max_length=2)
        >>> for parameter in layer.parameters():
        ...     _ = nn.init.zeros_(parameter)
        >>> layer.log_partition(torch.zeros(1, 3, 1)).exp().round().tolist()  # 1+1+1, 1+2, 2+1
        [3.0]
        """
        steps, given = self._given(emissions, mask, lengths, known, allowed, first, last)
        if self.backend == "torch":
            total = plain.segment_totals(*given, unknown=self.ignore_index, contrast=False)
        else:
            total = ops.segment_sums(*given, None, self.ignore_index, False, self._jobs)[1]
        return total.to(device=steps.device, dtype=steps.score.dtype)

    def marginals(
        self,
        emissions: Tensor,
        mask: Maybe = None,
        lengths: Maybe = None,
        known: Maybe = None,
        allowed: Maybe = None,
        first: Maybe = None,
        last: Maybe = None,
    ) -> Tensor:
        """(B, T, L) probability that a step lies in a segment of each tag, 0 outside the mask.

        >>> SemiCRFLayer(3, max_length=2).marginals(torch.zeros(1, 2, 3)).sum(-1).detach()
        tensor([[1., 1.]])
        """
        steps, given = self._given(emissions, mask, lengths, known, allowed, first, last)
        if self.backend == "kernels":
            return steps.back(ops.segment_sums(*given, None, self.ignore_index, False, self._jobs)[2])
        with torch.enable_grad():
            score = given[0] if given[0].requires_grad else given[0].detach().requires_grad_()
            total = plain.segment_totals(score, *given[1:], unknown=self.ignore_index, contrast=False)
            return steps.back(torch.autograd.grad(total.sum(), score, create_graph=given[0].requires_grad)[0])

    @torch.no_grad()
    def decode_padded(
        self,
        emissions: Tensor,
        mask: Maybe = None,
        lengths: Maybe = None,
        known: Maybe = None,
        allowed: Maybe = None,
        first: Maybe = None,
        last: Maybe = None,
    ) -> Tensor:
        """(B, T) tags of the best segmentation, ``ignore_index`` outside the mask.

        >>> SemiCRFLayer(2, max_length=2).decode_padded(torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]))
        tensor([[0, 1]])
        """
        steps, path, _ = self._best(emissions, mask, lengths, known, allowed, first, last)
        return steps.back(path)

    @torch.no_grad()
    def decode(
        self,
        emissions: Tensor,
        mask: Maybe = None,
        lengths: Maybe = None,
        known: Maybe = None,
        allowed: Maybe = None,
        first: Maybe = None,
        last: Maybe = None,
    ) -> list[list[tuple[int, int, int]]]:
        """The best segments of every sequence: (start, stop, tag), counted in kept steps; stop is not in the segment.

        The search runs on the CPU whatever the backend is.

        >>> SemiCRFLayer(2, max_length=1).decode(torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]))
        [[(0, 1, 0), (1, 2, 1)]]
        """
        steps, path, starts = self._best(emissions, mask, lengths, known, allowed, first, last)
        kept = torch.ones_like(starts) if steps.mask is None else steps.mask.to(starts.device)
        out = []
        for row, begins, here in zip(path, starts, kept):
            tags, first_of = row[here].tolist(), begins[here].nonzero()[:, 0].tolist()
            out.append([(a, b, tags[a]) for a, b in zip(first_of, [*first_of[1:], len(tags)])])
        return out

    # ---------------------------------------------------------------------------------------------- inside

    @property
    def _jobs(self) -> int:
        return max(1, torch.get_num_threads()) if self.n_jobs == -1 else self.n_jobs

    def _steps(self, emissions: Tensor, mask: Maybe, lengths: Maybe) -> Steps:
        return read_steps(
            emissions, mask, lengths, n_labels=self.num_tags, batch_first=self.batch_first, backend=self.backend
        )

    def _scores(self, steps: Steps, first: Maybe, last: Maybe) -> tuple[Any, ...]:
        tables: list[Tensor] = [self.transitions, self.start_transitions, self.end_transitions]
        if self.fixed_edge is not None:
            fixed = self.fixed_edge, self.fixed_start, self.fixed_end
            tables = [own + extra.to(own.dtype) for own, extra in zip(tables, fixed)]
        tables.append(self.length_scores)
        if self.backend == "kernels":
            tables = [to_cpu(x) for x in tables]
        first, last = (steps.here(x, name, labels=True) for x, name in ((first, "first"), (last, "last")))
        return steps.score, first, last, *tables, self.limit.to(steps.score.device)

    def _given(
        self, emissions: Tensor, mask: Maybe, lengths: Maybe, known: Maybe, allowed: Maybe, first: Maybe, last: Maybe
    ) -> tuple[Steps, tuple[Any, ...]]:
        steps = self._steps(emissions, mask, lengths)
        left = steps.here(allowed, "allowed", labels=True, kind=torch.bool)
        return steps, (*self._scores(steps, first, last), read_tags(steps, known, "known"), None, left, steps.mask)

    def _best(self, *given: Any) -> tuple[Steps, Tensor, Tensor]:
        steps, asked = self._given(*given)
        there = [None if x is None else x.cpu() for x in asked]
        total, path, starts = ops.segment_best(*there, self.ignore_index, self._jobs)
        if not torch.compiler.is_compiling() and bool(torch.isneginf(total).any()):
            raise LabelError(
                f"sequence {int(torch.isneginf(total).int().argmax())} has no segmentation that is allowed. Relax "
                "the constraints, or what is known."
            )
        return steps, path, starts
