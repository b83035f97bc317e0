"""What boosted fields share: sequences or graphs in, rounds in which columns and relations take part, a model out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

import numpy as np

from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.rounds import FieldData, blocks_of
from crfield.core.checks import Check, flag, integer, is_integer, loudness, number, resolve_jobs, seed
from crfield.core.parameters import learnt, parameter
from crfield.data.graphs.batch import GraphSchema
from crfield.data.graphs.builders import chain
from crfield.data.graphs.graph import Graph
from crfield.errors import ConvergenceWarning, FeatureError, InputError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.boosted.model import step_name
from crfield.estimators.graph.answers import GraphAnswers, GraphScores
from crfield.estimators.graph.data import GraphData, read_graphs
from crfield.optimize.history import INTERRUPTED

Relation = str | int
RELATIONS = Check(
    "a list of names or of distances, or None",
    lambda value: (
        value is None
        or (
            (isinstance(value, Collection | np.ndarray) and not isinstance(value, str | bytes | Mapping))
            and all(isinstance(one, str) or is_integer(one) for one in value)
        )
    ),
    "Graphs have names, ['near']; sequences have distances between steps, [1, 2].",
)
COLUMNS = Check(
    "a list of numbers of columns",
    lambda value: (
        isinstance(value, Collection | np.ndarray)
        and not isinstance(value, str | bytes)
        and all(is_integer(one) and one >= 0 for one in value)
    ),
)
POSITIVE, NON_NEGATIVE = number(above=0), number(0)
STARTS = ("prior", "zero")


class RoundsOfGraphs(GraphScores, Protocol):
    """The fitted value of a boosted field."""

    @property
    def rounds(self) -> RoundTable:
        """What was picked when."""
        ...


M = TypeVar("M", bound=RoundsOfGraphs)


class BoostedGraphs(GraphAnswers[M]):
    """Parameters, data and report of boosted fields."""

    relations: Sequence[Relation] | None = parameter(RELATIONS, default=None)
    directed: bool = parameter(flag, default=False)
    discrete: Sequence[int] = parameter(COLUMNS, default=())
    max_bins: int = parameter(integer(2), default=32)
    random_state: Any = parameter(seed, default=0)
    verbose: int = parameter(loudness, default=0)

    rounds_: RoundTable = learnt()
    reported = ("converged_", "stop_reason_", "n_rounds_")

    def _graphs(self, X: Any) -> list[Graph]:
        return graphs_of(X, self.relations, directed=bool(self.directed))

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[GraphData, FieldData]:
        """The data as every model of graphs reads them, and as rounds see them."""
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        data = read_graphs(self._graphs(X), y, sample_weight, compared=True)
        schema, batch, weight = data.encoder.schema, data.batch, data.target.weight
        usable = relation_numbers(schema, self.relations)
        discrete, jobs = tuple(self.discrete), resolve_jobs(self.n_jobs)
        return data, FieldData(
            batch,
            schema,
            data.labels.sizes,
            data.target.labels.astype(np.int64),
            np.ones(len(batch.kind)) if weight is None else weight[batch.topology.sequence_of_node],
            blocks_of(batch, schema, max_bins=self.max_bins, discrete=discrete, n_jobs=jobs),
            usable,
            name=lambda step: step_name(step, data.encoder),
        )

    @contextmanager
    def _watched(self, n_rounds: int) -> Iterator[Callable[[Round], None] | None]:
        """What is called after every round: the progress line, where the gain stands in place of a gradient."""
        began = time.monotonic()
        with Progress(self.verbose, total=n_rounds, description=type(self).__name__) as progress:

            def after(one: Round) -> None:
                step = {"n_iter": one.number, "value": one.nll, "gradient_norm": one.gain, "n_active": one.number}
                progress.update(SimpleNamespace(**step, seconds=time.monotonic() - began))

            yield after if self.verbose else None

    def _end(self, model: M, reason: str) -> None:
        """Take over a fitted model, and why its rounds ended."""
        self._learn(model)
        self.n_rounds_ = sum(one.kept for one in model.rounds)
        self.converged_, self.stop_reason_ = reason != INTERRUPTED, reason
        if not self.converged_:
            warnings.warn("training was interrupted; the rounds so far are kept.", ConvergenceWarning, stacklevel=3)

    def _show(self, model: M) -> None:
        super()._show(model)
        self.rounds_ = model.rounds


def graphs_of(X: Any, relations: Sequence[Relation] | None, *, directed: bool) -> list[Graph]:
    """X as graphs: graphs are themselves, sequences chains with an edge for every distance in ``relations``.

    >>> graphs_of([np.zeros((3, 2))], (1, 2), directed=False)
    [Graph(3 nodes, 3 edges: +1 2 symmetric, +2 1 symmetric)]
    """
    if isinstance(X, Graph):
        raise InputError("X is a single Graph, expected a list of graphs. Write [X].")
    if isinstance(X, str | bytes | Mapping) or not hasattr(X, "__len__") or getattr(X, "ndim", 1) == 0:
        raise FeatureError(f"X must be a list of sequences or of graphs, got {type(X).__name__}.")
    if getattr(X, "ndim", 1) == 2 or hasattr(X, "tocsr"):
        raise FeatureError(f"X is a single matrix of shape {X.shape}, expected a list of them. Write [X].")
    items = list(X)
    if any(isinstance(item, Graph) for item in items):
        return items  # the encoder says which of them is none
    distances = _distances((1,) if relations is None else relations)
    made = []
    for number_, item in enumerate(items):
        if isinstance(item, Mapping | str | bytes) or not hasattr(item, "__len__"):
            raise FeatureError(
                f"X[{number_}] is a {type(item).__name__}, expected a sequence: a 2-D array (steps, features), or a "
                "list with one dict or one list of feature strings for each step. Write [X] for a single sequence."
            )
        try:
            steps = item if (item.shape[0] if hasattr(item, "shape") else len(item)) else 0
            made.append(chain(steps, distances=distances, symmetric=not directed, missing=True))
        except InputError as error:
            raise type(error)(f"sequence {number_}: {error}") from None
    return made


def _distances(relations: Sequence[Relation]) -> tuple[int, ...]:
    texts = {relation: str(relation).removeprefix("+") for relation in relations}
    for relation, text in texts.items():
        if not text.isdigit() or int(text) < 1:
            raise InputError(f"relations of sequences are distances, 1 or more steps, got {relation!r}.")
    return tuple(sorted({int(text) for text in texts.values()}))


def relation_numbers(schema: GraphSchema, relations: Sequence[Relation] | None) -> tuple[int, ...]:
    """The relations that may be used, by number; InputError for one that has edge features."""
    chosen = list(range(len(schema.relations)))
    if relations is not None:
        chosen = sorted({schema.relation(one if isinstance(one, str) else f"+{one}") for one in relations})
    for number_ in chosen:
        if schema.relations[number_].has_features:
            raise InputError(
                f"relation {schema.relations[number_].name!r} has edge features, which boosted fields do not read. "
                "Leave them out, put what they say on the nodes, or use GraphCRF."
            )
    return tuple(chosen)
