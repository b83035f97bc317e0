"""`CRFLayer`: a linear-chain CRF on the scores of a neural network.

    log p(y | x) = start(y_1) + Σ_t emission_t(y_t) + Σ_t transition(y_{t-1}, y_t) + end(y_n) − log Z

(Lafferty, McCallum & Pereira 2001; on a BiLSTM, Huang, Xu & Yu 2015; Lample et al. 2016.) Names, shapes and start
values of the parameters are those of pytorch-crf, whose state dicts load, and so is the sign: ``forward`` is a
log-likelihood, to be maximised; `nll` is the loss. What differs, because it was asked for again and again there: the
batch comes first, a mask may have any form, rows may be empty, a tag of −100 outside the mask is padding and within
it a label that nobody knows, and sums are in doubles whatever the network computes in.

Losses that weigh labels come in two kinds. ``class_weight`` is what an error costs where a label is true (the softmax
margin of Gimpel & Smith 2010): wrong labels are helped by that much while training, so that the right ones learn to
beat them by a margin. ``label_weight`` replaces the likelihood of the whole labelling by that of each label by
itself, Σ_t weight(y_t) log p(y_t | x), which weighs steps as a softmax classifier does (Kakade, Teh & Roweis 2002).
``label_smoothing`` mixes the truth with a labelling drawn at random from all possible ones,

    (1 − ε) log p(y | x) + ε E_u log p(u | x),

which in the emissions is the usual smoothing of labels and leaves out what constraints forbid.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crfield.core.constraints import Constraints
from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.n_best import n_best_paths
from crfield.inference.posterior import draw
from crfield.kernels import chain
from crfield.kernels.padded import UNKNOWN, pack
from crfield.torch.chains.losses import expected_score, label_likelihood, smoothed, with_margin
from crfield.torch.chains.sums import ChainSums
from crfield.torch.options import check_options, fixed_buffers, label_numbers, listed, named_tags
from crfield.torch.steps import Steps, check_reduction, divisor, read_steps, read_weight, reduced, to_cpu

Maybe = Tensor | None


class CRFLayer(nn.Module):
    """Linear-chain CRF for the last layer of a sequence tagger.

    Parameters
    ----------
    num_tags : int or sequence of labels
        How many tags there are, or their names in the order of their numbers.
    batch_first : bool
        Whether emissions are (batch, steps, tags) or (steps, batch, tags).
    constraints : str, iterable of pairs, callable or Constraints, optional
        Rules of neighbouring tags as in `crfield.ChainCRF`: "bio", forbidden pairs, … They hold in training and in
        decoding. Rules by name need the names of the tags.
    class_weight : sequence of L numbers, optional
        What an error costs where each tag is true: the softmax margin.
    label_weight : sequence of L numbers, optional
        Train the likelihood of each tag by itself, weighted by these, instead of that of the whole labelling.
    label_smoothing : float
        Share ε of the truth that is spread over all possible labellings.
    ignore_index : int
        The tag that says nothing.
    backend : "kernels" or "torch"
        Where sums are made: by crfield's compiled kernels on the CPU, or in plain torch on the device of the scores.
    n_jobs : int
        Threads of the kernels; -1 for all processors.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> crf = CRFLayer(["O", "B-PER", "I-PER"], constraints="bio")
    >>> emissions = torch.randn(2, 4, 3, requires_grad=True)
    >>> tags = torch.tensor([[0, 1, 2, 0], [1, -100, 0, -100]])
    >>> mask = torch.tensor([[True, True, True, True], [True, True, True, False]])
    >>> loss = crf.nll(emissions, tags, mask=mask)
    >>> loss.backward()
    >>> crf.decode(emissions, mask=mask)
    [[0, 1, 2, 2], [0, 0, 0]]
    """

    start_transitions: nn.Parameter  # (L,)
    end_transitions: nn.Parameter  # (L,)
    transitions: nn.Parameter  # (L, L), from row to column
    fixed_edge: Any  # (L, L) scores of constraints, or None
    fixed_start: Any
    fixed_end: Any
    class_weight: Any  # (L,) or None
    label_weight: Any

    def __init__(
        self,
        num_tags: int | Sequence[Hashable],
        *,
        batch_first: bool = True,
        constraints: Any = None,
        class_weight: Any = None,
        label_weight: Any = None,
        label_smoothing: float = 0.0,
        ignore_index: int = UNKNOWN,
        backend: str = "kernels",
        n_jobs: int = 1,
    ) -> None:
        super().__init__()
        self.labels, self.num_tags = named_tags(num_tags)
        check_options(self.num_tags, ignore_index, backend, n_jobs)
        if not 0.0 <= label_smoothing < 1.0:
            raise InputError(f"label_smoothing must lie in 0 … 1, got {label_smoothing!r}.")
        if class_weight is not None and label_weight is not None:
            raise InputError("class_weight and label_weight are two losses. Choose one of them.")
        if label_weight is not None and label_smoothing:
            raise InputError("label_smoothing goes with the likelihood of whole labellings, not with label_weight.")
        self.batch_first, self.ignore_index, self.backend = batch_first, ignore_index, backend
        self.label_smoothing, self.n_jobs = float(label_smoothing), n_jobs
        for name, shape in (
            ("start_transitions", (self.num_tags,)),
            ("end_transitions", (self.num_tags,)),
            ("transitions", (self.num_tags, self.num_tags)),
        ):
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        fixed = None if constraints is None else Constraints.of(constraints).scores(self.labels)
        for name, table in fixed_buffers(fixed).items():
            self.register_buffer(name, table, persistent=False)
        for name, given in (("class_weight", class_weight), ("label_weight", label_weight)):
            self.register_buffer(name, label_numbers(name, given, self.num_tags), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start values as in pytorch-crf: uniform between −0.1 and 0.1."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        """What ``print`` shows of the layer."""
        ruled = ", constrained" if self.fixed_edge is not None else ""
        return f"num_tags={self.num_tags}, batch_first={self.batch_first}, backend={self.backend!r}{ruled}"

    # ---------------------------------------------------------------------------------------------- training

    def forward(
        self,
        emissions: Tensor,
        tags: Maybe,
        mask: Maybe = None,
        lengths: Maybe = None,
        reduction: str = "sum",
        allowed: Maybe = None,
        sequence_weight: Any = None,
    ) -> Tensor:
        """Log-likelihood of the tags, to be maximised; (B,) for ``reduction="none"``, else one number.

        Parameters
        ----------
        emissions : (B, T, L) tensor
            Scores of the tags at every step; −∞ forbids one. 16, 32 or 64 bits.
        tags : (B, T) tensor or None
            The true tags. Outside the mask they are not looked at; within it ``ignore_index`` stands for "unknown",
            and the likelihood is then that of all labellings that agree with what is known.
        mask : (B, T) tensor, optional
            Which steps count, in any pattern. ``lengths`` (B,) says it for sequences that begin at step 0.
        reduction : "none", "sum", "mean" or "token_mean"
            Whether log-likelihoods are summed, and what the sum is divided by: sequences, or kept steps.
        allowed : (B, T, L) tensor, optional
            Which tags each step may have, where annotators left several; with tags both must agree.
        sequence_weight : (B,) tensor, optional
            A weight of w counts as w copies of the sequence.

        Examples
        --------
        >>> crf = CRFLayer(2)
        >>> crf(torch.zeros(1, 2, 2), torch.tensor([[-100, -100]])).item()
        0.0
        """
        check_reduction(reduction)
        sums = self._sums(emissions, mask, lengths)
        tags, allowed = sums.given(tags, allowed, "tags")
        weight = read_weight(sums.steps, sequence_weight)
        if tags is None and allowed is None:
            raise LabelError("the likelihood needs tags or allowed tags; log_partition needs neither.")
        if self.label_weight is not None:
            each = label_likelihood(sums, tags, allowed, self.label_weight)
        else:
            if self.class_weight is not None:
                sums = with_margin(sums, tags, allowed, self.class_weight)
            if self.label_smoothing:
                each = smoothed(sums, tags, allowed, self.label_smoothing)
            elif reduction == "none" or self.backend == "torch":
                each = sums.totals(tags, allowed, contrast=True)
            else:  # one number is wanted: its gradient is made by the same sweep
                value = sums.likelihood(tags, allowed, weight) / divisor(sums.steps, weight, reduction)
                return sums.answer(value)
        return sums.answer(reduced(each, sums.steps, weight, reduction))

    def nll(
        self,
        emissions: Tensor,
        tags: Maybe,
        mask: Maybe = None,
        lengths: Maybe = None,
        reduction: str = "mean",
        allowed: Maybe = None,
        sequence_weight: Any = None,
    ) -> Tensor:
        """Negative log-likelihood, the loss: ``-crf(…)``, divided by the number of sequences unless told otherwise.

        >>> crf = CRFLayer(2)
        >>> crf.nll(torch.zeros(1, 3, 2), torch.tensor([[0, 1, 1]])).ndim
        0
        """
        return -self(emissions, tags, mask, lengths, reduction, allowed, sequence_weight)

    # ---------------------------------------------------------------------------------------------- answers

    def log_partition(
        self, emissions: Tensor, mask: Maybe = None, lengths: Maybe = None, known: Maybe = None, allowed: Maybe = None
    ) -> Tensor:
        """(B,) log Z, over the labellings that agree with ``known`` tags and ``allowed`` ones.

        >>> crf = CRFLayer(3)
        >>> for parameter in crf.parameters():
        ...     _ = nn.init.zeros_(parameter)
        >>> crf.log_partition(torch.zeros(1, 2, 3)).exp().round()
        tensor([9.], grad_fn=<RoundBackward0>)
        """
        sums = self._sums(emissions, mask, lengths)
        return sums.answer(sums.totals(*sums.given(known, allowed, "known"), contrast=False))

    def marginals(
        self, emissions: Tensor, mask: Maybe = None, lengths: Maybe = None, known: Maybe = None, allowed: Maybe = None
    ) -> Tensor:
        """(B, T, L) probability of every tag at every step, 0 outside the mask; differentiable.

        >>> CRFLayer(3).marginals(torch.zeros(1, 2, 3)).sum(-1)
        tensor([[1., 1.]], grad_fn=<SumBackward1>)
        """
        sums = self._sums(emissions, mask, lengths)
        return sums.steps.back(sums.beliefs(*sums.given(known, allowed, "known")))

    def pair_marginals(
        self, emissions: Tensor, mask: Maybe = None, lengths: Maybe = None, known: Maybe = None, allowed: Maybe = None
    ) -> Tensor:
        """(B, T − 1, L, L) probabilities of neighbouring tags; differentiable.

        Entry [b, t − 1, i, j] is for tag j at step t and tag i at the kept step before it; 0 where there is none.

        >>> CRFLayer(3).pair_marginals(torch.zeros(1, 2, 3)).sum((-1, -2))
        tensor([[1.]], grad_fn=<SumBackward1>)
        """
        sums = self._sums(emissions, mask, lengths)
        return sums.steps.back(sums.pairs(*sums.given(known, allowed, "known")))

    def entropy(
        self, emissions: Tensor, mask: Maybe = None, lengths: Maybe = None, known: Maybe = None, allowed: Maybe = None
    ) -> Tensor:
        """(B,) −Σ_y p(y | x) log p(y | x) in nats; differentiable. Writes B · T · L² numbers.

            H = log Z − Σ_t ⟨p_t, emission_t⟩ − Σ_t ⟨p_{t-1,t}, transition⟩ − ⟨p_1, start⟩ − ⟨p_n, end⟩

        >>> crf = CRFLayer(2)
        >>> bool(crf.entropy(torch.zeros(1, 3, 2)) < 3 * torch.log(torch.tensor(2.0)))
        True
        """
        sums = self._sums(emissions, mask, lengths)
        given = sums.given(known, allowed, "known")
        wide = sums.wide()
        mean = expected_score(wide, wide.beliefs(*given), wide.pairs(*given))
        return sums.answer(wide.totals(*given, contrast=False) - mean)

    @torch.no_grad()
    def decode_padded(
        self, emissions: Tensor, mask: Maybe = None, lengths: Maybe = None, known: Maybe = None, allowed: Maybe = None
    ) -> Tensor:
        """(B, T) the best labelling of every sequence, ``ignore_index`` outside the mask.

        >>> CRFLayer(2).decode_padded(torch.tensor([[[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]]]), lengths=torch.tensor([2]))
        tensor([[   0,    1, -100]])
        """
        steps, path = self._best(emissions, mask, lengths, known, allowed)
        return steps.back(path)

    @torch.no_grad()
    def decode(
        self, emissions: Tensor, mask: Maybe = None, lengths: Maybe = None, known: Maybe = None, allowed: Maybe = None
    ) -> list[list[int]]:
        """The best labelling of every sequence, as a list of its kept steps' tags (Viterbi).

        ``known`` (B, T) fixes some tags, with ``ignore_index`` elsewhere; ``allowed`` (B, T, L) leaves some.

        >>> CRFLayer(2).decode(torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]), known=torch.tensor([[-100, 0]]))
        [[0, 0]]
        """
        steps, path = self._best(emissions, mask, lengths, known, allowed)
        return listed(path, steps)

    @torch.no_grad()
    def decode_n_best(
        self,
        emissions: Tensor,
        k: int,
        mask: Maybe = None,
        lengths: Maybe = None,
        known: Maybe = None,
        allowed: Maybe = None,
    ) -> list[list[tuple[list[int], float]]]:
        """Of every sequence the k best labellings with the logs of their probabilities, best first; exact.

        There are fewer where there are no more labellings, or where the rest is forbidden.

        >>> found = CRFLayer(2).decode_n_best(torch.tensor([[[5.0, 0.0], [0.0, 9.0]]]), 2)
        >>> [path for path, _ in found[0]]
        [[0, 1], [1, 1]]
        """
        if not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number above 0, got {k!r}.")
        scores, _, _ = self._packed(emissions, mask, lengths, known, allowed)
        total = chain.sum_product(scores.topology.offsets, scores.node, scores.edge, n_jobs=self._jobs)[0]
        return [
            [(path.tolist(), min(0.0, float(score - own))) for path, score in zip(paths, values)]
            for (paths, values), own in zip(n_best_paths(scores, k), total)
        ]

    @torch.no_grad()
    def sample(
        self,
        emissions: Tensor,
        n: int = 1,
        mask: Maybe = None,
        lengths: Maybe = None,
        known: Maybe = None,
        allowed: Maybe = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(n, B, T) labellings drawn from p(y | x), ``ignore_index`` outside the mask.

        >>> CRFLayer(2).sample(torch.tensor([[[99.0, 0.0], [0.0, 99.0]]]), 2)[:, 0].tolist()
        [[0, 1], [0, 1]]
        """
        if not isinstance(n, int) or n < 1:
            raise InputError(f"n must be a whole number above 0, got {n!r}.")
        scores, place, steps = self._packed(emissions, mask, lengths, known, allowed)
        seed = torch.randint(2**63 - 1, (1,), generator=generator).item()
        rng = np.random.default_rng(int(seed))
        out = np.full((n, steps.score.shape[0] * steps.score.shape[1]), self.ignore_index, np.int64)
        offsets = scores.topology.offsets
        for b, (first, last) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist())):
            own = np.array([0, last - first])
            total, node, pairs = chain.sum_product(own, scores.node[first:last], scores.edge, each=True)
            if np.isneginf(total[0]):
                raise LabelError(f"sequence {b} has no labelling that is allowed, so none can be drawn.")
            out[:, place[first:last]] = draw(node, pairs, n, rng)
        found = torch.from_numpy(out).reshape(n, *steps.score.shape[:2])
        return (found if self.batch_first else found.transpose(1, 2)).to(steps.device)

    # ------------------------------------------------------------------------------------------- neighbours

    @classmethod
    def from_chain(cls, model: Any, **options: Any) -> CRFLayer:
        """The transitions, boundaries and constraints of a fitted `crfield.ChainCRF` as a layer.

        `crfield.torch.chain_emissions` has the scores that go with it.

        >>> from crfield import ChainCRF
        >>> model = ChainCRF().fit([[["a"], ["b"]]], [["A", "B"]])
        >>> CRFLayer.from_chain(model).labels
        ['A', 'B']
        """
        from crfield.torch.exchange import layer_of_chain

        return layer_of_chain(cls, model, options)

    def to_chain(self, linear: nn.Linear | None = None) -> Any:
        """A fitted `crfield.ChainCRF` with these transitions, which reads matrices (T, D) of numbers.

        With a ``linear`` layer (D → tags) its weights become those of the columns; without one the columns are the
        emissions themselves. The model can be saved, streamed, explained and exported as any other.

        >>> CRFLayer(["A", "B"]).to_chain().predict([[[9.0, 0.0], [0.0, 9.0]]])[0].tolist()
        ['A', 'B']
        """
        from crfield.torch.exchange import chain_of_layer

        return chain_of_layer(self, linear)

    # ---------------------------------------------------------------------------------------------- inside

    @property
    def _jobs(self) -> int:
        return max(1, torch.get_num_threads()) if self.n_jobs == -1 else self.n_jobs

    def _sums(self, emissions: Tensor, mask: Maybe, lengths: Maybe) -> ChainSums:
        steps = read_steps(
            emissions, mask, lengths, n_labels=self.num_tags, batch_first=self.batch_first, backend=self.backend
        )
        return ChainSums(steps, *self._tables(), self.ignore_index, self.backend, self._jobs)

    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of pairs, of the first and of the last step, with those of the constraints, where sums are made."""
        tables: list[Tensor] = [self.transitions, self.start_transitions, self.end_transitions]
        if self.fixed_edge is not None:
            fixed = self.fixed_edge, self.fixed_start, self.fixed_end
            tables = [own + extra.to(own.dtype) for own, extra in zip(tables, fixed)]
        edge, start, end = (to_cpu(x) for x in tables) if self.backend == "kernels" else tables
        return edge, start, end

    def _best(
        self, emissions: Tensor, mask: Maybe, lengths: Maybe, known: Maybe, allowed: Maybe
    ) -> tuple[Steps, Tensor]:
        sums = self._sums(emissions, mask, lengths)
        total, path = sums.best(*sums.given(known, allowed, "known"))
        if self.backend == "kernels" and not torch.compiler.is_compiling() and bool(torch.isneginf(total).any()):
            raise LabelError(
                f"sequence {int(torch.isneginf(total).int().argmax())} has no labelling that is allowed. Relax the "
                "constraints, or what is known."
            )
        return sums.steps, path

    def _packed(
        self, emissions: Tensor, mask: Maybe, lengths: Maybe, known: Maybe, allowed: Maybe
    ) -> tuple[Potentials, np.ndarray, Steps]:
        """Scores of the labels that are left as NumPy has them, and where their steps lie."""
        sums = self._sums(emissions.detach(), mask, lengths)
        steps = sums.steps
        edge, start, end = (x.detach().double().cpu().numpy() for x in (sums.edge, sums.start, sums.end))
        given = (steps.mask, *sums.given(known, allowed, "known"))
        kept, tags, left = (None if x is None else x.cpu().numpy() for x in given)
        packed = pack(steps.score.cpu().numpy(), start, end, kept, tags, left, self.ignore_index)
        node = np.where(packed.left, packed.node, -np.inf)
        if not (node < np.inf).all():
            raise InputError("emissions must be finite or -inf (forbidden), got NaN or +inf.")
        return Potentials(node, edge[None], Chains(packed.offsets)), packed.place, steps
