"""`SensorFeatures` in C: samples in, a row of columns at the end of every step.

A ring keeps the samples that a window may still reach, another the measures that a context may reach, a third the
rows that a lag may reach: all of fixed size. At the end of a step every window is copied out of its ring and
measured, by the functions of `crfield.estimators.export.features.measures`, which add in the order of NumPy.

Sensors of different rates come one sample at a time. One may be ahead of another by `SLACK` steps; a sensor that
falls silent for longer would need memory without a bound, and is told.

What is refused: windows that look ahead (``causal=False``), scales of whole recordings (``relative``), and measures
of the spectrum, whose transform no two libraries round alike. Columns that have no weight in the model are not
computed, so a model that chose others out of all measures can be exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from crfield.errors import InputError
from crfield.estimators.export.features.header import FeatureCode, comment
from crfield.estimators.export.features.language import literal
from crfield.estimators.export.features.measures import MEASURED, helpers
from crfield.features.powers import is_product
from crfield.features.sensors.measures import LAGS, MEASURES, SIMPLE, SPECTRAL, Sensor
from crfield.features.sensors.transformer import SensorFeatures
from crfield.features.sensors.windows import window_places

SLACK = 8  # steps that one sensor may be ahead of another


@dataclass(frozen=True)
class Measure:
    """A column of windows: a name of `MEASURES`, of which sensor, span and channels, with a lag in samples."""

    name: str
    sensor: int
    span: float
    channels: tuple[int, ...]
    lag: int = 0


def base_measures(features: SensorFeatures) -> list[Measure]:
    """What `SensorFeatures.base` gives, column by column."""
    chosen, found = features._check(), []
    for k, sensor in enumerate(features.sensors_):
        n_axes = len(sensor.axes)
        for span in features.spans:
            for c in range(len(sensor.channels)):
                own = [Measure(name, k, span, (c,)) for name in chosen if name in SIMPLE]
                if "autocorrelation" in chosen:
                    lags = [max(round(lag * sensor.rate), 1) for lag in LAGS]
                    own += [Measure("autocorrelation", k, span, (c,), lag) for lag in lags]
                for name in SPECTRAL:
                    count = len(features.bands) - 1 if name in ("bands", "log bands") else 1
                    own += [Measure(name, k, span, (c,))] * (count if name in chosen else 0)
                found += own
            if "correlation" in chosen:
                found += [Measure("correlation", k, span, pair) for pair in combinations(range(n_axes), 2)]
            if "direction" in chosen and n_axes > 1:
                found += [Measure("direction", k, span, (c,)) for c in range(n_axes)]
    return found


def sensor_code(features: SensorFeatures, used: np.ndarray) -> FeatureCode:
    """C for the columns of sensors; those that are not ``used`` (columns,) are 0."""
    _refuse(features)
    base = base_measures(features)
    stages = 1 + 2 * len(features.contexts)
    width = len(base) * stages  # of a row before powers and lags
    shape = (len(features.lags), len(features.powers), stages, len(base))
    needed = np.flatnonzero(used.reshape(shape).any(axis=(0, 1, 2)))
    _refuse_spectral([base[k] for k in needed])
    place = np.full(len(base), -1)
    place[needed] = np.arange(len(needed))
    lag, power, stage, own = np.unravel_index(np.flatnonzero(used), shape)
    part = np.full((3, len(used)), -1)
    part[:, used] = stage * len(needed) + place[own], np.take(features.lags, lag), np.take(features.powers, power)
    assert width * len(features.lags) * len(features.powers) == len(used)
    return _Writer(features, [base[k] for k in needed], part).code()


def _refuse(features: SensorFeatures) -> None:
    if not features.causal:
        raise InputError(
            "these features look ahead (causal=False), and a robot has heard nothing of what comes. Train with "
            "SensorFeatures(causal=True)."
        )
    if features.relative is not False:
        raise InputError("relative= needs the whole recording, which a robot does not have. Use relative=False.")
    for sensor in features.sensors_:
        if sensor.rate * features.hop < 1:
            raise InputError(f"a step of {features.hop:g} s must have a sample or more, at {sensor.rate:g} a second.")
    wrong = [power for power in features.powers if not is_product(power)]
    if wrong:
        raise InputError(f"powers must be whole numbers in 1 … 16 to be exported, got {wrong[0]!r}.")


def _refuse_spectral(needed: list[Measure]) -> None:
    lost = list(dict.fromkeys(measure.name for measure in needed if measure.name in SPECTRAL))
    if lost:
        can = ", ".join(name for name in MEASURES if name not in SPECTRAL)
        raise InputError(
            f"the model uses {', '.join(lost)}: measures of the spectrum cannot be exported, as no two Fourier "
            f"transforms are rounded alike. Train with measures=[…] out of {can}; or let SelectedCRF choose columns: "
            "those that it leaves out are not computed."
        )


class _Writer:
    def __init__(self, features: SensorFeatures, base: list[Measure], part: np.ndarray) -> None:
        self.features, self.base, self.part = features, base, part
        self.sensors: tuple[Sensor, ...] = features.sensors_
        self.many = len(self.sensors) > 1
        self.slack = SLACK if self.many else 1
        self.widest = max(features.contexts, default=1)
        self.rows = self.widest - 1 + self.slack
        self.longest = max(int(lag) for lag in features.lags) + 1
        self.width = len(base) * (1 + 2 * len(features.contexts))
        spans = {(m.sensor, m.span) for m in base} or {(0, features.spans[0])}
        self.lengths = {(k, span): self._length(k, span) for k, span in sorted(spans)}

    def _length(self, sensor: int, span: float) -> int:
        return window_places(0, self.sensors[sensor].rate, hop=self.features.hop, span=span, causal=True)[1]

    def _ring(self, sensor: int) -> int:
        """Samples that are kept: the longest window, and one that may come before a step of uneven length ends."""
        return 1 + max([n for (k, _), n in self.lengths.items() if k == sensor], default=1)

    def code(self) -> FeatureCode:
        arguments = [*([("int ", "sensor")] if self.many else []), ("const double *", "sample")]
        listens = [self._listen(k) for k in range(len(self.sensors))]
        operations = sum(count for _, count in listens) + self._rest_operations()
        return FeatureCode(
            "samples",
            arguments,
            self._about(),
            self._constants(),
            self._fields(),
            helpers({m.name for m in self.base}, contexts=bool(self.features.contexts))
            + "".join(text for text, _ in listens),
            self._body(),
            operations,
            ["-3 where no step has ended with this sample"]
            + (
                [f"-4 where a sensor is more than {SLACK} steps ahead of another (the sample is left out)"]
                * self.many
            ),
        )

    def _about(self) -> list[str]:
        lines = []
        for k, sensor in enumerate(self.sensors):
            which = f"sensor {k} ({sensor.name})" if self.many else "sample"
            axes = ", ".join(sensor.axes)
            lines.append(comment(f"{which}: {len(sensor.axes)} doubles, {axes}, {sensor.rate:g} times a second."))
        return [*lines, f"A step lasts {self.features.hop:g} s; NAME_push gives a label when one has ended."]

    def _constants(self) -> str:
        parts = [f"#define NAME_BASE {max(len(self.base), 1)}", f"#define NAME_WIDTH {max(self.width, 1)}"]
        parts += [f"#define NAME_ROWS {self.rows}", f"#define NAME_PAST {self.longest}"]
        for k, sensor in enumerate(self.sensors):
            parts += [f"#define NAME_AXES{k} {len(sensor.axes)}", f"#define NAME_RING{k} {self._ring(k)}"]
        parts.append(
            "/* where each column stands in a row, -1 for those without a weight; how long ago; its power */"
        )
        for name, row in zip(("part", "ago", "power"), self.part.tolist(), strict=True):
            parts.append(f"static const int NAME_{name}[] = {{{', '.join(map(str, row)) or '0'}}};")
        return "\n".join(parts) + "\n"

    def _fields(self) -> str:
        doubles = [f"ring{k}[NAME_RING{k} * NAME_AXES{k}]" for k in range(len(self.sensors))]
        doubles += ["base[NAME_ROWS * NAME_BASE]", "plain[NAME_PAST * NAME_WIDTH]"]
        longest = max(self.lengths.values())
        doubles += [f"{name}[{longest}]" for name in ("w", "v", "p")]  # windows and room for products
        counts = ["steps", *(f"{what}{k}" for k in range(len(self.sensors)) for what in ("heard", "steps"))]
        return "".join(f"  double {name};\n" for name in doubles) + f"  long long {', '.join(counts)};\n"

    # ------------------------------------------------------------------------------------------- one sensor

    def _listen(self, k: int) -> tuple[str, int]:
        """The function that takes a sample of a sensor and measures its windows when a step has ended."""
        n_axes, step = len(self.sensors[k].axes), literal(self.features.hop * self.sensors[k].rate)
        lines, operations = self._measured(k)
        ahead = f"  if (ended && f->steps{k} - f->steps >= {self.slack}) return -4;\n" if self.many else ""
        copied = "\n".join(f"  {line}" for line in lines)
        taken = " + ".join(f"x[{d}] * x[{d}]" for d in range(n_axes))
        length = f"    if (channel == {n_axes}) w[i] = sqrt({taken});\n    else " if n_axes > 1 else "    "
        text = f"""
/* n samples of a channel from place start on, oldest first; before the first sample that one stands. */
static inline void NAME_copy{k}(const NAME_features *f, long long start, int n, int channel, double *w) {{
  for (int i = 0; i < n; i++) {{
    long long place = start + i < 0 ? 0 : start + i;
    const double *x = f->ring{k} + (place % NAME_RING{k}) * NAME_AXES{k};
{length}w[i] = x[channel];
  }}
}}

static inline int NAME_listen{k}(NAME_features *f, const double *sample) {{
  const long long heard = f->heard{k} + 1, end = (long long)floor((double)(f->steps{k} + 1) * {step} + 1e-9);
  const int ended = floor((double)heard / {step} + 1e-9) > (double)f->steps{k} && end <= heard;
  for (int d = 0; d < NAME_AXES{k}; d++)
    if (!isfinite(sample[d])) return -2;
{ahead}  memcpy(f->ring{k} + (f->heard{k} % NAME_RING{k}) * NAME_AXES{k}, sample, NAME_AXES{k} * sizeof(double));
  f->heard{k} = heard;
  if (!ended) return 0;
{copied}
  f->steps{k}++;
  return 0;
}}
"""
        return text, operations

    def _measured(self, k: int) -> tuple[list[str], int]:
        """Lines that measure the windows of a sensor, window by window, and their operations."""
        names = self.sensors[k].channels
        own = [(place, measure) for place, measure in enumerate(self.base) if measure.sensor == k]
        n_axes = len(self.sensors[k].axes)
        if not own:
            return [], 0
        lines, operations = [f"double *b = f->base + (f->steps{k} % NAME_ROWS) * NAME_BASE, mean;"], 0
        for span in dict.fromkeys(measure.span for _, measure in own):
            n = self.lengths[k, span]
            here = [(place, measure) for place, measure in own if measure.span == span]
            directed = [item for item in here if item[1].name == "direction"]
            singly = [item for item in here if item[1].name not in ("direction", "correlation")]
            for c in dict.fromkeys(measure.channels[0] for _, measure in singly):
                said = [
                    (place, *MEASURED[measure.name](n, measure.lag))
                    for place, measure in singly
                    if measure.channels[0] == c
                ]
                copy = f"NAME_copy{k}(f, end - {n}, {n}, {c}, f->w);"
                lines.append(f"{copy} /* {comment(names[c])} of {span:g} s */")
                if any("mean" in text for _, text, _ in said):
                    lines.append(f"mean = NAME_sum(f->w, {n}) / {n}.0;")
                lines += [f"b[{place}] = {text};" for place, text, _ in said]
                operations += n + 1 + (2 * n_axes * n if c == n_axes else 0) + sum(cost for *_, cost in said)
            for place, measure in here:
                if measure.name == "correlation":
                    text, cost = MEASURED["correlation"](n, 0)
                    for channel, into in zip(measure.channels, "wv", strict=True):
                        lines.append(f"NAME_copy{k}(f, end - {n}, {n}, {channel}, f->{into});")
                    lines.append(f"b[{place}] = {text};")
                    operations += cost
            if directed:
                lines += ["{", *(f"  {line}" for line in self._directed(k, n, directed)), "}"]
                operations += n_axes * (n + 5)
        if not any("mean = " in line for line in lines):
            lines[0] = lines[0].replace(", mean", "")
        return lines, operations

    def _directed(self, k: int, n: int, directed: list[tuple[int, Measure]]) -> list[str]:
        """Lines for the direction of the mean vector."""
        n_axes = len(self.sensors[k].axes)
        lines = [f"double means[{n_axes}], length;"]
        for c in range(n_axes):
            lines.append(f"NAME_copy{k}(f, end - {n}, {n}, {c}, f->w);")
            lines.append(f"means[{c}] = NAME_sum(f->w, {n}) / {n}.0;")
        lines.append("length = sqrt(" + " + ".join(f"means[{c}] * means[{c}]" for c in range(n_axes)) + ");")
        for place, measure in directed:
            lines.append(f"b[{place}] = length > 0.0 ? means[{measure.channels[0]}] / length : 0.0;")
        return lines

    # ------------------------------------------------------------------------------------------- all of them

    def _rest_operations(self) -> int:
        contexts = sum(len(self.base) * (4 * width + 4) for width in self.features.contexts)
        ends = 7 * len(self.sensors)  # whether a step has ended
        return contexts + ends + int((self.part[2] - 1).clip(0).sum())

    def _body(self) -> str:
        lines = ["double *row;", "int said;"]
        if self.many:
            lines.append("switch (sensor) {")
            lines += [f"case {k}: said = NAME_listen{k}(f, sample); break;" for k in range(len(self.sensors))]
            lines += ["default: said = -2;", "}"]
        else:
            lines.append("said = NAME_listen0(f, sample);")
        lines.append("if (said) return said;")
        waits = " || ".join(f"f->steps{k} <= f->steps" for k in range(len(self.sensors)))
        lines += [f"if ({waits}) return -3;", "row = f->plain + (f->steps % NAME_PAST) * NAME_WIDTH;"]
        if self.base:
            lines.append("memcpy(row, f->base + (f->steps % NAME_ROWS) * NAME_BASE, NAME_BASE * sizeof(double));")
        for at, width in enumerate(self.features.contexts):
            if self.base:
                lines.append(f"NAME_context(f, {width}, row + {(1 + 2 * at) * len(self.base)});")
        lines += [
            f"for (int k = 0; k < {self.part.shape[1]}; k++) {{",
            "  const long long then = f->steps < NAME_ago[k] ? 0 : f->steps - NAME_ago[k];",
            "  double value = 1.0;",
            "  if (NAME_part[k] < 0) continue;",
            "  value = f->plain[(then % NAME_PAST) * NAME_WIDTH + NAME_part[k]];",
            "  x[k] = value;",
            "  for (int p = 1; p < NAME_power[k]; p++) x[k] = x[k] * value;",
            "}",
            "f->steps++;",
        ]
        return "\n".join(f"  {line}" for line in lines)
