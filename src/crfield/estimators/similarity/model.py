"""What the fitted models of similarities hold, and their places in model files.

    node_n(y) = φ(x_n) · coef_y + bias_y + boundary_y          edge_e(i, j) = table of the relation

φ is the map of the node's kind (`features.columns.random_features`). All but φ is a linear graph model of few
weights, so a field in training is `GraphScorer` on mapped columns, and a fitted one is the same without them, plus
φ · coef written block by block, since mapped columns of many nodes would not fit in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.core.typing import Graphlike, Parameters
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import InputError, ModelFileError
from crfield.estimators.base.rows import RowTask
from crfield.estimators.similarity.mapped import refuse_far, rows_of, shape_of, with_columns
from crfield.features.columns.random_features import Landmarks, Waves, map_from_arrays, map_to_arrays
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer
from crfield.scoring.similarity import BLOCK, Similarity
from crfield.storage.state import State, refuse
from crfield.training.graph.plan import Plan

FIELD_BASES = ("auto", "exact", "nystroem", "fourier", "greedy")
CLASSIFIER_BASES = ("auto", "exact", "nystroem", "import")


@dataclass(frozen=True, eq=False)
class SimilarityField:
    """Reader, labels, maps and coefficients of each kind, and the linear rest; how and of which nodes it was made."""

    reader: StepsOrGraphs
    labels: GraphLabels
    maps: tuple[Landmarks | Waves, ...]  # of each kind
    coefs: tuple[np.ndarray, ...]  # (D, L) of each kind
    layout: GraphLayout  # of the rest: no columns but those of the ends
    weights: np.ndarray  # (W,)
    ends: bool  # whether first and last steps have scores of their own
    plan: Plan
    cliques: list[tuple[int, int]] | None = None  # (sequence, step) of nodes that were selected

    def potentials(self, graphs: Graphlike) -> tuple[Potentials, GraphBatch]:
        """Scores of sequences or graphs, and their encoding."""
        batch = self.reader.encode(graphs)
        rest = with_columns(batch, [np.zeros((batch.topology.n_nodes, 0))] * len(self.maps), ends=self.ends)
        plain = GraphScorer(self.layout).score(self.weights, rest)
        node = plain.node.copy()
        for number, (found, coef) in enumerate(zip(self.maps, self.coefs)):
            at, rows = rows_of(batch, self.reader.schema, number)
            for start in range(0, len(at), BLOCK):
                some = at[start : start + BLOCK]
                node[some, : coef.shape[1]] += found.scores(rows[start : start + BLOCK], coef)
                refuse_far(batch, self.reader, some[~np.isfinite(node[some, : coef.shape[1]]).all(axis=1)])
        topology = plain.topology if self.reader.of_graphs else Chains(plain.topology.offsets)
        return Potentials(node, plain.edge, topology, plain.table), batch

    def state(self) -> State:
        """Header and arrays; InputError where a similarity is code."""
        header = {
            "labels": self.labels.to_json(),
            "similarities": [_similarity_json(found) for found in self.maps],
            "ends": self.ends,
            "cliques": self.cliques,
        }
        arrays = {"weights": self.weights}
        for number, (found, coef) in enumerate(zip(self.maps, self.coefs)):
            arrays |= {f"map{number}/{name}": value for name, value in map_to_arrays(found).items()}
            arrays[f"coef{number}"] = np.ascontiguousarray(coef)
        state = State(header, arrays).with_part("reader", self.reader.state(), arrays="encoder")
        return state.with_part("plan", self.plan.state())

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        plan, part = Plan.from_state(state.part("plan")), state.part("reader", arrays="encoder")
        reader = StepsOrGraphs.from_state(part.header, part.arrays)  # type: ignore[arg-type]
        labels = GraphLabels.from_json(state.header.get("labels"))
        similarities, ends, kinds = state.listed("similarities"), state.flag("ends"), reader.schema.kinds
        if tuple(kind.name for kind in kinds) != labels.kinds or len(similarities) != len(kinds):
            refuse("the parts of the model file do not fit together")
        maps, coefs = [], []
        for number, (kind, given) in enumerate(zip(kinds, similarities)):
            width = kind.columns[1] - kind.columns[0] + kind.dense[1] - kind.dense[0]
            maps.append(_map_of(given, state.under(f"map{number}"), width))
            coefs.append(state.array(f"coef{number}", (maps[-1].width, labels.sizes[number])))
        try:
            layout = shape_of(reader.schema, labels, parameters, ends=ends).layout([0] * len(kinds))
        except InputError as error:
            raise ModelFileError(f"the model file's relations cannot be used: {error}") from None
        weights = state.array("weights", (layout.n_weights,))
        cliques = _cliques(state.header.get("cliques"))
        return cls(reader, labels, tuple(maps), tuple(coefs), layout, weights, ends, plan, cliques)


@dataclass(frozen=True, eq=False)
class SimilarityClassifier:
    """Classes and columns, the rows that scores are made of with their coefficients, and scores of classes alone."""

    task: RowTask
    scored: Landmarks  # whose whiten (M, K) holds the coefficients of classes
    intercept: np.ndarray  # (K,)
    basis: str
    import_vectors: np.ndarray | None  # numbers of training rows, where they were selected

    def state(self) -> State:
        """Header and arrays; InputError where the similarity is code."""
        header = self.task.state().header | {"similarity": _similarity_json(self.scored), "basis": self.basis}
        arrays = {"intercept": self.intercept}
        arrays |= {f"map/{name}": value for name, value in map_to_arrays(self.scored).items()}
        if self.import_vectors is not None:
            arrays["import_vectors"] = np.asarray(self.import_vectors, np.int64)
        return State(header, arrays)

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        task = RowTask.from_state(state)
        scored = _map_of(state.part("similarity").header, state.under("map"), task.n_columns)
        size = len(task.classes)
        if not isinstance(scored, Landmarks) or scored.width != size:
            refuse(f"the model file's rows do not fit {size} classes")
        imports = None
        if "import_vectors" in state.arrays:
            imports = state.array("import_vectors", (None,), np.int64)
        return cls(task, scored, state.array("intercept", (size,)), state.word("basis", CLASSIFIER_BASES), imports)


def _similarity_json(found: Landmarks | Waves) -> dict[str, Any] | None:
    """The kernel of landmarks as JSON values; waves have it in them."""
    if isinstance(found, Waves):
        return None
    if not isinstance(found.similarity, Similarity):
        raise InputError(
            "a model with a similarity function of your own cannot be saved: the function is code. Keep it in a "
            "module and store the model with joblib, or use one of the similarities that have a name."
        )
    return found.similarity.to_json()


def _map_of(given: Any, arrays: dict[str, np.ndarray], n_columns: int | None) -> Landmarks | Waves:
    """The map of rows with so many columns; ModelFileError where it cannot be one."""
    try:
        similarity = None if given is None else Similarity(**given)
    except (TypeError, ValueError, InputError) as error:
        raise ModelFileError(f"the model file's similarity is damaged: {error}") from None
    found = map_from_arrays(arrays, similarity)  # type: ignore[arg-type]
    source = found.omega.shape[0] if isinstance(found, Waves) else found.centres.shape[1]
    if source != n_columns or isinstance(found, Waves) != (given is None):
        refuse(f"the model file's map does not fit its {n_columns} columns")
    return found


def _cliques(given: Any) -> list[tuple[int, int]] | None:
    if given is None:
        return None
    try:
        return [(int(sequence), int(step)) for sequence, step in given]
    except (TypeError, ValueError):
        raise ModelFileError("the model file's cliques are damaged.") from None
