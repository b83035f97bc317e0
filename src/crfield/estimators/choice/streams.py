"""Streams of a chain over states that answer with labels.

The recursion knows states; a label's probability is the sum over its states, and the label of a committed state is
that of the state. Everything else is the stream of `crfield.estimators.export.stream`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.states import StateSpace
from crfield.data.labels import LabelCoder
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.stream import LabelStream, StreamEnd, StreamStep


class StateStream(LabelStream):
    """A `LabelStream` whose model scores states of labels; made by ``BestChain.stream()``."""

    def __init__(self, scorer: StepScorer, coder: LabelCoder, states: StateSpace, **options: Any) -> None:
        super().__init__(scorer, LabelCoder.from_classes(range(states.n_states)), **options)
        self.classes_, self._names, self._space = coder.classes_, coder.labels, states

    def push(self, observation: Any, /, **more: Any) -> StreamStep:
        """Take the next observation; the probabilities are of labels."""
        now = super().push(observation, **more)
        chances = self._sums(now.probabilities)
        label = None if now.label is None else self._names[int(chances.argmax())]
        smoothed = None if now.smoothed is None else self._sums(now.smoothed)
        committed = self._meant(now.committed)
        return now._replace(label=label, probabilities=chances, smoothed=smoothed, committed=committed)

    def finish(self) -> StreamEnd:
        """The sequence is over: answers for what was still open. The stream then begins anew."""
        ended = super().finish()
        return ended._replace(
            smoothed=self._space.label_sums(ended.smoothed), committed=self._meant(ended.committed)
        )

    def _sums(self, row: np.ndarray) -> np.ndarray:
        return self._space.label_sums(row[None])[0]

    def _meant(self, states: Any) -> tuple[Any, ...]:
        return tuple([self._names[self._space.label_of_state[state]] for state in states])
