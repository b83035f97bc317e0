"""What a fitted `SelectedCRF` holds, and its place in a model file.

A model of encoded columns is a `ColumnModel` like that of `ChainCRF`, with weights for the chosen features alone; a
model of recordings computes the few columns that were chosen and no others (`ChosenColumns`). A catalogue is stored
as its text and its words; functions that a user added to the language are code and cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from crfield.core.potentials import Potentials
from crfield.data.clocks.tracks import Tracks
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ShapeError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.export.step_scores import DenseSteps
from crfield.features.encoder import Encoder
from crfield.features.lazy_columns import Places
from crfield.features.relational.catalogue import Catalogue
from crfield.features.relational.recordings import Recordings
from crfield.report.weights import FeatureList, FeatureWeight, LabelPair
from crfield.selection.active import Base
from crfield.selection.path import SelectionPath
from crfield.storage.state import State, refuse

TABLES = ("weights", "bias", "transitions", "start", "end", "link_weights")


def recordings_of(X: Any, rate: float | None) -> Recordings:
    """One `Recordings` of a list of arrays (T, R, D), or of `Recordings` of one each."""
    if isinstance(X, Recordings):
        raise InputError("X must be a list with one recording for each label sequence. Write [X] for a single one.")
    if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise InputError(f"X must be a list of recordings, arrays (steps, agents, axes), got {type(X).__name__}.")
    items = [Recordings.of(item) if isinstance(item, Tracks) else item for item in (X[k] for k in range(len(X)))]
    if not any(isinstance(item, Recordings) for item in items):
        return Recordings.of(items, rate=rate)
    if not all(isinstance(item, Recordings) for item in items):
        raise InputError("X must hold arrays or Recordings, not both.")
    rates = {item.rate for item in items}
    if len(rates) > 1 or any(item.chains.n_sequences != 1 for item in items):
        raise ShapeError(
            f"each Recordings in X must hold one recording, all of one rate, got rates {sorted(map(str, rates))}."
        )
    presences = None
    if any(item.present is not None for item in items):
        presences = [np.ones(r.positions.shape[:2], bool) if r.present is None else r.present for r in items]
    return Recordings.of(
        [item.positions for item in items],
        rate=rates.pop(),
        velocities=None if any(item.velocities is None for item in items) else [item.velocities for item in items],
        channels={name: [item.channels[name] for item in items] for name in items[0].channels},
        agent_channels={name: [item.agent_channels[name] for item in items] for name in items[0].agent_channels},
        present=presences,
    )


@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """Some columns of a catalogue with their weights.

    node = x W + bias,  edge = T + Σ_g x_g Q_g,  with start and end at the ends of a recording.
    """

    catalogue: Catalogue
    columns: np.ndarray  # (D,) numbers in the catalogue
    rate: float | None  # None where no template speaks of velocities
    steps: DenseSteps

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "steps": replace(self.steps)}  # without what a stream has compiled of it

    @classmethod
    def of(
        cls,
        catalogue: Catalogue,
        base: Base,
        weights_of_base: np.ndarray,
        places: Places,
        weights: np.ndarray,
        rate: float | None,
    ) -> ChosenColumns:
        """From weights in the units of the columns."""
        size = catalogue.n_labels
        columns, back = np.unique(places.column, return_inverse=True)
        state = places.previous < 0
        table = np.zeros((len(columns), size))
        table[back[state], places.label[state]] = weights[state]
        linked, link = np.unique(back[~state], return_inverse=True)
        link_weights = np.zeros((len(linked), size, size))
        link_weights[link, places.previous[~state], places.label[~state]] = weights[~state]
        bias, transitions, first, last = base.parts(weights_of_base, size)
        names = tuple(catalogue.column_name(int(k)) for k in columns)
        steps = DenseSteps(
            table,
            transitions.copy(),
            bias.copy(),
            first.copy(),
            last.copy(),
            linked=linked.astype(np.int32),
            link_weights=link_weights,
            names=names,
        )
        return cls(catalogue, columns, rate, steps)

    def potentials(self, X: Any, *, n_jobs: int) -> Potentials:
        """Scores of recordings."""
        recordings = recordings_of(X, self.rate)
        chains, steps = recordings.chains, self.steps
        if not chains.n_nodes:
            empty = np.zeros((0, self.catalogue.n_labels))
            return Potentials(empty, steps.transitions[None], chains)
        x = self.catalogue.on(recordings).chunk(self.columns)
        node = x @ steps.weights + steps.bias
        filled = chains.lengths > 0
        node[chains.offsets[:-1][filled]] += steps.start
        node[chains.offsets[1:][filled] - 1] += steps.end
        edge = steps.transitions[None]
        if steps.varied:
            edge = edge + np.tensordot(x[chains.heads][:, steps.linked], steps.link_weights, axes=1)
        return Potentials(node, edge, chains)

    def state(self) -> State:
        """Header and arrays; InputError where features are functions of the user."""
        catalogue = self.catalogue.state()
        if catalogue["functions"]:
            raise InputError(
                "features that call functions of your own cannot be saved: functions are code. Keep the model with "
                "joblib, or write the features in the language alone."
            )
        arrays = {name: np.ascontiguousarray(getattr(self.steps, name), np.float64) for name in TABLES}
        arrays |= {"columns": self.columns.astype(np.int64), "linked": self.steps.linked}
        return State({"catalogue": catalogue, "rate": self.rate}, arrays)

    @classmethod
    def from_state(cls, state: State) -> ChosenColumns:
        """The model whose `state` this is; everything is checked, since files may be damaged."""
        catalogue, rate = Catalogue.from_state(state.part("catalogue").header), state.header.get("rate")
        columns, linked = state.array("columns", (None,), np.int64), state.array("linked", (None,), np.int32)
        if (
            not (rate is None or (isinstance(rate, float) and 0 < rate < np.inf))
            or (len(columns) and not 0 <= columns.min() <= columns.max() < catalogue.n_columns)
            or (len(linked) and not 0 <= linked.min() <= linked.max() < len(columns))
        ):
            refuse("the chosen columns do not fit the catalogue")
        size = catalogue.n_labels
        shapes = ((len(columns), size), (size,), (size, size), (size,), (size,), (len(linked), size, size))
        tables = {name: state.array(name, shape) for name, shape in zip(TABLES, shapes)}
        names = tuple(catalogue.column_name(int(k)) for k in columns)
        return cls(catalogue, columns, rate, DenseSteps(**tables, linked=linked, names=names))


@dataclass(frozen=True, eq=False)
class Selected:
    """Labels, the scores of what was chosen, and the path to it."""

    labels: LabelCoder
    scores: ColumnModel | ChosenColumns
    path: SelectionPath
    features: FeatureList  # weights in the units of the data
    strengths: np.ndarray  # (K,) weights for standardised columns
    n_candidates: int
    refit_l2: float | None

    states = None

    @property
    def encoder(self) -> Encoder | None:
        """What reads X; None where features are those of a catalogue."""
        return self.scores.encoder if isinstance(self.scores, ColumnModel) else None

    def state(self) -> State:
        """Header and arrays: what prediction needs, and the whole path with the weights of its rounds."""
        header = {
            "labels": self.labels.to_json(),
            "refit_l2": self.refit_l2,
            "n_candidates": self.n_candidates,
            "features": [_feature_to_json(item) for item in self.features],
        }
        if isinstance(self.scores, ColumnModel):
            state = self.scores.state()
        else:
            state = State().with_part("chosen", self.scores.state())
        arrays = {**state.arrays, "strengths": np.ascontiguousarray(self.strengths)}
        return State({**state.header, **header}, arrays).with_part("path", self.path.state())

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels, ridge = LabelCoder.from_json(state.header.get("labels")), state.header.get("refit_l2")
        if ridge is not None and not isinstance(ridge, float):
            refuse("the ridge of the last training is no number")
        n_candidates = state.integer("n_candidates", most=2**62) if "n_candidates" in state.header else 0
        features = FeatureList([_feature_from_json(item) for item in state.listed("features")])
        strengths, path = state.array("strengths", (len(features),)), SelectionPath.from_state(state.part("path"))
        scores: ColumnModel | ChosenColumns
        if "chosen" in state.header:
            scores = ChosenColumns.from_state(state.part("chosen"))
            if scores.catalogue.n_labels != labels.n_labels:
                refuse("the labels do not fit the features")
        else:
            scores = ColumnModel.from_state(state, parameters)
        return cls(labels, scores, path, features, strengths, n_candidates, ridge)


def _feature_to_json(item: FeatureWeight) -> list[object]:
    labels = item.label if isinstance(item.label, LabelPair) else (item.label,)
    return [item.name, [label_to_json(label) for label in labels], item.weight]


def _feature_from_json(item: list[Any]) -> FeatureWeight:
    name, labels, weight = item
    found = [label_from_json(label) for label in labels]
    if not isinstance(name, str) or len(found) not in (1, 2):
        refuse("a feature has a name and one or two labels")
    return FeatureWeight(name, found[0] if len(found) == 1 else LabelPair(*found), float(weight))
