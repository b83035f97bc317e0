"""The trainings of a kernel field: a basis, mapped columns, weights.

Mapped columns and everything else of the model are one linear model on graphs (`estimators.similarity.mapped`), so a
basis is all that differs: all training nodes, some, waves, or nodes that are selected while the model is fitted again
and again.

Columns of cliques come from Gram and Schmidt, each orthogonal to those before in the kernel's space and not on the
data. Every fit therefore turns them to their principal axes first, for which the diagonal that L-BFGS starts from is
nearer to the truth, and turns the weights back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.data.centred import middle_of
from crfield.data.graphs.batch import GraphBatch
from crfield.errors import InputError
from crfield.estimators.similarity.mapped import (
    ENDS,
    MappedShape,
    joined_weights,
    mapped_places,
    principal_axes,
    split_weights,
    turned,
    with_columns,
    with_table,
)
from crfield.estimators.similarity.parameters import EXACT_ROWS
from crfield.features.columns.random_features import Landmarks, Waves, distinct, pick_landmarks
from crfield.optimize.history import INTERRUPTED, Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.similarity import GivenSimilarity, Similarity
from crfield.selection.methods.cliques import Cliques, Refit, select_cliques
from crfield.training.graph.fit import Callback
from crfield.training.graph.plan import Plan
from crfield.training.rows.similarity import Turned, fit_mapped, fused_problem, is_chain, mapped_problem

ROUNDS = 20  # of the greedy selection
INNER_STEPS = 12  # of the fits between them

Kernel = Similarity | GivenSimilarity


@dataclass(frozen=True, eq=False)
class FieldProblem:
    """What stays the same from one fit of a field to the next."""

    batch: GraphBatch
    target: Target
    plan: Plan
    shape: MappedShape
    l2: float
    penalize_intercepts: bool
    tol: float
    max_iter: int
    n_jobs: int
    rng: np.random.Generator
    single: bool  # whether mapped columns are of single precision
    watch: Callback | None

    def with_columns(self, columns: Sequence[np.ndarray]) -> GraphBatch:
        """The data with mapped columns (nodes of the kind, D) of each kind."""
        return with_columns(self.batch, columns, ends=self.shape.ends)

    def fit(
        self,
        layout: GraphLayout,
        batch: GraphBatch,
        start: np.ndarray | None = None,
        *,
        max_iter: int | None = None,
        turned: Turned | None = None,
    ) -> Result:
        """The weights of a batch `with_columns`."""
        penalised = None if self.penalize_intercepts else (~layout.intercepts).astype(np.uint8)
        return fit_mapped(
            layout,
            batch,
            self.target,
            Penalty(l2=self.l2, penalised=penalised),
            self.plan,
            start=start,
            tol=self.tol,
            max_iter=self.max_iter if max_iter is None else max_iter,
            n_jobs=self.n_jobs,
            rng=self.rng,
            single=self.single,
            callback=self.watch,
            turned=turned,
        )

    def turned(self, found: Landmarks, rows: Any) -> tuple[GraphBatch, Turned] | None:
        """The data with similarities as columns, and the likelihood of their map's weights; None where that is dear.

        That is where the map has far fewer columns than landmarks, and where the field is no chain.
        """
        inner, width = found.whiten.shape
        layout, ends = self.shape.layout([inner]), ENDS * self.shape.ends
        if self.single or not self.plan.exact or 2 * width < inner:
            return None
        if not is_chain(layout, self.batch.topology, self.target, self.plan):
            return None
        batch = with_table(self.batch, found.similarities(rows, behind=ends), [inner] if ends else [])
        chain = fused_problem(layout, batch, self.target, self.plan, n_jobs=self.n_jobs)
        assert chain is not None
        return batch, Turned(chain, found.whiten, mapped_places(layout, [inner])[0].start)


@dataclass(frozen=True, eq=False)
class TrainedField:
    """The maps of each kind, the weights of their columns and of the rest, and how training went."""

    maps: tuple[Landmarks | Waves, ...]
    coefs: tuple[np.ndarray, ...]  # (D, L) of each kind
    weights: np.ndarray
    result: Result
    cliques: Cliques | None = None  # where they were selected

    @classmethod
    def of(
        cls, maps: tuple[Landmarks | Waves, ...], layout: GraphLayout, result: Result, cliques: Cliques | None = None
    ) -> TrainedField:
        """What a fit on the columns of these maps came to."""
        coefs, rest = split_weights(layout, result.weights, [found.width for found in maps])
        return cls(maps, coefs, rest, result, cliques)


def chosen_basis(basis: str, rows: Sequence[Any]) -> str:
    """The basis that is meant for the rows (N, K) of each kind: "auto" is exact for few different ones."""
    if basis != "auto":
        return basis
    small = sum(len(distinct(some, most=EXACT_ROWS)) for some in rows) <= EXACT_ROWS
    return "exact" if small else "nystroem"


def fit_basis(
    problem: FieldProblem, basis: str, rows: Sequence[Any], kernels: Sequence[Kernel], n_components: int
) -> TrainedField:
    """The field on all different rows of each kind, on some, or on waves."""
    maps = tuple(
        _map(basis, some, kernel, n_components, problem.rng) for some, kernel in zip(rows, kernels, strict=True)
    )
    layout = problem.shape.layout([found.width for found in maps])
    if len(maps) == 1 and isinstance(maps[0], Landmarks):
        turned = problem.turned(maps[0], rows[0])
        if turned is not None:
            return TrainedField.of(maps, layout, problem.fit(layout, turned[0], turned=turned[1]))
    # The list goes with the call, so that mapped columns, the largest thing there is, stand in memory once.
    batch = problem.with_columns([found.columns(some) for found, some in zip(maps, rows)])
    return TrainedField.of(maps, layout, problem.fit(layout, batch))


def _map(basis: str, rows: Any, kernel: Kernel, n_components: int, rng: np.random.Generator) -> Landmarks | Waves:
    if basis == "exact":
        return Landmarks.of(kernel, rows[distinct(rows)])
    if basis == "nystroem":
        return Landmarks.of(kernel, rows[pick_landmarks(rows, n_components, rng)])
    if not isinstance(kernel, Similarity):
        raise InputError("random waves need a similarity by name, 'rbf' or 'laplacian'. Use basis='nystroem'.")
    middle = middle_of(rows)
    return Waves.draw(kernel.kind, rows.shape[1], n_components, gamma=kernel.gamma, rng=rng, middle=middle)


def fit_greedy(
    problem: FieldProblem, rows: Sequence[Any], kernels: Sequence[Kernel], n_components: int, n_candidates: int
) -> TrainedField:
    """The field on nodes that are selected one after another by the functional gradient."""
    if len(rows) > 1:
        raise InputError("basis='greedy' selects among nodes of one kind. Use basis='nystroem' for several.")
    if not problem.plan.exact:
        raise InputError(
            "basis='greedy' follows exact gradients: take objective='pseudo_likelihood', or another basis."
        )
    target, plan = problem.target, problem.plan
    latest: Any = None

    def refit(columns: np.ndarray, state: Any) -> Refit:
        nonlocal latest
        turn = principal_axes(columns)
        layout, batch = problem.shape.layout([len(turn)]), problem.with_columns([columns @ turn])
        start = None if state is None else joined_weights(layout, *turned(turn, *state))
        last = problem.fit(layout, batch, start, max_iter=min(INNER_STEPS, problem.max_iter))
        if last.reason == INTERRUPTED:
            raise KeyboardInterrupt
        full = mapped_problem(layout, batch, target, plan, single=problem.single)
        slope = full.objective.evaluate(full.scorer.score(last.weights, full.batch), target, plan.engine)
        coefs, rest = split_weights(layout, last.weights, [len(turn)])
        latest = (turn @ coefs[0], rest)
        return Refit(float(last.value), slope.node, latest)

    found = select_cliques(
        kernels[0],
        rows[0],
        refit,
        n_cliques=n_components,
        per_round=max(1, -(-n_components // ROUNDS)),
        n_candidates=n_candidates,
        rng=problem.rng,
    )
    columns = found.landmarks.columns(rows[0])
    turn = principal_axes(columns)
    layout, batch = problem.shape.layout([len(turn)]), problem.with_columns([columns @ turn])
    result = problem.fit(layout, batch, joined_weights(layout, *turned(turn, *latest)))
    return TrainedField.of((replace(found.landmarks, whiten=found.landmarks.whiten @ turn),), layout, result, found)
