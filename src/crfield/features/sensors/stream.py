"""Columns of sensors as the samples come in, the same as of the whole recording.

`SensorStream` keeps the samples that a window may still reach and the rows that a context or a lag may still reach,
nothing more, so memory does not grow. A row comes out as soon as nothing later can change it: for causal features
when its step is full, for centred ones after half of the widest window and context. `finish` ends the recording and
gives the rows that were waiting, with ends treated as those of a recording are.

Rows are the same as `SensorFeatures.transform`'s to the last bit: windows are measured by the same functions, which
look at one row at a time, and sums over neighbours run in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.errors import InputError
from crfield.features.powers import raised
from crfield.features.sensors.measures import measured
from crfield.features.sensors.windows import context_reach, cut, step_count, window_places

if TYPE_CHECKING:
    from crfield.features.sensors.transformer import SensorFeatures


class SensorStream:
    """Samples in, rows out; made by ``SensorFeatures.stream()``.

    >>> from crfield.features.sensors.transformer import SensorFeatures
    >>> features = SensorFeatures(rate=2.0, measures=["mean"], contexts=(2,), causal=True).fit([[[0.0]]])
    >>> stream = features.stream()
    >>> [stream.push([value])[:, :2].tolist() for value in (1.0, 3.0, 5.0, 7.0)]
    [[], [[2.0, 2.0]], [], [[6.0, 4.0]]]
    """

    def __init__(self, features: SensorFeatures) -> None:
        if features.relative is not False:
            raise InputError("relative= needs the whole recording, which a stream does not have. Use relative=False.")
        self.features, self._chosen = features, features._check()
        features._fitted()
        self._signals = [np.zeros((0, len(sensor.axes))) for sensor in features.sensors_]
        self._dropped = [0] * len(self._signals)  # samples of each sensor that are no longer kept
        self._base: dict[int, np.ndarray] = {}
        self._plain: dict[int, np.ndarray] = {}  # rows before lags
        self._n_base = self._n_out = 0
        self._finished = False
        reach = [context_reach(width, causal=features.causal) for width in features.contexts]
        self._before, self._after = max((b for b, _ in reach), default=0), max((a for _, a in reach), default=0)

    def push(self, samples: Any) -> np.ndarray:
        """Take a sample (axes,) or some (n, axes), or a dict of them by sensor; gives the rows (r, columns) ready."""
        if self._finished:
            raise InputError("the stream is finished; make another one for another recording.")
        for k, sensor in enumerate(self.features.sensors_):
            given = samples
            if self.features.sensors is not None:
                if not isinstance(samples, Mapping):
                    raise InputError("with sensors= push takes a dict of samples by the name of the sensor.")
                given = samples.get(sensor.name, np.zeros((0, len(sensor.axes))))
            some = np.asarray(given, dtype=np.float64).reshape(-1, len(sensor.axes))
            if not np.isfinite(some).all():
                raise InputError("a sample is NaN or infinite. Leave it out, or repeat the last one.")
            self._signals[k] = np.concatenate([self._signals[k], some])
        return self._rows()

    def finish(self) -> np.ndarray:
        """End the recording; gives the rows (r, columns) that were waiting for what comes later."""
        self._finished = True
        return self._rows()

    def _rows(self) -> np.ndarray:
        while self._measure():
            pass
        out = []
        while self._n_out < self._n_base and (self._finished or self._n_out + self._after < self._n_base):
            out.append(self._row(self._n_out))
            self._n_out += 1
        self._forget()
        return np.stack(out) if out else np.zeros((0, self.features.n_features_out_))

    def _measure(self) -> bool:
        """Measure the next step if its samples are all there."""
        features, step = self.features, self._n_base
        for k, sensor in enumerate(features.sensors_):
            heard = self._dropped[k] + len(self._signals[k])
            if step_count(heard, sensor.rate, features.hop) <= step:
                return False
            ends = [self._start(step, sensor.rate, span) for span in features.spans]
            if not self._finished and any(start + length > heard for start, length in ends):
                return False
        parts = []
        for k, sensor in enumerate(features.sensors_):
            for span in features.spans:
                start, length = self._start(step, sensor.rate, span)
                window = cut(self._signals[k], np.array([start - self._dropped[k]]), length)
                parts.append(measured(window, sensor, self._chosen, bands=features.bands))
        self._base[step] = np.concatenate(parts, axis=1)[0]
        self._n_base += 1
        return True

    def _start(self, step: int, rate: float, span: float) -> tuple[int, int]:
        features = self.features
        starts, length = window_places(step + 1, rate, hop=features.hop, span=span, causal=features.causal)
        return int(starts[step]), length

    def _row(self, step: int) -> np.ndarray:
        features = self.features
        parts = [self._base[step]]
        for width in features.contexts:
            before, after = context_reach(width, causal=features.causal)
            near = [self._base[s] for s in range(max(step - before, 0), min(step + after + 1, self._n_base))]
            total = np.zeros(len(near[0]))
            for row in near:
                total += row
            mean = total / float(len(near))
            spread = np.zeros(len(near[0]))
            for row in near:
                spread += (row - mean) ** 2
            parts += [mean, np.sqrt(spread / float(len(near)))]
        table = np.concatenate(parts)
        table = np.concatenate([raised(table, power) for power in features.powers])
        self._plain[step] = table
        return np.concatenate([self._plain[max(step - lag, 0)] for lag in features.lags])

    def _forget(self) -> None:
        features = self.features
        for old in [step for step in self._base if step < self._n_out - self._before]:
            del self._base[old]
        # Row 0 stays: a lag that reaches beyond the beginning is answered by it.
        longest = max(features.lags)
        for old in [step for step in self._plain if 0 < step < self._n_out - longest]:
            del self._plain[old]
        for k, sensor in enumerate(features.sensors_):
            first = min(self._start(self._n_base, sensor.rate, span)[0] for span in features.spans)
            spare = min(first - self._dropped[k], len(self._signals[k]) - 1)
            if spare > 0 and first > 0:
                self._signals[k] = self._signals[k][spare:]
                self._dropped[k] += spare
