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

import warnings
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.additive import Additive
from crfield.boosting.virtual_evidence.couplings import POTENTIALS
from crfield.boosting.virtual_evidence.recordings import differing_rates
from crfield.boosting.virtual_evidence.rounds import LEARNERS, Boosted, FieldData, RoundOptions, boost
from crfield.boosting.virtual_evidence.verified import PROPOSALS, verify
from crfield.core.checks import integer, one_of, random_generator, resolve_jobs, share
from crfield.core.parameters import learnt, parameter
from crfield.core.target import Target
from crfield.data.graphs.graph import Graph
from crfield.errors import DataWarning, InputError
from crfield.estimators.base.rows import log_probabilities
from crfield.estimators.boosted.field import NON_NEGATIVE, POSITIVE, STARTS, BoostedGraphs
from crfield.estimators.boosted.model import BoostedModel
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.trees import TreeSteps, TreeTable
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.data import GraphData
from crfield.estimators.graph.steps import NodeSteps, dense_kinds, model_digest, one_step_graphs, over_time
from crfield.optimize.history import Result
from crfield.report.weights import FeatureList, TransitionTable
from crfield.training.graph.plan import Plan

LARGE = 5_000  # labelled nodes from which two labels are boosted with whole steps
MOST_RESPONSE = 50.0
UNEQUAL = 1.5  # times its fair share that a label may have before a start from zero is warned of

Watch = Callable[[Round], None] | None


class VirtualEvidenceBoosting(BoostedGraphs[BoostedModel], kind="virtual_evidence", model=BoostedModel):
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

    mode: str = parameter(one_of("exact", "paper", "verified"), default="exact")
    n_rounds: int | None = parameter(integer(1) | None, default=None)
    learner: str = parameter(one_of(*LEARNERS), default="stump")
    max_depth: int = parameter(integer(1), default=2)
    response_limit: float | None = parameter(POSITIVE | None, default=None)
    ridge: float | None = parameter(NON_NEGATIVE | None, default=None)
    learning_rate: float | None = parameter(POSITIVE | None, default=None)
    start: str | None = parameter(one_of(*STARTS) | None, default=None)
    potential: str = parameter(one_of(*POTENTIALS), default="joint")
    validation: float | None = parameter(share("the share of graphs held out") | None, default=None)
    patience: int = parameter(integer(1), default=5)
    l2: float = parameter(NON_NEGATIVE, default=1.0)
    proposals: str = parameter(one_of(*PROPOSALS), default="virtual")

    accepted_relations_: list[str] = learnt()
    trained_by_: str = learnt()

    def _check_together(self) -> None:
        if self.validation is not None and self.mode == "verified":
            raise InputError("mode='verified' needs no held-out data (validation): relations are verified by BIC.")

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn features, relations and weights from X and the labels y of steps or nodes.

        ``sample_weight`` has one number for each graph; 0 leaves it out. Ctrl-C ends training with the rounds so far.
        """
        self.check()
        graphs, data = self._read(X, y, sample_weight)
        options = self._options(data)
        with self._watched(options.n_rounds) as watch:
            if self.mode == "verified":
                done = self._verified(data, graphs.target, options, watch)
            else:
                done = self._boosted(data, options, watch)
        self._end(
            BoostedModel(graphs.encoder, graphs.labels, done.model, RoundTable(done.rounds), done.how), done.reason
        )
        self._warn_of_rates(graphs, data, done.model)
        return self

    def _options(self, data: FieldData) -> RoundOptions:
        """Parameters with those that were left open filled in by mode and data."""
        paper, two = self.mode == "paper", max(data.sizes) == 2
        limit = 4.0
        if self.mode == "exact":
            rarest = min(float(shares_of(prior).min()) for prior in data.priors())
            limit = min(max(8.0 if two else 4.0, 2.0 / rarest), MOST_RESPONSE)
        whole = paper or (two and int((data.labels >= 0).sum()) >= LARGE)

        def given(value: float | None, otherwise: float) -> float:
            return otherwise if value is None else float(value)

        return RoundOptions(
            n_rounds=int(given(self.n_rounds, 50 if paper else 100)),
            learner=self.learner,
            max_depth=int(self.max_depth),
            exact=not paper,
            response_limit=given(self.response_limit, limit),
            ridge=given(self.ridge, 0.0 if paper else 5.0),
            learning_rate=given(self.learning_rate, 1.0 if whole else 0.5),
            potential=self.potential,
            maximise=self.mode == "exact" and self.decode != "marginal",
            patience=None if paper and self.validation is None else int(self.patience),
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def _boosted(self, data: FieldData, options: RoundOptions, watch: Watch) -> Boosted:
        held = self._held_out(data)
        prior = data.priors(without=held)
        if (self.start or ("zero" if self.mode == "paper" else "prior")) == "zero":
            if data.relations and any(one.max() * len(one) > UNEQUAL for one in map(shares_of, prior)):
                warnings.warn(
                    "labels are unequal and boosting starts from zero: relations may take up the shares of the "
                    "labels, once for each neighbour, and end in one label. Use start='prior'.",
                    DataWarning,
                    stacklevel=3,
                )
            prior = tuple(np.zeros_like(one) for one in prior)
        done = boost(data, prior, options, held=held, watch=watch)
        return replace(done, how=f"{self.mode} rounds of virtual evidence boosting")

    def _verified(self, data: FieldData, target: Target, options: RoundOptions, watch: Watch) -> Boosted:
        rng = random_generator(self.random_state)
        return verify(data, target, options, l2=float(self.l2), proposals=self.proposals, watch=watch, rng=rng)

    def _held_out(self, data: FieldData) -> np.ndarray | None:
        if self.validation is None:
            return None
        graphs = data.batch.n_graphs
        if graphs < 2:
            raise InputError("validation holds out whole graphs or sequences, and there is one only. Leave it out.")
        count = min(max(1, round(self.validation * graphs)), graphs - 1)
        chosen = random_generator(self.random_state).permutation(graphs)[:count]
        held = np.isin(data.batch.topology.sequence_of_node, chosen)
        if not (data.labels[held] >= 0).any() or not (data.labels[~held] >= 0).any():
            raise InputError("held-out graphs and those to learn from must both have known labels: check validation.")
        return held

    def _warn_of_rates(self, graphs: GraphData, data: FieldData, model: Additive) -> None:
        """`DataWarning` where sequences differ in label rates, which relations of any distance take for their own."""
        distances = [relation.name.removeprefix("+") for relation in data.schema.relations]
        if len(data.relations) < 2 or not model.relations or not all(name.isdigit() for name in distances):
            return
        beliefs = np.exp(log_probabilities(model.score(data.batch).node))  # of the columns alone
        found = differing_rates(data.labels, beliefs, data.batch.topology.offsets, list(map(int, distances)))
        if found is not None:
            label, (least, most) = graphs.labels.coders[0].labels[found.label], found.rates
            warnings.warn(
                f"sequences differ in their share of label {label!r} ({least:.2f} … {most:.2f}), more than columns "
                "and dependence between steps explain: relations at every distance then seem to gain, and of those "
                f"accepted ({', '.join(self.accepted_relations_)}) none need be true. Add columns that tell "
                "sequences apart (the person, the day, means over the sequence), ask for a distance of half a "
                "sequence as a control, or train on sequences of like rates.",
                DataWarning,
                stacklevel=3,
            )

    def _show(self, model: BoostedModel) -> None:
        super()._show(model)
        relations = model.encoder.schema.relations
        self.accepted_relations_ = [relations[number].name for number in model.scores.relations]
        self.trained_by_ = model.trained_by

    # ------------------------------------------------------------------- streams

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        scores, schema = model.scores, model.encoder.schema
        if len(schema.kinds) > 1:
            raise InputError(
                "a stream needs nodes of one kind, the steps of a sequence. Train on sequences, or answer whole "
                "graphs with predict."
            )
        tables = {number: scores.tables[number] for number in scores.relations}
        return over_time(self._inner_steps(), schema, scores.sizes, tables)

    def _inner_steps(self) -> TreeSteps | NodeSteps:
        model = self._fitted
        scores, size = model.scores, model.scores.n_labels
        if not dense_kinds(model.encoder):
            return NodeSteps(
                lambda rows: model.potentials(one_step_graphs(rows))[0], scores.sizes, model_digest(model)
            )
        return TreeSteps(
            TreeTable.of_learners([(step.learner, step.values) for step in scores.steps], n_values=size),
            scores.prior[0],
            np.zeros((size, size)),
            np.zeros(size),
            np.zeros(size),
            names=tuple([model.encoder.dense_name(k) for k in range(*model.encoder.schema.kinds[0].dense)]),
        )

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
        made = GraphCRF(decode=self.decode, engine=self.engine, map_engine=self.map_engine, n_jobs=self.n_jobs)
        model = self._fitted.graph_model(Plan("boosting", None, exact=True, reason=self.trained_by_))
        ended = Result(model.weights, float("nan"), self.n_rounds_, 0, self.converged_, self.stop_reason_)
        return made._learn(model, ended)


def shares_of(prior: np.ndarray) -> np.ndarray:
    """The shares whose logs are a prior (L,), up to a constant.

    >>> shares_of(np.log([3.0, 1.0])).round(6).tolist()
    [0.75, 0.25]
    """
    return np.exp(prior) / np.exp(prior).sum()
