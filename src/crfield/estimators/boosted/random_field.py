"""`BoostedRandomField`: boosting that listens to the neighbours' beliefs, as a scikit-learn estimator.

The rival of virtual evidence boosting (Torralba, Murphy & Freeman 2004; `crfield.boosting.random_field`). It learns
beliefs and no joint model: asked for the best labelling as a whole it gives the best label of each node, and
``log_prob`` takes the nodes as independent given X.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from crfield.boosting.random_field import FIELD_LEARNERS, FieldModel, boost_field
from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.rounds import RoundOptions, blocks_of, class_priors
from crfield.core.checks import resolve_jobs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.boosted.model import step_name
from crfield.estimators.boosted.virtual_checks import (
    STARTS,
    check_choice,
    check_count,
    check_number,
    check_sequence_options,
    graphs_of,
    relation_numbers,
)
from crfield.estimators.boosted.virtual_evidence import RoundStep, node_weights
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.data import target_of
from crfield.features.graphs.encoder import GraphEncoder


def check_field_options(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `BoostedRandomField` has a value that can be used.

    >>> check_field_options(BoostedRandomField(learner="tree").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: learner must be one of 'linear', 'stump', got 'tree'.
    """
    check_choice("learner", parameters["learner"], FIELD_LEARNERS)
    check_choice("start", parameters["start"], STARTS)
    check_count("n_rounds", parameters["n_rounds"], 1)
    check_count("max_bins", parameters["max_bins"], 2)
    check_number("ridge", parameters["ridge"])
    for name in ("response_limit", "learning_rate"):
        check_number(name, parameters[name], positive=True)
    check_sequence_options(parameters)


class BoostedRandomField(GraphAnswers[Any]):
    """Boosted random field on sequences or graphs; X and y as in `VirtualEvidenceBoosting`.

    Parameters
    ----------
    n_rounds : int
        Rounds, in training and then in every prediction.
    learner : "linear" or "stump"
        Weak learners on the neighbours' beliefs: a regression on them, or a cut of one of them.
    relations, directed, discrete, max_bins, decode, engine, map_engine, n_jobs, random_state, verbose
        As in `VirtualEvidenceBoosting`. Beliefs are what they are: ``decode`` and the engines change nothing.
    response_limit, ridge, learning_rate : float
        Clip of the responses, weight added to leaves and regressions, share of each step that is taken.
    start : "prior" or "zero"
        Scores before the first round.

    Examples
    --------
    >>> from crfield import BoostedRandomField, make_order_chains
    >>> world = make_order_chains(0.9, n_chains=4, length=300, n_features=10)
    >>> model = BoostedRandomField(n_rounds=20, learner="stump").fit(world.features, world.labels)
    >>> model.score(world.features, world.labels) > 0.6
    True
    """

    _model: tuple[GraphEncoder, GraphLabels, FieldModel] | None
    _name = "BoostedRandomField"
    file_kind = "boosted_field"

    def __init__(
        self,
        *,
        n_rounds: int = 50,
        learner: str = "linear",
        relations: Sequence[Any] | None = None,
        directed: bool = False,
        discrete: Sequence[int] = (),
        response_limit: float = 4.0,
        ridge: float = 5.0,
        learning_rate: float = 1.0,
        max_bins: int = 32,
        start: str = "prior",
        decode: str = "map",
        engine: Any = "auto",
        map_engine: Any = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_rounds = n_rounds
        self.learner = learner
        self.relations = relations
        self.directed = directed
        self.discrete = discrete
        self.response_limit = response_limit
        self.ridge = ridge
        self.learning_rate = learning_rate
        self.max_bins = max_bins
        self.start = start
        self.decode = decode
        self.engine = engine
        self.map_engine = map_engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rounds from X and the labels y of steps or nodes; ``sample_weight`` has one number per graph."""
        check_field_options(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        encoder = GraphEncoder()
        batch = encoder.fit(self._graphs(X))
        if batch.topology.n_nodes == 0:
            raise InputError("X holds no steps or nodes at all; at least one is needed to train.")
        coder = GraphLabels([kind.name for kind in encoder.schema.kinds]).fit(y, batch)
        target = target_of(batch, coder, y, sample_weight)
        labels, weight = target.labels.astype(np.int64), node_weights(batch, target)
        prior = class_priors(labels, weight, batch, coder.sizes)
        if self.start == "zero":
            prior = tuple(np.zeros_like(one) for one in prior)
        options = RoundOptions(
            n_rounds=int(self.n_rounds),
            response_limit=float(self.response_limit),
            ridge=float(self.ridge),
            learning_rate=float(self.learning_rate),
            n_jobs=resolve_jobs(self.n_jobs),
        )
        blocks = blocks_of(
            batch, encoder.schema, max_bins=self.max_bins, discrete=tuple(self.discrete), n_jobs=options.n_jobs
        )
        with Progress(self.verbose, total=options.n_rounds, description=self._name) as progress:
            started = time.monotonic()

            def watch(one: Round) -> None:
                progress.update(RoundStep.of(one, started))

            done = boost_field(
                batch,
                encoder.schema,
                labels,
                weight,
                coder.sizes,
                prior,
                blocks,
                options,
                learner=self.learner,
                relations=relation_numbers(encoder.schema, self.relations),
                name=lambda step: step_name(step, encoder),
                watch=watch if self.verbose else None,
            )
        self._model = encoder, coder, done.model
        self.classes_ = coder.classes[coder.kinds[0]] if len(coder.kinds) == 1 else coder.classes
        self.rounds_ = RoundTable(done.rounds)
        self.n_rounds_ = len(done.rounds)
        self.converged_ = True
        self.stop_reason_ = done.reason
        return self

    @property
    def _fitted(self) -> tuple[GraphEncoder, GraphLabels, FieldModel]:
        model = getattr(self, "_model", None)
        if model is None:
            raise NotFittedError(f"this {self._name} is not fitted yet. Call fit(X, y) first, or load a model file.")
        return model

    @property
    def _coder(self) -> GraphLabels:
        return self._fitted[1]

    def _graphs(self, X: Any) -> list[Graph]:
        return graphs_of(X, self.relations, bool(self.directed))

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        encoder, coder, field = self._fitted
        batch = encoder.encode(self._graphs(X))
        with np.errstate(divide="ignore"):
            node = np.log(np.maximum(field.beliefs(batch), 1e-300))
        node[~coder.states(batch)] = -np.inf
        none = np.zeros(0, np.int64)
        edge = np.zeros((1, coder.n_labels, coder.n_labels))
        return Potentials(node, edge, Graphs(batch.topology.offsets, none, none)), batch

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.boosted.virtual_evidence_file import save_field

        save_field(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None
