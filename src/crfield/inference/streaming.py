"""Streaming inference: filtering, fixed-lag smoothing and committed labels of chains that are still growing.

Scores come one step at a time, and three questions are answered after each:

- the filter p(y_t | x_0 … x_t), the forward recursion normalised at every step;
- the fixed-lag smoother p(y_{t−k} | x_0 … x_t), exact: the last k steps are run backwards, O(k L²);
- the incremental Viterbi path. All best paths into today's labels (survivors) soon come from one ancestor, and what
  lies before it is final, whatever comes. Where survivors disagree for more than ``max_lag`` steps, the oldest label
  of the best one is committed by force, and survivors that contradict it are given up, so that what is committed is
  always a path. If nothing was forced, it is the path that the whole sequence would have got.

Everything is kept in logs and normalised, so scores of any size and millions of steps lose no digits, and memory is
fixed: O(B L (k + max_lag)), or O(B L (k L + max_lag)) where every step has an edge table of its own. Scores of a last
step, which a model may have, are unknown until `finish`.

Reference: Šrámek, Brejová & Vinař 2007, *On-line Viterbi algorithm for analysis of long biological sequences*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels.probabilities import log_sum
from crfield.kernels.stream import Recursion

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Ending:
    """What the end of a stream settles: the last steps given all, and the labels that were still open."""

    marginals: np.ndarray  # (w, L) of the last w = min(steps, lag + 1) steps
    path: np.ndarray  # codes of the steps that were not committed yet, empty without Viterbi
    total: float  # log Z of the sequence


class ChainStreams:
    """B chains that grow by one step at a time.

    >>> import numpy as np
    >>> streams = ChainStreams(np.zeros(2), np.log([[0.9, 0.1], [0.1, 0.9]]), lag=1, max_lag=10)
    >>> for score in ([2.0, 0.0], [0.0, 0.5], [0.0, 4.0]):
    ...     filtered, smoothed, committed, counts = streams.push(np.array([score]))
    >>> filtered[0].round(3).tolist(), smoothed[0].round(3).tolist()
    ([0.036, 0.964], [0.244, 0.756])
    >>> streams.finish(0).path.tolist()
    [1, 1, 1]
    """

    def __init__(
        self,
        start: np.ndarray,
        transitions: np.ndarray,
        end: np.ndarray | None = None,
        *,
        n_streams: int = 1,
        lag: int = 0,
        max_lag: int | None = None,
        varied: bool = False,
    ) -> None:
        labels = len(start)
        self.end = np.zeros(labels) if end is None else np.asarray(end, np.float64)
        self.transitions = np.asarray(transitions, np.float64)
        self.lag, self.max_lag, self.varied, self.n_streams = lag, max_lag, varied, n_streams
        for name, table, shape in (
            ("transitions", self.transitions, (labels, labels)),
            ("end", self.end, (labels,)),
            ("start", np.asarray(start), (labels,)),
        ):
            if table.shape != shape:
                raise ShapeError(f"{name} must be {shape} for {labels} labels, got {table.shape}.")
            if not (table < np.inf).all():
                raise InputError(f"{name} must hold finite scores or -inf, got NaN or +inf.")
        self._memory = Recursion(
            n_streams, np.asarray(start, np.float64), self.transitions, lag=lag, max_lag=max_lag, varied=varied
        )
        self._all = np.arange(n_streams)
        self._advance = self._memory.push

    def __repr__(self) -> str:
        return f"ChainStreams({self.n_streams} of {len(self.end)} labels, lag {self.lag}, max_lag {self.max_lag})"

    @property
    def steps(self) -> np.ndarray:
        """(B,) steps of each stream so far."""
        return self._memory.steps

    @property
    def committed(self) -> np.ndarray:
        """(B,) steps of each stream whose label is committed."""
        return self._memory.oldest

    @property
    def totals(self) -> np.ndarray:
        """(B,) log Z of what each stream has seen, without scores of an end."""
        return self._memory.total

    def push(
        self, node: np.ndarray, edge: np.ndarray | None = None, which: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One step of all streams, or of those in ``which`` (rising): see `crfield.kernels.stream.Recursion.push`."""
        return self._advance(self._all if which is None else which, node, edge)

    def reset(self, which: Sequence[int] | np.ndarray | None = None) -> None:
        """Begin new sequences."""
        chosen = self._all if which is None else np.asarray(which, np.int64)
        for array in self._memory.arrays().values():
            array[chosen] = 0

    def finish(self, stream: int) -> Ending:
        """The answers of a sequence that is over, scores of the end included; the stream then begins anew."""
        memory = self._memory
        now = int(memory.steps[stream]) - 1
        labels, window = len(self.end), min(now + 1, self.lag + 1)
        marginals = np.zeros((window, labels))
        later = self.end
        for back in range(window):
            slot = (now - back) % (self.lag + 1)
            if back:
                after = (now - back + 1) % (self.lag + 1)
                table = memory.edges[stream, after] if self.varied else self.transitions
                later = log_sum(table + memory.nodes[stream, after] + later, axis=1)
            joint = memory.alpha[stream, slot] + later
            total = log_sum(joint, axis=0)
            marginals[window - 1 - back] = np.exp(joint - total) if total > -np.inf else 0.0
        last = float(log_sum(memory.alpha[stream, now % (self.lag + 1)] + self.end, axis=0)) if now >= 0 else 0.0
        ending = Ending(marginals, self._rest(stream, now), float(memory.total[stream]) + last)
        self.reset([stream])
        return ending

    def _rest(self, stream: int, now: int) -> np.ndarray:
        memory = self._memory
        if self.max_lag is None:
            return np.zeros(0, np.int64)
        oldest = int(memory.oldest[stream])
        path = np.zeros(now + 1 - oldest, np.int64)
        label = int(np.argmax(memory.delta[stream] + self.end))
        for s in range(now, oldest - 1, -1):
            path[s - oldest] = label
            label = int(memory.back[stream, s % (self.max_lag + 1), label])
        return path

    def state(self) -> dict[str, Any]:
        """Everything that is remembered, as numbers and lists that JSON can hold; −∞ is null."""
        arrays = {name: _listed(array) for name, array in self._memory.arrays().items()}
        return {"format": FORMAT, **self._shape(), **arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; InputError, and nothing changed, where it does not fit."""
        wrong = [name for name, value in self._shape().items() if state.get(name) != value]
        if state.get("format") != FORMAT or wrong:
            raise InputError(
                f"this state is of other streams: {', '.join(wrong) or 'its format'} differ from {self._shape()}. "
                "Open the stream with the options that the state was taken with."
            )
        made = {name: _array(state, name, array) for name, array in self._memory.arrays().items()}
        steps, oldest, labels = made["steps"], made["oldest"], len(self.end)
        pending = steps - oldest
        slots = 0 if self.max_lag is None else self.max_lag + 1
        good = (
            (steps >= 0).all() and (oldest >= 0).all() and (not slots or ((pending >= 0) & (pending < slots)).all())
        )
        for name in ("back", "origin"):
            good = good and ((made[name] >= 0) & (made[name] < labels)).all()
        if not good or (made["alpha"] > 1e-6).any():
            raise InputError("this state is damaged: numbers are out of range.")
        for name, array in self._memory.arrays().items():
            array[...] = made[name]

    def _shape(self) -> dict[str, Any]:
        return {
            "streams": self.n_streams,
            "labels": len(self.end),
            "lag": self.lag,
            "max_lag": self.max_lag,
            "varied": self.varied,
        }


def _listed(array: np.ndarray) -> list[Any]:
    flat = array.ravel().tolist()
    return flat if array.dtype.kind != "f" else [None if value == -np.inf else value for value in flat]


def _array(state: Mapping[str, Any], name: str, like: np.ndarray) -> np.ndarray:
    given = state.get(name)
    if not isinstance(given, list) or len(given) != like.size:
        raise InputError(f"this state is damaged: {name} must be a list of {like.size} numbers.")
    real = like.dtype.kind == "f"
    for value in given:
        if type(value) is not int and not (real and (value is None or type(value) is float)):
            raise InputError(f"this state is damaged: {name} holds {value!r:.40}.")
    try:
        made = np.array([-np.inf if value is None else value for value in given], like.dtype).reshape(like.shape)
    except OverflowError:
        raise InputError(f"this state is damaged: {name} holds a number out of range.") from None
    if real and not (made < np.inf).all():
        raise InputError(f"this state is damaged: {name} holds NaN or infinity.")
    return made
