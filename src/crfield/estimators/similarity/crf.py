"""`KernelCRF`: a conditional random field whose node scores lie in a reproducing-kernel space.

    p(y | x) ∝ exp( Σ_n f(x_n, y_n) + Σ_e table(y_tail, y_head) )          f = Σ_c α_c(y) k(x_c, x)

A linear field weighs each feature on its own. Here a node is scored by how alike it is to training nodes, so that
what counts may be any combination of features (Lafferty, Zhu & Liu 2004, *Kernel conditional random fields*).
Training minimises −Σ weight · log p(y | x) + ½ ``l2`` (Σ_y ‖f_y‖² + ‖other weights‖²), the norm that of the
kernel's space. Small data are solved exactly in the span of all training nodes; for more, ``basis`` says what takes
its place.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag, integer, one_of, random_generator, resolve_jobs, seed
from crfield.core.parameters import learnt, parameter
from crfield.core.typing import Graphlike, Labels, Seed, Weights
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import InputError
from crfield.estimators.base.groups import MIN_COUNT, PENALTY, TOLERANCE, Optimised
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.export.step_scores import StepScorer, single_steps
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.data import target_of
from crfield.estimators.graph.parameters import Coupled
from crfield.estimators.similarity.mapped import refuse_far, rows_of, shape_of
from crfield.estimators.similarity.model import FIELD_BASES, SimilarityField
from crfield.estimators.similarity.parameters import OfSimilarity
from crfield.estimators.similarity.training import FieldProblem, Kernel, chosen_basis, fit_basis, fit_greedy
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.report.weights import TransitionTable
from crfield.training.graph.plan import OBJECTIVES, Plan, plan_training


class KernelCRF(
    OfSimilarity, Coupled, Optimised, GraphAnswers[SimilarityField], kind="kernel_crf", model=SimilarityField
):
    """Kernel conditional random field on sequences or graphs.

    X is a list of sequences (2-D arrays, CSR matrices, dicts or lists of strings for every step) or of `Graph`; y has
    a label, ``None`` (unknown) or a set (one of these) for every step or node.

    Parameters
    ----------
    similarity : "rbf", "polynomial", "laplacian", "linear", or f(rows, others) that gives a Gram block
        The kernel (`crfield.scoring.similarity`), with its parameters ``gamma`` ("scale": 1 / the sum of the columns'
        variances), ``degree`` and ``offset``; ``normalize`` gives every row the length one in the kernel's space.
    basis : "auto", "exact", "nystroem", "fourier" or "greedy"
        What scores are made of: all different training nodes (exact, the representer theorem); ``n_components``
        of them at random (Nyström); as many random waves, for rbf and laplacian; or as many training nodes selected
        by the functional gradient, among ``n_candidates`` in each of about twenty rounds. "auto" is exact up to 1,000
        different nodes and Nyström above.
    n_components, n_candidates : int
        See ``basis``.
    l2 : float
        Strength of the penalty.
    precision : "double" or "single"
        Of the mapped columns while training. Single takes less time on large data, and meets a ``tol`` of about
        1e-4 but none far below.
    objective, engine, map_engine, relations, forbidden
        As in `GraphCRF`; the steps of sequences are joined by the relation "+1".
    standardize, min_count, intercept, boundaries, penalize_intercepts
        As in `ChainCRF`; graphs have no boundaries.
    decode : "map" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each node.
    tol, max_iter, n_jobs, random_state, verbose, callback
        As in `ChainCRF`. The random state draws landmarks, waves and candidates.

    Attributes
    ----------
    basis_ : str
        The basis that was used.
    n_components_ : int
        Columns that nodes were mapped to.
    cliques_ : list of (sequence, step)
        Nodes selected by the basis "greedy" in the order they joined, with ``rounds_``, the diary; None otherwise.
    plan_, classes_, objective_, n_iter_, n_evaluations_, converged_, stop_reason_, history_
        As in `GraphCRF`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(20, 2)) for _ in range(10)]
    >>> y = [np.where(x[:, 0] * x[:, 1] > 0, "same", "other") for x in X]
    >>> model = KernelCRF(l2=0.1).fit(X[:8], y[:8])
    >>> model.score(X[8:], y[8:]) > 0.9, model.basis_
    (True, 'exact')
    """

    basis: str = parameter(one_of(*FIELD_BASES), default="auto")
    n_candidates: int = parameter(integer(1), default=500)
    l2: float = parameter(PENALTY, default=0.1)
    precision: str = parameter(one_of("double", "single"), default="double")
    objective: str = parameter(one_of(*OBJECTIVES), default="auto")
    standardize: bool = parameter(flag, default=False)
    min_count: int = parameter(MIN_COUNT, default=1)
    intercept: bool = parameter(flag, default=True)
    boundaries: bool = parameter(flag, default=True)
    penalize_intercepts: bool = parameter(flag, default=True)
    tol: float = parameter(TOLERANCE, default=1e-3)
    random_state: Seed = parameter(seed, default=0)

    basis_: str = learnt()
    n_components_: int = learnt()
    cliques_: list[tuple[int, int]] | None = learnt()
    rounds_: Any = learnt()
    plan_: Plan = learnt()

    reported = (*GraphAnswers.reported, "basis_", "n_components_")

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn from sequences or graphs X and the labels y of their nodes.

        ``sample_weight`` has one number for each sequence or graph; 0 leaves it out. Ctrl-C ends training with the
        best weights so far.
        """
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        reader, batch = self._read(X)
        labels = GraphLabels([kind.name for kind in reader.schema.kinds]).fit(y, batch)
        target, jobs = target_of(batch, labels, y, sample_weight), resolve_jobs(self.n_jobs)
        plan = plan_training(
            batch.topology, labels.n_labels, objective=self.objective, engine=self.engine, n_jobs=jobs
        )
        rows, kernels = self._kernels(reader, batch)
        basis = chosen_basis(self.basis, rows)
        ends = bool(self.boundaries) and not reader.of_graphs
        shape = shape_of(reader.schema, labels, self.get_params(deep=False), ends=ends)
        with self._watched() as watch:
            problem = FieldProblem(
                batch,
                target,
                plan,
                shape,
                l2=float(self.l2),
                penalize_intercepts=bool(self.penalize_intercepts),
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                n_jobs=jobs,
                rng=random_generator(self.random_state),
                single=self.precision == "single",
                watch=watch,
            )
            if basis == "greedy":
                trained = fit_greedy(problem, rows, kernels, int(self.n_components), int(self.n_candidates))
            else:
                trained = fit_basis(problem, basis, rows, kernels, int(self.n_components))
        found, bare = trained.cliques, shape.layout([0] * len(rows))
        places = None if found is None else _places(found.nodes, batch)
        maps, coefs, weights = trained.maps, trained.coefs, trained.weights
        model = SimilarityField(reader, labels, maps, coefs, bare, weights, ends, plan, places)
        self._learn(model, trained.result)
        self.basis_, self.rounds_ = basis, None if found is None else found.rounds
        self._warn_unless_converged(trained.result, "Raise max_iter or tol")
        return self

    def _read(self, X: Graphlike) -> tuple[StepsOrGraphs, GraphBatch]:
        """A reader for data like X, fitted to it, and the columns of X."""
        reader = StepsOrGraphs(standardize=self.standardize)
        with warnings.catch_warnings():
            # Kernels have no weight of their own for a column; gamma and standardize are what scales matter for.
            warnings.filterwarnings("ignore", message="numeric features differ widely")
            batch = reader.fit(X, min_count=self.min_count)
        refuse_large(batch, reader.encoder, sequences=not reader.of_graphs)
        if batch.topology.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        return reader, batch

    def _kernels(self, reader: StepsOrGraphs, batch: GraphBatch) -> tuple[list[Any], list[Kernel]]:
        """The rows (N, K) of every kind, and their kernel."""
        rows, kernels = [], []
        for number in range(len(reader.schema.kinds)):
            at, own = rows_of(batch, reader.schema, number)
            rows.append(own)
            kernels.append(self._similarity(own))
            refuse_far(batch, reader, at[kernels[-1].too_large(own)])
        return rows, kernels

    def _show(self, model: SimilarityField) -> None:
        super()._show(model)
        self.plan_, self.cliques_, self.rounds_ = model.plan, model.cliques, None
        self.n_components_ = sum(found.width for found in model.maps)

    # ------------------------------------------------------------------- streams

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        if model.reader.of_graphs:
            return super()._step_scorer(history=history)
        size, kind = model.labels.n_labels, model.reader.schema.kinds[0].name
        ends = (
            model.weights[model.layout.part[f"{kind}/dense"]].reshape(-1, size) if model.ends else np.zeros((2, size))
        )
        table = np.nan_to_num(model.layout.table(model.weights, "+1"), nan=0.0, neginf=-np.inf)
        tables = {"start": ends[0], "end": ends[1], "transitions": table}
        why = (
            "KernelCRF compares a step with steps of training and is not exported. Export a ChainCRF, or a TreeCRF, "
            "which sees combinations of columns as well."
        )
        more = [model.weights, *model.coefs]
        return single_steps(self, tables, varied=False, window=0, more=more, why=why)

    # -------------------------------------------------------------- explanation

    def relation_weights(self, relation: str = "+1") -> TransitionTable:
        """Weights of the label pairs of a relation: rows the tail's label, columns the head's; NaN is forbidden."""
        model = self._fitted
        schema = model.reader.schema
        ends = schema.relations[schema.relation(relation)]
        coders = model.labels.coders
        table = model.layout.table(model.weights, relation)
        return TransitionTable(coders[ends.tail].labels, table, columns=coders[ends.head].labels)


def _places(nodes: np.ndarray, batch: GraphBatch) -> list[tuple[int, int]]:
    """Numbers of nodes as (sequence, step)."""
    offsets = batch.topology.offsets
    graph = np.searchsorted(offsets, nodes, side="right") - 1
    return list(zip(graph.tolist(), (nodes - offsets[graph]).tolist()))
