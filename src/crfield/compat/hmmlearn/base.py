"""What all models share: EM over many sequences at once, scores, decoding, samples, information criteria.

One step of EM is one call of the chain engine for all sequences, end to end:

    node_t(s) = log p(x_t | s) + [t first] log startprob(s)          edge(s, s') = log transmat(s, s')

whose beliefs are the posteriors (N, S) and the expected transitions (S, S). States that are known forbid all others
at their step. What differs between models is a density and its M step: a subclass has

    _densities(X)              → (N, S) log p(x | s)
    _maximise(X, posteriors)   sets its attributes to the best for these weights
    _initialise(X, rng)        sets those that ``init_params`` names, or that are not there
    _validate()                checks and converts attributes that a user may have set
    _free_parameters()         → how many numbers each letter of ``params`` stands for
    _draw(state, rng)          → one observation
"""

from __future__ import annotations

import logging
import string
import sys
from collections import deque
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.inference.chain import ChainEngine

LOG = logging.getLogger("crfield.compat.hmmlearn")
DECODERS = ("viterbi", "map")
WIGGLE = float(np.finfo(float).eps ** 0.5)


class ConvergenceMonitor:
    """When EM ends: after ``n_iter`` steps, or when the log-likelihood gains less than ``tol``.

    >>> monitor = ConvergenceMonitor(tol=0.1, n_iter=5, verbose=False)
    >>> for value in (-10.0, -9.0, -8.95):
    ...     monitor.report(value)
    >>> monitor.iter, monitor.converged
    (3, True)
    """

    _template = "{iter:>10d} {log_prob:>16.8f} {delta:>+16.8f}"

    def __init__(self, tol: float, n_iter: int, verbose: bool) -> None:
        self.tol, self.n_iter, self.verbose = tol, n_iter, verbose
        self.history: deque[float] = deque()
        self.iter = 0

    def __repr__(self) -> str:
        told = {**vars(self), "history": list(self.history)}
        lines = [f"    {name}={value},\n" for name, value in sorted(told.items())]
        return f"{type(self).__name__}(\n{''.join(lines)})"

    def _reset(self) -> None:
        self.iter = 0
        self.history.clear()

    def report(self, log_prob: float) -> None:
        """Take note of the log-likelihood of a step; a line on standard error where that is wanted."""
        delta = log_prob - self.history[-1] if self.history else float("nan")
        if self.verbose:
            line = self._template.format(iter=self.iter + 1, log_prob=log_prob, delta=delta)
            sys.stderr.write(line + "\n")
        if delta < -WIGGLE:
            LOG.warning(
                "Model is not converging.  Current: %s is not greater than %s. Delta is %s",
                log_prob,
                self.history[-1],
                delta,
            )
        self.history.append(log_prob)
        self.iter += 1

    @property
    def converged(self) -> bool:
        """Whether EM is at its end."""
        if self.iter == self.n_iter:
            return True
        return len(self.history) >= 2 and bool(self.history[-1] - self.history[-2] < self.tol)


class BaseHMM(BaseEstimator):
    """A hidden Markov model as hmmlearn has it; a subclass has the emissions."""

    startprob_: np.ndarray
    transmat_: np.ndarray
    n_features: Any
    missing = False  # whether NaN may be in X

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = string.ascii_letters,
        init_params: str = string.ascii_letters,
        implementation: str = "log",
    ) -> None:
        self.n_components = n_components
        self.startprob_prior, self.transmat_prior = startprob_prior, transmat_prior
        self.algorithm, self.random_state = algorithm, random_state
        self.n_iter, self.tol, self.verbose = n_iter, tol, verbose
        self.params, self.init_params, self.implementation = params, init_params, implementation
        self.monitor_ = ConvergenceMonitor(tol, n_iter, verbose)

    # ------------------------------------------------------------------ what a subclass has

    def _densities(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError("a subclass has the densities")

    def _maximise(self, X: np.ndarray, posteriors: np.ndarray) -> None:
        raise NotImplementedError("a subclass has the M step")

    def _initialise(self, X: np.ndarray, rng: np.random.RandomState) -> None:
        raise NotImplementedError("a subclass has the start")

    def _validate(self) -> None:
        raise NotImplementedError("a subclass has the checks")

    def _free_parameters(self) -> dict[str, int]:
        raise NotImplementedError("a subclass knows its parameters")

    def _draw(self, state: int, rng: np.random.RandomState) -> Any:
        raise NotImplementedError("a subclass has the samples")

    # ------------------------------------------------------------------ training

    def fit(self, X: Any, lengths: Any = None, labels: Any = None) -> Self:
        """Estimate the parameters by EM from sequences that lie end to end in X (n_samples, n_features).

        ``lengths`` are those of the sequences, one by default. ``labels`` (n_samples,), which hmmlearn does not have,
        are states that are known, −1 where they are not.
        """
        X = self._checked(X)
        chains = self._chains(X, lengths)
        known = self._known(labels, len(X))
        self._init(X, lengths)
        self._check()
        if known is not None and len(np.unique(known[known >= 0])) == self.n_components:
            # Clusters have numbers of their own: begin with what is known of every state.
            self._maximise(X, (known[:, None] == np.arange(self.n_components)).astype(float))
        self.monitor_.tol, self.monitor_.n_iter, self.monitor_.verbose = self.tol, self.n_iter, self.verbose
        self.monitor_._reset()
        for _ in range(self.n_iter):
            total, posteriors, start, pairs = self._expect(X, chains, known)
            self._maximise_chain(start, pairs)
            self._maximise(X, posteriors)
            self.monitor_.report(total)
            if self.monitor_.converged:
                break
            if (self.transmat_.sum(axis=1) == 0).any():
                LOG.warning(
                    "Some rows of transmat_ have zero sum because no transition from the state was ever observed."
                )
        return self

    def _init(self, X: np.ndarray, lengths: Any = None) -> None:
        """Set the parameters that EM starts from."""
        self._check_and_set_n_features(X)
        rng, n = check_random_state(self.random_state), self.n_components
        if self._wanted("s", "startprob_"):
            self.startprob_ = rng.dirichlet(np.full(n, 1.0 / n))
        if self._wanted("t", "transmat_"):
            self.transmat_ = rng.dirichlet(np.full(n, 1.0 / n), size=n)
        self._initialise(X, rng)
        free = self._free_parameters()
        count = sum(free.get(letter, 0) for letter in self.params)
        if X.size < count:
            LOG.warning(
                "Fitting a model with %d free scalar parameters with only %d data points will result in a degenerate "
                "solution.",
                count,
                X.size,
            )

    def _wanted(self, letter: str, name: str) -> bool:
        """Whether a parameter is to be set before EM; a warning where that overwrites one that was set."""
        there = hasattr(self, name)
        if letter in self.init_params and there:
            LOG.warning(
                "Even though the %r attribute is set, it will be overwritten during initialization because "
                "'init_params' contains %r",
                name,
                letter,
            )
        return letter in self.init_params or not there

    def _expect(
        self, X: np.ndarray, chains: Chains, known: np.ndarray | None
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Log-likelihood, posteriors (N, S), expected first states (S,) and transitions (S, S)."""
        potentials = self._potentials(X, chains, known)
        beliefs = ChainEngine().infer(potentials, Semiring.LOG)
        first = chains.offsets[:-1][chains.lengths > 0]
        return float(beliefs.total.sum()), beliefs.node, beliefs.node[first].sum(axis=0), beliefs.edge[0]

    def _potentials(self, X: np.ndarray, chains: Chains, known: np.ndarray | None = None) -> Potentials:
        node = np.array(self._densities(X), dtype=np.float64)
        with np.errstate(divide="ignore"):
            start, edge = np.log(self.startprob_), np.log(self.transmat_)
        node[chains.offsets[:-1][chains.lengths > 0]] += start
        if known is not None:
            told = np.flatnonzero(known >= 0)
            kept = node[told, known[told]]
            node[told] = -np.inf
            node[told, known[told]] = kept
        return Potentials(np.where(np.isnan(node), -np.inf, node), edge[None], chains)

    def _maximise_chain(self, start: np.ndarray, pairs: np.ndarray) -> None:
        """First states and transitions; what is forbidden stays so, as in models that only go on."""
        if "s" in self.params:
            best = np.maximum(self.startprob_prior - 1 + start, 0)
            self.startprob_ = np.where(self.startprob_ == 0, 0, best)
            self.startprob_ = self.startprob_ / self.startprob_.sum()
        if "t" in self.params:
            best = np.maximum(self.transmat_prior - 1 + pairs, 0)
            self.transmat_ = normalised(np.where(self.transmat_ == 0, 0, best))

    # ------------------------------------------------------------------ answers

    def score_samples(self, X: Any, lengths: Any = None) -> tuple[float, np.ndarray]:
        """Log-likelihood of all sequences, and the posteriors of the states (n_samples, n_components)."""
        X, chains = self._asked(X, lengths)
        total, posteriors, _, _ = self._expect(X, chains, None)
        return total, posteriors

    def score(self, X: Any, lengths: Any = None) -> float:
        """Log-likelihood of all sequences."""
        return self.score_samples(X, lengths)[0]

    def decode(self, X: Any, lengths: Any = None, algorithm: str | None = None) -> tuple[float, np.ndarray]:
        """Log-probability and states of the best path ("viterbi"), or of the best state of every step ("map")."""
        chosen = algorithm or self.algorithm
        if chosen not in DECODERS:
            raise ValueError(f"Unknown decoder {chosen!r}")
        X, chains = self._asked(X, lengths)
        if chosen == "map":
            _, posteriors, _, _ = self._expect(X, chains, None)
            return float(posteriors.max(axis=1).sum()), posteriors.argmax(axis=1)
        total, path = ChainEngine().best_path(self._potentials(X, chains))
        return float(np.sum(total)), np.asarray(path, dtype=np.int64)

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray:
        """States of all steps, by ``algorithm``."""
        return self.decode(X, lengths)[1]

    def predict_proba(self, X: Any, lengths: Any = None) -> np.ndarray:
        """Posteriors of the states (n_samples, n_components)."""
        return self.score_samples(X, lengths)[1]

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Observations and states drawn from the model, from ``currstate`` on if it is given."""
        check_is_fitted(self, "startprob_")
        self._check()
        rng = check_random_state(self.random_state if random_state is None else random_state)
        reach = np.cumsum(self.transmat_, axis=1)
        state = int((np.cumsum(self.startprob_) > rng.rand()).argmax()) if currstate is None else int(currstate)
        states, rows = [state], [self._draw(state, rng)]
        for _ in range(n_samples - 1):
            state = int((reach[state] > rng.rand()).argmax())
            states.append(state)
            rows.append(self._draw(state, rng))
        return np.atleast_2d(rows), np.array(states, dtype=int)

    def get_stationary_distribution(self) -> np.ndarray:
        """(n_components,) the shares of the states in the long run."""
        check_is_fitted(self, "transmat_")
        values, vectors = np.linalg.eig(self.transmat_.T)
        long_run = np.real_if_close(vectors[:, np.argmax(values)])
        return long_run / long_run.sum()

    def aic(self, X: Any, lengths: Any = None) -> float:
        """Akaike's information criterion, −2 log-likelihood + 2 parameters: the lower, the better."""
        return -2 * self.score(X, lengths) + 2 * sum(self._free_parameters().values())

    def bic(self, X: Any, lengths: Any = None) -> float:
        """The Bayesian one, −2 log-likelihood + parameters · log n_samples: the lower, the better."""
        return -2 * self.score(X, lengths) + sum(self._free_parameters().values()) * float(np.log(len(X)))

    # ------------------------------------------------------------------ checks

    def _checked(self, X: Any) -> np.ndarray:
        return check_array(X, ensure_all_finite="allow-nan" if self.missing else True)

    def _asked(self, X: Any, lengths: Any) -> tuple[np.ndarray, Chains]:
        check_is_fitted(self, "startprob_")
        self._check()
        X = self._checked(X)
        return X, self._chains(X, lengths)

    def _chains(self, X: np.ndarray, lengths: Any) -> Chains:
        sizes = np.asarray([len(X)] if lengths is None else lengths, dtype=np.int64)
        if sizes.sum() != len(X):
            raise ValueError(f"lengths array {lengths} doesn't sum to {len(X)} samples")
        return Chains.from_lengths(sizes)

    def _known(self, labels: Any, n_samples: int) -> np.ndarray | None:
        if labels is None:
            return None
        known = np.array([-1 if state is None else state for state in labels])
        whole = known.shape == (n_samples,) and np.issubdtype(known.dtype, np.integer)
        if not whole or known.min(initial=0) < -1 or known.max(initial=0) >= self.n_components:
            raise ValueError(
                f"labels must hold a state of 0 … {self.n_components - 1} for each of {n_samples} samples, or -1 "
                "where it is not known"
            )
        return known

    def _check_and_set_n_features(self, X: np.ndarray) -> None:
        width = X.shape[1]
        if getattr(self, "n_features", None) is None:
            self.n_features = width
        elif self.n_features != width:
            raise ValueError(f"Unexpected number of dimensions, got {width} but expected {self.n_features}")

    def _check(self) -> None:
        """ValueError for parameters that cannot be those of a model."""
        n = self.n_components
        self.startprob_, self.transmat_ = np.asarray(self.startprob_), np.asarray(self.transmat_)
        if len(self.startprob_) != n:
            raise ValueError("startprob_ must have length n_components")
        self._check_sum_1("startprob_")
        if self.transmat_.shape != (n, n):
            raise ValueError("transmat_ must have shape (n_components, n_components)")
        self._check_sum_1("transmat_")
        self._validate()

    def _check_sum_1(self, name: str) -> None:
        sums = np.asarray(getattr(self, name)).sum(axis=-1)
        if not np.allclose(sums, 1):
            if sums.ndim == 0:
                raise ValueError(f"{name} must sum to 1 (got {sums:.4f})")
            raise ValueError(f"{name} rows must sum to 1 (got row sums of {sums})")


def normalised(table: np.ndarray) -> np.ndarray:
    """Rows that sum to one; a row of zeros stays one.

    >>> normalised(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    sums = table.sum(axis=1, keepdims=True)
    return np.asarray(table / np.where(sums == 0, 1.0, sums))
