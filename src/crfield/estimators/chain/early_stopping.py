"""A score on held-out sequences after every step of training: when to stop, and which weights to keep.

Fitting the training data better and better, a model comes to a point from which it serves other data worse.
Sequences that training does not see tell where. After every step they are scored; when the score has not risen for
``patience`` steps, training ends, and the weights of the best step are kept whether or not it ended so (Prechelt
1998, *Early stopping, but when?*). The scores are part of ``history_``.

Higher is better for all scores:

    "log_likelihood"   mean of log p(y | x) for each step of a sequence
    "accuracy"         share of right labels
    "f1"               F1 of spans where labels are tags (B-…, I-…, O), else the mean of the labels' F1
    a function         scorer(estimator, X, y), such as those of `crfield.metrics`

A score costs what predicting the held-out sequences costs; they are encoded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np

from crfield import metrics
from crfield.core.typing import Labels, Sequences
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.model import ColumnModel, FunctionModel
from crfield.optimize.history import CALLBACK, HELD_OUT, MAX_ITER, Result, Step

_TAG = re.compile(r"O|[BIESLU]-.+", re.DOTALL)

State = tuple[dict[str, Any], dict[str, np.ndarray]]


class Probed(Protocol):
    """An estimator that can be asked with other weights while it is being trained."""

    def holding(self, model: Any) -> Self:
        """A copy that answers by another model."""
        ...

    def predict(self, X: Sequences) -> np.ndarray:
        """Labels of every sequence."""
        ...

    def log_prob(self, X: Sequences, y: Labels) -> np.ndarray:
        """(B,) log p(y | x)."""
        ...

    def score(self, X: Sequences, y: Labels) -> float:
        """Share of right labels."""
        ...


Scorer = Callable[[Probed, Sequences, Labels], float]


class HeldOut:
    """Scores weights on held-out sequences, remembers the best, and says when to stop.

    A copy of ``estimator`` predicts with the weights in question, so that the one that is being trained is left
    alone; ``model`` is its unfinished model.
    """

    def __init__(
        self,
        estimator: Probed,
        model: ColumnModel | FunctionModel,
        X: Sequences,
        y: Labels,
        *,
        score: str | Callable[[Any, Any, Any], float],
        patience: int,
    ) -> None:
        self._estimator = estimator
        self._model = replace(model, encoded=model.encode(X)) if isinstance(model, ColumnModel) else model
        self._X, self._y, self._patience = X, y, patience
        self._score = _scorer(score, y) if isinstance(score, str) else score
        self.scores: dict[int, float] = {}
        self.best: Step | None = None
        self._weights: np.ndarray | None = None
        self._waited = 0

    def after(self, step: Step, weights: np.ndarray) -> tuple[Step, bool]:
        """The step with its score, and whether it is time to stop."""
        probe = self._estimator.holding(replace(self._model, weights=weights))
        score = float(self._score(probe, self._X, self._y))
        step = replace(step, score=score)
        self.scores[step.n_iter] = score
        best = -np.inf if self.best is None or self.best.score is None else self.best.score
        if self.best is None or score > best or np.isnan(best):
            self.best, self._weights, self._waited = step, weights.copy(), 0
        else:
            self._waited += 1
        return step, self._waited >= self._patience

    def kept(self, result: Result) -> Result:
        """The result with the scores in its history and the best weights in place of the last."""
        if self.best is None or self._weights is None:
            return result
        history = [replace(step, score=self.scores.get(step.n_iter, step.score)) for step in result.history]
        stopped = result.reason in (CALLBACK, MAX_ITER) and self.waited_enough
        if self.best.n_iter == result.n_iter:
            return replace(result, history=history)
        if len(self._weights) != len(result.weights):
            raise ModelFileError(
                f"the checkpoint's best weights are {len(self._weights):,}, the model has {len(result.weights):,}. "
                "Delete it to begin anew."
            )
        return replace(
            result,
            weights=self._weights,
            value=self.best.value,
            converged=False,
            reason=HELD_OUT if stopped or result.converged else result.reason,
            history=history,
        )

    def state(self) -> State:
        """What it remembers, for a checkpoint."""
        header: dict[str, Any] = {"waited": self._waited, "steps": list(self.scores)}
        arrays = {"scores": np.array(list(self.scores.values()), dtype=np.float64)}
        if self.best is not None and self._weights is not None:
            from crfield.optimize.resume import steps_table

            arrays |= {"best": steps_table([self.best]), "weights": self._weights}
        return header, arrays

    def restore(self, state: State) -> None:
        """Go on where the one whose `state` this is was."""
        from crfield.optimize.resume import Found, steps_of_table, taking_over

        found = Found(state)
        with taking_over():
            steps = [found.integer("steps", within=step) for step in found.header["steps"]]
            self._waited, scores = found.integer("waited"), found.vector("scores", len(steps))
            self.scores = dict(zip(steps, scores.tolist()))
            if "best" in found.arrays:
                self.best = steps_of_table(found.arrays["best"])[0]
                self._weights = found.vector("weights", found.arrays["weights"].size).copy()
            if self.waited_enough and not self.scores:
                raise ValueError("it has waited for a better score and seen none")

    @property
    def waited_enough(self) -> bool:
        """Whether the score has not risen for long enough."""
        return self._waited >= self._patience

    @property
    def data(self) -> list[object]:
        """The held-out data, encoded where that can be."""
        model = self._model
        return [model.encoded if isinstance(model, ColumnModel) else self._X, self._y]


def _scorer(name: str, y: Labels) -> Scorer:
    if name == "accuracy":
        return lambda estimator, X, y: estimator.score(X, y)
    if name == "log_likelihood":
        steps = max(sum(len(labels) for labels in y), 1)
        return lambda estimator, X, y: float(estimator.log_prob(X, y).sum()) / steps
    labels = {label for sequence in y for label in np.asarray(sequence, dtype=object).tolist()}
    if labels and all(isinstance(label, str) and _TAG.fullmatch(label) for label in labels):
        scheme = metrics.guess_scheme(y)
        return lambda estimator, X, y: metrics.span_f1(y, estimator.predict(X), scheme=scheme)
    return lambda estimator, X, y: metrics.label_f1(y, estimator.predict(X), average="macro")


def split_sequences(n: int, fraction: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the sequences to train on and of those to hold out, both rising; each has at least one.

    >>> [part.tolist() for part in split_sequences(5, 0.4, np.random.default_rng(0))]
    [[0, 1, 3], [2, 4]]
    """
    if n < 2:
        raise InputError(f"validation_fraction needs at least two sequences to divide, got {n}. Give validation=….")
    count = min(max(round(n * fraction), 1), n - 1)
    order = rng.permutation(n)
    return np.sort(order[count:]), np.sort(order[:count])


@contextmanager
def numbered(numbers: Sequence[int] | np.ndarray) -> Iterator[None]:
    """Errors of the block speak of sequences by their ``numbers`` in the whole, from which some were `taken`.

    >>> with numbered([4, 7]):
    ...     raise InputError("sequence 1, step 0: …")
    Traceback (most recent call last):
    crfield.errors.InputError: sequence 7, step 0: …
    """
    try:
        yield
    except InputError as error:
        raise type(error)(
            re.sub(r"\bsequence (\d+)", lambda found: f"sequence {numbers[int(found[1])]}", str(error))
        ) from None


def check_validation(validation: object) -> tuple[Sequences, Labels]:
    """(X, y) of held-out sequences, or InputError.

    >>> check_validation(3)
    Traceback (most recent call last):
    crfield.errors.InputError: validation must be a pair (X, y) of sequences and their labels, got int.
    """
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise InputError(
            f"validation must be a pair (X, y) of sequences and their labels, got {type(validation).__name__}."
        )
    X, y = validation
    if not hasattr(X, "__len__") or not len(X):
        raise InputError("validation must hold at least one sequence, got none.")
    return X, y
