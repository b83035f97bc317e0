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
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.graph_batch import GraphBatch
from crfield.data.graph_labels import GraphLabels
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.chain_checks import random_generator, without_weightless
from crfield.estimators.graph_answers import GraphAnswers, target_of
from crfield.estimators.jobs import resolve_jobs
from crfield.estimators.kernel_checks import check_kernel_parameters
from crfield.estimators.kernel_model import (
    KernelModel,
    joined_weights,
    mapped_layout,
    principal_axes,
    rows_of,
    split_weights,
    turned,
    with_columns,
)
from crfield.estimators.progress import Progress
from crfield.estimators.steps_or_graphs import StepsOrGraphs
from crfield.features.random_features import Landmarks, Waves, distinct, pick_landmarks
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.report.weights import TransitionTable
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.similarity import Similarity, similarity_of
from crfield.selection.cliques import Cliques, Refit, select_cliques
from crfield.training.graph_plan import Plan, plan_training
from crfield.training.kernel_fit import fit_mapped, mapped_problem

EXACT_ROWS = 1000  # different training nodes up to which "auto" takes all of them
ROUNDS = 20  # of the greedy selection
INNER_STEPS = 12  # of the fits between them


class KernelCRF(GraphAnswers, BaseEstimator):
    """Kernel conditional random field on sequences or graphs.

    X is a list of sequences (2-D arrays, CSR matrices, dicts or lists of strings for every step) or of `Graph`; y has
    a label, ``None`` (unknown) or a set (one of these) for every step or node.

    Parameters
    ----------
    similarity : "rbf", "polynomial", "laplacian", "linear", or f(rows, others) that gives a Gram block
        The kernel (`crfield.scoring.similarity`), with its parameters ``gamma`` ("scale": 1 / (columns · variance)),
        ``degree`` and ``offset``; ``normalize`` gives every row the length one in the kernel's space.
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
        Of the mapped columns while training. Single takes half the time of large data, and meets a ``tol`` of about
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

    _model: KernelModel | None
    _name = "KernelCRF"

    def __init__(
        self,
        *,
        similarity: str | Callable[[Any, Any], Any] = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        offset: float = 1.0,
        normalize: bool = False,
        basis: str = "auto",
        n_components: int = 500,
        n_candidates: int = 500,
        l2: float = 0.1,
        precision: str = "double",
        objective: str = "auto",
        engine: Any = "auto",
        map_engine: Any = None,
        relations: Mapping[str, str] | None = None,
        forbidden: Sequence[tuple[str, Hashable, Hashable]] = (),
        standardize: bool = False,
        min_count: int = 1,
        intercept: bool = True,
        boundaries: bool = True,
        penalize_intercepts: bool = True,
        decode: str = "map",
        tol: float = 1e-3,
        max_iter: int = 500,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.similarity = similarity
        self.gamma = gamma
        self.degree = degree
        self.offset = offset
        self.normalize = normalize
        self.basis = basis
        self.n_components = n_components
        self.n_candidates = n_candidates
        self.l2 = l2
        self.precision = precision
        self.objective = objective
        self.engine = engine
        self.map_engine = map_engine
        self.relations = relations
        self.forbidden = forbidden
        self.standardize = standardize
        self.min_count = min_count
        self.intercept = intercept
        self.boundaries = boundaries
        self.penalize_intercepts = penalize_intercepts
        self.decode = decode
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from sequences or graphs X and the labels y of their nodes.

        ``sample_weight`` has one number for each sequence or graph; 0 leaves it out. Ctrl-C ends training with the
        best weights so far.
        """
        check_kernel_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        reader = StepsOrGraphs(standardize=self.standardize)
        with warnings.catch_warnings():
            # Kernels have no weight of their own for a column; gamma and standardize are what scales matter for.
            warnings.filterwarnings("ignore", message="numeric features differ widely")
            batch = reader.fit(X, min_count=self.min_count)
        if batch.topology.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        coder = GraphLabels([kind.name for kind in reader.schema.kinds]).fit(y, batch)
        target = target_of(batch, coder, y, sample_weight)
        plan = plan_training(
            batch.topology,
            coder.n_labels,
            objective=self.objective,
            engine=self.engine,
            n_jobs=resolve_jobs(self.n_jobs),
        )
        work = _Work(self, reader, coder, batch, target, plan, random_generator(self.random_state))
        with Progress(self.verbose, total=self.max_iter, description=self._name) as progress:
            result, cliques = work.train(progress)
        self._model = work.model(result)
        self.basis_ = work.basis
        self.n_components_ = int(sum(found.width for found in work.maps))
        self.cliques_ = None if cliques is None else _places(cliques.nodes, batch)
        self.rounds_ = None if cliques is None else cliques.rounds
        self.plan_ = plan
        self.classes_ = coder.classes[coder.kinds[0]] if len(coder.kinds) == 1 else coder.classes
        self.objective_ = float(result.value)
        self.n_iter_ = result.n_iter
        self.n_evaluations_ = result.n_evaluations
        self.history_ = result.history
        self.converged_ = result.converged
        self.stop_reason_ = result.reason
        if not result.converged and result.reason != "callback":
            kept = "The best weights so far are kept" if result.reason == INTERRUPTED else "Raise max_iter or tol"
            warnings.warn(
                f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} "
                f"steps, objective {result.value:.6g}). {kept}.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> KernelModel:
        model = getattr(self, "_model", None)
        if model is None:
            raise NotFittedError(f"this {self._name} is not fitted yet. Call fit(X, y) first, or load a model file.")
        return model

    @property
    def _coder(self) -> GraphLabels:
        return self._fitted.labels

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        return self._fitted.potentials(X)

    # -------------------------------------------------------------- explanation

    def relation_weights(self, relation: str = "+1") -> TransitionTable:
        """Weights of the label pairs of a relation: rows the tail's label, columns the head's; NaN is forbidden."""
        model = self._fitted
        schema = model.reader.schema
        ends = schema.relations[schema.relation(relation)]
        coders = model.labels.coders
        table = model.layout.table(model.weights, relation)
        return TransitionTable(coders[ends.tail].labels, table, columns=coders[ends.head].labels)

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.kernel_file import save_kernel

        self._fitted  # noqa: B018
        save_kernel(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None


@dataclass(eq=False)
class _Work:
    """One training: what was read, and the steps from similarities to weights."""

    owner: KernelCRF
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
            return Waves.draw(like.kind, rows.shape[1], count, gamma=like.gamma, rng=self.rng)
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


def _places(nodes: np.ndarray, batch: GraphBatch) -> list[tuple[int, int]]:
    """Numbers of nodes as (sequence, step)."""
    offsets = batch.topology.offsets
    graph = np.searchsorted(offsets, nodes, side="right") - 1
    return list(zip(graph.tolist(), (nodes - offsets[graph]).tolist()))
