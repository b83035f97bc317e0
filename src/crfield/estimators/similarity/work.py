"""The work of fitting a kernel field: similarities, a basis, mapped columns, weights.

`KernelCRF` reads data and labels and says what is wanted; from there on a training is a `KernelWork`. Mapped columns
and everything else of the model are one linear model on graphs (`estimators.similarity.model`), so a basis is all
that differs: all training nodes, some, waves, or nodes that are selected while the model is fitted again and again.

Columns of cliques come from Gram and Schmidt, each orthogonal to those before in the kernel's space and not on the
data. Every fit therefore turns them to their principal axes first, for which the diagonal that L-BFGS starts from is
nearer to the truth, and turns the weights back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.target import Target
from crfield.data.centred import middle_of
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import InputError
from crfield.estimators.base.progress import Progress
from crfield.estimators.similarity.checks import EXACT_ROWS
from crfield.estimators.similarity.model import (
    KernelModel,
    joined_weights,
    mapped_layout,
    principal_axes,
    refuse_far,
    rows_of,
    split_weights,
    turned,
    with_columns,
)
from crfield.features.columns.random_features import Landmarks, Waves, distinct, pick_landmarks
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.similarity import Similarity, similarity_of
from crfield.selection.methods.cliques import Cliques, Refit, select_cliques
from crfield.training.graph.plan import Plan
from crfield.training.rows.similarity import fit_mapped, mapped_problem

ROUNDS = 20  # of the greedy selection
INNER_STEPS = 12  # of the fits between them


@dataclass(eq=False)
class KernelWork:
    """One training: what was read, and the steps from similarities to weights."""

    owner: Any  # a `KernelCRF`, for its parameters
    reader: StepsOrGraphs
    coder: GraphLabels
    batch: GraphBatch
    target: Target
    plan: Plan
    rng: np.random.Generator

    def __post_init__(self) -> None:
        owner, schema = self.owner, self.reader.schema
        self.rows = [rows_of(self.batch, schema, number)[1] for number in range(len(schema.kinds))]
        options = {name: getattr(owner, name) for name in ("gamma", "degree", "offset", "normalize")}
        self.similarities = [similarity_of(owner.similarity, rows, **options) for rows in self.rows]
        for number, (like, rows) in enumerate(zip(self.similarities, self.rows)):
            refuse_far(self.batch, self.reader, rows_of(self.batch, schema, number)[0][like.too_large(rows)])
        self.ends = bool(owner.boundaries) and not self.reader.of_graphs
        self.single = owner.precision == "single"
        self.maps: tuple[Landmarks | Waves, ...] = ()
        self.basis = owner.basis
        if self.basis == "auto":
            small = sum(len(distinct(rows[: 4 * EXACT_ROWS])) for rows in self.rows) <= EXACT_ROWS
            small = small and sum(len(distinct(rows)) for rows in self.rows) <= EXACT_ROWS
            self.basis = "exact" if small else "nystroem"

    def train(self, progress: Progress) -> tuple[Result, Cliques | None]:
        """The result on the basis wanted; the cliques if they were selected."""
        owner = self.owner

        def after(step: Step, weights: np.ndarray) -> bool | None:
            progress.update(step)
            return owner.callback(step, weights) if owner.callback is not None else None

        watch = after if owner.callback is not None or owner.verbose else None
        if self.basis == "greedy":
            return self._greedy(watch)
        self.maps = tuple(self._map(rows, like) for rows, like in zip(self.rows, self.similarities))
        # The list goes with the call, so that mapped columns, the largest thing there is, stand in memory once.
        batch = with_columns(
            self.batch, [found.columns(rows) for found, rows in zip(self.maps, self.rows)], ends=self.ends
        )
        return self._fitted(self.layout([found.width for found in self.maps]), batch, None, watch), None

    def _map(self, rows: Any, like: Any) -> Landmarks | Waves:
        owner = self.owner
        if self.basis == "fourier":
            if not isinstance(like, Similarity):
                raise InputError(
                    "random waves need a similarity by name, 'rbf' or 'laplacian'. Use basis='nystroem'."
                )
            count = int(owner.n_components)
            middle = middle_of(rows)
            return Waves.draw(like.kind, rows.shape[1], count, gamma=like.gamma, rng=self.rng, middle=middle)
        if self.basis == "exact":
            return Landmarks.of(like, rows[distinct(rows)])
        return Landmarks.of(like, rows[pick_landmarks(rows, int(owner.n_components), self.rng)])

    def _greedy(self, watch: Any) -> tuple[Result, Cliques]:
        owner = self.owner
        if len(self.rows) > 1:
            raise InputError("basis='greedy' selects among nodes of one kind. Use basis='nystroem' for several.")
        latest: Any = None

        def refit(columns: np.ndarray, state: Any) -> Refit:
            nonlocal latest
            turn = principal_axes(columns)
            layout = self.layout([len(turn)])
            batch = with_columns(self.batch, [columns @ turn], ends=self.ends)
            start = None if state is None else joined_weights(layout, *turned(turn, *state))
            last = self._fitted(layout, batch, start, watch, max_iter=min(INNER_STEPS, int(owner.max_iter)))
            if last.reason == INTERRUPTED:
                raise KeyboardInterrupt
            problem = mapped_problem(layout, batch, self.target, self.plan, single=self.single)
            scores = problem.scorer.score(last.weights, problem.batch)
            slope = problem.objective.evaluate(scores, self.target, self.plan.engine)
            coefs, rest = split_weights(layout, last.weights, [len(turn)])
            latest = (turn @ coefs[0], rest)
            return Refit(float(last.value), slope.node, latest)

        if not self.plan.exact:
            raise InputError(
                "basis='greedy' follows exact gradients: take objective='pseudo_likelihood', or another basis."
            )
        most = int(owner.n_components)
        found = select_cliques(
            self.similarities[0],
            self.rows[0],
            refit,
            n_cliques=most,
            per_round=max(1, -(-most // ROUNDS)),
            n_candidates=int(owner.n_candidates),
            rng=self.rng,
        )
        columns = found.landmarks.columns(self.rows[0])
        turn = principal_axes(columns)
        self.maps = (replace(found.landmarks, whiten=found.landmarks.whiten @ turn),)
        layout = self.layout([len(turn)])
        batch = with_columns(self.batch, [columns @ turn], ends=self.ends)
        start = joined_weights(layout, *turned(turn, *latest))
        return self._fitted(layout, batch, start, watch), found

    def layout(self, widths: Sequence[int]) -> GraphLayout:
        """Weights of so many mapped columns for each kind, and of all else."""
        owner, schema = self.owner, self.reader.schema
        return mapped_layout(
            schema,
            self.coder.sizes,
            widths,
            ends=self.ends,
            bias=bool(owner.intercept),
            tables=dict(owner.relations or {}),
            forbidden=self.coder.pairs(owner.forbidden, schema),
        )

    def _fitted(
        self, layout: GraphLayout, batch: GraphBatch, start: Any, watch: Any, *, max_iter: int | None = None
    ) -> Result:
        owner = self.owner
        penalised = None if owner.penalize_intercepts else (~layout.intercepts).astype(np.uint8)
        return fit_mapped(
            layout,
            batch,
            self.target,
            Penalty(l2=float(owner.l2), penalised=penalised),
            self.plan,
            start=start,
            tol=float(owner.tol),
            max_iter=int(owner.max_iter) if max_iter is None else max_iter,
            n_jobs=resolve_jobs(owner.n_jobs),
            rng=self.rng,
            single=self.single,
            callback=watch,
        )

    def model(self, result: Result) -> KernelModel:
        """The fitted model."""
        widths = [found.width for found in self.maps]
        coefs, rest = split_weights(self.layout(widths), result.weights, widths)
        bare = self.layout([0] * len(widths))
        return KernelModel(self.reader, self.coder, self.maps, coefs, bare, rest, self.ends)
