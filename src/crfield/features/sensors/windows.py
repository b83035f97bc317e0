"""Windows of equal length in time, their labels, and what neighbouring windows add.

A recording of T samples at ``rate`` samples a second is cut at steps of ``hop`` seconds. Step k is about the second
from k · hop on; a *span* is how much of the signal is looked at for it, which may be longer than the step itself:
a stride needs more than one second to be heard. With n = span · rate samples the window of step k begins at sample

    causal     (k + 1) · hop · rate − n            its last sample is the last of the step
    centred    (k + ½) · hop · rate − n / 2        the step is its middle

and where it reaches beyond the recording the first or the last sample is repeated. Sensors of different rates share
the steps: only n and the places of the samples differ. A step that is not full at the end of a recording is dropped.

What windows say is then put into *contexts*: mean and deviation over c neighbouring steps (the last c if causal),
lags (c steps ago) and powers. Sums run over the neighbours one after the other, in the order of time, so that a
stream that has only these rows gets the same bits (`crfield.features.sensors.stream`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError


def step_count(n_samples: int, rate: float, hop: float) -> int:
    """Full steps of a recording.

    >>> step_count(130, 52.0, 1.0), step_count(3, 52.0, 1.0)
    (2, 0)
    """
    return int(np.floor(n_samples / (rate * hop) + 1e-9))


def window_places(
    n_steps: int, rate: float, *, hop: float = 1.0, span: float = 1.0, causal: bool = False
) -> tuple[np.ndarray, int]:
    """First samples (n_steps,) of the windows, which may lie outside the recording, and their length.

    >>> window_places(3, 4.0)
    (array([0, 4, 8]), 4)
    >>> window_places(3, 4.0, span=2.0)[0], window_places(3, 4.0, span=2.0, causal=True)[0]
    (array([-2,  2,  6]), array([-4,  0,  4]))
    """
    length = max(round(span * rate), 1)
    step = hop * rate
    if causal:
        ends = np.floor((np.arange(n_steps) + 1) * step + 1e-9).astype(np.int64)
        return ends - length, length
    middles = (np.arange(n_steps) + 0.5) * step
    return np.floor(middles - length / 2 + 0.5 + 1e-9).astype(np.int64), length


def cut(signal: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """(n_steps, length, D) windows of a signal (T, D); beyond its ends the first or last sample is repeated.

    >>> cut(np.array([[1.0], [2.0], [3.0]]), np.array([-1, 1]), 3)[:, :, 0].tolist()
    [[1.0, 1.0, 2.0], [2.0, 3.0, 3.0]]
    """
    if not len(signal):
        raise ShapeError("a signal without samples has no windows.")
    places = np.clip(np.asarray(starts)[:, None] + np.arange(length), 0, len(signal) - 1)
    return np.asarray(signal[places])


def majority_labels(labels: Any, rate: float, *, hop: float = 1.0, unknown: Sequence[Any] = ()) -> np.ndarray:
    """(n_steps,) the most frequent label of the samples of each step; of two equally frequent ones the earlier.

    Labels in ``unknown`` become None, and so do they where they are most frequent: nobody knows these steps.

    >>> majority_labels(["sit", "sit", "go", "go", "go", "?"], 3.0, unknown=["?"]).tolist()
    ['sit', 'go']
    >>> majority_labels([0, 0, 1, 1], 2.0, unknown=[0]).tolist()
    [None, 1]
    """
    given = list(labels)
    steps = step_count(len(given), rate, hop)
    edges = np.floor(np.arange(steps + 1) * hop * rate + 1e-9).astype(np.int64)
    out = np.empty(steps, dtype=object)
    hidden = set(unknown)
    for k in range(steps):
        counts: dict[Any, int] = {}
        for label in given[edges[k] : edges[k + 1]]:
            counts[label] = counts.get(label, 0) + 1
        best = max(counts, key=lambda label: counts[label]) if counts else None
        best = best.item() if isinstance(best, np.generic) else best
        out[k] = None if best in hidden else best
    return out


# ------------------------------------------------------------------------------------------- neighbouring steps


def context_reach(width: int, *, causal: bool) -> tuple[int, int]:
    """How many steps before and after a context of that many looks at.

    >>> context_reach(5, causal=False), context_reach(5, causal=True), context_reach(4, causal=False)
    ((2, 2), (4, 0), (2, 1))
    """
    if width < 1:
        raise InputError(f"a context needs at least one step, got {width}.")
    return (width - 1, 0) if causal else (width // 2, (width - 1) // 2)


def contexts(table: np.ndarray, width: int, *, causal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation (n, K), each over the steps of a context that exist.

        mean(t) = Σ_s x_s / m        deviation(t)² = Σ_s (x_s − mean(t))² / m        s = t − before … t + after

    >>> mean, deviation = contexts(np.array([[0.0], [2.0], [4.0]]), 3)
    >>> mean[:, 0].tolist(), deviation[:, 0].round(3).tolist()
    ([1.0, 2.0, 3.0], [1.0, 1.633, 1.0])
    """
    before, after = context_reach(width, causal=causal)
    count = np.zeros((len(table), 1))
    mean, spread = np.zeros(table.shape), np.zeros(table.shape)
    for shift in range(-before, after + 1):
        here, there = _aligned(len(table), shift)
        mean[here] += table[there]
        count[here] += 1.0
    mean /= np.maximum(count, 1.0)
    for shift in range(-before, after + 1):
        here, there = _aligned(len(table), shift)
        spread[here] += (table[there] - mean[here]) ** 2
    return mean, np.sqrt(spread / np.maximum(count, 1.0))


def lagged(table: np.ndarray, lag: int) -> np.ndarray:
    """(n, K) the row of ``lag`` steps ago; the first one where there is none.

    >>> lagged(np.array([[1.0], [2.0], [3.0]]), 1)[:, 0].tolist()
    [1.0, 1.0, 2.0]
    """
    if lag < 0:
        raise InputError(f"lag must be ≥ 0 steps, got {lag}.")
    return np.asarray(table[np.maximum(np.arange(len(table)) - lag, 0)])


def _aligned(n: int, shift: int) -> tuple[slice, slice]:
    """Rows t, and rows t + shift, for all t where both exist."""
    low, high = max(0, -shift), max(min(n, n - shift), 0, -shift)
    return slice(low, high), slice(low + shift, high + shift)
