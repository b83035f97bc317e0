"""Streams of a chain over states that answer with labels.

The recursion knows states; a label's probability is the sum over its states, and the label of a committed state is
that of the state. Everything else is the streams of `crfield.estimators.export.stream`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.states import StateSpace
from crfield.data.labels import LabelCoder
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.stream import LabelStream, LabelStreams, StreamEnd, StreamsStep, StreamStep


@dataclass(frozen=True, eq=False)
class Meaning:
    """What states mean: their labels, and sums of their probabilities.

    >>> meaning = Meaning(StateSpace.repeated([2, 1]), ["sit", "walk"])
    >>> meaning.labels([0, 2]), meaning.sums(np.array([[0.2, 0.3, 0.5]])).tolist()
    (('sit', 'walk'), [[0.5, 0.5]])
    """

    states: StateSpace
    names: list[Hashable]

    @property
    def coder(self) -> LabelCoder:
        """Numbers of states as labels, for the recursion."""
        return LabelCoder.from_classes(range(self.states.n_states))

    def sums(self, chances: np.ndarray) -> np.ndarray:
        """(k, L) probabilities of labels from those of states (k, S)."""
        return self.states.label_sums(chances)

    def labels(self, states: Iterable[Any]) -> tuple[Hashable, ...]:
        """The labels of states."""
        return tuple([self.names[self.states.label_of_state[state]] for state in states])

    def ended(self, ended: StreamEnd) -> StreamEnd:
        """The end of a stream in labels."""
        return ended._replace(smoothed=self.sums(ended.smoothed), committed=self.labels(ended.committed))


class StateStream(LabelStream):
    """A `LabelStream` whose model scores states of labels; made by ``BestChain.stream()``."""

    def __init__(self, scorer: StepScorer, coder: LabelCoder, states: StateSpace, **options: Any) -> None:
        self._meaning = Meaning(states, coder.labels)
        super().__init__(scorer, self._meaning.coder, **options)
        self.classes_ = coder.classes_

    def push(self, observation: Any, /, **more: Any) -> StreamStep:
        """Take the next observation; the probabilities are of labels."""
        now, meant = super().push(observation, **more), self._meaning
        chances = meant.sums(now.probabilities[None])[0]
        return now._replace(
            label=None if now.label is None else meant.names[int(chances.argmax())],
            probabilities=chances,
            smoothed=None if now.smoothed is None else meant.sums(now.smoothed[None])[0],
            committed=meant.labels(now.committed),
        )

    def finish(self) -> StreamEnd:
        """The sequence is over: answers for what was still open. The stream then begins anew."""
        return self._meaning.ended(super().finish())


class StateStreams(LabelStreams):
    """`LabelStreams` whose model scores states of labels; made by ``BestChain.streams(n)``."""

    def __init__(
        self, scorer: StepScorer, coder: LabelCoder, states: StateSpace, n_streams: int, **options: Any
    ) -> None:
        self._meaning = Meaning(states, coder.labels)
        super().__init__(scorer, self._meaning.coder, n_streams, **options)
        self.classes_ = coder.classes_

    def push(self, observations: Sequence[Any], *, which: Sequence[int] | None = None) -> StreamsStep:
        """Take one observation for every stream, or for those in ``which``; the probabilities are of labels."""
        now, meant = super().push(observations, which=which), self._meaning
        chances = meant.sums(now.probabilities)
        labels = np.empty(len(chances), dtype=object)
        labels[:] = [meant.names[k] if row[k] > 0 else None for row, k in zip(chances, chances.argmax(axis=1))]
        committed = tuple([meant.labels(own) for own in now.committed])
        return now._replace(
            labels=labels, probabilities=chances, smoothed=meant.sums(now.smoothed), committed=committed
        )

    def finish(self, stream: int) -> StreamEnd:
        """The sequence of one stream is over: answers for what was still open. It then begins anew."""
        return self._meaning.ended(super().finish(stream))
