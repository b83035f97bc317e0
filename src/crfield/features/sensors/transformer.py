"""`SensorFeatures`: recordings of sensors become sequences of named columns, one row a step.

    samples  →  windows (spans)  →  measures  →  contexts  →  powers  →  lags  →  own scale

Each stage multiplies the candidates, and every candidate has a name that tells how it is made: "z log energy
1.5–2.5Hz of 5s, mean of 15, squared, 3 ago". With three axes, two spans and two contexts there are more than a
thousand; which of them are worth having is a question for selection.

`relative` puts each column on the scale of its own recording: (x − mean) / deviation over all of its steps. People
differ in how they wear a sensor and how they move, and this takes much of it away without any label. It needs the
whole recording, so it is for offline use; a stream refuses it. Everything else is the same in a stream (`stream`),
to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from crfield.core.estimator import Estimator, TransformerMixin
from crfield.errors import DataWarning, FeatureError, InputError, ModelFileError, NotFittedError, ShapeError
from crfield.features.powers import raised
from crfield.features.sensors.measures import BANDS, MEASURES, Sensor, check_measures, measure_names, measured
from crfield.features.sensors.windows import (
    context_reach,
    contexts,
    cut,
    lagged,
    majority_labels,
    step_count,
    window_places,
)

RELATIVE = (False, True, "both")
MOST = 1_000_000  # columns that a file may ask for
WIDEST = 10_000  # steps of a window or of a context in a file


class SensorFeatures(TransformerMixin, Estimator):
    """Features of sensor recordings: windowed statistics, spectra and contexts, one row a step.

    X is a list of recordings: arrays (samples, axes) at one ``rate``, or, with ``sensors``, dicts that give the array
    of each sensor by its name.

    Parameters
    ----------
    rate : float
        Samples a second.
    axes : sequence of str, optional
        Names of the axes; x, y, z if there are three, else their numbers.
    sensors : mapping of name to rate, or to `Sensor`, optional
        Sensors of different rates that were started together.
    hop : float
        Seconds of a step.
    spans : sequence of float
        Seconds of the windows that are measured for a step.
    measures : "all" or sequence of str
        Which of `MEASURES`.
    bands : sequence of float
        Edges of the bands of the spectrum, in hertz.
    contexts : sequence of int
        Widths, in steps, over which mean and deviation of every column are added.
    powers : sequence of int
        1 for the columns themselves, 2 for their squares, … .
    lags : sequence of int
        0 for the step itself, k for k steps ago.
    relative : False, True or "both"
        On the scale of the own recording, beside the columns as they are or instead of them.
    causal : bool
        Look at nothing after the end of a step.

    Attributes
    ----------
    sensors_ : tuple of `Sensor`
    n_features_out_ : int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(500, 3)), rng.normal(size=(260, 3))]
    >>> features = SensorFeatures(rate=50.0, spans=(1.0, 5.0), contexts=(15, 61)).fit(X)
    >>> [rows.shape for rows in features.transform(X)]
    [(10, 1380), (5, 1380)]
    >>> features.get_feature_names_out()[-1]
    'z direction of 5s, deviation of 61'
    """

    kind = "sensor_features"  # the word for them in a file

    def __init__(
        self,
        *,
        rate: float = 50.0,
        axes: Sequence[str] | None = None,
        sensors: Mapping[str, float | Sensor] | None = None,
        hop: float = 1.0,
        spans: Sequence[float] = (1.0,),
        measures: str | Sequence[str] = "all",
        bands: Sequence[float] = BANDS,
        contexts: Sequence[int] = (),
        powers: Sequence[int] = (1,),
        lags: Sequence[int] = (0,),
        relative: bool | str = False,
        causal: bool = False,
    ) -> None:
        self.rate = rate
        self.axes = axes
        self.sensors = sensors
        self.hop = hop
        self.spans = spans
        self.measures = measures
        self.bands = bands
        self.contexts = contexts
        self.powers = powers
        self.lags = lags
        self.relative = relative
        self.causal = causal

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the options and learn what the sensors are; nothing else depends on the data."""
        chosen = self._check()
        first = next(iter(X), None) if not isinstance(X, np.ndarray) or X.dtype == object else X[0]
        if first is None:
            raise InputError("X holds no recordings; at least one is needed to learn the axes of the sensors.")
        return self._learn(self._known_sensors(first), chosen)

    def _learn(self, sensors: tuple[Sensor, ...], chosen: Sequence[str]) -> Self:
        self.sensors_ = sensors
        self._base_names = [
            f"{name} of {span:g}s"
            for sensor in self.sensors_
            for span in self.spans
            for name in measure_names(sensor, chosen, bands=self.bands)
        ]
        self.n_features_out_ = len(self.get_feature_names_out())
        return self

    def _check(self) -> tuple[str, ...]:
        chosen = MEASURES if isinstance(self.measures, str) and self.measures == "all" else tuple(self.measures)
        check_measures(chosen, self.bands)
        for name, values, least in (("spans", self.spans, 0.0), ("powers", self.powers, 1), ("lags", self.lags, 0)):
            if not len(values) or any(not np.isfinite(v) or v < least or v == 0 == least + 1 for v in values):
                raise InputError(f"{name} must be one or more finite numbers ≥ {least:g}, got {values!r}.")
        if not np.isfinite(self.hop) or self.hop <= 0 or any(span <= 0 for span in self.spans):
            raise InputError(
                f"hop and spans must be finite numbers > 0 (seconds), got {self.hop!r} and {self.spans!r}."
            )
        for width in self.contexts:
            context_reach(width, causal=self.causal)
        if self.relative not in RELATIVE:
            raise InputError(f"relative must be False, True or 'both', got {self.relative!r}.")
        return chosen

    def _known_sensors(self, recording: Any) -> tuple[Sensor, ...]:
        if self.sensors is None:
            width = _samples(recording, "recording 0").shape[1]
            return (Sensor(float(self.rate), _axis_names(self.axes, width)),)
        found = []
        for name, about in self.sensors.items():
            if isinstance(about, Sensor):
                found.append(Sensor(about.rate, about.axes, name))
            else:
                width = _samples(_of(recording, name), f"sensor {name!r}").shape[1]
                found.append(Sensor(float(about), _axis_names(None, width), name))
        if not found:
            raise InputError("sensors must name at least one sensor, got none.")
        return tuple(found)

    # ------------------------------------------------------------------ columns

    def transform(self, X: Any) -> list[np.ndarray]:
        """A list of arrays (steps, columns), one for each recording."""
        self._fitted()
        return [self._relate(self.expand(self.base(recording, f"recording {k}"))) for k, recording in enumerate(X)]

    def base(self, recording: Any, what: str = "the recording") -> np.ndarray:
        """(steps, columns) the measures of all windows of one recording."""
        chosen = self._check()
        signals = self.signals(recording, what)
        counts = [step_count(len(s), sensor.rate, self.hop) for s, sensor in zip(signals, self.sensors_)]
        steps = min(counts)
        if max(counts) - steps > 1:
            lasts = ", ".join(
                f"{sensor.name} {len(s) / sensor.rate:.4g} s"
                for s, sensor in zip(signals, self.sensors_, strict=True)
            )
            warnings.warn(
                f"{what}: the sensors last for different times ({lasts}), so {max(counts) - steps} of {max(counts)} "
                "steps are lost. Cut them to one time first: crfield.align does, by their clocks, and tells what it "
                "drops.",
                DataWarning,
                stacklevel=3,
            )
        if not steps:
            return np.zeros((0, len(self._base_names)))
        parts = []
        for signal, sensor in zip(signals, self.sensors_):
            for span in self.spans:
                starts, length = window_places(steps, sensor.rate, hop=self.hop, span=span, causal=self.causal)
                parts.append(measured(cut(signal, starts, length), sensor, chosen, bands=self.bands))
        return np.concatenate(parts, axis=1)

    def signals(self, recording: Any, what: str = "the recording") -> list[np.ndarray]:
        """The samples (T, D) of every sensor of a recording, checked."""
        self._fitted()
        out = []
        for sensor in self.sensors_:
            given = recording if self.sensors is None else _of(recording, sensor.name)
            samples = _samples(given, what)
            if samples.shape[1] != len(sensor.axes):
                raise ShapeError(f"{what} must have {len(sensor.axes)} axes as in fit, got {samples.shape[1]}.")
            out.append(samples)
        return out

    def expand(self, base: np.ndarray) -> np.ndarray:
        """(steps, columns) contexts, powers and lags of the measures."""
        parts = [base]
        for width in self.contexts:
            parts += contexts(base, width, causal=self.causal)
        table = np.concatenate(parts, axis=1)
        table = np.concatenate([raised(table, power) for power in self.powers], axis=1)
        if tuple(self.lags) == (0,):
            return table
        return np.concatenate([lagged(table, lag) for lag in self.lags], axis=1)

    def _relate(self, table: np.ndarray) -> np.ndarray:
        if self.relative is False or not len(table):
            return table if self.relative != "both" else np.concatenate([table, table], axis=1)
        deviation = table.std(axis=0)
        constant = deviation <= 1e-9 * np.maximum(np.abs(table).max(axis=0), 1e-9)
        own = np.where(constant, 0.0, (table - table.mean(axis=0)) / np.where(constant, 1.0, deviation))
        return own if self.relative is True else np.concatenate([table, own], axis=1)

    def labels(self, y: Any, *, unknown: Sequence[Any] = ()) -> list[np.ndarray]:
        """The most frequent label of each step, from those of the first sensor's samples; see `majority_labels`.

        >>> SensorFeatures(rate=2.0).fit([[[0.0], [1.0]]]).labels([["a", "a", "b", "b"]])[0].tolist()
        ['a', 'b']
        """
        self._fitted()
        return [majority_labels(own, self.sensors_[0].rate, hop=self.hop, unknown=unknown) for own in y]

    def stream(self) -> Any:
        """A `SensorStream`: samples go in as they come, rows come out as soon as they can be known."""
        from crfield.features.sensors.stream import SensorStream

        return SensorStream(self)

    # -------------------------------------------------------------------- names

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns, as objects."""
        self._fitted()
        names = list(self._base_names)
        for width in self.contexts:
            names += [f"{name}, {what} of {width}" for what in ("mean", "deviation") for name in self._base_names]
        words = {1: "", 2: ", squared", 3: ", cubed"}
        names = [f"{name}{words.get(p, f', to the power {p}')}" for p in self.powers for name in names]
        names = [f"{name}, {lag} ago" if lag else name for lag in self.lags for name in names]
        own = [f"{name}, own scale" for name in names]
        return np.array({False: names, True: own, "both": names + own}[self.relative], dtype=object)

    # ------------------------------------------------------------------ storage

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header from which `from_state` makes the same features again; there are no arrays.

        >>> features = SensorFeatures(rate=50.0).fit([np.zeros((100, 3))])
        >>> SensorFeatures.from_state(*features.state()).n_features_out_ == features.n_features_out_
        True
        """
        self._check()
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "sensors"}
        plain = {name: np.asarray(value).tolist() if value is not None else None for name, value in options.items()}
        header: dict[str, Any] = {"kind": self.kind, "options": plain, "sensors": None, "fitted": None}
        if self.sensors is not None:
            header["sensors"] = [
                [name, about.rate, list(about.axes)] if isinstance(about, Sensor) else [name, float(about), None]
                for name, about in self.sensors.items()
            ]
        if self.__sklearn_is_fitted__():
            header["fitted"] = [[float(one.rate), list(one.axes), one.name] for one in self.sensors_]
        return header, {}

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> SensorFeatures:
        """The features whose `state` this is; ModelFileError where it cannot be one."""
        known = set(cls().get_params(deep=False)) - {"sensors"}
        try:
            options, fitted = header["options"], header["fitted"]
            if header["kind"] != cls.kind or not isinstance(options, dict) or not set(options) <= known:
                raise ModelFileError(f"the file's sensor features must have the options {', '.join(sorted(known))}.")
            made = cls(**options)
            if header["sensors"] is not None:
                made.sensors = {
                    str(name): float(rate) if axes is None else Sensor(float(rate), tuple(map(str, axes)), str(name))
                    for name, rate, axes in header["sensors"]
                }
            chosen = made._check()
            if fitted is not None:
                sensors = tuple(Sensor(float(rate), tuple(map(str, axes)), str(name)) for rate, axes, name in fitted)
                made._refuse_huge(sensors)
                made._learn(sensors, chosen)
        except ModelFileError:
            raise
        except (InputError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ModelFileError(
                f"the file's sensor features cannot be used: {error}. Was the file edited?"
            ) from None
        return made

    def _refuse_huge(self, sensors: tuple[Sensor, ...]) -> None:
        """ModelFileError where a file asks for more than any recording can be meant to give."""
        axes = sum(len(sensor.axes) for sensor in sensors)
        stages = (1 + 2 * len(self.contexts)) * len(self.powers) * len(self.lags) * len(self.spans)
        columns = stages * (axes + 1) * (axes + len(MEASURES) + 2 * len(self.bands))
        wide = max([*self.contexts, max(self.spans) / self.hop], default=0)
        slow = min((sensor.rate * self.hop for sensor in sensors), default=1.0)
        far = max([*self.lags, *self.powers])
        if columns > MOST or wide > WIDEST or far > MOST or slow < 0.1 or not sensors:
            raise ModelFileError(
                f"the file's sensor features ask for some {columns:.3g} columns of windows {wide:.3g} steps wide, "
                "which no recording has: the file is damaged."
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sensors_")

    def _fitted(self) -> None:
        if not hasattr(self, "sensors_"):
            raise NotFittedError("this SensorFeatures is not fitted yet. Call fit(X) first.")


def _axis_names(given: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if given is None:
        return ("x", "y", "z") if width == 3 else tuple(str(k) for k in range(width))
    if len(given) != width:
        raise ShapeError(f"there are {width} axes but {len(given)} names for them: {tuple(given)}.")
    return tuple(str(name) for name in given)


def _of(recording: Any, name: str) -> Any:
    if not isinstance(recording, Mapping) or name not in recording:
        raise InputError(f"with sensors= a recording is a dict with the samples of each; {name!r} is not in it.")
    return recording[name]


def _samples(given: Any, what: str) -> np.ndarray:
    samples = np.asarray(given, dtype=np.float64)
    if samples.ndim == 1 and samples.size:
        samples = samples[:, None]
    if samples.ndim != 2:
        raise ShapeError(f"{what} must be (samples, axes), got {samples.shape}.")
    if not np.isfinite(samples).all():
        where = int(np.flatnonzero(~np.isfinite(samples).all(axis=1))[0])
        raise FeatureError(
            f"{what} has NaN or infinity at sample {where}. Split or fill gaps first: crfield.data.gaps."
        )
    return samples
