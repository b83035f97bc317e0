"""`model.stream()`: a label now, from one observation at a time.

A robot cannot wait for the end of a recording. `LabelStream` takes an observation as ``fit`` read it (the numbers of
a step, a dict, a list of strings), or what a feature stream makes one of, and answers with a `StreamStep`: the
filtered distribution, that of the step ``lag`` ago given everything since, and the labels that Viterbi has committed.
`LabelStreams` does the same for many streams in one call. What is remembered has a fixed size and can be saved as
JSON; a state fits only the model it came from.

An estimator takes part by inheriting `Streaming` and giving `_step_scorer`. The recursion is in
`crfield.inference.streaming`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from crfield.core.checks import integer
from crfield.data.labels import LabelCoder
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.estimators.export import MAX_LAG
from crfield.estimators.export.step_scores import StepScorer, observed_rows
from crfield.inference.streaming import ChainStreams

TOO_LARGE = "up to 1e300 in size"  # what the recursion says of scores that it cannot take


class StreamStep(NamedTuple):
    """What is known after an observation.

    ``smoothed`` is the distribution of step ``step − lag`` given everything so far, None while there is no such step.
    ``committed`` holds the labels of the next steps, in order, that have become final; ``forced`` says how many of
    them only because ``max_lag`` ran out (or because nothing is possible any more), so that they may differ from the
    best path of the whole.
    """

    step: int
    label: Hashable  # the most probable one now; None where nothing is possible
    probabilities: np.ndarray  # (L,) columns as classes_
    smoothed: np.ndarray | None  # (L,)
    committed: tuple[Hashable, ...]
    forced: int


class StreamsStep(NamedTuple):
    """What is known after an observation of each of k streams; rows in the order of the observations."""

    steps: np.ndarray  # (k,)
    labels: np.ndarray  # (k,) the most probable ones, object
    probabilities: np.ndarray  # (k, L)
    smoothed: np.ndarray  # (k, L), NaN where a stream is younger than the lag
    committed: tuple[tuple[Hashable, ...], ...]
    forced: np.ndarray  # (k,)


class StreamEnd(NamedTuple):
    """What the end settles: the last ``lag + 1`` steps given all, and the labels still open."""

    smoothed: np.ndarray  # (w, L) w = min(steps, lag + 1)
    committed: tuple[Hashable, ...]
    log_total: float  # log Z of the sequence


class Features(Protocol):
    """A feature stream: raw observations in, columns out (`crfield.features.relational.stream.FeatureStream`)."""

    def push(self, observation: Any, /, **more: Any) -> Any:
        """The columns of the next step."""
        ...

    def reset(self) -> None:
        """Begin a new recording."""
        ...

    def state(self) -> Any:
        """What the past has left, for JSON."""
        ...

    def restore(self, state: Any) -> Any:
        """Go on from a state."""
        ...


@runtime_checkable
class OwnSteps(Protocol):
    """A scorer whose model is no chain, and that brings what runs its streams."""

    def recursion(self, n_streams: int, *, lag: int, max_lag: int | None) -> Any:
        """Something with the methods of `ChainStreams`."""
        ...


class _Streams:
    """What one and many streams share: the model, the recursion, the observations looked back at."""

    def __init__(
        self,
        scorer: StepScorer,
        coder: LabelCoder,
        *,
        n_streams: int,
        lag: int,
        viterbi: bool,
        max_lag: int,
    ) -> None:
        for name, value, least in (("streams", n_streams, 1), ("lag", lag, 0), ("max_lag", max_lag, 0)):
            integer(least)(name, value)
        self.classes_ = coder.classes_
        self.lag, self.viterbi, self.max_lag = int(lag), bool(viterbi), int(max_lag)
        self._labels = coder.labels
        self._scorer = scorer
        self._states = scorer.states if scorer.states is not None and not scorer.states.plain else None
        most = self.max_lag if viterbi else None
        self._chains: ChainStreams = (
            scorer.recursion(int(n_streams), lag=self.lag, max_lag=most)
            if isinstance(scorer, OwnSteps)
            else ChainStreams(
                scorer.start,
                scorer.transitions,
                scorer.end,
                n_streams=int(n_streams),
                lag=self.lag,
                max_lag=most,
                varied=scorer.varied,
            )
        )
        self._pasts: list[deque[Any]] = [deque(maxlen=scorer.reach) for _ in range(n_streams)]
        words = json.dumps([scorer.digest(), coder.to_json()])
        self.fingerprint = hashlib.sha256(words.encode()).hexdigest()[:32]

    def _named(self, codes: np.ndarray) -> tuple[Hashable, ...]:
        labels = self._labels
        if self._states is not None:
            codes = self._states.label_of_state[codes]
        return tuple([labels[code] for code in codes.tolist()])

    def _told(self, error: InputError, observations: Sequence[Any], places: Sequence[str]) -> InputError:
        """The error with the place that it has in the streams, and the feature where scores were too large."""
        said = re.sub(r"\bsequence (\d+), step \d+", lambda found: places[int(found[1])], str(error))
        dense = getattr(self._scorer, "dense", None)
        if TOO_LARGE in said and dense is not None:
            flat = getattr(self._scorer, "flat_row", None)  # where an observation is more than a row
            x = observed_rows(observations if flat is None else [*map(flat, observations)], dense.n_columns)
            row, column = divmod(int(np.abs(x).argmax()), x.shape[1])
            name = f"x[{column}]" if dense.names is None else dense.names[column]
            return FeatureError(f"{places[row]}: feature {name!r} is {x[row, column]:.6g}, too large: {said}")
        return type(error)(said)

    def _of_labels(self, shares: np.ndarray) -> np.ndarray:
        """(k, L) probabilities of labels from those of states."""
        return shares if self._states is None else self._states.label_sums(shares)

    def _ended(self, stream: int) -> StreamEnd:
        ending = self._chains.finish(stream)
        self._pasts[stream].clear()
        return StreamEnd(self._of_labels(ending.marginals), self._named(ending.path), ending.total)

    def state(self) -> dict[str, Any]:
        """Everything remembered, as lists and numbers for ``json.dumps``; `restore` goes on from it."""
        try:
            pasts = json.loads(json.dumps([list(past) for past in self._pasts]))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the observations that features look back at cannot be saved as JSON: {error}."
            ) from None
        return {"model": self.fingerprint, "pasts": pasts, "chains": self._chains.state()}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Go on where `state` was taken; InputError if that was with another model or other options."""
        if not isinstance(state, Mapping) or not isinstance(state.get("chains"), Mapping):
            raise InputError("this is not the state of a stream: expected the dict that state() gives.")
        if state.get("model") != self.fingerprint:
            raise InputError(
                "this state is of another model, or of the same one trained again: its scores would not go on from "
                "where they were. Begin a new stream."
            )
        pasts = state.get("pasts")
        if not isinstance(pasts, list) or len(pasts) != len(self._pasts):
            raise InputError("this state is damaged: it lacks the observations looked back at.")
        if not all(isinstance(past, list) and len(past) <= self._scorer.reach for past in pasts):
            raise InputError("this state is damaged: it holds more observations than are looked back at.")
        self._chains.restore(state["chains"])
        self._pasts = [deque(past, maxlen=self._scorer.reach) for past in pasts]
        return self


class LabelStream(_Streams):
    """One stream of observations and what a model says of it; made by ``model.stream()``.

    >>> from crfield import ChainCRF
    >>> X = [[[0.1], [0.3], [1.2], [0.9]], [[1.1], [0.4], [0.2]]]
    >>> model = ChainCRF(l2=0.1).fit(X, [["low", "low", "high", "high"], ["high", "low", "low"]])
    >>> stream = model.stream(lag=1, viterbi=True)
    >>> for x in [0.2], [1.3], [1.1]:
    ...     now = stream.push(x)
    >>> now.step, now.label, now.smoothed.round(2).tolist()
    (2, 'high', [0.93, 0.07])
    >>> len(now.committed) + len(stream.finish().committed) >= 1
    True
    """

    def __init__(
        self,
        scorer: StepScorer,
        coder: LabelCoder,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
        features: Features | None = None,
    ) -> None:
        super().__init__(scorer, coder, n_streams=1, lag=lag, viterbi=viterbi, max_lag=max_lag)
        self.features = features
        self._past = self._pasts[0] if scorer.reach else None
        self._step = 0

    def __repr__(self) -> str:
        viterbi = f", viterbi with max_lag {self.max_lag}" if self.viterbi else ""
        return f"<LabelStream: {len(self._labels)} labels, step {self._step}, lag {self.lag}{viterbi}>"

    def push(self, observation: Any, /, **more: Any) -> StreamStep:
        """Take the next observation; with a feature stream, whatever its ``push`` takes."""
        if self.features is not None:
            observation = self.features.push(observation, **more)
        elif more:
            raise InputError(f"{', '.join(more)} is for streams with features=…, which this one has not.")
        past = self._past
        try:
            node, edge = self._scorer.score((observation,), ((),) if past is None else (past,))
            filtered, smoothed, committed, counts = self._chains.push(node, edge)
            if self._states is not None:
                filtered, smoothed = self._of_labels(filtered), self._of_labels(smoothed)
        except InputError as error:
            raise self._told(error, (observation,), [f"step {self._step}"]) from None
        if past is not None:
            past.append(observation)
        step, row = self._step, filtered[0]
        self._step = step + 1
        best = row.argmax()
        said: tuple[Hashable, ...] = ()
        forced = 0
        if self.viterbi:
            count, forced = counts[0].tolist()
            said = self._named(committed[0, :count])
        return StreamStep(
            step,
            self._labels[best] if row[best] > 0 else None,
            row,
            smoothed[0] if step >= self.lag else None,
            said,
            forced,
        )

    def finish(self) -> StreamEnd:
        """The sequence is over: answers with the scores of its end. The stream then begins anew."""
        ended = self._ended(0)
        self.reset()
        return ended

    def reset(self) -> None:
        """Forget everything and begin a new sequence."""
        self._chains.reset()
        self._pasts[0].clear()
        self._step = 0
        if self.features is not None:
            self.features.reset()

    def state(self) -> dict[str, Any]:
        """Everything remembered, as lists and numbers for ``json.dumps``; `restore` goes on from it."""
        return {**super().state(), "features": None if self.features is None else self.features.state()}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Go on where `state` was taken; InputError if that was with another model or other options."""
        if isinstance(state, Mapping) and (state.get("features") is None) != (self.features is None):
            raise InputError(
                "this state was taken with features=… and the stream is without, or the other way round."
            )
        super().restore(state)
        if self.features is not None:
            self.features.restore(state["features"])
        self._past = self._pasts[0] if self._scorer.reach else None
        self._step = int(self._chains.steps[0])
        return self


class LabelStreams(_Streams):
    """Many streams of one model, advanced together; made by ``model.streams(n)``.

    >>> from crfield import ChainCRF
    >>> X = [[[0.1], [0.3], [1.2], [0.9]], [[1.1], [0.4], [0.2]]]
    >>> model = ChainCRF(l2=0.1).fit(X, [["low", "low", "high", "high"], ["high", "low", "low"]])
    >>> streams = model.streams(3)
    >>> streams.push([[0.2], [1.3], [0.1]]).labels.tolist()
    ['low', 'high', 'low']
    >>> streams.push([[1.4], [1.3]], which=[0, 2]).steps.tolist()
    [1, 1]
    """

    def __init__(
        self,
        scorer: StepScorer,
        coder: LabelCoder,
        n_streams: int,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
    ) -> None:
        super().__init__(scorer, coder, n_streams=n_streams, lag=lag, viterbi=viterbi, max_lag=max_lag)
        self._all = np.arange(n_streams)
        self._named_labels = np.empty(len(self._labels) + 1, dtype=object)
        self._named_labels[:-1] = self._labels

    def __repr__(self) -> str:
        return f"<LabelStreams: {len(self._all)} of {len(self._labels)} labels, lag {self.lag}>"

    def push(self, observations: Sequence[Any], *, which: Sequence[int] | None = None) -> StreamsStep:
        """Take one observation for every stream, or for those in ``which`` (rising numbers)."""
        chosen = self._all if which is None else self._chosen(which)
        if not hasattr(observations, "__len__") or len(observations) != len(chosen):
            raise ShapeError(f"expected one observation for each of {len(chosen)} streams.")
        if not len(chosen):
            raise InputError("which names no stream at all.")
        steps = self._chains.steps[chosen]
        try:
            node, edge = self._scorer.score(observations, [self._pasts[b] for b in chosen.tolist()])
            filtered, smoothed, committed, counts = self._chains.push(node, edge, chosen)
            filtered, smoothed = self._of_labels(filtered), self._of_labels(smoothed)
        except InputError as error:
            places = [f"stream {b}, step {n}" for b, n in zip(chosen.tolist(), steps.tolist())]
            raise self._told(error, observations, places) from None
        if self._scorer.reach:
            for b, observation in zip(chosen.tolist(), observations, strict=True):
                self._pasts[b].append(observation)
        best = filtered.argmax(axis=1)
        best[filtered[np.arange(len(best)), best] == 0] = -1  # the last name is None
        said: tuple[tuple[Hashable, ...], ...] = ((),) * len(best)
        if self.viterbi:
            said = tuple([self._named(row[:count]) for row, count in zip(committed, counts[:, 0].tolist())])
        return StreamsStep(steps, self._named_labels[best], filtered, smoothed, said, counts[:, 1].copy())

    def finish(self, stream: int) -> StreamEnd:
        """The sequence of one stream is over: answers with the scores of its end. It then begins anew."""
        return self._ended(int(self._chosen([stream])[0]))

    def reset(self, which: Sequence[int] | None = None) -> None:
        """Forget everything of all streams, or of those in ``which``, and begin new sequences."""
        chosen = self._all if which is None else self._chosen(which)
        self._chains.reset(chosen)
        for b in chosen.tolist():
            self._pasts[b].clear()

    def _chosen(self, which: Sequence[int]) -> np.ndarray:
        chosen = np.asarray(which)
        if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and len(chosen)):
            raise InputError(f"which must be a list of numbers of streams, got {which!r:.60}.")
        chosen = chosen.astype(np.int64)
        if len(chosen) and (chosen[0] < 0 or chosen[-1] >= len(self._all) or (np.diff(chosen) <= 0).any()):
            raise InputError(f"which must be rising numbers in 0 … {len(self._all) - 1}, got {which!r:.60}.")
        return chosen
