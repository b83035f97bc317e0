"""`VirtualEvidenceBoosting`: structure, features and weights of a conditional random field in one training.

Boosting whose weak learners may also ask a neighbour: what is not known of its label is taken as a distribution, its
*virtual evidence* (Liao, Choudhury, Fox & Kautz 2007, *Training conditional random fields using virtual evidence
boosting*). In every round the columns of the nodes and the relations between them compete on one scale, so training
selects features and relations as it goes. What is learnt is an ordinary model of graphs: stumps (or small trees) in
the node scores, one table for each relation.

    exact      exact normal equations, start from the class prior, ridge, messages that maximise if decoding does
    paper      algorithm 2 to the letter
    verified   rounds propose; relations are accepted by pseudo-likelihood and BIC, all weights set by likelihood
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.rounds import Block, RoundOptions, blocks_of, boost, class_priors
from crfield.boosting.virtual_evidence.verified import verify
from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import ConvergenceWarning, DataWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.boosted.model import BoostedModel, step_name
from crfield.estimators.boosted.virtual_checks import check_virtual_parameters, graphs_of, relation_numbers
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.data import target_of
from crfield.features.graphs.encoder import GraphEncoder
from crfield.optimize.history import INTERRUPTED
from crfield.report.weights import FeatureList, TransitionTable
from crfield.training.graph.plan import Plan

LARGE = 5_000  # labelled nodes from which two labels are boosted with whole steps
MOST_RESPONSE = 50.0
UNEQUAL = 1.5  # times its fair share that a label may have before a start from zero is warned of


@dataclass(frozen=True)
class RoundStep:
    """A round as `Progress` shows it: its gain stands where a gradient would."""

    n_iter: int
    value: float
    gradient_norm: float
    n_active: int
    seconds: float

    @classmethod
    def of(cls, one: Round, started: float) -> RoundStep:
        """The round, and the time since ``started``."""
        return cls(one.number, one.nll, one.gain, one.number, time.monotonic() - started)


class VirtualEvidenceBoosting(GraphAnswers[Any]):
    """Boosted conditional random field on sequences or graphs.

    X is a list of sequences (2-D arrays, sparse matrices, lists of dicts or of lists of strings) or of `Graph`; y the
    labels of their steps or nodes, ``None`` where unknown. A step of unknown label teaches nothing and passes on what
    its neighbours tell it.

    Parameters
    ----------
    mode : "exact", "paper" or "verified"
        The three trainings of the module's essay.
    n_rounds : int, optional
        Most rounds: 100, and 50 for "paper".
    learner : "stump" or "tree"
        Weak learners on columns: one cut, or up to ``max_depth`` of them, one after the other.
    max_depth : int
        Of trees.
    relations : list, optional
        What may be picked: names of relations of graphs, all if None; for sequences, distances between steps, (1,) if
        None.
    directed : bool
        Whether the relations of sequences tell before from after. Graphs say so themselves.
    discrete : list of int
        Dense columns whose values are categories.
    response_limit : float, optional
        Clip of the working responses, in Friedman's scale: 4. Mode "exact" allows 8 for two labels, and twice the
        response 1 / share of the rarest label if that is more (up to 50): a clip below it would undo the prior.
    ridge : float, optional
        Added to the weight of every leaf and pair of labels: 5, and 0 for "paper".
    learning_rate : float, optional
        Share of each step that is taken: 1 for two labels on 5,000 nodes or more and for "paper", else 0.5.
    max_bins : int
        Cuts are sought among that many bins of a column.
    start : "prior" or "zero", optional
        Scores before the first round: log shares of the labels, or 0, which is the paper's.
    potential : "joint", "patch", "avg", "sum" or "pure"
        From a weak learner on neighbours to the table of a symmetric relation
        (`crfield.boosting.virtual_evidence.couplings`).
    validation : float, optional
        Share of the graphs held out: training stops when their −log p has not fallen for ``patience`` rounds, and
        keeps its best round.
    patience : int
        Without held-out graphs, mode "exact" stops after so many rounds in which the training loss rose in a row.
    l2 : float
        Penalty of the likelihood in mode "verified".
    proposals : "virtual" or "independent"
        In mode "verified", whether features are proposed with virtual evidence or by LogitBoost without it.
    decode : "map" (or "viterbi") or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each node. In mode "exact" it
        also says what training is for.
    engine, map_engine, n_jobs, random_state, verbose
        As in `GraphCRF`.

    Examples
    --------
    >>> from crfield import VirtualEvidenceBoosting, make_order_chains
    >>> world = make_order_chains(0.95, 2, n_chains=4, length=500, n_features=10, random_state=1)
    >>> model = VirtualEvidenceBoosting(mode="verified", relations=(1, 2, 3)).fit(world.features, world.labels)
    >>> model.accepted_relations_
    ['+2']
    >>> model.rounds_[0].kind
    'feature'
    """

    _model: BoostedModel | None
    _name = "VirtualEvidenceBoosting"
    file_kind = "virtual_evidence"

    def __init__(
        self,
        *,
        mode: str = "exact",
        n_rounds: int | None = None,
        learner: str = "stump",
        max_depth: int = 2,
        relations: Sequence[Any] | None = None,
        directed: bool = False,
        discrete: Sequence[int] = (),
        response_limit: float | None = None,
        ridge: float | None = None,
        learning_rate: float | None = None,
        max_bins: int = 32,
        start: str | None = None,
        potential: str = "joint",
        validation: float | None = None,
        patience: int = 5,
        l2: float = 1.0,
        proposals: str = "virtual",
        decode: str = "map",
        engine: Any = "auto",
        map_engine: Any = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.mode = mode
        self.n_rounds = n_rounds
        self.learner = learner
        self.max_depth = max_depth
        self.relations = relations
        self.directed = directed
        self.discrete = discrete
        self.response_limit = response_limit
        self.ridge = ridge
        self.learning_rate = learning_rate
        self.max_bins = max_bins
        self.start = start
        self.potential = potential
        self.validation = validation
        self.patience = patience
        self.l2 = l2
        self.proposals = proposals
        self.decode = decode
        self.engine = engine
        self.map_engine = map_engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn features, relations and weights from X and the labels y of steps or nodes.

        ``sample_weight`` has one number for each graph; 0 leaves it out. Ctrl-C ends training with the rounds so far.
        """
        check_virtual_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        encoder = GraphEncoder()
        batch = encoder.fit(self._graphs(X))
        if batch.topology.n_nodes == 0:
            raise InputError("X holds no steps or nodes at all; at least one is needed to train.")
        coder = GraphLabels([kind.name for kind in encoder.schema.kinds]).fit(y, batch)
        target = target_of(batch, coder, y, sample_weight)
        usable = relation_numbers(encoder.schema, self.relations)
        jobs = resolve_jobs(self.n_jobs)
        blocks = blocks_of(batch, encoder.schema, max_bins=self.max_bins, discrete=tuple(self.discrete), n_jobs=jobs)
        options = self._options(coder, target, batch)
        trained = self._boosted if self.mode != "verified" else self._verified
        with Progress(self.verbose, total=options.n_rounds, description=self._name) as progress:
            started = time.monotonic()

            def watch(one: Round) -> None:
                progress.update(RoundStep.of(one, started))

            additive, rounds, reason, trained_by = trained(
                encoder, batch, coder, target, blocks, options, usable, watch if self.verbose else None
            )
        self._model = BoostedModel(encoder, coder, additive)
        self.classes_ = coder.classes[coder.kinds[0]] if len(coder.kinds) == 1 else coder.classes
        self.rounds_ = RoundTable(rounds)
        self.n_rounds_ = sum(one.kept for one in rounds)
        self.accepted_relations_ = [encoder.schema.relations[number].name for number in additive.relations]
        self.converged_ = reason != INTERRUPTED
        self.stop_reason_ = reason
        self.trained_by_ = trained_by
        if not self.converged_:
            warnings.warn("training was interrupted; the rounds so far are kept.", ConvergenceWarning, stacklevel=2)
        return self

    def _options(self, coder: GraphLabels, target: Target, batch: GraphBatch) -> RoundOptions:
        """Parameters with those that were left open filled in by mode and data."""
        paper, two = self.mode == "paper", coder.n_labels == 2
        limit = 4.0
        if self.mode == "exact":
            priors = class_priors(target.labels.astype(np.int64), node_weights(batch, target), batch, coder.sizes)
            rarest = min(float((np.exp(one) / np.exp(one).sum()).min()) for one in priors)
            limit = min(max(8.0 if two else 4.0, 2.0 / rarest), MOST_RESPONSE)
        whole = paper or (two and int((target.labels >= 0).sum()) >= LARGE)

        def given(value: Any, otherwise: Any) -> Any:
            return otherwise if value is None else value

        return RoundOptions(
            n_rounds=int(given(self.n_rounds, 50 if paper else 100)),
            learner=self.learner,
            max_depth=int(self.max_depth),
            exact=not paper,
            response_limit=float(given(self.response_limit, limit)),
            ridge=float(given(self.ridge, 0.0 if paper else 5.0)),
            learning_rate=float(given(self.learning_rate, 1.0 if whole else 0.5)),
            potential=self.potential,
            maximise=self.mode == "exact" and self.decode != "marginal",
            patience=None if paper and self.validation is None else int(self.patience),
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def _boosted(
        self,
        encoder: GraphEncoder,
        batch: GraphBatch,
        coder: GraphLabels,
        target: Target,
        blocks: list[Block],
        options: RoundOptions,
        usable: tuple[int, ...],
        watch: Any,
    ) -> tuple[Any, list[Round], str, str]:
        labels, weight = target.labels.astype(np.int64), node_weights(batch, target)
        held = self._held_out(batch, labels)
        taught = labels if held is None else np.where(held, -1, labels)
        prior = class_priors(taught, weight, batch, coder.sizes)
        if (self.start or ("zero" if self.mode == "paper" else "prior")) == "zero":
            self._warn_of_prior(prior, usable)
            prior = tuple(np.zeros_like(one) for one in prior)
        done = boost(
            batch,
            encoder.schema,
            labels,
            weight,
            coder.sizes,
            prior,
            blocks,
            options,
            held=held,
            relations=usable,
            name=lambda step: step_name(step, encoder),
            watch=watch,
        )
        return done.model, done.rounds, done.reason, f"{self.mode} rounds of virtual evidence boosting"

    def _verified(
        self,
        encoder: GraphEncoder,
        batch: GraphBatch,
        coder: GraphLabels,
        target: Target,
        blocks: list[Block],
        options: RoundOptions,
        usable: tuple[int, ...],
        watch: Any,
    ) -> tuple[Any, list[Round], str, str]:
        done = verify(
            batch,
            encoder.schema,
            target,
            coder.sizes,
            blocks,
            options,
            l2=float(self.l2),
            proposals=self.proposals,
            relations=usable,
            name=lambda step: step_name(step, encoder),
            watch=watch,
            rng=random_generator(self.random_state),
        )
        return done.model, done.rounds, done.reason, done.objective

    def _held_out(self, batch: GraphBatch, labels: np.ndarray) -> np.ndarray | None:
        if self.validation is None:
            return None
        graphs = batch.n_graphs
        if graphs < 2:
            raise InputError("validation holds out whole graphs or sequences, and there is one only. Leave it out.")
        count = min(max(1, round(self.validation * graphs)), graphs - 1)
        chosen = random_generator(self.random_state).permutation(graphs)[:count]
        held = np.isin(batch.topology.sequence_of_node, chosen)
        if not (labels[held] >= 0).any() or not (labels[~held] >= 0).any():
            raise InputError("held-out graphs and those to learn from must both have known labels: check validation.")
        return held

    def _warn_of_prior(self, prior: tuple[np.ndarray, ...], usable: tuple[int, ...]) -> None:
        shares = [np.exp(one) / np.exp(one).sum() for one in prior]
        if usable and any(share.max() * len(share) > UNEQUAL for share in shares):
            warnings.warn(
                "labels are unequal and boosting starts from zero: relations may take up the shares of the labels, "
                "once for each neighbour, and end in one label. Use start='prior'.",
                DataWarning,
                stacklevel=4,
            )

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> BoostedModel:
        model = getattr(self, "_model", None)
        if model is None:
            raise NotFittedError(f"this {self._name} is not fitted yet. Call fit(X, y) first, or load a model file.")
        return model

    @property
    def _coder(self) -> GraphLabels:
        return self._fitted.labels

    def _graphs(self, X: Any) -> list[Graph]:
        return graphs_of(X, self.relations, bool(self.directed))

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        return self._fitted.potentials(self._graphs(X))

    # -------------------------------------------------------------- explanation

    def relation_weights(self, relation: str) -> TransitionTable:
        """Scores of the label pairs of a relation: rows the tail's label, columns the head's."""
        return self._fitted.relation_weights(relation)

    def top_features(self, n: int = 20, *, label: Hashable | None = None) -> FeatureList:
        """The leaves of largest absolute weight, each against its learner's first leaf; of one label if given."""
        return self._fitted.top_features(n, label)

    def transform(self, X: Any) -> list[Graph]:
        """X as graphs with one column of zeros and ones for each leaf that was learnt, for `to_crf` or any model."""
        return self._fitted.transformed(self._graphs(X))

    def to_crf(self) -> GraphCRF:
        """The same model as a `GraphCRF` on `transform` of X, whose columns are the leaves, by name.

        >>> from crfield import make_order_chains
        >>> world = make_order_chains(0.9, n_chains=3, length=100, n_features=5)
        >>> model = VirtualEvidenceBoosting(n_rounds=10).fit(world.features, world.labels)
        >>> twin = model.to_crf()
        >>> bool((twin.predict(model.transform(world.features))[0] == model.predict(world.features)[0]).all())
        True
        """
        inner = self._fitted
        made = GraphCRF(decode=self.decode, engine=self.engine, map_engine=self.map_engine, n_jobs=self.n_jobs)
        made._learn(inner.graph_model(Plan("boosting", None, exact=True, reason=self.trained_by_)))
        made.objective_, made.n_evaluations_, made.history_ = float("nan"), 0, []
        made.n_iter_, made.converged_, made.stop_reason_ = self.n_rounds_, self.converged_, self.stop_reason_
        return made

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.boosted.virtual_evidence_file import save_virtual

        save_virtual(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None


def node_weights(batch: GraphBatch, target: Target) -> np.ndarray:
    """(N,) the weight of each node, that of its graph."""
    if target.weight is None:
        return np.ones(batch.topology.n_nodes)
    return np.asarray(target.weight[batch.topology.sequence_of_node])
