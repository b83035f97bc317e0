"""`MarkovRandomField`: the generative model that conditional fields are compared with.

    p(x, y) = Π_n p(x_n | y_n) · (1 / Z) exp( Σ_n bias(y_n) + Σ_e table(y_tail, y_head) )

In two steps (Besag 1986, *On the statistical analysis of dirty pictures*): a density of the features for each label,
and a field of the labels alone. Given x the posterior has the same graph, with log p(x_n | y_n) added to the scores
of the nodes, so all engines apply. What it cannot do is look at more than the node itself: features that overlap, as
those of neighbouring windows do, would be counted as independent evidence several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.checks import Check, integer
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.typing import Graphlike, Labels, Parameters, Weights
from crfield.data.batch import matrix_of
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Edges, Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import InputError, ModelFileError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.base.sklearn_parts import estimator_with, fit_clone, node_weights, not_stored
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.data import GraphData, read_graphs
from crfield.estimators.graph.grid import PixelGrids
from crfield.estimators.graph.model import graph_parts, graph_state
from crfield.features.graphs.encoder import GraphEncoder
from crfield.storage.state import State

_COVARIANCES = {  # shapes for k components in d dimensions
    "full": lambda k, d: (k, d, d),
    "tied": lambda k, d: (d, d),
    "diag": lambda k, d: (k, d),
    "spherical": lambda k, d: (k,),
}
_MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")


@dataclass(frozen=True, eq=False)
class MarkovField:
    """What a fitted field holds: a density for each label, and the field of the labels."""

    encoder: GraphEncoder
    labels: GraphLabels
    densities: list[Any]
    field: GraphCRF

    def potentials(self, graphs: Sequence[Graph]) -> tuple[Potentials, GraphBatch]:
        """Scores of graphs, and their encoding."""
        batch = self.encoder.encode(graphs)
        refuse_large(batch, self.encoder, doing="be scored")
        prior = self.field.potentials(without_features(graphs))
        node = prior.node.copy()
        if batch.topology.n_nodes:
            evidence = np.stack([density.score_samples(matrix_of(batch.node)) for density in self.densities], axis=1)
            # Features that no density knows tell nothing; taken at their word they would forbid every label.
            evidence[np.isneginf(evidence).all(axis=1)] = 0.0
            node += evidence
        return Potentials(node, prior.edge, prior.topology, prior.table), batch

    def state(self) -> State:
        """Header and arrays; InputError for densities that are more than a few arrays and a formula."""
        from sklearn.mixture import GaussianMixture

        for density in self.densities:
            if type(density) is not GaussianMixture:
                raise InputError(not_stored("density", density, "a Gaussian mixture"))
        state = graph_state(self.encoder, self.labels).with_part("field", self.field._state())
        arrays = {
            f"density {code}/{name}": np.asarray(getattr(density, name), np.float64)
            for code, density in enumerate(self.densities)
            for name in _MIXTURE
        }
        covariance_type = self.densities[0].covariance_type
        return State({**state.header, "covariance_type": covariance_type}, {**state.arrays, **arrays})

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        encoder, labels = graph_parts(state)
        field = GraphCRF._from_state(state.part("field"))
        known = field.classes_
        if len(labels.kinds) != 1 or isinstance(known, dict) or len(known) != labels.n_labels:
            raise ModelFileError("the field of the labels does not fit the labels: the file is damaged.")
        form = state.word("covariance_type", tuple(_COVARIANCES))
        width = encoder.schema.kinds[0].width
        parts = [State(arrays=state.under(f"density {code}")) for code in range(labels.n_labels)]
        return cls(encoder, labels, [mixture_of(part, form, width) for part in parts], field)


class MarkovRandomField(PixelGrids, GraphAnswers[MarkovField], kind="markov_field", model=MarkovField):
    """Generative random field: densities of the features, and a field of the labels.

    X holds images, as for `GridCRF`, or graphs with numeric features.

    Parameters
    ----------
    density : scikit-learn density estimator with ``score_samples``, optional
        Cloned and fitted for each label; a Gaussian mixture of ``n_components`` if None. Weights of graphs reach it
        if its ``fit`` takes ``sample_weight``, which that mixture's does not. Model files hold Gaussian mixtures:
        others are code, and for those there is joblib.
    n_components : int
        Of that mixture.
    field : GraphCRF, optional
        Trained on graphs without features to be the field of the labels; ``GraphCRF()`` if None, which is exact
        likelihood where the graphs allow it and, having no features to be judged by, pseudo-likelihood elsewhere.
    neighbours, engine, map_engine, decode, n_jobs
        As in `GridCRF`.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import MarkovRandomField
    >>> rng = np.random.default_rng(0)
    >>> truth = [np.kron(rng.integers(0, 2, (2, 2)), np.ones((4, 4), int)) for _ in range(6)]
    >>> images = [t + rng.normal(scale=0.6, size=t.shape) for t in truth]
    >>> model = MarkovRandomField().fit(images, truth)
    >>> round(model.score(images, truth), 1)
    1.0
    """

    density: Any = parameter(estimator_with("score_samples", "a density"), default=None, kw_only=False)
    n_components: int = parameter(integer(1), default=1)
    field: GraphCRF | None = parameter(
        Check("a GraphCRF or None", lambda value: value is None or isinstance(value, GraphCRF)), default=None
    )

    field_: GraphCRF = learnt()
    densities_: list[Any] = learnt()
    converged_: bool = learnt()

    reported = ()

    def fit(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> Self:
        """Fit a density for each label, then the field of the labels."""
        from sklearn.base import clone

        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        graphs, labels = self._graphs(X), self._labels(y, X)
        data = read_graphs(graphs, labels, sample_weight)
        if len(data.labels.kinds) > 1:
            raise InputError("a Markov random field has one kind of nodes; use GraphCRF for several.")
        densities = self._fit_densities(data)
        field = clone(GraphCRF() if self.field is None else self.field)
        field.fit(without_features(graphs), labels, sample_weight)
        return self._learn(MarkovField(data.encoder, data.labels, densities, field))

    def _fit_densities(self, data: GraphData) -> list[Any]:
        """A density of the features of each label."""
        features, target = matrix_of(data.batch.node), data.target
        if hasattr(features, "todense") or not features.shape[1]:
            raise InputError("a Markov random field needs numeric features with a density; use GraphCRF for others.")
        density = self.density
        if density is None:
            from sklearn.mixture import GaussianMixture

            density = GaussianMixture(self.n_components, random_state=0)
        weight = None if target.weight is None else target.weight[data.batch.topology.sequence_of_node]
        options = node_weights(density, weight, np.arange(len(features)), role="the density")
        densities = []
        for code, label in enumerate(data.labels.coders[0].labels):
            own = np.flatnonzero(target.labels == code)
            if not len(own):
                raise InputError(f"label {label!r} is on no site whose label is known.")
            some = {name: values[own] for name, values in options.items()}
            densities.append(fit_clone(density, features[own], role=f"the density of label {label!r}", **some))
        return densities

    def _show(self, model: MarkovField) -> None:
        super()._show(model)
        self.field_, self.densities_ = model.field, model.densities
        self.converged_ = model.field.converged_


def without_features(graphs: Sequence[Graph]) -> list[Graph]:
    """Graphs without features of nodes and edges, of which the field of the labels knows nothing."""
    return [
        Graph(graph.n_nodes, {name: Edges(edges.pairs, None, edges.symmetric) for name, edges in graph.edges.items()})
        for graph in graphs
    ]


def mixture_of(state: State, form: str, width: int) -> Any:
    """The Gaussian mixture of a model file."""
    from sklearn.mixture import GaussianMixture

    weights = state.array("weights_", (None,))
    if not len(weights) or (weights <= 0).any():
        raise ModelFileError("the shares of a mixture must be positive: the file is damaged.")
    mixture = GaussianMixture(len(weights), covariance_type=form)
    shape = _COVARIANCES[form](len(weights), width)
    mixture.weights_, mixture.means_ = weights, state.array("means_", (len(weights), width))
    mixture.covariances_ = state.array("covariances_", shape)
    mixture.precisions_cholesky_ = state.array("precisions_cholesky_", shape)
    mixture.n_features_in_, mixture.converged_ = width, True
    return mixture
