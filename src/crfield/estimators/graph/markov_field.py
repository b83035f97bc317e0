"""`MarkovRandomField`: the generative model that conditional fields are compared with.

    p(x, y) = Π_n p(x_n | y_n) · (1 / Z) exp( Σ_n bias(y_n) + Σ_e table(y_tail, y_head) )

In two steps (Besag 1986, *On the statistical analysis of dirty pictures*): a density of the features for each label,
and a field of the labels alone. Given x the posterior has the same graph, with log p(x_n | y_n) added to the scores
of the nodes, so all engines apply. What it cannot do is look at more than the node itself: features that overlap, as
those of neighbouring windows do, would be counted as independent evidence several times.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone

from crfield.core.potentials import Potentials
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Edges, Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import InputError, NotFittedError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.checks import check_answering
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.data import target_of
from crfield.estimators.graph.discriminative_field import fit_clone, node_weights, site_features
from crfield.estimators.graph.grid import PixelGrids
from crfield.features.graphs.encoder import GraphEncoder


class MarkovRandomField(PixelGrids, GraphAnswers[Any]):
    """Generative random field: densities of the features, and a field of the labels.

    X holds images, as for `GridCRF`, or graphs with numeric features.

    Parameters
    ----------
    density : scikit-learn density estimator with ``score_samples``, optional
        Cloned and fitted for each label; a Gaussian mixture of ``n_components`` if None. Weights of graphs reach it
        if its ``fit`` takes ``sample_weight``, which that mixture's does not.
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

    file_kind = "markov_field"

    def __init__(
        self,
        density: Any = None,
        *,
        n_components: int = 1,
        field: GraphCRF | None = None,
        neighbours: int = 4,
        engine: Any = "auto",
        map_engine: Any = None,
        decode: str = "map",
        n_jobs: int | None = None,
    ) -> None:
        self.density = density
        self.n_components = n_components
        self.field = field
        self.neighbours = neighbours
        self.engine = engine
        self.map_engine = map_engine
        self.decode = decode
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a density for each label, then the field of the labels."""
        check_answering(self.get_params(deep=False))
        field = GraphCRF() if self.field is None else self.field
        if not isinstance(field, GraphCRF):
            raise InputError(f"field must be a GraphCRF or None, got {type(field).__name__}.")
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        graphs = self._graphs(X)
        encoder = GraphEncoder()
        batch = encoder.fit(graphs)
        refuse_large(batch, encoder)
        if len(encoder.schema.kinds) > 1:
            raise InputError("a Markov random field has one kind of nodes; use GraphCRF for several.")
        coder = GraphLabels([encoder.schema.kinds[0].name]).fit(self._labels(y, X), batch)
        target = target_of(batch, coder, self._labels(y, X), sample_weight)
        features = site_features(batch)
        if hasattr(features, "todense") or not features.shape[1]:
            raise InputError("a Markov random field needs numeric features with a density; use GraphCRF for others.")
        density = self.density
        if density is None:
            from sklearn.mixture import GaussianMixture

            density = GaussianMixture(self.n_components, random_state=0)
        if isinstance(density, type) or not hasattr(density, "score_samples"):
            got = f"the class {density.__name__}" if isinstance(density, type) else type(density).__name__
            raise InputError(f"density must be an object with score_samples, got {got}.")
        weight = None if target.weight is None else target.weight[batch.topology.sequence_of_node]
        options = node_weights(density, weight, np.arange(len(features)), role="the density")
        densities = []
        for code, label in enumerate(coder.coders[0].labels):
            own = np.flatnonzero(target.labels == code)
            if not len(own):
                raise InputError(f"label {label!r} is on no site whose label is known.")
            some = {name: values[own] for name, values in options.items()}
            densities.append(fit_clone(density, features[own], role=f"the density of label {label!r}", **some))
        bare = [Graph(graph.n_nodes, _plain(graph)) for graph in graphs]
        self.field_ = clone(field).fit(bare, self._labels(y, X), sample_weight)
        self.densities_, self._encoder, self._labels_known = densities, encoder, coder
        self.classes_ = coder.classes[coder.kinds[0]]
        self.converged_ = self.field_.converged_
        return self

    @property
    def _coder(self) -> GraphLabels:
        if not hasattr(self, "densities_"):
            raise NotFittedError("this MarkovRandomField is not fitted yet. Call fit(X, y) first.")
        return self._labels_known

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        self._coder  # noqa: B018  (says so where nothing is fitted)
        graphs = self._graphs(X)
        batch = self._encoder.encode(graphs)
        refuse_large(batch, self._encoder, doing="be scored")
        prior = self.field_.potentials([Graph(graph.n_nodes, _plain(graph)) for graph in graphs])
        node = prior.node.copy()
        if batch.topology.n_nodes:
            evidence = np.stack([density.score_samples(site_features(batch)) for density in self.densities_], axis=1)
            # Features that no density knows tell nothing; taken at their word they would forbid every label.
            evidence[np.isneginf(evidence).all(axis=1)] = 0.0
            node += evidence
        return Potentials(node, prior.edge, prior.topology, prior.table), batch

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. The density must be a Gaussian mixture:
        others are code, and for those there is joblib.
        """
        from crfield.estimators.graph.field_file import save_markov

        save_markov(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "densities_")


def _plain(graph: Graph) -> dict[str, Any]:
    """The relations of a graph without edge features, which a generative field knows nothing of."""
    return {name: Edges(edges.pairs, None, edges.symmetric) for name, edges in graph.edges.items()}
