"""`DiscriminativeRandomField`: a local classifier, and neighbours that agree or not.

Two labels, an opinion of each site from any scikit-learn classifier, and an interaction that is part plain smoothing,
part an opinion on what lies between two sites (`crfield.scoring.interaction` has the formulas; Kumar & Hebert 2003,
2006). It is trained in two steps. The classifier learns the sites as if they were alone. Then its opinions are kept
and the few weights of the interaction are found by pseudo-likelihood; the opinions used there come from folds in
which the classifier had not seen the site's graph, for a classifier is surer of what it has seen, and an interaction
fitted to such certainty would be too weak for new data.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.graph_batch import GraphBatch
from crfield.data.graph_labels import GraphLabels
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.chain_checks import without_weightless
from crfield.estimators.graph_answers import GraphAnswers, target_of
from crfield.estimators.grid import PixelGrids
from crfield.features.graph_encoder import GraphEncoder
from crfield.objectives.local import PseudoLikelihood
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.interaction import FIXED, InteractionScorer, Sites
from crfield.training.interaction_fit import InteractionProblem

SUREST = 1e-6  # no opinion of the local classifier counts as surer than this


class DiscriminativeRandomField(PixelGrids, GraphAnswers, BaseEstimator):
    """Two labels on graphs: association by a local classifier, interaction of neighbours.

    X holds images, as for `GridCRF`, or graphs; y images of labels or lists in the order of the nodes. There must be
    two labels.

    Parameters
    ----------
    local : scikit-learn classifier with ``predict_proba``, optional
        Opinions of the sites; logistic regression if None.
    between : "difference" or "edges"
        What describes a pair of sites: the absolute differences of their features, or the edge features of the
        graphs. Both are brought to deviation 1, and a constant is added.
    l2 : float
        Strength of the ridge on the interaction.
    cv : int
        Folds (of graphs) in which the opinions for training are made; 1 uses the classifier's opinions of what it
        was trained on.
    neighbours, engine, map_engine, decode, n_jobs, tol, max_iter
        As in `GridCRF`.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import DiscriminativeRandomField
    >>> rng = np.random.default_rng(0)
    >>> truth = [np.kron(rng.integers(0, 2, (2, 2)), np.ones((4, 4), int)) for _ in range(6)]
    >>> images = [t + rng.normal(scale=0.6, size=t.shape) for t in truth]
    >>> model = DiscriminativeRandomField().fit(images, truth)
    >>> model.score(images, truth) > model.local_.score(np.concatenate([i.ravel() for i in images])[:, None],
    ...                                                 np.concatenate([t.ravel() for t in truth]))
    True
    """

    def __init__(
        self,
        local: Any = None,
        *,
        between: str = "difference",
        l2: float = 1.0,
        cv: int = 5,
        neighbours: int = 4,
        engine: Any = "auto",
        map_engine: Any = None,
        decode: str = "map",
        n_jobs: int | None = None,
        tol: float = 1e-5,
        max_iter: int = 500,
    ) -> None:
        self.local = local
        self.between = between
        self.l2 = l2
        self.cv = cv
        self.neighbours = neighbours
        self.engine = engine
        self.map_engine = map_engine
        self.decode = decode
        self.n_jobs = n_jobs
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the local classifier, then the interaction; ``sample_weight`` has one number for each image."""
        if self.between not in ("difference", "edges"):
            raise InputError(f"between must be 'difference' or 'edges', got {self.between!r}.")
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        encoder = GraphEncoder()
        batch = encoder.fit(self._graphs(X))
        if len(encoder.schema.kinds) > 1:
            raise InputError("a discriminative random field has one kind of nodes; use GraphCRF for several.")
        coder = GraphLabels([encoder.schema.kinds[0].name]).fit(self._labels(y, X), batch)
        if coder.n_labels != 2:
            raise InputError(
                f"a discriminative random field tells two labels apart, got {coder.n_labels}: "
                f"{coder.classes[coder.kinds[0]][:10].tolist()}. Use GridCRF or GraphCRF for more."
            )
        target = target_of(batch, coder, self._labels(y, X), sample_weight)
        self._encoder, self._labels_known = encoder, coder
        opinions = self._fit_local(site_features(batch), target, batch)
        described = self._describe(batch)
        self._scale = np.maximum(described.std(axis=0), 1e-12) if len(described) else np.ones(described.shape[1])
        sites = Sites(batch.topology, opinions, self._between_columns(batch))
        problem = InteractionProblem(sites, target, PseudoLikelihood())
        result = minimize(
            problem, np.zeros(problem.n_weights), Penalty(l2=self.l2), tol=self.tol, max_iter=self.max_iter
        )
        self.classes_ = coder.classes[coder.kinds[0]]
        self.coef_ = result.weights
        self.objective_, self.n_iter_, self.converged_ = float(result.value), result.n_iter, result.converged
        if not result.converged:
            warnings.warn(
                f"the interaction had not met the tolerance {self.tol:g} ({result.reason}). Raise max_iter or l2.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @property
    def association_(self) -> float:
        """a, the weight of the local opinions."""
        return float(np.exp(self._weights[0]))

    @property
    def strength_(self) -> float:
        """b, the strength of the interaction."""
        return float(np.exp(self._weights[1]))

    @property
    def mix_(self) -> float:
        """k, the share of plain smoothing in the interaction."""
        return float(1 / (1 + np.exp(-self._weights[2])))

    def _fit_local(self, features: Any, target: Target, batch: GraphBatch) -> np.ndarray:
        """The classifier on all labelled sites, and its opinions (N, 2) of each by others than itself."""
        local = self.local
        if local is None:
            from sklearn.linear_model import LogisticRegression

            local = LogisticRegression(max_iter=1000)
        if not hasattr(local, "predict_proba") and not hasattr(clone(local), "predict_proba"):
            raise InputError(f"local must be a classifier with predict_proba, got {type(local).__name__}.")
        known = np.flatnonzero(target.labels >= 0)
        codes = target.labels[known]
        if len(np.unique(codes)) < 2:
            raise InputError("both labels must be met on at least one site whose label is known.")
        self.local_ = clone(local).fit(features[known], self._labels_known.coders[0].classes_[codes])
        self._local_codes = clone(local).fit(features[known], codes)
        opinions = self._opinions(self._local_codes, features)
        graph_of = batch.topology.sequence_of_node
        folds = min(int(self.cv), batch.n_graphs)
        if folds > 1:
            for fold in range(folds):
                held = graph_of % folds == fold
                rest = known[~held[known]]
                if held.any() and len(np.unique(target.labels[rest])) == 2:
                    taught = clone(local).fit(features[rest], target.labels[rest])
                    opinions[held] = self._opinions(taught, features[np.flatnonzero(held)])
        return opinions

    @staticmethod
    def _opinions(classifier: Any, features: Any) -> np.ndarray:
        return np.log(np.clip(classifier.predict_proba(features), SUREST, 1.0))

    def _describe(self, batch: GraphBatch) -> np.ndarray:
        """(E, D) what lies between the ends of every edge, before scaling."""
        topology = batch.topology
        if self.between == "difference":
            features = site_features(batch)
            difference = abs(features[topology.tails] - features[topology.heads])
            return np.asarray(difference.todense() if hasattr(difference, "todense") else difference)
        blocks = []
        for relation in range(len(batch.edge)):
            columns = batch.edge[relation]
            if columns is None:
                continue
            own = as_matrix(columns)
            block = np.zeros((topology.n_edges, own.shape[1]))
            block[batch.edges_of(relation)] = own.todense() if hasattr(own, "todense") else own
            blocks.append(block)
        return np.concatenate(blocks, axis=1) if blocks else np.zeros((topology.n_edges, 0))

    def _between_columns(self, batch: GraphBatch) -> np.ndarray:
        return np.concatenate([np.ones((batch.topology.n_edges, 1)), self._describe(batch) / self._scale], axis=1)

    @property
    def _weights(self) -> np.ndarray:
        if not hasattr(self, "coef_"):
            raise NotFittedError("this DiscriminativeRandomField is not fitted yet. Call fit(X, y) first.")
        return self.coef_

    @property
    def _coder(self) -> GraphLabels:
        return self._labels_known

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        weights = self._weights
        batch = self._encoder.encode(self._graphs(X))
        opinions = np.zeros((0, 2))
        if batch.topology.n_nodes:
            opinions = self._opinions(self._local_codes, site_features(batch))
        sites = Sites(batch.topology, opinions, self._between_columns(batch))
        return InteractionScorer(len(weights) - FIXED).score(weights, sites), batch

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


def as_matrix(columns: Any) -> Any:
    """Sparse and dense columns as one matrix for scikit-learn, dense unless there are sparse ones.

    >>> from crfield.data.batch import Columns
    >>> as_matrix(Columns.from_rows([[0], [1]], width=2)).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if columns.width == 0:
        return np.zeros((columns.n_rows, 0)) if columns.dense is None else columns.dense
    from scipy.sparse import csr_array, hstack

    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    sparse = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width))
    return sparse if columns.dense is None else hstack([sparse, columns.dense], format="csr")


def site_features(batch: GraphBatch) -> Any:
    """The features of all nodes as one matrix."""
    return as_matrix(batch.node)
