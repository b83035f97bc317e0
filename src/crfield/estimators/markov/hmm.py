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
Given x the model is a chain of scores like any other, and the exact engine answers. Since it models x, it also knows
what to do where some of it is missing: integrate it out (`crfield.scoring.densities.observed`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from crfield.core.checks import integer, is_integer, loudness, number, one_of, random_generator, resolve_jobs, seed
from crfield.core.estimator import Tags
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.states import check_counts
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Seed, Sequences, Weights
from crfield.data.batch import Columns, matrix_of
from crfield.data.labels import LabelCoder, sequence_target
from crfield.data.large import ADVICE, LARGEST, ROOM, largest_cell, refuse_large
from crfield.errors import DataWarning, FeatureError, InputError, LabelError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.markov.hmm_fit import refuse_missing, refuse_unobserved, trained
from crfield.estimators.markov.model import HiddenMarkov
from crfield.estimators.markov.steps import density_steps
from crfield.features.detect import encoder_for
from crfield.inference.decode import DECODERS
from crfield.scoring.densities.gaussian import family_named

if TYPE_CHECKING:
    from crfield.estimators.chain.crf import ChainCRF


def emission_family(name: str, value: Any) -> None:
    """InputError unless there is a family of that name, or it is an estimator of densities."""
    family_named(value)


class HMM(ChainAnswers[HiddenMarkov], kind="hmm", model=HiddenMarkov):
    """Hidden Markov model whose states are the labels.

    X is a list of sequences: 2-D arrays (steps, columns), or anything else that `ChainCRF` reads as columns. In y a
    step may be unknown (``None``) or one of a set: counting leaves such steps out, EM and discriminative training sum
    over them. Without any labels, y is left out and ``n_states`` says how many states there are; they are then the
    labels 0, 1, 2 … . NaN in an array is a cell that was not observed: it is integrated out exactly, in training and
    in every answer.

    Parameters
    ----------
    emissions : "gaussian", "full", "mixture", "categorical", "poisson", or an estimator
        Family of p(x | label): independent normal columns; normal with all covariances; mixtures of
        ``n_components`` normal densities; symbols, which are columns of whole numbers, each a variable of its own,
        or words (strings), all in one distribution; counts, each column with a Poisson rate; or an estimator of
        densities with ``fit`` and ``score_samples``, such as scikit-learn's ``KernelDensity``, cloned for each
        label.
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
    >>> model.predict([[[0.2], [float("nan")], [1.3]]])[0].tolist()
    ['low', 'low', 'high']
    >>> found = HMM(training="em", n_states=2).fit(X)
    >>> sorted(found.emissions_.mean.ravel().round(1).tolist())
    [0.2, 1.1]
    """

    emissions: Any = parameter(emission_family, default="gaussian", kw_only=False)
    training: str = parameter(one_of("counting", "em", "discriminative"), default="counting")
    n_states: int | None = parameter(integer(1) | None, default=None)
    n_components: int = parameter(integer(1), default=2)
    n_init: int = parameter(integer(1), default=3)
    deviation_factor: float = parameter(number(above=0), default=1.0)
    variance_floor: float = parameter(number(0), default=1e-6)
    smoothing: float = parameter(number(0), default=1.0)
    emission_smoothing: float = parameter(number(0), default=1.0)
    min_duration: int | Mapping[Any, int] = parameter(check_counts, default=1)
    l2: float = parameter(number(0), default=1.0)
    tol: float = parameter(number(above=0), default=1e-4)
    max_iter: int = parameter(integer(1), default=200)
    decode: str = parameter(one_of(*DECODERS), default="marginal")
    random_state: Seed = parameter(seed, default=0)
    verbose: int = parameter(loudness, default=0)

    emissions_: Any = learnt()
    start_probabilities_: np.ndarray = learnt()
    transition_probabilities_: np.ndarray = learnt()
    objective_: float = learnt()
    n_iter_: int = learnt()
    converged_: bool = learnt()
    start_objectives_: np.ndarray = learnt()

    reported = ("n_iter_", "converged_", "objective_")

    def _check_together(self) -> None:
        if self.n_states is not None and self.training != "em":
            raise InputError(
                f"n_states is for data without labels, which only training='em' can use, got {self.training!r}."
            )
        if self.training == "discriminative" and (isinstance(self.min_duration, Mapping) or self.min_duration != 1):
            raise InputError("min_duration must be 1 in discriminative training; use 'counting' or 'em' with others.")

    @property
    def _clusters(self) -> bool:
        return self.training == "em"

    def fit(self, X: Sequences, y: Labels | None = None, sample_weight: Weights = None) -> Self:
        """Learn the tables and densities; ``sample_weight`` has one number for each sequence, 0 leaves it out.

        Ctrl-C ends training with the best parameters so far.
        """
        self.check()
        if (y is None) != (self.n_states is not None):
            raise LabelError(
                "y is missing. Without labels, write HMM(training='em', n_states=…).fit(X)."
                if y is None
                else f"n_states={self.n_states} is for data without labels, and y has some. Leave one of them out."
            )
        X, y, sample_weight = without_weightless(X, X if y is None else y, sample_weight)
        labels = LabelCoder().fit(y) if self.n_states is None else LabelCoder.from_classes(range(self.n_states))
        encoder = encoder_for(X, missing=family_named(self.emissions).marginalises and "dense")
        with warnings.catch_warnings():
            # Densities have scales of their own, so columns of different size are nothing to warn of.
            warnings.filterwarnings("ignore", "numeric features differ widely", DataWarning)
            batch = encoder.fit(X)
        refuse_large(batch, encoder)
        unknown = [[None] * int(length) for length in batch.topology.lengths]
        target = sequence_target(batch.topology, labels, y if self.n_states is None else unknown, sample_weight)
        rows = dense_rows(batch.node)
        refuse_unobserved(rows if self.training == "em" else rows[target.labels >= 0], encoder)
        markov, told = trained(self, batch, rows, target, labels)
        for name, value in told.items():
            setattr(self, name, value)
        return self._learn(HiddenMarkov(labels, encoder, markov))

    def _show(self, model: HiddenMarkov) -> None:
        super()._show(model)
        self.start_probabilities_, self.transition_probabilities_ = model.markov.start, model.markov.transition
        self.emissions_ = model.markov.emissions

    # ------------------------------------------------------------------------- answers

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X: log p(x | c), and log p(c) at first steps; log p(c | b) on edges.

        With ``min_duration`` they are over the states that see to it (`crfield.training.markov.durations`).
        """
        markov, encoder = self._fitted.markov, self._fitted.encoder
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

    def _cell(self, X: Sequences, sequence: int, step: int) -> str:
        encoder = self._fitted.encoder
        batch = encoder.encode(X)
        row = int(batch.topology.offsets[sequence]) + step
        column = self.emissions_.farthest(dense_rows(batch.node)[row])
        return f" ({largest_cell(batch, encoder, row, column=column).split(': ', 1)[-1]})"

    def best_labellings(self, X: Sequences) -> tuple[np.ndarray, np.ndarray]:
        """log p(y, x) (B,) of the best labelling of each sequence, and the labellings themselves.

        >>> model = HMM().fit([[[0.0], [0.1], [2.0], [1.8]]], [["a", "a", "b", "b"]])
        >>> total, labels = model.best_labellings([[[0.0], [1.9]]])
        >>> labels[0].tolist(), total.shape
        (['a', 'b'], (1,))
        """
        total, path, topology = self._best(X)
        return total, self._coder.decode(path, topology.offsets)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        return density_steps(self, self._fitted.encoder, self._fitted.markov)

    def log_likelihood(self, X: Sequences) -> np.ndarray:
        """(B,) log p(x) of every sequence, labels summed out.

        >>> model = HMM().fit([[[0.0], [2.0]]], [["a", "a"]])
        >>> model.log_likelihood([[[1.0]]]).round(4).tolist()
        [-0.9189]
        """
        return self._engine.infer(self.potentials(X), Semiring.LOG).total

    def sample(self, lengths: Any, *, random_state: Seed = 0) -> tuple[list[np.ndarray], np.ndarray]:
        """Sequences of the given lengths (a number for one, or a list) as the model would make them: X and y.

        Columns are the encoder's: those of the arrays that ``fit`` read, or of what else it was.

        >>> model = HMM().fit([[[0.0], [0.2], [5.0]]], [["a", "a", "b"]])
        >>> X, y = model.sample([2, 3], random_state=1)
        >>> [x.shape for x in X], y[1].shape
        ([(2, 1), (3, 1)], (3,))
        """
        coder, rng = self._coder, random_generator(random_state)
        listed = [lengths] if is_integer(lengths) else list(lengths)
        if not all(is_integer(n) and n >= 0 for n in listed):
            raise InputError(f"lengths must be integers ≥ 0, got {lengths!r:.60}.")
        chains = Chains.from_lengths([int(n) for n in listed])
        markov = self._fitted.markov
        start, transition, durations = markov.start, markov.transition, markov.durations
        if durations is not None:
            start, transition = durations.starts(start), durations.transitions(transition)
        bounds = np.cumsum(np.vstack([start, transition]), axis=1)
        codes, draws, before = np.zeros(chains.n_nodes, np.int64), rng.random(chains.n_nodes), 0
        first = set(chains.offsets[:-1].tolist())
        for t, draw in enumerate(draws.tolist()):
            row = bounds[0 if t in first else 1 + before]
            before = min(int(np.searchsorted(row, draw * row[-1], side="right")), len(row) - 1)
            codes[t] = before
        if durations is not None:
            codes = durations.states.label_of_state[codes].astype(np.int64)
        rows = markov.emissions.sample(codes, rng)
        pieces = [rows[a:b] for a, b in zip(chains.offsets[:-1], chains.offsets[1:])]
        return pieces, coder.decode(codes.astype(np.int32), chains.offsets)

    # ----------------------------------------------------------------- as a conditional random field

    def statistics(self, X: Sequences) -> list[np.ndarray]:
        """The columns in which log p(x | label) is linear, for `to_crf`: one array (steps, K) for each sequence.

        For normal columns they are x and its squares, or products, about the middle of the densities; for symbols
        they say which ones are there.

        >>> model = HMM().fit([[[0.0], [2.0]]], [["a", "b"]])
        >>> [s.shape for s in model.statistics([[[0.5], [1.0]]])]
        [(2, 2)]
        """
        from crfield.estimators.markov.to_crf import framed

        model = self._fitted
        batch = model.encoder.encode(X)
        refuse_large(batch, model.encoder, doing="be squared")
        rows = dense_rows(batch.node)
        refuse_missing(rows, model.markov.emissions.kind, "statistics for a chain CRF")
        table = framed(model.markov.emissions)[0](rows)
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

        return as_crf(self._fitted, decode=self.decode, n_jobs=self.n_jobs)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.n_states is None
        return tags


def dense_rows(columns: Columns) -> np.ndarray:
    """All columns as one table (N, D).

    >>> dense_rows(Columns.from_rows([[0], [1]], width=2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    matrix = matrix_of(columns)
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)
