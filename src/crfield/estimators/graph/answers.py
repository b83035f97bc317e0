"""Questions to a fitted model of graphs, whatever its scores are made of.

A fitted value that can score graphs (``potentials``) and knows its labels answers all of them here: the engine that
the parameters ask for, or "auto" chooses, turns scores into labels and probabilities. Models of special data (images,
layers over time) say how their data become graphs and how answers for nodes go back into the shape of the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.checks import one_of, resolve_jobs, threads
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.typing import Graphlike, Labels, Weights
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.labels import GraphLabels, tuple_coder
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.base.fitted import Fitted, Model
from crfield.estimators.base.sequences import StructuredData, right_share
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.streaming import Streaming
from crfield.estimators.graph.data import target_of
from crfield.estimators.graph.parameters import check_engine, check_optional_engine, engine_from_json, engine_to_json
from crfield.inference.decode import DECODERS, best_marginals
from crfield.inference.graphs.catalogue import choose_engine, choose_map_engine
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.inference.graphs.tree_reweighted import TreeReweightedEngine
from crfield.inference.labellings import path_scores
from crfield.training.graph.plan import EXACT, Plan, answering_engine, resolve_engine

STILL = 0.01  # of a probability: what twice the sweeps may change where beliefs are to be believed
WITH_BELIEFS = ("loopy", "tree_reweighted", "mean_field", "gibbs")  # engines that sum and are not exact


def settled_beliefs(engine: Any, potentials: Potentials) -> Beliefs:
    """Beliefs under LOG; propagation whose messages still move has settled too if as many sweeps more move no belief.

    Messages of labels that are all but impossible may fall for ever where couplings are strong.
    """
    if not isinstance(engine, LoopyEngine | TreeReweightedEngine):
        return engine.infer(potentials, Semiring.LOG)
    beliefs, messages = engine.run(potentials, Semiring.LOG)
    if beliefs.converged or np.isnan(messages).any():
        return beliefs
    more, _ = engine.run(potentials, Semiring.LOG, messages)
    still = float(np.abs(more.node - beliefs.node).max(initial=0.0)) <= STILL
    return replace(more, converged=more.converged or still)


class GraphScores(Model, Protocol):
    """The fitted value of a model of graphs."""

    @property
    def labels(self) -> GraphLabels:
        """The labels of every kind of nodes."""
        ...

    def potentials(self, graphs: Sequence[Graph]) -> tuple[Potentials, GraphBatch]:
        """Scores of graphs, and their encoding."""
        ...


M = TypeVar("M", bound=GraphScores)


class GraphAnswers(Streaming, StructuredData, Fitted[M]):
    """Prediction, probabilities and scores for models of graphs."""

    engine: Any = parameter(check_engine, default="auto", to_json=engine_to_json, from_json=engine_from_json)
    map_engine: Any = parameter(
        check_optional_engine, default=None, to_json=engine_to_json, from_json=engine_from_json
    )
    decode: str = parameter(one_of("auto", *DECODERS), default="map")
    n_jobs: int | None = parameter(threads, default=None)

    classes_: np.ndarray | dict[str, np.ndarray] = learnt()

    @property
    def _coder(self) -> GraphLabels:
        return self._fitted.labels

    def _show(self, model: M) -> None:
        labels = model.labels
        self.classes_ = labels.classes[labels.kinds[0]] if len(labels.kinds) == 1 else labels.classes

    # ------------------------------------------------------------ what a model gives

    def _scored(self, X: Graphlike) -> tuple[Potentials, GraphBatch]:
        """Scores of X, and the graphs that it means."""
        return self._fitted.potentials(self._graphs(X))

    def _graphs(self, X: Graphlike) -> Sequence[Graph]:
        """The graphs that X means."""
        return cast(Sequence[Graph], X)  # what is none is refused by the encoder

    def _labels(self, y: Labels, X: Graphlike) -> Labels:
        """Labels in the order of the nodes, one entry for each graph."""
        return y

    def _shaped(self, rows: np.ndarray, X: Graphlike) -> np.ndarray:
        """Answers for the nodes of each graph in the shape that the user's data has."""
        return rows

    def _stream_labels(self) -> LabelCoder:
        return tuple_coder(self._coder.coders)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        raise InputError(
            f"{type(self).__name__} cannot stream: it answers whole graphs or images, whose nodes have no order in "
            "time. Use predict; for sequences ChainCRF, TreeCRF, VirtualEvidenceBoosting and FactorialCRF stream."
        )

    @property
    def _whole(self) -> bool:
        """Whether only the best labelling as a whole means something."""
        return False

    def _plan(self) -> Plan | None:
        """How the model was trained, where that says how it answers."""
        return None

    # ------------------------------------------------------------------- questions

    def potentials(self, X: Graphlike) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._scored(X)[0]

    def engine_for(self, potentials: Potentials, semiring: Semiring = Semiring.LOG) -> tuple[Any, str]:
        """The engine that answers for these scores, and why it."""
        self.check("engine", "map_engine", "decode", "n_jobs")
        wanted = self.engine if semiring is Semiring.LOG or self.map_engine is None else self.map_engine
        jobs = resolve_jobs(self.n_jobs)
        if isinstance(wanted, str) and wanted == "auto":
            plan = self._plan()
            if plan is not None and plan.guarded and semiring is Semiring.LOG:
                # The engine that the weights were fitted with: its errors and theirs partly cancel.
                engine = answering_engine(plan, n_jobs=jobs)
                return engine, f"{resolve_engine(engine)[1]}, with which it was trained"
            choose = choose_engine if semiring is Semiring.LOG else choose_map_engine
            choice = choose(potentials, n_jobs=jobs)
            return choice.engine, choice.reason
        engine, name = resolve_engine(wanted, n_jobs=jobs)
        return engine, f"{name}, as asked for"

    def _codes(self, X: Graphlike) -> tuple[np.ndarray, GraphBatch]:
        potentials, batch = self._scored(X)
        if self._decoder(potentials) == "marginal":
            return best_marginals(self._marginals(potentials).node), batch
        beliefs = self.engine_for(potentials, Semiring.MAX)[0].infer(potentials, Semiring.MAX)
        return best_marginals(beliefs.node), batch

    def _decoder(self, potentials: Any = None, *, exact: bool | None = None) -> str:
        """What "auto" is for these scores: each node's best label where inference is not exact, else "map"."""
        if self.decode != "auto":
            return "marginal" if self.decode == "marginal" else "map"
        if self._whole or self.map_engine is not None:
            return "map"
        if exact is None:
            name = resolve_engine(self.engine_for(potentials)[0])[1]
            exact = name in EXACT or name not in WITH_BELIEFS
        return "map" if exact else "marginal"

    def _marginals(self, potentials: Potentials) -> Beliefs:
        """Beliefs under LOG, with a warning where they are not what the engine promises."""
        engine, _ = self.engine_for(potentials)
        beliefs = settled_beliefs(engine, potentials)
        if not beliefs.converged:
            warnings.warn(
                f"inference had not settled after {beliefs.sweeps} sweeps ({type(engine).__name__}); the "
                "probabilities are rough. Give the engine more sweeps or damping, or ask another one.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return beliefs

    def predict(self, X: Graphlike) -> np.ndarray:
        """Labels of the nodes of every graph: always a 1-D object array with one label array for each."""
        codes, batch = self._codes(X)
        return self._shaped(self._coder.decode(codes, batch), X)

    def predict_proba(self, X: Graphlike) -> np.ndarray:
        """Marginal probabilities: a 1-D object array of arrays (nodes, labels), columns as ``classes_``.

        Where kinds have different numbers of labels, the columns of a node are those of its kind's labels and the
        rest is zero.
        """
        potentials, batch = self._scored(X)
        node = self._marginals(potentials).node
        offsets = batch.topology.offsets
        out = np.empty(batch.n_graphs, dtype=object)
        for graph in range(len(out)):
            out[graph] = node[offsets[graph] : offsets[graph + 1]]
        return self._shaped(out, X)

    def predict_marginals(self, X: Graphlike) -> list[list[dict[Hashable, float]]]:
        """Marginal probabilities as one dict ``{label: probability}`` for each node."""
        potentials, batch = self._scored(X)
        node = self._marginals(potentials).node
        labels = [coder.labels for coder in self._coder.coders]
        rows = [dict(zip(labels[kind], row)) for kind, row in zip(batch.kind.tolist(), node.tolist())]
        offsets = batch.topology.offsets.tolist()
        return [rows[start:stop] for start, stop in pairwise(offsets)]

    def log_prob(self, X: Graphlike, y: Labels) -> np.ndarray:
        """log p(y | x) of every graph, (B,); for partial labels the probability of all they allow.

        With an approximate engine it is an estimate, or a bound on the other side of that of log Z.
        """
        potentials, batch = self._scored(X)
        target = target_of(batch, self._coder, self._labels(y, X), None)
        engine = self.engine_for(potentials)[0]
        free = engine.infer(potentials, Semiring.LOG)
        if target.complete.all():
            clamped = path_scores(potentials, target.labels)
        else:
            masked = np.where(target.mask, potentials.node, -np.inf)
            clamped = engine.infer(
                Potentials(masked, potentials.edge, potentials.topology, potentials.table), Semiring.LOG
            ).total
        if not free.converged:
            warnings.warn(
                "inference had not settled when the totals were taken; log_prob is a rough estimate. Give the engine "
                "more sweeps or damping.",
                ConvergenceWarning,
                stacklevel=2,
            )
        # Exact totals may round past each other; no part weighs more than the whole.
        return np.minimum(clamped - free.total, 0.0) if free.exact else clamped - free.total

    def _judged(self, X: Graphlike, y: Labels | None) -> tuple[Potentials, np.ndarray | None]:
        """The scores of X, and the codes (N,) of its labels, −1 where unknown: what `compare_inference` asks for."""
        potentials, batch = self._scored(X)
        return potentials, None if y is None else target_of(batch, self._coder, self._labels(y, X), None).labels

    def score(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> float:
        """Share of nodes whose label is predicted right; nodes of unknown label are left out."""
        codes, batch = self._codes(X)
        target = target_of(batch, self._coder, self._labels(y, X), None)
        return right_share(codes, target, sample_weight)
