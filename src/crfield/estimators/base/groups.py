"""Parameters that many estimators have, each group declared once beside what is done with it.

    Columned    how X becomes columns: features, template, functions, standardize, min_count
    Paired      and which of them meet pairs of labels, and which pairs have a weight
    Penalised   l1 and l2
    Threaded    n_jobs
    Weighing    class_weight
    Optimised   when training ends, and who watches it

An estimator takes the groups that it needs as base classes and declares what is its own; a default of its own is
declared again. What the words mean is said in the docstring of each estimator.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from crfield.core.checks import Check, flag, function, integer, loudness, number, one_of, resolve_jobs, threads
from crfield.core.costs import check_class_weight
from crfield.core.estimator import Estimator
from crfield.core.parameters import parameter
from crfield.core.target import Target
from crfield.core.typing import ClassWeights, Sequences
from crfield.data.batch import Batch
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.large import refuse_large
from crfield.errors import ConvergenceWarning
from crfield.estimators.base.fitted import Fitted, Model
from crfield.estimators.base.progress import Progress
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.templates.template import Template
from crfield.features.transformed import transformer_from_state
from crfield.optimize.history import CALLBACK, HELD_OUT, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.storage.exchange import template_text
from crfield.storage.state import State

Callback = Callable[[Step, np.ndarray], bool | None]

PENALTY = number(0, meaning="the strength of a penalty")
TOLERANCE = number(
    above=0,
    meaning="the fraction of the optimum to stop within",
    hint="Use a small one such as 1e-8 for a nearly exact optimum.",
)
TEMPLATE = Check(
    "the text of one, the path of its file, a Template or None",
    lambda value: value is None or isinstance(value, str | os.PathLike | Template),
)
ADVICE = "Raise max_iter or tol, or scale numeric features (standardize=True)"
MIN_COUNT = integer(1, meaning="the fewest steps a feature must be seen on; 1 keeps all")


class EncodedModel(Model, Protocol):
    """A fitted value that reads X by an encoder."""

    @property
    def encoder(self) -> Encoder:
        """X to columns."""
        ...


M = TypeVar("M", bound=EncodedModel)


def _as_text(found: Any) -> Any:
    """A template of a model file is text, never the path of a file: a line end says so to whoever trains again."""
    return found + "\n" if isinstance(found, str) and "\n" not in found else found


def _weights_to_json(given: ClassWeights) -> object:
    if not isinstance(given, Mapping):
        return given
    return [[label_to_json(label), float(weight)] for label, weight in given.items()]


def _weights_from_json(found: Any) -> Any:
    return {label_from_json(label): weight for label, weight in found} if isinstance(found, list) else found


class Weighing(Estimator, group=True):
    """How much missing each true label costs (`crfield.core.costs`)."""

    class_weight: ClassWeights = parameter(
        lambda name, given: check_class_weight(given),
        default=None,
        to_json=_weights_to_json,
        from_json=_weights_from_json,
    )


class Columned(Fitted[M], group=True):
    """How X becomes columns; a file holds the text of the template and the features that were used."""

    features: Any = parameter(default=None, stored=False)
    template: str | os.PathLike[str] | Template | None = parameter(TEMPLATE, default=None, from_json=_as_text)
    functions: Sequence[Any] | None = parameter(default=None, stored=False)
    standardize: bool = parameter(flag, default=False)
    min_count: int = parameter(MIN_COUNT, default=1)

    def _learn_columns(self, X: Sequences) -> tuple[Encoder, Batch]:
        """An encoder for data like X, fitted to it, and the columns of X; none of them too large."""
        encoder = encoder_for(
            X,
            template=None if self.template is None else template_text(self.template),
            functions=self.functions,
            standardize=bool(self.standardize),
            features=self.features,
            **self._transition_sources(),
        )
        batch = encoder.fit(X, min_count=self.min_count)
        if batch.numeric:
            refuse_large(batch, encoder)
        return encoder, batch

    def _transition_sources(self) -> dict[str, Any]:
        """Where features of pairs of labels come from."""
        return {}

    def _stored_parameters(self) -> dict[str, Any]:
        encoder = self._fitted.encoder
        used = encoder.template.text if isinstance(encoder, TemplateEncoder) else None
        return super()._stored_parameters() | {"template": used}

    @classmethod
    def _with_parameters(cls, state: State) -> Self:
        made = super()._with_parameters(state)
        encoder = state.header.get("encoder")
        if isinstance(encoder, dict) and "features" in encoder:
            made.features = transformer_from_state(encoder["features"], state.under("encoder/features"))
        return made


class Paired(Columned[M], group=True):
    """Columns that may also meet pairs of labels, and which pairs have a weight."""

    transition_functions: Sequence[Any] = parameter(default=(), stored=False)
    transition_features: str | Sequence[Any] | None = parameter(default=None)
    feature_pairs: str = parameter(one_of("observed", "all"), default="observed")
    transition_pairs: str = parameter(one_of("observed", "all", "none"), default="observed")
    intercept: bool = parameter(flag, default=True)
    boundaries: bool = parameter(flag, default=True)
    penalize_intercepts: bool = parameter(flag, default=True)

    def _transition_sources(self) -> dict[str, Any]:
        return {
            "transition_features": self.transition_features,
            "transition_functions": self.transition_functions,
        }

    def _pairs(self, encoder: Encoder) -> str:
        """Which pairs of labels have a weight; a template without a ``B`` line has none."""
        without = isinstance(encoder, TemplateEncoder) and not encoder.template.transitions
        return "none" if without else self.transition_pairs

    def _layout(self, encoder: Encoder, batch: Batch, target: Target, like: Layout | None = None) -> Layout:
        """The weights that a batch and its target ask for; ``like`` is that of a model which they join."""
        return Layout.observe(
            batch,
            target,
            feature_pairs=self.feature_pairs,
            transition_pairs=self._pairs(encoder),
            bias=bool(self.intercept) if like is None else like.bias,
            boundaries=bool(self.boundaries) if like is None else like.boundaries,
        )


class Penalised(Estimator, group=True):
    """Strengths of the penalties l1 ‖w‖₁ + ½ l2 ‖w‖²."""

    l1: float = parameter(PENALTY, default=0.0)
    l2: float = parameter(PENALTY, default=1.0)

    def _penalty(self, spared: np.ndarray | None = None) -> Penalty:
        """The penalty, which leaves the weights ``spared`` (W,) alone."""
        return Penalty(l1=self.l1, l2=self.l2, penalised=None if spared is None else (~spared).astype(np.uint8))


class Threaded(Estimator, group=True):
    """How many threads a kernel may use."""

    n_jobs: int | None = parameter(threads, default=None)

    @property
    def _jobs(self) -> int:
        return 1 if self.n_jobs is None else resolve_jobs(self.n_jobs)


class Optimised(Estimator, group=True):
    """When training ends, and who watches it."""

    tol: float = parameter(TOLERANCE, default=1e-4)
    max_iter: int = parameter(integer(1, meaning="the most steps of the optimiser"), default=500)
    verbose: int = parameter(loudness, default=0)
    callback: Callback | None = parameter(function("(step, weights)"), default=None, stored=False)

    @contextmanager
    def _watched(self) -> Iterator[Callback | None]:
        """What an optimiser calls after every step: the progress line and the user's callback; None for neither."""
        with Progress(self.verbose, total=self.max_iter, description=type(self).__name__) as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            yield after if self.callback is not None or self.verbose else None

    def _warn_unless_converged(self, result: Result, advice: str = ADVICE, remark: str = "") -> None:
        """`ConvergenceWarning`, at the line that called ``fit``, where training ended early without being told to."""
        warn_unless_converged(result, self.tol, advice, remark, stacklevel=4)


def warn_unless_converged(
    result: Result, tol: float, advice: str = ADVICE, remark: str = "", *, stacklevel: int = 3
) -> None:
    """`ConvergenceWarning` where training ended early without being told to."""
    if result.converged or result.reason in (CALLBACK, HELD_OUT):
        return
    if result.reason == INTERRUPTED:
        advice = "The best weights so far are kept"
    value = "" if np.isnan(result.value) else f", objective {result.value:.6g}"  # sampled training knows none
    warnings.warn(
        f"training stopped before the tolerance {tol:g} was met ({result.reason}, {result.n_iter} steps{value}). "
        f"{advice}.{f' {remark}.' if remark else ''}",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )
