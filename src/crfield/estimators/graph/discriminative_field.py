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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.checks import integer, one_of, resolve_jobs
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.typing import Graphlike, Labels, Parameters, Weights
from crfield.data.batch import matrix_of
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import ConvergenceWarning, InputError, ModelFileError
from crfield.estimators.base.fitted import read_only
from crfield.estimators.base.groups import PENALTY, TOLERANCE
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.base.sklearn_parts import estimator_with, fit_clone, node_weights, not_stored
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.data import GraphData, read_graphs
from crfield.estimators.graph.grid import PixelGrids
from crfield.estimators.graph.model import graph_parts, graph_state
from crfield.features.graphs.encoder import GraphEncoder
from crfield.optimize.penalty import Penalty
from crfield.scoring.interaction import FIXED, InteractionScorer, Sites
from crfield.storage.state import State
from crfield.training.graph.interaction import fit_interaction
from crfield.training.graph.plan import plan_training

SUREST = 1e-6  # no opinion of the local classifier counts as surer than this


@dataclass(frozen=True, eq=False)
class DiscriminativeField:
    """What a fitted field holds: the local classifier, and the weights of the interaction."""

    encoder: GraphEncoder
    labels: GraphLabels
    local: Any
    between: str
    scale: np.ndarray  # (D,) deviations of what lies between sites
    weights: np.ndarray  # (W,) as `InteractionScorer` has them

    def potentials(self, graphs: Sequence[Graph]) -> tuple[Potentials, GraphBatch]:
        """Scores of graphs, and their encoding."""
        batch = self.encoder.encode(graphs)
        refuse_large(batch, self.encoder, doing="be scored")
        opinions = np.zeros((0, 2))
        if batch.topology.n_nodes:
            opinions = opinions_of(self.local, matrix_of(batch.node), self.labels)
        sites = Sites(batch.topology, opinions, between_columns(described_edges(batch, self.between), self.scale))
        return InteractionScorer(len(self.weights) - FIXED).score(self.weights, sites), batch

    def state(self) -> State:
        """Header and arrays; InputError for a local classifier that is more than a few arrays and a formula."""
        from sklearn.linear_model import LogisticRegression

        if type(self.local) is not LogisticRegression:
            raise InputError(not_stored("local classifier", self.local, "logistic regression"))
        local = {"coef": self.local.coef_[0], "intercept": self.local.intercept_}
        arrays = {f"local/{name}": np.asarray(values, np.float64) for name, values in local.items()}
        state = graph_state(self.encoder, self.labels)
        return State(state.header, {**state.arrays, "weights": self.weights, "scale": self.scale, **arrays})

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        from sklearn.linear_model import LogisticRegression

        encoder, labels = graph_parts(state)
        if len(labels.kinds) != 1 or labels.n_labels != 2:
            raise ModelFileError("a discriminative random field has two labels: the file is damaged.")
        scale = state.array("scale", (None,))
        weights = state.array("weights", (FIXED + 1 + len(scale),))
        coef = state.array("local/coef", (encoder.schema.kinds[0].width,))
        local = LogisticRegression()
        local.classes_ = np.sort(names_for(labels))
        local.coef_, local.intercept_ = coef[None], state.array("local/intercept", (1,))
        local.n_features_in_ = len(coef)
        return cls(encoder, labels, local, parameters["between"], scale, weights)


class DiscriminativeRandomField(
    PixelGrids, GraphAnswers[DiscriminativeField], kind="discriminative_field", model=DiscriminativeField
):
    """Two labels on graphs: association by a local classifier, interaction of neighbours.

    X holds images, as for `GridCRF`, or graphs; y images of labels or lists in the order of the nodes. There must be
    two labels.

    Parameters
    ----------
    local : scikit-learn classifier with ``predict_proba``, optional
        Opinions of the sites; logistic regression if None. Weights of graphs reach it if its ``fit`` takes
        ``sample_weight``. Model files hold logistic regression alone: others are code, and for those there is
        joblib.
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

    local: Any = parameter(estimator_with("predict_proba", "a classifier"), default=None, kw_only=False)
    between: str = parameter(one_of("difference", "edges"), default="difference")
    objective: str = parameter(one_of("pseudo_likelihood", "likelihood"), default="pseudo_likelihood")
    l2: float = parameter(PENALTY, default=1.0)
    cv: int = parameter(integer(1), default=5)
    tol: float = parameter(TOLERANCE, default=1e-5)
    max_iter: int = parameter(integer(1), default=500)

    local_: Any = learnt()

    reported = ("objective_", "n_iter_", "converged_")

    def fit(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> Self:
        """Fit the local classifier, then the interaction; ``sample_weight`` has one number for each image."""
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        data = read_graphs(self._graphs(X), self._labels(y, X), sample_weight)
        self._refuse(data)
        local, opinions = fit_local(self.local, data, folds=int(self.cv))
        described = described_edges(data.batch, self.between)
        scale = np.maximum(described.std(axis=0), 1e-12) if len(described) else np.ones(described.shape[1])
        topology = data.batch.topology
        plan = plan_training(
            topology, 2, objective=self.objective, engine=self.engine, n_jobs=resolve_jobs(self.n_jobs)
        )
        result = fit_interaction(
            Sites(topology, opinions, between_columns(described, scale)),
            data.target,
            Penalty(l2=self.l2),
            plan.engine,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self._learn(
            DiscriminativeField(data.encoder, data.labels, local, self.between, scale, result.weights), result
        )
        if not result.converged:
            warnings.warn(
                f"the interaction had not met the tolerance {self.tol:g} ({result.reason}). Raise max_iter or l2"
                + (", or use objective='pseudo_likelihood'." if self.objective == "likelihood" else "."),
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _refuse(self, data: GraphData) -> None:
        """InputError for data that a discriminative field is not for."""
        if len(data.labels.kinds) > 1:
            raise InputError("a discriminative random field has one kind of nodes; use GraphCRF for several.")
        if data.labels.n_labels != 2:
            raise InputError(
                f"a discriminative random field tells two labels apart, got {data.labels.n_labels}: "
                f"{data.labels.classes[data.labels.kinds[0]][:10].tolist()}. Use GridCRF or GraphCRF for more."
            )
        if not data.encoder.schema.kinds[0].width:
            raise InputError("a discriminative random field needs features of the nodes, and there are none.")
        if self.between == "edges" and all(columns is None for columns in data.batch.edge):
            raise InputError("between='edges' needs edge features, and no relation has any. Use 'difference'.")

    def _show(self, model: DiscriminativeField) -> None:
        super()._show(model)
        self.local_ = model.local

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights of the interaction, read-only: log a, log b, logit k, and μ."""
        return read_only(self._fitted.weights)

    @property
    def association_(self) -> float:
        """a, the weight of the local opinions."""
        return float(np.exp(self.coef_[0]))

    @property
    def strength_(self) -> float:
        """b, the strength of the interaction."""
        return float(np.exp(self.coef_[1]))

    @property
    def mix_(self) -> float:
        """k, the share of plain smoothing in the interaction."""
        return float(1 / (1 + np.exp(-self.coef_[2])))


def fit_local(local: Any, data: GraphData, *, folds: int) -> tuple[Any, np.ndarray]:
    """The classifier on all labelled sites, and opinions (N, 2) of each site by others than itself."""
    if local is None:
        from sklearn.linear_model import LogisticRegression

        local = LogisticRegression(max_iter=1000)
    target, features, role = data.target, matrix_of(data.batch.node), "the local classifier"
    names = names_for(data.labels)
    known = np.flatnonzero(target.labels >= 0)
    if len(np.unique(target.labels[known])) < 2:
        raise InputError("both labels must be met on at least one site whose label is known.")
    graph_of = target.topology.sequence_of_node
    weight = None if target.weight is None else target.weight[graph_of]

    def fitted(rows: np.ndarray, options: dict[str, np.ndarray]) -> Any:
        return fit_clone(local, features[rows], names[target.labels[rows]], role=role, **options)

    taught = fitted(known, node_weights(local, weight, known, role=role))
    opinions = opinions_of(taught, features, data.labels)
    folds = min(folds, target.topology.n_sequences)
    for fold in range(folds if folds > 1 else 0):
        held = graph_of % folds == fold
        rest = known[~held[known]]
        if held.any() and len(np.unique(target.labels[rest])) == 2:
            others = fitted(rest, node_weights(local, weight, rest, role=""))
            opinions[held] = opinions_of(others, features[np.flatnonzero(held)], data.labels)
    return taught, opinions


def opinions_of(classifier: Any, features: Any, labels: GraphLabels) -> np.ndarray:
    """(N, 2) log-probabilities in the order of the labels' codes."""
    columns = np.searchsorted(classifier.classes_, names_for(labels))
    return np.log(np.clip(classifier.predict_proba(features)[:, columns], SUREST, 1.0))


def described_edges(batch: GraphBatch, between: str) -> np.ndarray:
    """(E, D) what lies between the ends of every edge, before scaling."""
    topology = batch.topology
    if between == "difference":
        features = matrix_of(batch.node)
        difference = abs(features[topology.tails] - features[topology.heads])
        return np.asarray(difference.todense() if hasattr(difference, "todense") else difference)
    blocks = []
    for relation, columns in enumerate(batch.edge):
        if columns is None:
            continue
        own = matrix_of(columns)
        block = np.zeros((topology.n_edges, own.shape[1]))
        block[batch.edges_of(relation)] = own.todense() if hasattr(own, "todense") else own
        blocks.append(block)
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((topology.n_edges, 0))


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
