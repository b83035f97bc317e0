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
from typing import Any, Self

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.potentials import Potentials
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.data import target_of
from crfield.estimators.similarity.checks import check_kernel_parameters
from crfield.estimators.similarity.model import KernelModel
from crfield.estimators.similarity.work import KernelWork
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.optimize.history import INTERRUPTED, Step
from crfield.report.weights import TransitionTable
from crfield.training.graph.plan import plan_training


class KernelCRF(GraphAnswers[Any]):
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
        refuse_large(batch, reader.encoder, sequences=not reader.of_graphs)
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
        work = KernelWork(self, reader, coder, batch, target, plan, random_generator(self.random_state))
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
        from crfield.estimators.similarity.file import save_kernel

        self._fitted  # noqa: B018
        save_kernel(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None


def _places(nodes: np.ndarray, batch: GraphBatch) -> list[tuple[int, int]]:
    """Numbers of nodes as (sequence, step)."""
    offsets = batch.topology.offsets
    graph = np.searchsorted(offsets, nodes, side="right") - 1
    return list(zip(graph.tolist(), (nodes - offsets[graph]).tolist()))
