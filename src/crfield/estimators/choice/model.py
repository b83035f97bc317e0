"""The fitted value of `BestChain`: columns, the sources that were taken, one decoding, and the table of choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np

from crfield.core.states import StateSpace
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.choice.columns import ChosenColumns
from crfield.estimators.choice.decoding import Decoding, log_floored
from crfield.estimators.choice.sources import SINGLE_STEPS, Source
from crfield.estimators.markov.hmm import dense_rows
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.report.comparisons.models import ModelChoice
from crfield.storage.state import State, refuse

MOST_CELLS = 200_000_000  # of a table of all columns: 1.6 GB
MOST_SOURCES = 16


@dataclass(frozen=True, eq=False)
class ChosenModel:
    """Labels, encoder, columns, sources whose probabilities are averaged, their decoding, and why."""

    labels: LabelCoder
    encoder: Encoder
    columns: tuple[ChosenColumns, ...]  # of each source
    sources: tuple[Source, ...]
    decoding: Decoding
    choice: ModelChoice

    @property
    def states(self) -> StateSpace:
        """The states of the decoding."""
        return self.decoding.space

    @property
    def single_steps(self) -> bool:
        """Whether the probabilities of a step depend on this step alone."""
        return all(source.family in SINGLE_STEPS for source in self.sources)

    def chances(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """(N, L) the mean of the probabilities of all sources, for all columns (n, F) of some sequences."""
        tables = [
            source.chances([columns.apply(own) for own in rows], self.labels.n_labels)
            for columns, source in zip(self.columns, self.sources, strict=True)
        ]
        return tables[0] if len(tables) == 1 else np.asarray(np.mean(tables, axis=0))

    def log_chances(self, batch: Batch) -> np.ndarray:
        """(N, L) their logs, at every step of a batch."""
        if not batch.topology.n_nodes:
            return np.zeros((0, self.labels.n_labels))
        return log_floored(self.chances(split_rows(batch)))

    def state(self) -> State:
        """Header and arrays; each source is stored as a file of its own would be."""
        header = {"labels": self.labels.to_json(), "choice": self.choice.to_dict(), "n_sources": len(self.sources)}
        state = State(header).with_part("encoder", self.encoder.state())
        state = state.with_part("decoding", self.decoding.state())
        for k, (columns, source) in enumerate(zip(self.columns, self.sources, strict=True)):
            state = state.with_part(f"columns{k}", columns.state()).with_part(f"source{k}", source.state())
        return state

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels = LabelCoder.from_json(state.header.get("labels"))
        encoder = encoder_from_state(state.part("encoder").header, state.under("encoder"))
        width, count = encoder.widths.of_steps, state.integer("n_sources", least=1, most=MOST_SOURCES)
        columns = tuple([ChosenColumns.from_state(state.part(f"columns{k}"), width) for k in range(count)])
        sources = tuple(
            [
                Source.from_state(state.part(f"source{k}"), labels.n_labels, len(own.numbers))
                for k, own in enumerate(columns)
            ]
        )
        decoding = Decoding.from_state(state.part("decoding"), labels.n_labels)
        found = state.header.get("choice")
        if not isinstance(found, dict):
            refuse("the model file lacks its table of candidates")
        return cls(labels, encoder, columns, sources, decoding, ModelChoice.from_dict(found))

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        widths = self.encoder.widths
        return [
            *(self.encoder.node_name(k) for k in range(widths.sparse)),
            *(self.encoder.dense_name(k) for k in range(widths.dense)),
        ]


def split_rows(batch: Batch) -> list[np.ndarray]:
    """The columns of every sequence as a table (n, F); InputError where all together would fill the memory."""
    width = batch.node.width + batch.node.n_dense
    if batch.topology.n_nodes * width > MOST_CELLS:
        raise InputError(
            f"{batch.topology.n_nodes:,} steps of {width:,} columns are too many for tables of numbers, which these "
            "models read. Choose among models of sparse columns by ChainCRFCV, or make fewer columns."
        )
    return np.split(dense_rows(batch.node), batch.topology.offsets[1:-1])


def listed(words: Sequence[str]) -> str:
    """Words with commas and a last 'and'.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return reduce(lambda one, two: f"{one} and {two}", [", ".join(words[:-1]), words[-1]]) if words[1:] else words[0]
