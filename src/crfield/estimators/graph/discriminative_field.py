"""`DiscriminativeRandomField`: a local classifier, and neighbours that agree or not.

Two labels, an opinion of each site from any scikit-learn classifier, and an interaction that is part plain smoothing,
part an opinion on what lies between two sites (`crfield.scoring.interaction` has the formulas; Kumar & Hebert 2003,
2006). It is trained in two steps. The classifier learns the sites as if they were alone. Then its opinions are kept
and the few weights of the interaction are found by pseudo-likelihood, or from there by likelihood; the opinions used
there come from folds in which the classifier had not seen the site's graph, for a classifier is surer of what it has
seen, and an interaction fitted to such certainty would be too weak for new data.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from crfield.core.checks import resolve_jobs
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import ConvergenceWarning, DataWarning, InputError, NotFittedError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.checks import check_numbers
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.checks import check_answering
from crfield.estimators.graph.data import target_of
from crfield.estimators.graph.grid import PixelGrids
from crfield.features.graphs.encoder import GraphEncoder
from crfield.optimize.penalty import Penalty
from crfield.scoring.interaction import FIXED, InteractionScorer, Sites
from crfield.training.graph.interaction import fit_interaction
from crfield.training.graph.plan import plan_training

SUREST = 1e-6  # no opinion of the local classifier counts as surer than this


class DiscriminativeRandomField(PixelGrids, GraphAnswers[Any]):
    """Two labels on graphs: association by a local classifier, interaction of neighbours.

    X holds images, as for `GridCRF`, or graphs; y images of labels or lists in the order of the nodes. There must be
    two labels.

    Parameters
    ----------
    local : scikit-learn classifier with ``predict_proba``, optional
        Opinions of the sites; logistic regression if None. Weights of graphs reach it if its ``fit`` takes
        ``sample_weight``.
    between : "difference" or "edges"
        What describes a pair of sites: the absolute differences of their features, or the edge features of the
        graphs. Both are brought to deviation 1, and a constant is added.
    objective : "pseudo_likelihood" or "likelihood"
        What the interaction is fitted by. The likelihood starts from the pseudo-likelihood solution and takes its
        totals from ``engine``: slower, and better by a little where the interaction is strong.
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

    file_kind = "discriminative_field"

    def __init__(
        self,
        local: Any = None,
        *,
        between: str = "difference",
        objective: str = "pseudo_likelihood",
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
        self.objective = objective
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
        check_field_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        encoder = GraphEncoder()
        batch = encoder.fit(self._graphs(X))
        refuse_large(batch, encoder)
        if len(encoder.schema.kinds) > 1:
            raise InputError("a discriminative random field has one kind of nodes; use GraphCRF for several.")
        coder = GraphLabels([encoder.schema.kinds[0].name]).fit(self._labels(y, X), batch)
        if coder.n_labels != 2:
            raise InputError(
                f"a discriminative random field tells two labels apart, got {coder.n_labels}: "
                f"{coder.classes[coder.kinds[0]][:10].tolist()}. Use GridCRF or GraphCRF for more."
            )
        if not site_features(batch).shape[1]:
            raise InputError("a discriminative random field needs features of the nodes, and there are none.")
        if self.between == "edges" and all(columns is None for columns in batch.edge):
            raise InputError("between='edges' needs edge features, and no relation has any. Use 'difference'.")
        target = target_of(batch, coder, self._labels(y, X), sample_weight)
        local, opinions = self._fit_local(site_features(batch), target, coder)
        described = self._describe(batch)
        scale = np.maximum(described.std(axis=0), 1e-12) if len(described) else np.ones(described.shape[1])
        sites = Sites(batch.topology, opinions, between_columns(described, scale))
        jobs = resolve_jobs(self.n_jobs)
        plan = plan_training(batch.topology, 2, objective=self.objective, engine=self.engine, n_jobs=jobs)
        result = fit_interaction(
            sites, target, Penalty(l2=self.l2), plan.engine, tol=self.tol, max_iter=self.max_iter
        )
        self._encoder, self._labels_known, self._scale, self.local_ = encoder, coder, scale, local
        self.classes_ = coder.classes[coder.kinds[0]]
        self.coef_ = result.weights
        self.coef_.flags.writeable = False
        self.objective_, self.n_iter_, self.converged_ = float(result.value), result.n_iter, result.converged
        if not result.converged:
            warnings.warn(
                f"the interaction had not met the tolerance {self.tol:g} ({result.reason}). Raise max_iter or l2"
                + (", or use objective='pseudo_likelihood'." if self.objective == "likelihood" else "."),
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

    def _fit_local(self, features: Any, target: Target, coder: GraphLabels) -> tuple[Any, np.ndarray]:
        """The classifier on all labelled sites, and opinions (N, 2) of each site by others than itself."""
        local = self.local
        if local is None:
            from sklearn.linear_model import LogisticRegression

            local = LogisticRegression(max_iter=1000)
        if isinstance(local, type) or not hasattr(local, "predict_proba"):
            got = f"the class {local.__name__}" if isinstance(local, type) else type(local).__name__
            raise InputError(f"local must be a classifier object with predict_proba, got {got}.")
        known = np.flatnonzero(target.labels >= 0)
        codes = target.labels[known]
        if len(np.unique(codes)) < 2:
            raise InputError("both labels must be met on at least one site whose label is known.")
        graph_of, weight = target.topology.sequence_of_node, None
        if target.weight is not None:
            weight = target.weight[graph_of]
        options = node_weights(local, weight, known, role="the local classifier")
        taught = fit_clone(local, features[known], names_for(coder)[codes], role="the local classifier", **options)
        opinions = self._opinions(taught, features, coder)
        folds = min(int(self.cv), target.topology.n_sequences)
        for fold in range(folds if folds > 1 else 0):
            held = graph_of % folds == fold
            rest = known[~held[known]]
            if held.any() and len(np.unique(target.labels[rest])) == 2:
                options = node_weights(local, weight, rest, role="")
                others = fit_clone(
                    local,
                    features[rest],
                    names_for(coder)[target.labels[rest]],
                    role="the local classifier",
                    **options,
                )
                opinions[held] = self._opinions(others, features[np.flatnonzero(held)], coder)
        return taught, opinions

    @staticmethod
    def _opinions(classifier: Any, features: Any, coder: GraphLabels) -> np.ndarray:
        """(N, 2) log-probabilities in the order of the labels' codes."""
        columns = np.searchsorted(classifier.classes_, names_for(coder))
        return np.log(np.clip(classifier.predict_proba(features)[:, columns], SUREST, 1.0))

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

    @property
    def _weights(self) -> np.ndarray:
        if not hasattr(self, "coef_"):
            raise NotFittedError("this DiscriminativeRandomField is not fitted yet. Call fit(X, y) first.")
        return self.coef_

    @property
    def _coder(self) -> GraphLabels:
        self._weights  # noqa: B018  (says so where nothing is fitted)
        return self._labels_known

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        weights = self._weights
        batch = self._encoder.encode(self._graphs(X))
        refuse_large(batch, self._encoder, doing="be scored")
        opinions = np.zeros((0, 2))
        if batch.topology.n_nodes:
            opinions = self._opinions(self.local_, site_features(batch), self._coder)
        sites = Sites(batch.topology, opinions, between_columns(self._describe(batch), self._scale))
        return InteractionScorer(len(weights) - FIXED).score(weights, sites), batch

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. The local classifier must be logistic
        regression: others are code, and for those there is joblib.
        """
        from crfield.estimators.graph.field_file import save_discriminative

        save_discriminative(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


def check_field_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless the parameters of a `DiscriminativeRandomField` can be used.

    >>> check_field_parameters(DiscriminativeRandomField(between="pixels").get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: between must be 'difference' or 'edges', got 'pixels'.
    """
    if parameters["between"] not in ("difference", "edges"):
        raise InputError(f"between must be 'difference' or 'edges', got {parameters['between']!r}.")
    if parameters["objective"] not in ("pseudo_likelihood", "likelihood"):
        raise InputError(f"objective must be 'pseudo_likelihood' or 'likelihood', got {parameters['objective']!r}.")
    check_numbers({"l1": 0.0, "min_count": 1, **{name: parameters[name] for name in ("l2", "tol", "max_iter")}})
    cv = parameters["cv"]
    if isinstance(cv, bool) or not isinstance(cv, Integral) or cv < 1:
        raise InputError(f"cv must be a whole number of at least 1, got {cv!r}.")
    check_answering(parameters)


def between_columns(described: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(E, 1 + D): a constant, and what lies between the ends of every edge, brought to scale."""
    return np.concatenate([np.ones((len(described), 1)), described / scale], axis=1)


def names_for(coder: GraphLabels) -> np.ndarray:
    """(L,) labels as scikit-learn can have them: themselves where all are of one plain type, else their codes.

    >>> from crfield.data.labels import LabelCoder
    >>> names_for(GraphLabels.from_coders({"node": LabelCoder.from_classes([False, True])}))
    array([False,  True])
    """
    labels = coder.coders[0].labels
    types = {type(label) for label in labels}
    if len(types) == 1 and types <= {str, int, bool}:
        return np.array(labels)
    return np.arange(len(labels))


def fit_clone(estimator: Any, *data: Any, role: str, **options: Any) -> Any:
    """A fitted clone of a scikit-learn estimator; InputError with its own words where it refuses the data.

    >>> from sklearn.mixture import GaussianMixture
    >>> fit_clone(GaussianMixture(), np.zeros((1, 1)), role="the density")
    Traceback (most recent call last):
    crfield.errors.InputError: the density (GaussianMixture) cannot be fitted: Found array with 1 sample(s) ...
    """
    try:
        return clone(estimator).fit(*data, **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"{role} ({type(estimator).__name__}) cannot be fitted: {error}") from error


def node_weights(estimator: Any, weight: np.ndarray | None, rows: np.ndarray, *, role: str) -> dict[str, np.ndarray]:
    """Weights (N,) of nodes as an option of ``fit``, if it has one; where it has none they are left out.

    A ``role`` is named in a warning if that matters.

    >>> from sklearn.linear_model import LogisticRegression
    >>> node_weights(LogisticRegression(), np.array([1.0, 2.0, 2.0]), np.array([0, 2]), role="it")
    {'sample_weight': array([1., 2.])}
    """
    from sklearn.utils.validation import has_fit_parameter

    if weight is None:
        return {}
    if has_fit_parameter(estimator, "sample_weight"):
        return {"sample_weight": weight[rows]}
    if role and len(rows) and np.ptp(weight[rows]) > 0:
        warnings.warn(
            f"{role} ({type(estimator).__name__}) takes no sample_weight: all graphs count alike for it, and their "
            "weights apply to what holds neighbours together alone.",
            DataWarning,
            stacklevel=4,
        )
    return {}


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
