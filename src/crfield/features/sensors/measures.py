"""What is measured in the windows of a sensor, by name.

A `Sensor` has axes and a rate. Its channels are the axes and, where there are several, the length of their vector,
which does not depend on how the sensor was put on. Every measure is taken of every channel; correlations of every
pair of axes; and the direction of the mean vector, which for an accelerometer at rest is the direction of gravity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from crfield.errors import InputError
from crfield.features.sensors import signals, spectra

SIMPLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": signals.mean,
    "deviation": signals.deviation,
    "least": signals.least,
    "greatest": signals.greatest,
    "middle half": signals.middle_half,
    "energy": signals.energy,
    "log energy": signals.log_energy,
    "jerk": signals.jerk,
    "log jerk": signals.log_jerk,
    "crossings": signals.crossings,
    "sample entropy": spectra.sample_entropy,
}
SPECTRAL = ("bands", "log bands", "spectral entropy", "peak")
OTHERS = ("autocorrelation", *SPECTRAL, "correlation", "direction")
MEASURES = (*SIMPLE, *OTHERS)
BANDS = (0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0, 15.0, 26.0)  # hertz
LAGS = (0.1, 0.25, 0.5, 0.75)  # seconds, of the autocorrelation
_AT_ONCE = 1024


@dataclass(frozen=True)
class Sensor:
    """Axes that are sampled together, ``rate`` times a second.

    >>> Sensor(52.0, ("x", "y", "z")).channels
    ('x', 'y', 'z', 'length')
    """

    rate: float
    axes: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if not np.isfinite(self.rate) or self.rate <= 0 or not self.axes:
            raise InputError(
                f"a sensor needs a finite rate > 0 and at least one axis, got {self.rate!r} and {self.axes}."
            )

    @property
    def channels(self) -> tuple[str, ...]:
        """The axes, and the length of their vector."""
        return (*self.axes, "length") if len(self.axes) > 1 else self.axes


def measure_names(sensor: Sensor, chosen: Sequence[str], *, bands: Sequence[float] = BANDS) -> list[str]:
    """Names of the columns of `measured`, in order.

    >>> measure_names(Sensor(50.0, ("x", "y")), ["mean", "correlation"])
    ['x mean', 'y mean', 'length mean', 'x–y correlation']
    """
    check_measures(chosen, bands)
    own = []
    for channel in sensor.channels:
        own += [f"{channel} {name}" for name in chosen if name in SIMPLE]
        if "autocorrelation" in chosen:
            own += [f"{channel} autocorrelation {lag:g}s" for lag in LAGS]
        for name in ("bands", "log bands"):
            if name in chosen:
                word = "energy" if name == "bands" else "log energy"
                own += [f"{channel} {word} {low:g}–{high:g}Hz" for low, high in pairwise(bands)]
        own += [f"{channel} {name}" for name in ("spectral entropy", "peak") if name in chosen]
    if "correlation" in chosen:
        own += [f"{one}–{other} correlation" for one, other in combinations(sensor.axes, 2)]
    if "direction" in chosen and len(sensor.axes) > 1:
        own += [f"{axis} direction" for axis in sensor.axes]
    return [f"{sensor.name} {name}" for name in own] if sensor.name else own


def measured(
    windows: np.ndarray, sensor: Sensor, chosen: Sequence[str], *, bands: Sequence[float] = BANDS
) -> np.ndarray:
    """(W, K) the chosen measures of windows (W, n, D) of a sensor's axes.

    >>> measured(np.array([[[3.0, 4.0], [3.0, 4.0]]]), Sensor(2.0, ("x", "y")), ["mean", "direction"]).tolist()
    [[3.0, 4.0, 5.0, 0.6, 0.8]]
    """
    parts = [
        _some(windows[start : start + _AT_ONCE], sensor, chosen, bands) for start in range(0, len(windows), _AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(measure_names(sensor, chosen, bands=bands))))


def check_measures(chosen: Sequence[str], bands: Sequence[float]) -> None:
    """InputError unless the measures exist and the edges of the bands rise.

    >>> check_measures(["meen"], BANDS)
    Traceback (most recent call last):
    crfield.errors.InputError: there is no measure 'meen'; there are mean, deviation, ...
    """
    for name in chosen:
        if name not in MEASURES:
            raise InputError(f"there is no measure {name!r}; there are {', '.join(MEASURES)}.")
    edges = np.asarray(bands, dtype=np.float64)
    if len(edges) < 2 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any() or edges[0] < 0:
        raise InputError(f"bands must be two or more edges in hertz that rise, got {tuple(bands)}.")


def _some(windows: np.ndarray, sensor: Sensor, chosen: Sequence[str], bands: Sequence[float]) -> np.ndarray:
    axes = [np.ascontiguousarray(windows[:, :, d], dtype=np.float64) for d in range(windows.shape[2])]
    channels = list(axes)
    if len(axes) > 1:
        channels.append(np.sqrt(sum(axis * axis for axis in axes)))
    places = spectra.frequencies(windows.shape[1], sensor.rate)
    columns: list[np.ndarray] = []
    for channel in channels:
        columns += [SIMPLE[name](channel) for name in chosen if name in SIMPLE]
        if "autocorrelation" in chosen:
            columns += [signals.autocorrelation(channel, max(round(lag * sensor.rate), 1)) for lag in LAGS]
        if any(name in chosen for name in SPECTRAL):
            power = spectra.powers(channel)
            energies = spectra.band_energies(power, places, bands)
            if "bands" in chosen:
                columns += list(energies.T)
            if "log bands" in chosen:
                columns += list(np.log(energies + signals.TINY).T)
            if "spectral entropy" in chosen:
                columns.append(spectra.spectral_entropy(power))
            if "peak" in chosen:
                columns.append(spectra.peak(power, places))
    if "correlation" in chosen:
        columns += [signals.correlation(one, other) for one, other in combinations(axes, 2)]
    if "direction" in chosen and len(axes) > 1:
        means = [axis.mean(axis=1) for axis in axes]
        length = np.sqrt(sum(part * part for part in means))
        columns += [np.where(length > 0, part / np.where(length > 0, length, 1.0), 0.0) for part in means]
    return np.stack(columns, axis=1) if columns else np.zeros((len(windows), 0))
