"""Answers of models that score chains: labels, probabilities, likelihoods and shares of right steps.

Whoever can turn X into `Potentials` of chains has everything else from here, by the exact engine: nothing below
depends on where the scores come from, be it columns, trees, a classifier or counts. Known labels are masks on the
scores, as partial labels are in training: what they say has probability one, and everything else is exact given them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol, TypeVar

import numpy as np

from crfield.core.checks import one_of
from crfield.core.graphs import Graphs
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.states import StateSpace
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Sequences, Weights
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ModelFileError
from crfield.estimators.base.fitted import Fitted, Model
from crfield.estimators.base.groups import Threaded
from crfield.estimators.base.sequences import StructuredData, right_share
from crfield.estimators.chain.posterior import PosteriorAnswers
from crfield.estimators.chain.tagger import ChainTagger
from crfield.estimators.export.streaming import Streaming
from crfield.inference.chain import ChainEngine
from crfield.inference.decode import DECODERS, best_marginals, check_decoder, legal_marginals
from crfield.inference.labellings import path_scores
from crfield.kernels.tagging import SequenceTagger

_WORDS = 100_000  # characters: a table may have thousands of columns


def _read_source(found: Any) -> dict[str, str]:
    good = isinstance(found, dict) and len(found) <= 20
    if not good or not all(isinstance(w, str) and len(w) <= _WORDS for item in found.items() for w in item):
        raise ModelFileError("the model file's words on the source of its data are damaged.")
    return dict(found)


class ChainModel(Model, Protocol):
    """The fitted value of a model of chains."""

    @property
    def labels(self) -> LabelCoder:
        """The labels."""
        ...

    @property
    def states(self) -> StateSpace | None:
        """What scores are over, where it is states of labels and not labels."""
        ...


M = TypeVar("M", bound=ChainModel)


class ChainAnswers(PosteriorAnswers, Streaming, StructuredData, Threaded, Fitted[M], group=True):
    """Prediction, probabilities and scores for models of chains."""

    decode: str = parameter(one_of(*DECODERS), default="viterbi")

    classes_: np.ndarray = learnt()
    source_: dict[str, str] = learnt(  # how the command line read the files of training, where it did
        stored="source",
        to_json=lambda source: {str(name): str(value) for name, value in source.items()},
        from_json=_read_source,
    )

    @property
    def _coder(self) -> LabelCoder:
        return self._fitted.labels

    # ------------------------------ what a model gives

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        raise NotImplementedError

    # ------------------------------------------------------------------- questions

    @property
    def _engine(self) -> ChainEngine:
        return ChainEngine(self._jobs)

    def _forbidden(self) -> np.ndarray | None:
        """(L, L) pairs of labels that no answer may have; None where there are none."""
        return None

    def _states(self) -> StateSpace | None:
        """The states of each label where scores are of states; None where of labels."""
        return self._fitted.states

    def _refuse_impossible(
        self, total: np.ndarray, potentials: Potentials, X: Sequences, known: Labels | None = None
    ) -> None:
        """LabelError where no path is left through the scores of X: total (B,) of −∞."""
        if not np.isneginf(total).any():
            return
        if known is not None or self._forbidden() is not None:
            refuse_impossible(total, known=known is not None)
        sequence = int(np.argmax(np.isneginf(total)))
        step = dead_step(potentials, sequence)
        raise LabelError(
            f"sequence {sequence}, step {step}{self._cell(X, sequence, step)}: no label is left that has any "
            "probability there, so the sequence has none. Raise what smooths counts above 0, or look at this step."
        )

    def _cell(self, X: Sequences, sequence: int, step: int) -> str:
        """What is to be said of the features of a step that no label can have; nothing by default."""
        return ""

    def _beliefs(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        states = self._states()
        potentials = known_potentials(self.potentials(X), known, self._coder, states)
        beliefs = self._engine.infer(potentials, Semiring.LOG)
        self._refuse_impossible(beliefs.total, potentials, X, known)
        return beliefs.node if states is None else states.label_sums(beliefs.node), potentials.topology

    def _codes(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        if check_decoder(self.decode) == "marginal":
            node, topology = self._beliefs(X, known)
            forbidden = self._forbidden()
            if forbidden is not None and isinstance(topology, Chains):
                return legal_marginals(node, forbidden, topology, n_jobs=self._jobs), topology
            return best_marginals(node), topology
        _, path, topology = self._best(X, known)
        return path, topology

    def _best(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, np.ndarray, Chains | Graphs]:
        """Score of the best path of each sequence (B,), its labels (N,), and the chains."""
        states = self._states()
        potentials = known_potentials(self.potentials(X), known, self._coder, states)
        total, path = self._engine.best_path(potentials)
        self._refuse_impossible(total, potentials, X, known)
        return total, path if states is None else states.label_of_state[path], potentials.topology

    def predict(self, X: Sequences, *, known: Labels | None = None) -> np.ndarray:
        """Labels of every sequence: always a 1-D object array with one label array for each.

        ``known`` holds labels that are certain, as ``fit`` reads partial ones: per step a label, a set, or None.
        """
        coder, only = self._coder, self._only_path(X) if known is None else None
        if only is not None:
            return coder.decode_one(only)
        codes, topology = self._codes(X) if known is None else self._codes(X, known)
        return coder.decode(codes, topology.offsets)

    def _only_path(self, X: Sequences) -> list[int] | None:
        """Codes where X is a list of one usual sequence, if a kernel gives them in one call; else None."""
        return None

    def tagger(self) -> ChainTagger:
        """The labels of one sequence at a time, fast: ``tag(x)`` gives a list; for services and threads.

        It is a value: what is fitted or set later does not reach it, and any number of threads may use one.

        >>> from crfield import ChainCRF
        >>> model = ChainCRF().fit([[{"word": "dog"}, {"word": "barks"}]], [["N", "V"]])
        >>> model.tagger().tag([{"word": "dog"}, {"word": "barks"}])
        ['N', 'V']
        """
        self._coder  # noqa: B018  (says so where nothing is fitted)
        return ChainTagger(self)

    def _sequence_tagger(self) -> SequenceTagger | None:
        """A kernel that answers for usual sequences what `predict` does; None where there is none."""
        return None

    def predict_proba(self, X: Sequences, *, known: Labels | None = None) -> np.ndarray:
        """Marginal probabilities: a 1-D object array of arrays (steps, classes), columns as ``classes_``.

        Given ``known`` labels, as in `predict`, they are the probabilities of the other steps given these.
        """
        self._coder  # noqa: B018  (says so where nothing is fitted)
        node, topology = self._beliefs(X) if known is None else self._beliefs(X, known)
        out = np.empty(topology.n_sequences, dtype=object)
        for s, (start, stop) in enumerate(zip(topology.offsets[:-1], topology.offsets[1:])):
            out[s] = node[start:stop]
        return out

    def predict_marginals(self, X: Sequences, *, known: Labels | None = None) -> list[list[dict[Hashable, float]]]:
        """Marginal probabilities as one dict ``{label: probability}`` for each step; ``known`` as in `predict`."""
        tables, labels = self.predict_proba(X, known=known), self._coder.labels
        return [[dict(zip(labels, row)) for row in table.tolist()] for table in tables]

    def log_prob(self, X: Sequences, y: Labels) -> np.ndarray:
        """log p(y | x) of every sequence, (B,); for partial labels the probability of all they allow."""
        coder, potentials = self._coder, self.potentials(X)
        chains = potentials.topology
        labels, allowed = coder.encode(y, chains.lengths)
        target, states = Target(chains, coder.n_labels, labels, allowed), self._states()
        free = self._engine.infer(potentials, Semiring.LOG).total
        self._refuse_impossible(free, potentials, X)
        if states is not None:
            target = states.target(target)
        if target.complete.all():
            clamped = path_scores(potentials, target.labels)
        else:
            masked = Potentials(np.where(target.mask, potentials.node, -np.inf), potentials.edge, chains)
            clamped = self._engine.infer(masked, Semiring.LOG).total
        # Two large numbers that may round past each other; no part weighs more than the whole.
        return np.minimum(clamped - free, 0.0)

    def _judged(self, X: Sequences, y: Labels | None) -> tuple[Potentials, np.ndarray | None]:
        """The scores of X, and the codes (N,) of its labels, −1 where unknown: what `compare_inference` asks for."""
        potentials = self.potentials(X)
        if y is None:
            return potentials, None
        if self._states() is not None:
            raise InputError(
                f"the scores of this {type(self).__name__} are of states, several for a label, so engines cannot be "
                "judged by labels. Leave y out: their marginals and totals are compared all the same."
            )
        return potentials, self._coder.encode(y, potentials.topology.lengths)[0]

    def score(self, X: Sequences, y: Labels, sample_weight: Weights = None) -> float:
        """Share of steps whose label is predicted right; steps of unknown label are left out."""
        coder = self._coder
        codes, topology = self._codes(X)
        labels, allowed = coder.encode(y, topology.lengths)
        target = Target(topology, coder.n_labels, labels, allowed)
        return right_share(codes, target, sample_weight)


# ------------------------------------------------------------ labels that are known or impossible


def known_potentials(
    potentials: Potentials, known: Labels | None, coder: LabelCoder, states: Any = None
) -> Potentials:
    """Scores in which every step may only be what ``known`` says of it; None there, or for all, says nothing.

    ``states`` tells the states of each label where scores are of states (`crfield.scoring.latent`).
    """
    if known is None:
        return potentials
    topology = potentials.topology
    labels, allowed = coder.encode(known, topology.lengths)
    target = Target(topology, coder.n_labels, labels, allowed)
    mask = (target if states is None else states.target(target)).mask
    node = np.where(mask, potentials.node, -np.inf)
    return Potentials(node, potentials.edge, topology, potentials.table)


def refuse_impossible(total: np.ndarray, *, known: bool = False) -> None:
    """LabelError if a sequence has no possible labelling: total (B,) of −∞."""
    impossible = np.isneginf(total)
    if impossible.any():
        what = "known labels and constraints" if known else "constraints"
        raise LabelError(
            f"sequence {int(np.argmax(impossible))} has no labelling that the {what} allow. "
            + ("Say less of it, or relax the constraints." if known else "Relax them.")
        )


def dead_step(potentials: Potentials, sequence: int) -> int:
    """The first step of a sequence at which no label is left that some path leads to; its lowest step if none is.

    >>> from crfield.core.topology import Chains
    >>> edge = np.array([[[0.0, -np.inf], [-np.inf, 0.0]]])
    >>> scores = Potentials(np.array([[0.0, -np.inf], [0.0, 0.0], [-np.inf, 0.0]]), edge, Chains.from_lengths([3]))
    >>> dead_step(scores, 0)
    2
    """
    first, last = potentials.topology.offsets[sequence : sequence + 2].tolist()
    edge = int(potentials.topology.edge_offsets[sequence])
    alive = ~np.isneginf(potentials.node[first])
    for step in range(last - first):
        if step:
            table = potentials.edge[potentials.tables[edge + step - 1]]
            alive = (alive[:, None] & ~np.isneginf(table)).any(axis=0) & ~np.isneginf(potentials.node[first + step])
        if not alive.any():
            return step
    return int(potentials.node[first:last].max(axis=1).argmin())
