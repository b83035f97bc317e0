"""What every selector is handed: candidates with labels, and the three things to ask of them.

    slopes(model)     the gradient of the loss for every candidate, in the model or not
    fit(active, …)    the weights of a chosen set
    held_out(model)   error and loss on steps that no weight has seen

The loss is the negative log-likelihood of a chain with one weight for each chosen candidate and, unless the caller
says otherwise, an intercept for each label and a weight for each pair of labels (the *base*, under a ridge of its own
that only keeps pairs that never occur from running away). Columns are standardised on the training part: slopes can
then be compared, and penalties weigh on all alike; `SelectionProblem.raw` gives weights in the user's units.
Nothing here depends on how many candidates there are but `slopes` and its answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.target import Target
from crfield.errors import DataWarning, InputError
from crfield.features.lazy_columns import STATE, TRANSITION, LazyColumns
from crfield.features.relational.columns import RelationalColumns
from crfield.inference.decode import best_marginals
from crfield.selection.active import ActiveColumns, Base, as_active
from crfield.selection.refit import fit_weights
from crfield.selection.scale import ColumnScale
from crfield.selection.views import View

BASE_L2 = 0.01


class HeldOut(NamedTuple):
    """What steps that were not trained on say of a model: share of wrong labels, and loss per step."""

    error: float
    nll: float


@dataclass(frozen=True, eq=False)
class SelectionModel:
    """Weights of the base and of the active candidates, for standardised columns.

    ``curvature`` is what the fit learnt of the second derivative, for the next fit to begin with.
    """

    active: np.ndarray  # (K,) int64 candidates
    weights: np.ndarray  # (K,)
    base: np.ndarray
    loss: float  # of the training part, without penalties
    value: float  # with them
    converged: bool = True
    violation: float = 0.0  # the largest entry of the shortest subgradient
    n_evaluations: int = 0
    curvature: np.ndarray | None = field(default=None, repr=False)

    @property
    def vector(self) -> np.ndarray:
        """Base and weights in one."""
        return np.concatenate([self.base, self.weights])

    def light(self) -> SelectionModel:
        """The same model without its curvature."""
        return replace(self, curvature=None)

    def without_zeros(self) -> SelectionModel:
        """The same model without candidates of weight zero."""
        return self.only(self.weights != 0)

    def only(self, kept: np.ndarray) -> SelectionModel:
        """The same model without the candidates where a mask (K,) is False."""
        if kept.all():
            return self
        at = np.concatenate([np.ones(len(self.base), bool), kept])
        curvature = None if self.curvature is None else self.curvature[np.ix_(at, at)]
        return replace(self, active=self.active[kept], weights=self.weights[kept], curvature=curvature)


class SelectionProblem:
    """Candidates and labels to select on.

    ``held_out`` is another set of recordings: the same candidates computed on them, and their target. ``spans`` and
    ``held_spans`` are parts of ``candidates`` instead, each (n, 2) with first and end steps (`views.View`).

    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains = Chains.from_lengths([60, 40])
    >>> labels = np.repeat(rng.integers(0, 2, 20), 5)
    >>> columns = MatrixColumns(rng.normal(size=(100, 3)) + [0, 1, 0] * labels[:, None], chains=chains, n_labels=2)
    >>> problem = SelectionProblem(columns, Target(chains, 2, labels), spans=[(0, 60)], held_spans=[(60, 100)])
    >>> slopes = problem.slopes(problem.fit([]))
    >>> best = int(np.abs(slopes).argmax())
    >>> problem.name(best)[:2], problem.fit([best]).loss < problem.fit([]).loss
    ('s1', True)
    """

    def __init__(
        self,
        candidates: LazyColumns,
        target: Target,
        *,
        held_out: tuple[LazyColumns, Target] | None = None,
        spans: Any = None,
        held_spans: Any = None,
        standardize: bool = True,
        min_count: int = 1,
        intercept: bool = True,
        transitions: bool = True,
        boundaries: bool = False,
        base_l2: float = BASE_L2,
        n_jobs: int = 1,
        scale: ColumnScale | None = None,
    ) -> None:
        if held_out is not None and held_spans is not None:
            raise InputError("held-out data are either other recordings (held_out) or held_spans of these, not both.")
        self.candidates, self.n_jobs, self.base_l2 = candidates, n_jobs, float(base_l2)
        self.base = Base(intercept, transitions, boundaries)
        self.train = View(candidates, target, spans=spans)
        if self.train.chains.n_nodes == 0:
            raise InputError("there are no steps to train on; at least one sequence with one step is needed.")
        self.held: View | None = None
        if held_out is not None:
            if held_out[0].n_candidates != candidates.n_candidates:
                raise InputError(
                    f"the held-out recordings have {held_out[0].n_candidates} candidates and the others "
                    f"{candidates.n_candidates}: compute the same catalogue on both."
                )
            self.held = View(held_out[0], held_out[1])
        elif held_spans is not None:
            self.held = View(candidates, target, spans=held_spans)
        if scale is None and isinstance(candidates, RelationalColumns):
            _warn_constant(candidates)
        self.scale = scale or ColumnScale.of(self.train, standardize=standardize, min_count=min_count, n_jobs=n_jobs)
        self._uncentred()
        self._active = ActiveColumns(self.train, self.scale, base=self.base, n_jobs=n_jobs)
        self._held = (
            None if self.held is None else ActiveColumns(self.held, self.scale, base=self.base, n_jobs=n_jobs)
        )

    def _uncentred(self) -> None:
        """What would move from a centred column to the intercept or the transitions needs them to be there."""
        for kind, there in ((STATE, self.base.intercept), (TRANSITION, self.base.transitions)):
            if not there:
                mean = np.where(self.candidates.link == kind, 0.0, self.scale.mean)
                self.scale = ColumnScale(mean, self.scale.deviation, self.scale.usable)

    def __repr__(self) -> str:
        held = "" if self.held is None else f", {self.held.chains.n_nodes:,} held out"
        return (
            f"SelectionProblem({self.n_candidates:,} candidates, {self.n_labels} labels, "
            f"{self.train.chains.n_nodes:,} steps{held})"
        )

    @property
    def n_candidates(self) -> int:
        """Candidates to choose from."""
        return self.candidates.n_candidates

    @property
    def n_labels(self) -> int:
        """L."""
        return self.candidates.n_labels

    @property
    def n_base(self) -> int:
        """Weights that every model has."""
        return self._active.n_base

    @property
    def n_steps(self) -> int:
        """Steps of the training part."""
        return self.train.chains.n_nodes

    def name(self, candidate: int) -> str:
        """Name of a candidate."""
        return self.candidates.name(int(candidate))

    @cached_property
    def usable(self) -> np.ndarray:
        """(n_candidates,) bool: whether the column changes often enough to be chosen."""
        return self.scale.usable[self._places[0]]

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Column of every candidate, and its link: the label, or L + i L + j for a pair."""
        places, labels = self.candidates.places(), self.n_labels
        link = np.where(places.previous < 0, places.label, labels + places.previous * labels + places.label)
        return places.column.astype(np.int32), link.astype(np.int32)

    # ------------------------------------------------------------------------------------------------ questions

    def scores(self, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
        """(n_candidates,) inner products of standardised columns with any gradient (n, L), (e, L, L) of the scores.

            score_k = Σ (x_k − mean_k) / deviation_k · gradient at the link of k

        0 for candidates that are not usable.
        """
        raw = self.train.scores(node, edge, n_jobs=self.n_jobs)
        column, link = self._places
        sums = np.concatenate([node.sum(axis=0), edge.sum(axis=0).ravel()])
        raw -= self.scale.mean[column] * sums[link]
        raw /= self.scale.deviation[column]
        raw[~self.usable] = 0.0
        return raw

    def slopes(self, model: SelectionModel) -> np.ndarray:
        """(n_candidates,) gradient of the loss in the weight of every candidate, at the model's weights."""
        self._active.use(model.active)
        return self.scores(*self._active.slope(model.vector))

    def gradient(self, model: SelectionModel) -> tuple[np.ndarray, np.ndarray]:
        """The gradient of the loss in the scores: (n, L) and (e, L, L) over the training part."""
        self._active.use(model.active)
        return self._active.slope(model.vector)

    def beliefs(self, model: SelectionModel) -> Beliefs:
        """Marginals of the training part, one table for every edge."""
        self._active.use(model.active)
        return self._active.beliefs(model.vector)

    def values(self, candidates: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """Standardised columns of some candidates on the training part: (n,) or, linked to pairs, (e,)."""
        return self._active.values(as_active(candidates))

    def loss(self, model: SelectionModel) -> float:
        """Negative log-likelihood of the training part."""
        self._active.use(model.active)
        return self._active.evaluate(model.vector, np.empty(self._active.n_weights))

    def fit(
        self,
        active: Sequence[int] | np.ndarray,
        start: SelectionModel | None = None,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        max_iter: int = 100,
        tol: float = 1e-6,
        violation: float = 0.0,
    ) -> SelectionModel:
        """Weights of a set of candidates: argmin loss + l1 Σ|w| + ½ l2 Σ w² + ½ base_l2 Σ base².

        ``start`` is a model to go on from, whatever its set; what it knows of the curvature makes the fit short. It
        ends when the objective is estimated to be within ``tol`` of its minimum, relatively; or with ``violation``
        given, when no optimality condition is broken by more than that.
        """
        active = as_active(active)
        self._active.use(active)
        n_base = self.n_base
        vector = np.zeros(n_base + len(active))
        known, place = np.zeros((0, 0)), np.zeros(0, np.int64)
        if start is not None:
            vector[:n_base] = start.base
            where = {candidate: k for k, candidate in enumerate(start.active.tolist())}
            both = [(k, where[c]) for k, c in enumerate(active.tolist()) if c in where]
            mine = np.array([k for k, _ in both], np.int64) + n_base
            theirs = np.array([k for _, k in both], np.int64)
            vector[mine] = start.weights[theirs]
            if start.curvature is not None:
                place = np.concatenate([np.arange(n_base), mine])
                at = np.concatenate([np.arange(n_base), theirs + n_base])
                known = start.curvature[np.ix_(at, at)]
        else:
            vector[:n_base] = self._active.counted_base()
        found, lasting = fit_weights(
            self._active,
            vector,
            known=known,
            place=place,
            l1=float(l1),
            l2=float(l2),
            base_l2=self.base_l2,
            tol=tol,
            violation=violation,
            max_iter=max_iter,
        )
        return SelectionModel(
            active,
            found.weights[n_base:],
            found.weights[:n_base],
            found.loss,
            found.value,
            found.converged,
            found.violation,
            found.n_evaluations + len(vector) - len(place) + 1,
            found.hessian if lasting else None,
        )

    def held_out(self, model: SelectionModel) -> HeldOut:
        """Share of wrong labels (best marginals) and loss per step on the held-out part; NaN where there is none."""
        if self._held is None or self.held is None or self.held.chains.n_nodes == 0:
            return HeldOut(float("nan"), float("nan"))
        return self._judged(self._held, model)

    def _judged(self, columns: ActiveColumns, model: SelectionModel) -> HeldOut:
        columns.use(model.active)
        target, vector = columns.view.target, model.vector
        loss = columns.evaluate(vector, np.empty(len(vector)))
        marginals = columns.beliefs(vector).node
        wrong = ~target.mask[np.arange(len(marginals)), best_marginals(marginals)]
        weight = columns.view.node_weight
        total = len(marginals) if weight is None else weight.sum()
        errors = wrong.sum() if weight is None else weight @ wrong
        return HeldOut(float(errors / max(total, 1e-300)), float(loss / max(total, 1e-300)))

    def raw(self, model: SelectionModel) -> tuple[np.ndarray, np.ndarray]:
        """Weights in the units of the columns: base, and one for each active candidate.

        w x' = (w / deviation) x − w mean / deviation, and the last part joins the intercept of the label or the
        transition of the pair. Without the intercept or the transitions there is nowhere to put it, so their
        columns are not centred.
        """
        column, link = self._places[0][model.active], self._places[1][model.active]
        weights = model.weights / self.scale.deviation[column]
        shift = np.bincount(link, weights * self.scale.mean[column], minlength=self.n_labels + self.n_labels**2)
        base = model.base.copy()
        bias, table, first, _ = self.base.parts(base, self.n_labels)
        for part in (bias, table, first):
            part -= shift[: self.n_labels]
        table -= shift[self.n_labels :].reshape(table.shape)
        return base, weights


def _warn_constant(columns: RelationalColumns) -> None:
    found = columns.constant_tests()
    if found:
        rate = columns.recordings.rate
        clock = "no rate is known" if rate is None else f"the rate is {rate:g} steps a second"
        warnings.warn(
            f"most thresholds of {', '.join(one.template for one in found)} say nothing about these "
            f"{columns.chains.n_nodes:,} steps. {'; '.join(map(str, found))}. Are the units of the positions and the "
            f"rate those that the templates were written for ({clock})?",
            DataWarning,
            stacklevel=3,
        )
