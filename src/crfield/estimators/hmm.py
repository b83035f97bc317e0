"""`HMM`: the hidden Markov model with densities of its own.

    p(y, x) = p(y_1) Π_t p(y_t | y_{t-1}) Π_t p(x_t | y_t)

States are the labels, which are known in training, so nothing is hidden there: first labels and transitions are
counted and the density of each label is fitted to its steps. That models the observations as well as the labels, and
where columns hang together it pays: the family counts them as independent. Two remedies of Vail (2008, *Conditional
random fields for activity recognition*, section 2.7.4) are options: wider densities (``deviation_factor``), and the
same parameters trained for p(y | x) instead of p(y, x) (``training="discriminative"``), which is a conditional random
field in the clothes of a Markov model.

The family is a strategy (`crfield.scoring.densities`): the model asks it for log p(x | label) and no more. Given x
the model is a chain of scores like any other, and the exact engine answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Columns
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, DataWarning, InputError, LabelError, NotFittedError
from crfield.estimators.chain_answers import ChainAnswers
from crfield.estimators.chain_checks import check_weights, random_generator, without_weightless
from crfield.estimators.discriminative_field import as_matrix
from crfield.estimators.jobs import resolve_jobs
from crfield.estimators.progress import Progress
from crfield.estimators.step_densities import density_steps
from crfield.estimators.step_scores import StepScorer
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.inference.decode import check_decoder
from crfield.optimize.history import Step
from crfield.scoring.densities import family_named
from crfield.training.hmm_count import counted
from crfield.training.hmm_gradient import fit_discriminative

TRAININGS = ("counting", "discriminative")


class HMM(ChainAnswers, BaseEstimator):
    """Hidden Markov model whose states are the labels.

    X is a list of sequences: 2-D arrays (steps, columns), or anything else that `ChainCRF` reads as columns. Steps of
    unknown label are not counted; discriminative training sums over them.

    Parameters
    ----------
    emissions : "gaussian"
        Family of p(x | label): independent normal columns.
    training : "counting" or "discriminative"
        Counting, and fitting densities to the steps of each label; or from there on by gradient of log p(y | x).
    deviation_factor : float
        All standard deviations times this after counting: above 1, what columns say weighs less.
    smoothing : float
        Added to the count of every transition and of every first label. With 0, pairs never seen are impossible.
    l2 : float
        Discriminative training: pull towards the counted parameters, on columns of deviation 1.
    tol, max_iter : float, int
        Discriminative training: fraction of the optimum to stop within, and most steps.
    decode : "marginal" or "viterbi"
        What ``predict`` returns: the best label of each step, or the best labelling as a whole.
    n_jobs : int or None
        Threads; -1 for all processors.
    verbose : int
        1 shows a progress line in discriminative training, 2 a line for every step.

    Attributes
    ----------
    emissions_, start_probabilities_, transition_probabilities_, classes_
        The densities, (L,) and (L, L) tables, and the labels.

    Examples
    --------
    >>> X = [[[0.1], [0.3], [1.2], [0.9]], [[1.1], [0.4], [0.2]]]
    >>> y = [["low", "low", "high", "high"], ["high", "low", "low"]]
    >>> model = HMM().fit(X, y)
    >>> model.predict([[[0.2], [1.3]]])[0].tolist(), model.emissions_.mean.round(3).tolist()
    (['low', 'high'], [[1.067], [0.25]])
    """

    _encoder: Encoder

    def __init__(
        self,
        emissions: str = "gaussian",
        *,
        training: str = "counting",
        deviation_factor: float = 1.0,
        smoothing: float = 1.0,
        l2: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 200,
        decode: str = "marginal",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.emissions = emissions
        self.training = training
        self.deviation_factor = deviation_factor
        self.smoothing = smoothing
        self.l2 = l2
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the tables and densities; ``sample_weight`` has one number for each sequence, 0 leaves it out."""
        check_hmm(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        coder = LabelCoder().fit(y)
        encoder = encoder_for(X)
        with warnings.catch_warnings():
            # Densities have scales of their own, so columns of different size are nothing to warn of.
            warnings.filterwarnings("ignore", "numeric features differ widely", DataWarning)
            batch = encoder.fit(X)
        chains = batch.topology
        labels, allowed = coder.encode(y, chains.lengths)
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        target = Target(chains, coder.n_labels, labels, allowed, weight)
        rows = dense_rows(batch.node)
        start, transition, _ = counted(target, smoothing=float(self.smoothing))
        densities = family_named(self.emissions).fit(rows, _responsibility(target, coder))
        densities = densities.widened(float(self.deviation_factor))
        report: dict[str, Any] = {"n_iter_": 1, "converged_": True, "objective_": float("nan")}
        if self.training == "discriminative":
            (start, transition, densities), report = self._climb(rows, target, start, transition, densities)
        self._encoder, self._labels_known, self.classes_ = encoder, coder, coder.classes_
        self.start_probabilities_, self.transition_probabilities_, self.emissions_ = start, transition, densities
        for name, value in report.items():
            setattr(self, name, value)
        return self

    def _climb(
        self, rows: np.ndarray, target: Target, start: np.ndarray, transition: np.ndarray, densities: Any
    ) -> tuple[tuple[np.ndarray, np.ndarray, Any], dict[str, Any]]:
        with Progress(self.verbose, total=self.max_iter, description="HMM") as progress:

            def after(step: Step, weights: np.ndarray) -> None:
                progress.update(step)

            tables, result = fit_discriminative(
                rows,
                target,
                start,
                transition,
                densities,
                l2=float(self.l2),
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                n_jobs=resolve_jobs(self.n_jobs),
                callback=after if self.verbose else None,
            )
        if not result.converged:
            warnings.warn(
                f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} "
                f"steps, objective {result.value:.6g}). Raise max_iter, tol or l2.",
                ConvergenceWarning,
                stacklevel=3,
            )
        told = {"n_iter_": result.n_iter, "converged_": result.converged, "objective_": float(result.value)}
        return tables, told

    # ------------------------------------------------------------------------- answers

    @property
    def _coder(self) -> LabelCoder:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this HMM is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._labels_known

    def potentials(self, X: Any) -> Potentials:
        """The scores of X: log p(x | c), and log p(c) at first steps; log p(c | b) on edges."""
        self._coder  # noqa: B018  (says so where nothing is fitted)
        batch = self._encoder.encode(X)
        chains = batch.topology
        node = self.emissions_.log_density(dense_rows(batch.node))
        with np.errstate(divide="ignore"):
            start, transition = np.log(self.start_probabilities_), np.log(self.transition_probabilities_)
        node[chains.offsets[:-1][chains.lengths > 0]] += start
        return Potentials(node, transition[None], chains)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._coder  # noqa: B018  (says so where nothing is fitted)
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
        bounds = np.cumsum(np.vstack([self.start_probabilities_, self.transition_probabilities_]), axis=1)
        codes, draws, before = np.zeros(chains.n_nodes, np.int64), rng.random(chains.n_nodes), 0
        first = set(chains.offsets[:-1].tolist())
        for t, draw in enumerate(draws.tolist()):
            row = bounds[0 if t in first else 1 + before]
            before = min(int(np.searchsorted(row, draw * row[-1], side="right")), len(row) - 1)
            codes[t] = before
        rows = self.emissions_.sample(codes, rng)
        pieces = [rows[a:b] for a, b in zip(chains.offsets[:-1], chains.offsets[1:])]
        return pieces, coder.decode(codes.astype(np.int32), chains.offsets)

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.hmm_file import save_hmm

        self._coder  # noqa: B018
        save_hmm(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "emissions_")


def dense_rows(columns: Columns) -> np.ndarray:
    """All columns as one table (N, D).

    >>> dense_rows(Columns.from_rows([[0], [1]], width=2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    matrix = as_matrix(columns)
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)


def _responsibility(target: Target, coder: LabelCoder) -> np.ndarray:
    """(N, L) the weight of each step for its label, zero where that is not known."""
    known = np.flatnonzero(target.labels >= 0)
    table = np.zeros((len(target.labels), target.n_labels))
    chains = target.topology
    weight = 1.0 if target.weight is None else target.weight[chains.sequence_of_node[known]]
    table[known, target.labels[known]] = weight
    missing = np.flatnonzero(table.sum(axis=0) == 0)
    if len(missing):
        name = repr(coder.labels[int(missing[0])])
        raise LabelError(f"label {name} is on no step whose label is known, so nothing can be counted for it.")
    return table


def check_hmm(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `HMM` has a value that can be used.

    >>> check_hmm(HMM(deviation_factor=0).get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: deviation_factor must be a finite number above 0, got 0.
    """
    family_named(parameters["emissions"])
    if not isinstance(parameters["training"], str) or parameters["training"] not in TRAININGS:
        raise InputError(
            f"training must be one of {', '.join(map(repr, TRAININGS))}, got {parameters['training']!r}."
        )
    for name, positive in (("deviation_factor", True), ("tol", True), ("smoothing", False), ("l2", False)):
        value = parameters[name]
        number = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
        if not number or value < 0 or (positive and value == 0):
            bound = "above 0" if positive else "of at least 0"
            raise InputError(f"{name} must be a finite number {bound}, got {value!r}.")
    for name, least in (("max_iter", 1), ("verbose", 0)):
        value = parameters[name]
        if (isinstance(value, bool) and name == "max_iter") or not isinstance(value, Integral) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])
