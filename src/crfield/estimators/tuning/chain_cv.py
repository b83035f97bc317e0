"""`ChainCRFCV`: how strong the penalties of a chain should be, by folds of whole sequences.

For every fold the training part is encoded once, and the grid of penalties is walked from strong to weak, each
training going on from the weights of the one before. Neighbouring optima are near each other, so that a step of the
walk takes a fraction of a training from nothing; strong penalties come first because there weights are small and
every optimum is quickly found (Friedman, Hastie & Tibshirani 2010). The held-out part is encoded once too.

    for each fold:   encode;   for l1 from strong to weak:   for l2 from strong to weak:   train, score

Steps of one sequence are not independent, and neither are sequences of one document or person: folds never cut a
sequence, and ``groups`` stay together. Labels are those of all of y, so that a label that is missing from a fold is
not an error there. Scores of folds that are as good as each other go to the stronger penalty.

Folds run side by side as threads (the kernels let go of the interpreter's lock); each is computed as if alone, so
``n_jobs`` does not change a bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from crfield.core.checks import Check, flag, is_integer, is_number, loudness, one_of, resolve_jobs, threads
from crfield.core.estimator import Estimator
from crfield.core.parameters import learnt, parameter
from crfield.core.target import check_weights
from crfield.data.label_growth import grown_labels
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.base.fitted import NotYetFitted
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.reported import Reported
from crfield.estimators.base.sequences import taken, without_weightless
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.early_stopping import HeldOut, numbered
from crfield.estimators.chain.options import SCORES
from crfield.estimators.chain.training import TrainedChain
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.streaming import Streaming
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.training.cluster.current import CURRENT
from crfield.training.parallel import train_each

__all__ = ["ChainCRFCV"]

L2S = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
Scoring = str | Callable[..., float]


def _lists_penalties(values: Any) -> bool:
    listed = hasattr(values, "__len__") and not isinstance(values, str)
    return listed and len(values) > 0 and all(is_number(value) and value >= 0 for value in values)


penalties = Check("a list of one or more penalties, finite numbers of at least 0", _lists_penalties)


def tuned_chain(name: str, chain: TrainedChain | None) -> None:
    """InputError unless it is a chain with penalties to choose, and parameters that go with folds."""
    if chain is None:
        return
    if not isinstance(chain, TrainedChain):
        raise InputError(f"{name} must be a ChainCRF, with penalties to choose, got {type(chain).__name__}.")
    chain.check()
    for held in ("validation_fraction", "checkpoint"):
        if getattr(chain, held) is not None:
            raise InputError(f"the estimator's {held} has no place within folds. Set it to None.")


class ChainCRFCV(Streaming, Reported, Estimator):
    """A `ChainCRF` whose l1 and l2 are chosen by cross-validation.

    Parameters
    ----------
    estimator : ChainCRF, optional
        All other parameters: features, constraints, solver, … ; by default those of ``ChainCRF()``.
    l1s, l2s : sequence of float
        The penalties to try, every l1 with every l2.
    cv : int, splitter or iterable of (train, test)
        Folds over sequences: their number (shuffled by ``random_state``; by ``groups`` if those are given), or
        anything that scikit-learn takes.
    scoring : "f1", "accuracy", "log_likelihood" or scorer(estimator, X, y)
        Span F1 (the mean of the labels' F1 where labels are not tags), share of right labels, log-likelihood of a
        step; higher is better.
    refit : bool
        Train on all sequences with the penalties chosen; without it there are scores only.
    n_jobs : int or None
        Folds at the same time; threads within a training are those of ``estimator``.
    random_state : int
        How sequences are dealt to folds.
    verbose : int
        1 shows a progress line, 2 a line for every training.

    Attributes
    ----------
    l1_, l2_ : float
        The penalties chosen.
    l1s_, l2s_ : array
        The penalties tried, from strong to weak.
    scores_ : array (l1s, l2s, folds)
    best_score_ : float
        Mean over folds at the penalties chosen.
    n_iter_ : array (folds, l1s, l2s)
        Steps of every training.
    best_estimator_ : ChainCRF
        Trained on all sequences; `predict` and the others are its answers.

    Examples
    --------
    >>> from crfield import make_phrases, phrase_features
    >>> phrases = make_phrases(40)
    >>> X, y = [phrase_features(tokens) for tokens in phrases.tokens], phrases.labels
    >>> search = ChainCRFCV(l2s=[10.0, 1.0, 0.1], cv=3, scoring="log_likelihood").fit(X, y)
    >>> search.l2_, search.scores_.shape
    (0.1, (1, 3, 3))
    >>> print(search.table())
    l1  l2   log_likelihood ...
    """

    estimator: TrainedChain | None = parameter(tuned_chain, default=None, kw_only=False)
    l1s: Sequence[float] = parameter(penalties, default=(0.0,))
    l2s: Sequence[float] = parameter(penalties, default=L2S)
    cv: Any = parameter(default=5)
    scoring: Scoring = parameter(one_of(*SCORES) | Check("scorer(estimator, X, y)", callable), default="f1")
    refit: bool = parameter(flag, default=True)
    n_jobs: int | None = parameter(threads, default=None)
    random_state: int = parameter(default=0)
    verbose: int = parameter(loudness, default=0)

    l1_: float = learnt()
    l2_: float = learnt()
    l1s_: np.ndarray = learnt()
    l2s_: np.ndarray = learnt()
    scores_: np.ndarray = learnt()
    best_score_: float = learnt()
    n_iter_: np.ndarray = learnt()
    classes_: np.ndarray = learnt()
    best_estimator_: TrainedChain = learnt()

    # ------------------------------------------------------------------ fitting

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Sequence[Hashable] | None = None
    ) -> Self:
        """Score every pair of penalties on every fold, and train with the best on all sequences.

        ``groups`` has one value for each sequence; those of a group are held out together.
        """
        self.check()
        chain = ChainCRF() if self.estimator is None else self.estimator
        l1s, l2s = (np.array(sorted(set(map(float, tried)), reverse=True)) for tried in (self.l1s, self.l2s))
        kept = _weighted(X, y, sample_weight)
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        if groups is not None:
            if len(groups) != len(kept):
                raise InputError(f"groups must have one value for each of {len(kept)} sequences, got {len(groups)}.")
            groups = [group for group, keep in zip(groups, kept) if keep]
        labels = grown_labels(None, y)
        walks = [
            _Walk(chain, self.scoring, labels, (X, y, sample_weight), *fold, l1s, l2s)
            for fold in self._folds(len(y), groups)
        ]
        done = self._walked(walks)
        scores = np.stack([found[0] for found in done], axis=-1)
        means = np.where(np.isfinite(scores).all(axis=-1), scores.mean(axis=-1), -np.inf)
        at = np.unravel_index(int(np.argmax(means)), means.shape)
        l1, l2 = float(l1s[at[0]]), float(l2s[at[1]])
        refitted = clone(chain).set_params(l1=l1, l2=l2).fit(X, y, sample_weight) if self.refit else None
        self.l1s_, self.l2s_, self.l1_, self.l2_ = l1s, l2s, l1, l2
        self.scores_, self.best_score_ = scores, float(means[at])
        self.n_iter_, self.classes_ = np.stack([found[1] for found in done]), labels.classes_
        self.__dict__.pop("best_estimator_", None)
        if refitted is not None:
            self.best_estimator_ = refitted
        return self

    def _folds(self, n: int, groups: Sequence[Hashable] | None) -> list[tuple[np.ndarray, np.ndarray]]:
        from sklearn.model_selection import GroupKFold, KFold, check_cv

        cv = self.cv
        if is_integer(cv):
            most, what = (n, "sequences") if groups is None else (len(set(groups)), "groups")
            if not 2 <= cv <= most:
                raise InputError(f"cv must lie in 2 … {most}, the number of {what}, got {cv}.")
            cv = KFold(cv, shuffle=True, random_state=self.random_state) if groups is None else GroupKFold(cv)
        try:
            return [(np.asarray(a), np.asarray(b)) for a, b in check_cv(cv).split(np.zeros(n), None, groups)]
        except (TypeError, ValueError) as error:
            raise InputError(f"cv={self.cv!r} cannot divide {n} sequences: {error}") from None

    def _walked(self, walks: list[_Walk]) -> list[tuple[np.ndarray, np.ndarray]]:
        total = sum(walk.size for walk in walks)
        with Progress(self.verbose, total=total, description=type(self).__name__) as progress:
            done, one_at_a_time = 0, Lock()

            def after(step: Step) -> None:
                nonlocal done
                with one_at_a_time:
                    done += 1
                    progress.update(replace(step, n_iter=done))

            workers = CURRENT.get()
            if workers is not None:  # a fold is a case: each worker trains its own, alone
                found = dict(workers.each(_run_walk, [(walk,) for walk in walks]))
                return [found[k] for k in range(len(walks))]
            jobs = resolve_jobs(self.n_jobs)
            found = dict(train_each([partial(walk.run, after=after) for walk in walks], n_jobs=jobs))
        return [found[k] for k in range(len(walks))]

    # ------------------------------------------------------------------ answers

    @property
    def _chain(self) -> TrainedChain:
        self._need_scores()
        if "best_estimator_" not in self.__dict__:
            raise NotFittedError(
                "refit=False leaves scores only. Fit a ChainCRF with l1_ and l2_, or set refit=True."
            )
        return self.best_estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "scores_")

    @property
    def _coder(self) -> LabelCoder:
        return self._chain._coder

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        return self._chain._step_scorer(history=history)

    def predict(self, X: Any) -> np.ndarray:
        """Labels of every sequence, by the model of the penalties chosen."""
        return self._chain.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the labels of every step."""
        return self._chain.predict_proba(X)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | x) of every sequence."""
        return self._chain.log_prob(X, y)

    def score(self, X: Any, y: Any) -> float:
        """Share of right labels."""
        return self._chain.score(X, y)

    def save(self, path: Any) -> None:
        """Write the model of the penalties chosen; `crfield.load` gives a `ChainCRF`."""
        self._chain.save(path)

    def rows(self) -> list[dict[str, Any]]:
        """One dict for each pair of penalties: l1, l2, mean and deviation of the score over folds, steps, chosen."""
        self._need_scores()
        out = []
        for i, l1 in enumerate(self.l1s_.tolist()):
            for j, l2 in enumerate(self.l2s_.tolist()):
                own = self.scores_[i, j]
                out.append(
                    {
                        "l1": l1,
                        "l2": l2,
                        "score": float(own.mean()),
                        "deviation": float(own.std(ddof=1)) if len(own) > 1 else 0.0,
                        "steps": int(self.n_iter_[:, i, j].sum()),
                        "chosen": (l1, l2) == (self.l1_, self.l2_),
                    }
                )
        return out

    def table(self) -> str:
        """The rows as text; the chosen one is marked."""
        name = self.scoring if isinstance(self.scoring, str) else "score"
        cells = [["l1", "l2", name, "± folds", "steps", ""]]
        for row in self.rows():
            numbers = [f"{row['l1']:g}", f"{row['l2']:g}", f"{row['score']:.4f}", f"{row['deviation']:.4f}"]
            cells.append([*numbers, f"{row['steps']}", "← chosen" if row["chosen"] else ""])
        widths = [max(len(line[k]) for line in cells) for k in range(len(cells[0]))]
        return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths)).rstrip() for line in cells)

    def _need_scores(self) -> None:
        if not hasattr(self, "scores_"):
            raise NotYetFitted(f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first.")


@dataclass(frozen=True, eq=False)
class _Walk:
    """The grid of penalties on one fold."""

    chain: TrainedChain
    scoring: Scoring
    labels: LabelCoder
    data: tuple[Any, Any, np.ndarray | None]
    train: np.ndarray
    test: np.ndarray
    l1s: np.ndarray
    l2s: np.ndarray

    @property
    def size(self) -> int:
        """How many trainings it has."""
        return len(self.l1s) * len(self.l2s)

    def run(self, stopped: Callable[[], bool], *, after: Callable[[Step], None]) -> tuple[np.ndarray, np.ndarray]:
        """(l1s, l2s) scores and steps of every training; ``after`` is called after each."""
        X, y, weight = self.data
        chain = clone(self.chain).set_params(verbose=0)
        own = None if weight is None else weight[self.train]
        with numbered(self.train):
            problem = chain.training_problem(self.labels, taken(X, self.train), taken(y, self.train), own)
        X, y = taken(X, self.test), taken(y, self.test)
        with numbered(self.test):
            held = HeldOut(chain, problem.model, X, y, score=self.scoring, patience=1)
        scores = np.full((len(self.l1s), len(self.l2s)), np.nan)
        n_iter = np.zeros(scores.shape, dtype=np.int64)
        first = problem.model.weights
        for i, l1 in enumerate(self.l1s.tolist()):
            start = first
            for j, l2 in enumerate(self.l2s.tolist()):
                if stopped():
                    return scores, n_iter
                begun = replace(problem, model=replace(problem.model, weights=start))
                result = chain.set_params(l1=l1, l2=l2).solve(begun)
                if result.reason == INTERRUPTED:
                    raise KeyboardInterrupt
                if not result.converged:
                    _warn(l1, l2, result)
                start = result.weights
                first = start if j == 0 else first
                active = int(np.count_nonzero(start))
                step = Step(result.n_iter, result.n_evaluations, float(result.value), 0.0, 0.0, active, 0.0)
                scores[i, j] = held.after(step, start)[0].score
                n_iter[i, j] = result.n_iter
                after(step)
        return scores, n_iter


def _run_walk(walk: _Walk) -> tuple[np.ndarray, np.ndarray]:
    """In a worker of a cluster: all trainings of one fold."""
    return walk.run(lambda: False, after=lambda step: None)


def _warn(l1: float, l2: float, result: Result) -> None:
    warnings.warn(
        f"a training of the folds (l1={l1:g}, l2={l2:g}) stopped before its tolerance was met ({result.reason}, "
        f"{result.n_iter} steps). Raise the estimator's max_iter or tol.",
        ConvergenceWarning,
        stacklevel=2,
    )


def _weighted(X: Any, y: Any, sample_weight: Any) -> np.ndarray:
    """(B,) bool: which sequences have a weight above 0; InputError unless X and y are lists of equally many."""
    if y is None or not hasattr(X, "__len__") or not hasattr(y, "__len__") or len(X) != len(y):
        got = "None" if y is None else f"{len(X) if hasattr(X, '__len__') else '?'} and {len(y)}"
        raise InputError(f"X and y must be lists of equally many sequences, got {got}.")
    return np.ones(len(y), dtype=bool) if sample_weight is None else check_weights(sample_weight, len(y)) > 0
