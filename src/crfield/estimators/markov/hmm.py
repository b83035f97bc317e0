"""`HMM`: the hidden Markov model with densities of its own.

    p(y, x) = p(y_1) Π_t p(y_t | y_{t-1}) Π_t p(x_t | y_t)

Where labels are known in training nothing is hidden: first labels and transitions are counted and the density of each
label is fitted to its steps. Where they are known here and there, or nowhere, Baum–Welch averages over what they may
be (`crfield.training.markov.em`). Either way observations are modelled as well as labels, and where columns hang
together that has a price: what several of them tell is counted several times. Two remedies of Vail (2008,
*Conditional random fields for activity recognition*, section 2.7.4) are options: wider densities
(``deviation_factor``), and the same parameters trained for p(y | x) instead of p(y, x)
(``training="discriminative"``), which is a conditional random field in the clothes of a Markov model; ``to_crf``
takes them off.

The family is a strategy (`crfield.scoring.densities.gaussian`): the model asks it for log p(x | label) and no more.
Given x the model is a chain of scores like any other, and the exact engine answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from crfield.core.estimator import Estimator
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Columns
from crfield.data.labels import LabelCoder
from crfield.data.large import ADVICE, LARGEST, ROOM, largest_cell, refuse_large
from crfield.errors import DataWarning, FeatureError, InputError, LabelError, NotFittedError
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.checks import check_weights, random_generator, without_weightless
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.graph.discriminative_field import as_matrix
from crfield.estimators.jobs import resolve_jobs
from crfield.estimators.markov.hmm_checks import check_hmm
from crfield.estimators.markov.hmm_fit import trained
from crfield.estimators.markov.steps import density_steps
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.inference.decode import check_decoder
from crfield.optimize.history import Step
from crfield.training.markov.em import Markov

if TYPE_CHECKING:
    from crfield.estimators.chain.crf import ChainCRF


class HMM(ChainAnswers, Estimator):
    """Hidden Markov model whose states are the labels.

    X is a list of sequences: 2-D arrays (steps, columns), or anything else that `ChainCRF` reads as columns. In y a
    step may be unknown (``None``) or one of a set: counting leaves such steps out, EM and discriminative training sum
    over them. Without any labels, y is left out and ``n_states`` says how many states there are; they are then the
    labels 0, 1, 2 … .

    Parameters
    ----------
    emissions : "gaussian", "full", "mixture", "categorical", or an estimator
        Family of p(x | label): independent normal columns; normal with all covariances; mixtures of ``n_components``
        normal densities; symbols, which are columns of whole numbers, each a variable of its own, or words (strings),
        all in one distribution; or an estimator of densities with ``fit`` and ``score_samples``, such as
        scikit-learn's ``KernelDensity``, cloned for each label.
    training : "counting", "em" or "discriminative"
        Counting, and fitting densities to the steps of each label; Baum–Welch where some or all labels are unknown;
        or from the counted parameters on by gradient of log p(y | x), which mixtures and estimators do not have.
    n_states : int, optional
        Number of hidden states where there is no y, for ``training="em"``.
    n_components : int
        Normal densities in the mixture of each label.
    n_init : int
        Starts of EM, of which the best is kept.
    deviation_factor : float
        All standard deviations times this after counting or EM: above 1, what columns say weighs less.
    variance_floor : float
        No variance is below this part of that of its column over all steps.
    smoothing : float
        Added to the count of every transition and of every first label. With 0, pairs never seen are impossible.
    emission_smoothing : float
        Added to the count of every symbol.
    min_duration : int or dict
        Least number of steps that a label lasts; a dict names the labels that have more than one.
    l2 : float
        Discriminative training: pull towards the counted parameters, on columns of deviation 1.
    tol, max_iter : float, int
        Discriminative training stops within this fraction of the optimum, EM when a step raises the log-likelihood by
        less than ``tol`` for each step of the data; and both after ``max_iter`` steps.
    decode : "marginal" or "viterbi"
        What ``predict`` returns: the best label of each step, or the best labelling as a whole.
    n_jobs : int or None
        Threads; -1 for all processors. Several starts of EM run side by side.
    random_state : int, Generator or None
        The starts of EM. The same seed and number of threads give the same bits.
    verbose : int
        1 shows a progress line in EM and discriminative training, 2 a line for every step.

    Attributes
    ----------
    emissions_, start_probabilities_, transition_probabilities_, classes_
        The densities, (L,) and (L, L) tables, and the labels. With ``min_duration`` transitions are those of a label
        that has lasted long enough.
    objective_, n_iter_, converged_, history_, start_objectives_
        Of training by EM or gradient: minus the log-likelihood with its priors, steps, and the objective of each
        start.

    Examples
    --------
    >>> X = [[[0.1], [0.3], [1.2], [0.9]], [[1.1], [0.4], [0.2]]]
    >>> y = [["low", "low", "high", "high"], ["high", "low", "low"]]
    >>> model = HMM().fit(X, y)
    >>> model.predict([[[0.2], [1.3]]])[0].tolist(), model.emissions_.mean.round(3).tolist()
    (['low', 'high'], [[1.067], [0.25]])
    >>> found = HMM(training="em", n_states=2).fit(X)
    >>> sorted(found.emissions_.mean.ravel().round(1).tolist())
    [0.2, 1.1]
    """

    _encoder: Encoder
    objective_: float
    n_iter_: int
    converged_: bool
    history_: list[Step]
    start_objectives_: np.ndarray

    def __init__(
        self,
        emissions: Any = "gaussian",
        *,
        training: str = "counting",
        n_states: int | None = None,
        n_components: int = 2,
        n_init: int = 3,
        deviation_factor: float = 1.0,
        variance_floor: float = 1e-6,
        smoothing: float = 1.0,
        emission_smoothing: float = 1.0,
        min_duration: int | Mapping[Any, int] = 1,
        l2: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 200,
        decode: str = "marginal",
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.emissions = emissions
        self.training = training
        self.n_states = n_states
        self.n_components = n_components
        self.n_init = n_init
        self.deviation_factor = deviation_factor
        self.variance_floor = variance_floor
        self.smoothing = smoothing
        self.emission_smoothing = emission_smoothing
        self.min_duration = min_duration
        self.l2 = l2
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the tables and densities; ``sample_weight`` has one number for each sequence, 0 leaves it out.

        Ctrl-C ends training with the best parameters so far.
        """
        check_hmm(self.get_params(deep=False))
        if (y is None) != (self.n_states is not None):
            raise LabelError(
                "y is missing. Without labels, write HMM(training='em', n_states=…).fit(X)."
                if y is None
                else f"n_states={self.n_states} is for data without labels, and y has some. Leave one of them out."
            )
        X, y, sample_weight = without_weightless(X, X if y is None else y, sample_weight)
        hidden = self.n_states is not None
        coder = LabelCoder().fit(y) if self.n_states is None else LabelCoder.from_classes(range(self.n_states))
        encoder = encoder_for(X)
        with warnings.catch_warnings():
            # Densities have scales of their own, so columns of different size are nothing to warn of.
            warnings.filterwarnings("ignore", "numeric features differ widely", DataWarning)
            batch = encoder.fit(X)
        refuse_large(batch, encoder)
        chains = batch.topology
        if hidden:
            nodes = chains.n_nodes
            labels, allowed = np.full(nodes, -1, np.int32), np.ones((nodes, coder.n_labels), bool)
        else:
            labels, allowed = coder.encode(y, chains.lengths)  # type: ignore[assignment]
        if chains.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        target = Target(chains, coder.n_labels, labels, allowed, weight)
        found, report = trained(self, batch, dense_rows(batch.node), target, coder)
        self._encoder, self._labels_known, self.classes_ = encoder, coder, coder.classes_
        self._set(found)
        for name, value in report.items():
            setattr(self, name, value)
        return self

    def _set(self, found: Markov) -> None:
        self._durations = found.durations
        self.start_probabilities_, self.transition_probabilities_ = found.start, found.transition
        self.emissions_ = found.emissions

    # ------------------------------------------------------------------------- answers

    @property
    def _coder(self) -> LabelCoder:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this HMM is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._labels_known

    @property
    def _markov(self) -> Markov:
        self._coder  # noqa: B018  (says so where nothing is fitted)
        tables = self.start_probabilities_, self.transition_probabilities_
        return Markov(*tables, self.emissions_, self._durations)

    def potentials(self, X: Any) -> Potentials:
        """The scores of X: log p(x | c), and log p(c) at first steps; log p(c | b) on edges.

        With ``min_duration`` they are over the states that see to it (`crfield.training.markov.durations`).
        """
        markov, encoder = self._markov, self._encoder
        batch = encoder.encode(X)
        most = LARGEST if markov.emissions.kind == "density" else ROOM
        refuse_large(batch, encoder, most=most, doing="have a density")
        rows = dense_rows(batch.node)
        scores = markov.potentials(rows, batch.topology, n_jobs=resolve_jobs(self.n_jobs))
        faint = np.flatnonzero(scores.node.max(axis=1, initial=-np.inf) < -ROOM)
        if len(faint) and markov.emissions.kind not in ("categorical", "words"):  # whose zeros are counted ones
            row = int(faint[0])
            cell = largest_cell(batch, encoder, row, column=markov.emissions.farthest(rows[row]))
            raise FeatureError(
                f"{cell}, so far from what every label was seen with that no density has a number for it. {ADVICE}."
            )
        return scores

    def _cell(self, X: Any, sequence: int, step: int) -> str:
        batch = self._encoder.encode(X)
        row = int(batch.topology.offsets[sequence]) + step
        column = self.emissions_.farthest(dense_rows(batch.node)[row])
        return f" ({largest_cell(batch, self._encoder, row, column=column).split(': ', 1)[-1]})"

    def _states_of_labels(self) -> Any:
        return None if self._durations is None else self._durations.states

    def _beliefs(self, X: Any, known: Any = None) -> tuple[np.ndarray, Chains | Graphs]:
        node, topology = super()._beliefs(X, known)
        return node if self._durations is None else self._durations.states.label_sums(node), topology

    def _best(self, X: Any) -> tuple[np.ndarray, np.ndarray, Chains | Graphs]:
        potentials = self.potentials(X)
        total, path = self._engine.best_path(potentials)
        self._refuse_impossible(total, potentials, X)
        if self._durations is not None:
            path = self._durations.states.label_of_state[path]
        return total, path, potentials.topology

    def _codes(self, X: Any, known: Any = None) -> tuple[np.ndarray, Chains | Graphs]:
        path, topology = super()._codes(X, known)
        if self._durations is None or check_decoder(self.decode) == "marginal":
            return path, topology
        return self._durations.states.label_of_state[path], topology

    def best_labellings(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """log p(y, x) (B,) of the best labelling of each sequence, and the labellings themselves.

        >>> model = HMM().fit([[[0.0], [0.1], [2.0], [1.8]]], [["a", "a", "b", "b"]])
        >>> total, labels = model.best_labellings([[[0.0], [1.9]]])
        >>> labels[0].tolist(), total.shape
        (['a', 'b'], (1,))
        """
        coder = self._coder
        total, path, topology = self._best(X)
        return total, coder.decode(path, topology.offsets)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | x) of every sequence, (B,); for partial labels the probability of all they allow."""
        if not self.__sklearn_is_fitted__() or self._durations is None:
            return super().log_prob(X, y)
        coder, potentials = self._coder, self.potentials(X)
        chains = potentials.topology
        labels, allowed = coder.encode(y, chains.lengths)
        target = self._durations.states.target(Target(chains, coder.n_labels, labels, allowed))
        masked = Potentials(np.where(target.mask, potentials.node, -np.inf), potentials.edge, chains)
        free, clamped = (self._engine.infer(scores, Semiring.LOG).total for scores in (potentials, masked))
        self._refuse_impossible(free, potentials, X)
        return np.minimum(clamped - free, 0.0)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._coder  # noqa: B018  (says so where nothing is fitted)
        if self._durations is not None:
            raise InputError("a stream needs min_duration=1: it knows labels and not the states that make them last.")
        with np.errstate(divide="ignore"):
            start, transition = np.log(self.start_probabilities_), np.log(self.transition_probabilities_)
        return density_steps(self, self._encoder, self.emissions_, start, transition)

    def log_likelihood(self, X: Any) -> np.ndarray:
        """(B,) log p(x) of every sequence, labels summed out.

        >>> model = HMM().fit([[[0.0], [2.0]]], [["a", "a"]])
        >>> model.log_likelihood([[[1.0]]]).round(4).tolist()
        [-0.9189]
        """
        return self._engine.infer(self.potentials(X), Semiring.LOG).total

    def sample(self, lengths: Any, *, random_state: Any = 0) -> tuple[list[np.ndarray], np.ndarray]:
        """Sequences of the given lengths (a number for one, or a list) as the model would make them: X and y.

        Columns are the encoder's: those of the arrays that ``fit`` read, or of what else it was.

        >>> model = HMM().fit([[[0.0], [0.2], [5.0]]], [["a", "a", "b"]])
        >>> X, y = model.sample([2, 3], random_state=1)
        >>> [x.shape for x in X], y[1].shape
        ([(2, 1), (3, 1)], (3,))
        """
        coder, rng = self._coder, random_generator(random_state)
        listed = [lengths] if isinstance(lengths, Integral) else list(lengths)
        if any(isinstance(n, bool) or not isinstance(n, Integral) or n < 0 for n in listed):
            raise InputError(f"lengths must be whole numbers of at least 0, got {lengths!r:.60}.")
        chains = Chains.from_lengths([int(n) for n in listed])
        start, transition = self.start_probabilities_, self.transition_probabilities_
        if self._durations is not None:
            start, transition = self._durations.starts(start), self._durations.transitions(transition)
        bounds = np.cumsum(np.vstack([start, transition]), axis=1)
        codes, draws, before = np.zeros(chains.n_nodes, np.int64), rng.random(chains.n_nodes), 0
        first = set(chains.offsets[:-1].tolist())
        for t, draw in enumerate(draws.tolist()):
            row = bounds[0 if t in first else 1 + before]
            before = min(int(np.searchsorted(row, draw * row[-1], side="right")), len(row) - 1)
            codes[t] = before
        if self._durations is not None:
            codes = self._durations.states.label_of_state[codes].astype(np.int64)
        rows = self.emissions_.sample(codes, rng)
        pieces = [rows[a:b] for a, b in zip(chains.offsets[:-1], chains.offsets[1:])]
        return pieces, coder.decode(codes.astype(np.int32), chains.offsets)

    # ----------------------------------------------------------------- as a conditional random field

    def statistics(self, X: Any) -> list[np.ndarray]:
        """The columns in which log p(x | label) is linear, for `to_crf`: one array (steps, K) for each sequence.

        For normal columns they are x and its squares, or products, about the middle of the densities; for symbols
        they say which ones are there.

        >>> model = HMM().fit([[[0.0], [2.0]]], [["a", "b"]])
        >>> [s.shape for s in model.statistics([[[0.5], [1.0]]])]
        [(2, 2)]
        """
        from crfield.estimators.markov.to_crf import framed

        self._coder  # noqa: B018
        batch = self._encoder.encode(X)
        refuse_large(batch, self._encoder, doing="be squared")
        table = framed(self.emissions_)[0](dense_rows(batch.node))
        offsets = batch.topology.offsets
        return [table[a:b] for a, b in pairwise(offsets)]

    def to_crf(self) -> ChainCRF:
        """The `ChainCRF` with the same p(y | x), which reads `statistics` of X.

        Its ``warm_start`` is set, so ``fit`` goes on from here, free of the bounds of densities and probabilities.

        >>> X, y = [[[0.0], [0.3], [2.0]]], [["a", "a", "b"]]
        >>> model = HMM().fit(X, y)
        >>> crf = model.to_crf()
        >>> bool(abs(crf.log_prob(model.statistics(X), y) - model.log_prob(X, y))[0] < 1e-10)
        True
        """
        from crfield.estimators.markov.to_crf import as_crf

        self._coder  # noqa: B018
        return as_crf(self)

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.markov.hmm_file import save_hmm

        self._coder  # noqa: B018
        save_hmm(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "emissions_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.n_states is None
        return tags


def dense_rows(columns: Columns) -> np.ndarray:
    """All columns as one table (N, D).

    >>> dense_rows(Columns.from_rows([[0], [1]], width=2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    matrix = as_matrix(columns)
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)
