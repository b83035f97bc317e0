"""Answers beyond the best path: n-best labellings, spans with probabilities, samples, pairs, entropy, beams.

All of it is exact and comes from the scores alone (`inference.n_best`, `inference.posterior`, `inference.beam`), so
every model that scores the labels of a chain has it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield import metrics
from crfield.core.checks import integer, random_generator
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.typing import Labels, Seed, Sequences
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ShapeError
from crfield.inference.beam import beam_paths
from crfield.inference.n_best import n_best_paths
from crfield.inference.posterior import SpanRules, best_spans, draw, entropies, likely_spans, span_chances
from crfield.metrics.chunks import OUTSIDE, split_tags, tag_turns
from crfield.metrics.schemes import check_scheme_name, reads_bilou, spans

RUNS = "runs"
RARE = 1e-4  # spans of less chance are not looked at when spans are chosen by risk


@dataclass(frozen=True, eq=False)
class Labelling:
    """One labelling of a sequence and its probability.

    >>> import numpy as np
    >>> Labelling(np.array(["a", "b"], dtype=object), float(np.log(0.5)))
    Labelling(['a', 'b'], probability=0.5)
    """

    labels: np.ndarray  # (T,) object
    log_prob: float

    @property
    def probability(self) -> float:
        """p(labels | x)."""
        return float(np.exp(self.log_prob))

    def __repr__(self) -> str:
        return f"Labelling({self.labels.tolist()}, probability={self.probability:.4g})"


@dataclass(frozen=True)
class LabelledSpan:
    """A span of steps ``start`` … ``stop`` − 1, its kind, and the probability that exactly it is there.

    ``first`` and ``last`` are offsets of characters (the last one not in the span) when they were given.
    """

    start: int
    stop: int
    label: Hashable
    probability: float
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, eq=False)
class BeamLabels:
    """Labels of every sequence by a beam, their scores, and how far from the best score each may be."""

    labels: np.ndarray  # (B,) object
    scores: np.ndarray  # (B,)
    bounds: np.ndarray  # (B,) 0: proved to be best


class PosteriorAnswers:
    """What models of chains can say besides the best labels and their marginals."""

    _coder: Any  # the labels
    _engine: Any  # the exact engine of chains
    _states: Any  # the states of labels that scores are over, or None
    potentials: Any  # X to scores

    def _scored(self, X: Sequences, known: Labels | None = None) -> tuple[Potentials, np.ndarray]:
        """Scores of X, of what is ``known`` only, and the label of each of their states (S,)."""
        coder, potentials, states = self._coder, self.potentials(X), self._states()
        label = np.arange(coder.n_labels, dtype=np.int32)
        if states is not None and states.one_path:
            label = states.label_of_state
        if potentials.n_labels != len(label):
            raise InputError(
                f"this question is about labels, but {type(self).__name__} scores {potentials.n_labels} hidden "
                f"states of {coder.n_labels} labels. predict, predict_proba and log_prob sum over them."
            )
        if known is not None:
            topology = potentials.topology
            codes, allowed = coder.encode(known, topology.lengths)
            mask = Target(topology, coder.n_labels, codes, allowed).mask[:, label]
            node = np.where(mask, potentials.node, -np.inf)
            potentials = Potentials(node, potentials.edge, topology, potentials.table)
        return potentials, label

    def predict_n_best(self, X: Sequences, n: int = 5, *, known: Labels | None = None) -> list[list[Labelling]]:
        """Of every sequence the ``n`` most probable labellings, best first, with their probabilities; exact.

        There are fewer where a sequence has no more labellings that are possible. Given ``known`` labels, as in
        `predict`, they are the labellings that agree with these, and probabilities are given them.
        """
        integer(1, meaning="how many labellings are wanted")("n", n)
        potentials, label = self._scored(X, known)
        totals = self._engine.infer(potentials, Semiring.LOG).total
        names = _names(self._coder)[label]
        return [
            [Labelling(names[path], min(float(score - total), 0.0)) for path, score in zip(paths, scores)]
            for (paths, scores), total in zip(n_best_paths(potentials, int(n)), totals)
        ]

    def predict_pairs(self, X: Sequences, *, known: Labels | None = None) -> np.ndarray:
        """Probabilities of neighbouring labels: a 1-D object array of arrays (steps − 1, classes, classes)."""
        potentials, label = self._scored(X, known)
        pairs, bounds = self._engine.edge_marginals(potentials), potentials.topology.edge_offsets
        if len(label) > self._coder.n_labels:
            own = np.eye(self._coder.n_labels)[label]  # (S, L)
            pairs = own.T @ pairs @ own
        out = np.empty(potentials.topology.n_sequences, dtype=object)
        for s in range(len(out)):
            out[s] = pairs[bounds[s] : bounds[s + 1]]
        return out

    def entropy(self, X: Sequences, *, known: Labels | None = None) -> np.ndarray:
        """(B,) the entropy of p(y | x) of every sequence, in nats: 0 where only one labelling is possible."""
        (potentials, _), engine = self._scored(X, known), self._engine
        return entropies(potentials, engine.infer(potentials, Semiring.LOG), engine.edge_marginals(potentials))

    def sample_labels(
        self, X: Sequences, n: int = 1, *, known: Labels | None = None, random_state: Seed = None
    ) -> list[np.ndarray]:
        """Of every sequence ``n`` labellings drawn from p(y | x): arrays (n, steps) of labels."""
        integer(0, meaning="how many samples are wanted")("n", n)
        rng, names = random_generator(random_state), _names(self._coder)
        return [names[label[draw(node, pairs, int(n), rng)]] for node, pairs, label in self._each_belief(X, known)]

    def predict_beam(self, X: Sequences, width: int = 8, *, known: Labels | None = None) -> BeamLabels:
        """The best labelling by a beam of ``width`` labels, for large label sets, and a bound on what it may lose."""
        integer(1, meaning="labels kept at a step")("width", width)
        potentials, label = self._scored(X, known)
        path, scores, bounds = beam_paths(potentials, width=int(width))
        return BeamLabels(self._coder.decode(label[path], potentials.topology.offsets), scores, bounds)

    # ------------------------------------------------------------------------------------------------------ spans

    def predict_spans(
        self,
        X: Sequences,
        *,
        scheme: str | None = None,
        method: str = "path",
        threshold: float = 0.5,
        offsets: Sequence[Sequence[tuple[int, int]]] | None = None,
        known: Labels | None = None,
    ) -> list[list[LabelledSpan]]:
        """The spans of every sequence, each with the probability that exactly this span is there.

        ``scheme`` is that of the labels ("iob2", "bioes", …; seen from them if None), or "runs", for plain labels:
        every run of equal labels is a span. ``method="path"`` reads the spans of ``predict``; ``"risk"`` chooses the
        spans that do not overlap and whose probabilities less ``threshold`` have the largest sum: with ½ those of
        least expected risk; lower values find more. ``offsets`` has (first, last) characters of every step of every
        sequence, and gives spans theirs.
        """
        if method not in ("path", "risk"):
            raise InputError(f"method must be 'path' or 'risk', got {method!r}.")
        if method == "risk" and not RARE <= threshold < 1:
            raise InputError(f"threshold must be a probability of at least {RARE:g} and below 1, got {threshold!r}.")
        name, kinds, rules = self._span_rules(scheme)
        read = iter(self.predict(X, known=known)) if method == "path" else None  # type: ignore[attr-defined]
        number = {kind: k for k, kind in enumerate(kinds)}
        out = []
        for s, (node, pairs, label) in enumerate(self._each_belief(X, known)):
            own = rules.of(label)
            if read is None:
                found = best_spans(likely_spans(node, pairs, own, least=RARE), threshold=threshold)
            else:
                labels = next(read).tolist()
                marked = metrics.segments(labels) if name == RUNS else spans(labels, name)
                found = [(a, b, number[k], _chance(node, pairs, own, a, b, number[k])) for a, b, k in marked]
            places = None if offsets is None else _places(offsets, s, len(node))
            out.append(
                [
                    LabelledSpan(a, b, kinds[k], p)
                    if places is None
                    else LabelledSpan(a, b, kinds[k], p, places[a][0], places[b - 1][1])
                    for a, b, k, p in found
                ]
            )
        return out

    def span_probability(
        self, X: Sequences, spans: Sequence[Iterable[tuple[int, int, Hashable]]], *, scheme: str | None = None
    ) -> list[np.ndarray]:
        """For every sequence and each of its (start, stop, kind) the probability that exactly this span is there."""
        _, kinds, rules = self._span_rules(scheme)
        number = {kind: k for k, kind in enumerate(kinds)}
        beliefs = list(self._each_belief(X))
        if len(spans) != len(beliefs):
            raise ShapeError(f"spans must have one list for each of {len(beliefs)} sequences, got {len(spans)}.")
        out = []
        for s, (asked, (node, pairs, label)) in enumerate(zip(spans, beliefs)):
            chances, own = [], rules.of(label)
            for start, stop, kind in asked:
                if not 0 <= start < stop <= len(node):
                    raise ShapeError(
                        f"span {(start, stop, kind)} of sequence {s} must satisfy 0 ≤ start < stop ≤ {len(node)}, "
                        "its number of steps."
                    )
                chances.append(_chance(node, pairs, own, start, stop, number[kind]) if kind in number else 0.0)
            out.append(np.array(chances))
        return out

    def _each_belief(
        self, X: Sequences, known: Labels | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Node (T, S) and pair (T − 1, S, S) marginals of every sequence, and the label of each state (S,)."""
        potentials, label = self._scored(X, known)
        node, pairs = self._engine.infer(potentials, Semiring.LOG).node, self._engine.edge_marginals(potentials)
        bounds, edges = potentials.topology.offsets.tolist(), potentials.topology.edge_offsets.tolist()
        for s in range(len(bounds) - 1):
            yield node[bounds[s] : bounds[s + 1]], pairs[edges[s] : edges[s + 1]], label

    def _span_rules(self, scheme: str | None) -> tuple[str, tuple[Hashable, ...], SpanRules]:
        """Name of the scheme, kinds of spans, and rules."""
        labels = list(self._coder.labels)
        if scheme == RUNS:
            turns = ~np.eye(len(labels) + 1, dtype=bool)
            return RUNS, tuple(labels), SpanRules(np.arange(len(labels)), turns, turns)
        name = "iob2"  # reading is the same for all but bilou
        if scheme is not None:
            name = check_scheme_name(scheme)
        elif {str(label).partition("-")[0] for label in labels} & {"L", "U"}:
            name = "bilou"
        parts = split_tags(labels, bilou=reads_bilou(name))
        begins, ends = tag_turns(parts)
        return name, parts.kinds, SpanRules(np.where(parts.prefix == OUTSIDE, -1, parts.kind), begins, ends)


def _chance(node: np.ndarray, pairs: np.ndarray, rules: SpanRules, start: int, stop: int, kind: int) -> float:
    for end, chance in span_chances(node, pairs, rules, start=start, kind=kind):
        if end == stop:
            return min(chance, 1.0)
    return 0.0


def _places(offsets: Any, sequence: int, length: int) -> Any:
    if len(offsets) <= sequence or len(offsets[sequence]) != length:
        got = len(offsets[sequence]) if len(offsets) > sequence else "nothing"
        raise ShapeError(
            f"offsets must have (first, last) characters for each of the {length} steps of sequence {sequence}, "
            f"got {got}."
        )
    return offsets[sequence]


def _names(coder: LabelCoder) -> np.ndarray:
    """(L,) object array of the labels, whatever they are."""
    names = np.empty(coder.n_labels, dtype=object)
    for k, label in enumerate(coder.labels):
        names[k] = label
    return names
