"""`HiddenMarkov`: what a fitted `HMM` holds, and its place in a model file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.states import StateSpace
from crfield.data.labels import LabelCoder
from crfield.errors import ModelFileError
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.scoring.densities.gaussian import family_of_kind
from crfield.storage.state import State, refuse
from crfield.training.markov.durations import Durations
from crfield.training.markov.em import Markov

MOST_STATES = 65_535


@dataclass(frozen=True, eq=False)
class HiddenMarkov:
    """Labels, encoder, and the tables and densities."""

    labels: LabelCoder
    encoder: Encoder
    markov: Markov

    @property
    def states(self) -> StateSpace | None:
        """The states that make labels last, if any must."""
        return None if self.markov.durations is None else self.markov.durations.states

    def state(self) -> State:
        """Header and arrays."""
        markov = self.markov
        arrays = {"start_probabilities_": markov.start, "transition_probabilities_": markov.transition}
        if markov.durations is not None:
            arrays["min_duration"] = np.ascontiguousarray(markov.durations.least, np.int64)
        arrays |= {f"emissions/{name}": np.ascontiguousarray(v) for name, v in markov.emissions.to_arrays().items()}
        header = {"labels": self.labels.to_json(), "family": markov.emissions.kind}
        return State(header, arrays).with_part("encoder", self.encoder.state())

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels = LabelCoder.from_json(state.header.get("labels"))
        n = labels.n_labels
        start = state.probabilities("start_probabilities_", (n,))
        transition = state.probabilities("transition_probabilities_", (n, n))
        family = family_of_kind(state.header.get("family", "gaussian"))
        emissions = family.from_arrays(state.under("emissions"), n_labels=n)
        durations = None
        if "min_duration" in state.arrays:
            least = state.array("min_duration", (n,), np.int64)
            if least.min() < 1 or least.sum() > MOST_STATES:
                refuse("'min_duration' must hold numbers of steps")
            durations = Durations(least)
        part = state.part("encoder")
        encoder = encoder_from_state(part.header, part.arrays, missing=family.marginalises and "dense")  # type: ignore[arg-type]
        made = encoder.widths.of_steps
        if made != emissions.n_columns:
            raise ModelFileError(
                f"the model file's encoder makes {made} columns and its densities are for "
                f"{emissions.n_columns}. The file was edited or put together wrongly: save the model again."
            )
        return cls(labels, encoder, Markov(start, transition, emissions, durations))
