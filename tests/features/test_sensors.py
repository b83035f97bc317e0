"""Features of sensors: each number is what it says, names count the columns, and a stream gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from crfield import ChainCRF
from crfield.errors import FeatureError, InputError, NotFittedError, ShapeError
from crfield.features.sensors import MEASURES, Sensor, SensorFeatures, majority_labels, signals, spectra
from crfield.features.sensors.windows import contexts, cut, window_places


def walk(n: int = 700, *, rate: float = 26.0, seed: int = 0, axes: int = 3) -> np.ndarray:
    """Something that sways at 2 Hz, wanders and trembles."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)[:, None] / rate
    sway = np.sin(2 * np.pi * 2.0 * t + rng.uniform(0, 6, axes))
    return sway + 0.05 * np.cumsum(rng.normal(size=(n, axes)), axis=0) + 0.2 * rng.normal(size=(n, axes)) + [5.0]


# ------------------------------------------------------------------------------------------------- single numbers


def test_simple_measures_against_plain_formulas() -> None:
    window = walk(52)[:, 0]
    rows = window[None]
    mean = sum(window) / 52
    assert signals.mean(rows)[0] == pytest.approx(mean)
    assert signals.deviation(rows)[0] == pytest.approx(np.sqrt(sum((v - mean) ** 2 for v in window) / 52))
    assert signals.least(rows)[0] == pytest.approx(min(window) - mean)
    assert signals.greatest(rows)[0] == pytest.approx(max(window) - mean)
    assert signals.energy(rows)[0] == pytest.approx(sum(v * v for v in window) / 52)
    assert signals.jerk(rows)[0] == pytest.approx(sum(abs(a - b) for a, b in zip(window[1:], window)) / 51)
    ordered = sorted(window)
    assert signals.middle_half(rows)[0] == pytest.approx(ordered[39] - ordered[13])
    signs = [v > mean for v in window]
    assert signals.crossings(rows)[0] == pytest.approx(sum(a != b for a, b in zip(signs[1:], signs)) / 51)
    centred = window - mean
    assert signals.autocorrelation(rows, 5)[0] == pytest.approx((centred[:-5] @ centred[5:]) / (centred @ centred))


def test_correlation_agrees_with_numpy() -> None:
    samples = walk(80)
    found = signals.correlation(samples[None, :, 0], samples[None, :, 1])[0]
    assert found == pytest.approx(np.corrcoef(samples[:, 0], samples[:, 1])[0, 1])


def test_the_spectrum_finds_the_frequency_and_keeps_the_energy() -> None:
    t = np.arange(104) / 52.0
    tone = 3.0 * np.sin(2 * np.pi * 4.0 * t)[None]
    power, places = spectra.powers(tone), spectra.frequencies(104, 52.0)
    assert spectra.peak(power, places)[0] == pytest.approx(4.0)
    bands = spectra.band_energies(power, places, (0.5, 3.0, 5.0, 26.0))[0]
    assert bands[1] > 100 * max(bands[0], bands[2])
    assert spectra.band_energies(power, places, (0.0, 26.0))[0, 0] == pytest.approx(power.sum())
    noise = np.random.default_rng(0).normal(size=(1, 104))
    assert spectra.spectral_entropy(power)[0] < 0.5 < spectra.spectral_entropy(spectra.powers(noise))[0] < 1


def test_sample_entropy_against_its_definition() -> None:
    window = walk(40)[:, 0]
    reach, pairs = 0.2 * window.std(), {2: 0, 3: 0}
    for m in pairs:
        for i in range(38):
            for j in range(38):
                if i != j and max(abs(window[i + k] - window[j + k]) for k in range(m)) <= reach:
                    pairs[m] += 1
    expected = np.log1p(pairs[2]) - np.log1p(pairs[3])
    assert spectra.sample_entropy(window[None])[0] == pytest.approx(expected)


def test_silence_is_finite() -> None:
    for length in (1, 2, 3, 30):
        rows = SensorFeatures(rate=float(length)).fit([np.ones((length, 3))]).transform([np.ones((length, 3))])[0]
        assert rows.shape[0] == 1
        assert np.isfinite(rows).all()


# ------------------------------------------------------------------------------------------------------ windows


def test_windows_lie_where_they_should() -> None:
    starts, length = window_places(4, 10.0, hop=0.5, span=1.0, causal=True)
    assert length == 10
    assert starts.tolist() == [-5, 0, 5, 10]
    signal = np.arange(20.0)[:, None]
    assert cut(signal, starts, length)[0, :, 0].tolist() == [0.0] * 5 + [0.0, 1.0, 2.0, 3.0, 4.0]


def test_causal_features_do_not_see_the_future() -> None:
    one = walk()
    other = one.copy()
    other[390:] += 50.0  # second 15 on
    features = SensorFeatures(rate=26.0, spans=(1.0, 4.0), contexts=(5,), lags=(0, 3), causal=True).fit([one])
    first, second = features.transform([one, other])
    assert np.array_equal(first[:15], second[:15])
    assert not np.array_equal(first[15], second[15])
    centred = SensorFeatures(rate=26.0, spans=(4.0,)).fit([one])
    assert not np.array_equal(*(rows[14] for rows in centred.transform([one, other])))


def test_contexts_against_plain_means() -> None:
    table = walk(30)
    for causal in (False, True):
        mean, deviation = contexts(table, 4, causal=causal)
        for t in range(30):
            near = table[max(t - 3, 0) : t + 1] if causal else table[max(t - 2, 0) : t + 2]
            assert mean[t] == pytest.approx(near.mean(axis=0))
            assert deviation[t] == pytest.approx(near.std(axis=0))


def test_majority_labels() -> None:
    assert majority_labels([1, 1, 2, 2, 2, 0, 3], 3.0).tolist() == [1, 2]
    assert majority_labels(["b", "a"], 2.0).tolist() == ["b"]  # the earlier of two equally frequent ones
    assert majority_labels([], 2.0).tolist() == []
    assert majority_labels([None, None, "a"], 3.0).tolist() == [None]


# --------------------------------------------------------------------------------------------------- transformer


def test_names_count_the_columns_and_differ() -> None:
    X = [walk(), walk(seed=1, n=260)]
    features = SensorFeatures(
        rate=26.0, spans=(1.0, 5.0), contexts=(5, 15), powers=(1, 2), lags=(0, 2), relative="both"
    ).fit(X)
    names = features.get_feature_names_out()
    rows = features.transform(X)
    assert len(names) == len(set(names)) == features.n_features_out_ == rows[0].shape[1] == 138 * 2 * 5 * 2 * 2 * 2
    assert [len(row) for row in rows] == [26, 10]
    assert all(np.isfinite(row).all() for row in rows)


def test_columns_are_what_their_names_say() -> None:
    samples = walk()
    features = SensorFeatures(rate=26.0, contexts=(3,), powers=(1, 2), lags=(0, 2)).fit([samples])
    rows, names = features.transform([samples])[0], list(features.get_feature_names_out())
    y_mean = samples[: 26 * 26, 1].reshape(26, 26).mean(axis=1)
    assert rows[:, names.index("y mean of 1s")] == pytest.approx(y_mean)
    assert rows[5, names.index("y mean of 1s, mean of 3, squared, 2 ago")] == pytest.approx(y_mean[2:5].mean() ** 2)
    length = np.sqrt((samples**2).sum(axis=1))[:26]
    assert rows[0, names.index("length mean of 1s")] == pytest.approx(length.mean())


def test_own_scale_forgets_offset_and_gain() -> None:
    one = walk()
    features = SensorFeatures(rate=26.0, measures=["mean", "deviation"], relative=True).fit([one])
    first, second = features.transform([one, 3.0 * one])
    assert first == pytest.approx(second)
    assert first.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
    assert first.std(axis=0) == pytest.approx(1.0)


def test_sensors_of_different_rates_share_the_steps() -> None:
    recording = {"chest": walk(520, rate=52.0), "wrist": walk(205, rate=20.0, axes=1)}
    features = SensorFeatures(sensors={"chest": 52.0, "wrist": Sensor(20.0, ("turn",))}, measures=["mean"])
    rows = features.fit([recording]).transform([recording])[0]
    names = list(features.get_feature_names_out())
    assert rows.shape == (10, 5)
    assert names[-1] == "wrist turn mean of 1s"
    assert rows[3, -1] == pytest.approx(recording["wrist"][60:80].mean())
    assert rows[3, 0] == pytest.approx(recording["chest"][156:208, 0].mean())


def test_scikit_learn_conventions() -> None:
    features = SensorFeatures(rate=26.0, measures=["mean", "log energy"], contexts=(5,))
    again = clone(features)
    assert again.get_params()["contexts"] == (5,)
    with pytest.raises(NotFittedError):
        again.transform([walk()])
    X = [walk(seed=k) for k in range(3)]
    y = [np.where(np.arange(26) < 13, "a", "b") for _ in X]
    model = make_pipeline(features, ChainCRF(standardize=True)).fit(X, y)
    assert [len(labels) for labels in model.predict(X)] == [26, 26, 26]
    assert SensorFeatures(rate=26.0).fit(X).labels([["a"] * 60])[0].tolist() == ["a", "a"]


def test_empty_and_short_recordings_have_no_steps() -> None:
    features = SensorFeatures(rate=26.0, relative="both").fit([walk()])
    for n in (0, 25):
        assert features.transform([np.zeros((n, 3))])[0].shape == (0, features.n_features_out_)


@pytest.mark.parametrize(
    ("options", "X", "error", "words"),
    [
        ({"measures": ["meen"]}, [walk()], InputError, "no measure 'meen'"),
        ({"bands": (3.0, 1.0)}, [walk()], InputError, "edges in hertz that rise"),
        ({"spans": ()}, [walk()], InputError, "spans must be"),
        ({"spans": (0.0,)}, [walk()], InputError, "finite numbers > 0"),
        ({"hop": 0.0}, [walk()], InputError, "hop"),
        ({"lags": (-1,)}, [walk()], InputError, "lags must be"),
        ({"powers": (0,)}, [walk()], InputError, "powers must be"),
        ({"contexts": (0,)}, [walk()], InputError, "at least one step"),
        ({"relative": "maybe"}, [walk()], InputError, "relative must be"),
        ({"rate": 0.0}, [walk()], InputError, "rate > 0"),
        ({"axes": ("a",)}, [walk()], ShapeError, "3 axes but 1 names"),
        ({}, [], InputError, "no recordings"),
        ({}, [walk(), walk(axes=2)], ShapeError, "3 axes as in fit, got 2"),
        ({}, [np.where(np.arange(2100).reshape(700, 3) == 33, np.nan, walk())], FeatureError, "at sample 11"),
        ({"sensors": {"chest": 26.0}}, [walk()], InputError, "a recording is a dict"),
    ],
    ids=lambda value: "data" if isinstance(value, list) else None,
)
def test_mistakes_are_named(options: dict[str, Any], X: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        SensorFeatures(**{"rate": 26.0, **options}).fit(X).transform(X)


# -------------------------------------------------------------------------------------------------------- stream


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True, "lags": (0, 2), "powers": (1, 2)},
        {"spans": (1.0, 2.5), "contexts": (4, 5)},
        {"spans": (2.0,), "hop": 0.7, "causal": True, "contexts": (3,)},
        {"spans": (0.5, 6.0), "hop": 1.3, "contexts": (7,), "lags": (1, 9)},
    ],
    ids=["causal", "centred", "uneven", "long"],
)
def test_a_stream_gives_the_same_bits(options: dict[str, Any]) -> None:
    samples = walk()
    features = SensorFeatures(rate=26.0, **options).fit([samples])
    stream, rng, rows, place = features.stream(), np.random.default_rng(1), [], 0
    while place < len(samples):
        n = int(rng.integers(1, 60))
        rows.append(stream.push(samples[place : place + n]))
        place += n
    rows.append(stream.finish())
    assert np.array_equal(np.concatenate(rows), features.transform([samples])[0])


def test_causal_rows_come_when_their_step_is_full() -> None:
    samples = walk()
    stream = SensorFeatures(rate=26.0, measures=["mean"], contexts=(3,), causal=True).fit([samples]).stream()
    ready = [k for k, sample in enumerate(samples) if len(stream.push(sample))]
    assert ready == [26 * (k + 1) - 1 for k in range(26)]


def test_a_stream_of_two_sensors() -> None:
    recording = {"chest": walk(520, rate=52.0), "wrist": walk(205, rate=20.0, axes=1)}
    options = {"measures": ["mean", "log bands"], "spans": (1.0, 3.0)}
    features = SensorFeatures(sensors={"chest": 52.0, "wrist": 20.0}, **options).fit([recording])
    stream = features.stream()
    rows = [stream.push({"wrist": recording["wrist"]})]
    rows += [stream.push({"chest": part}) for part in np.array_split(recording["chest"], 7)]
    rows.append(stream.finish())
    assert np.array_equal(np.concatenate(rows), features.transform([recording])[0])


def test_a_stream_forgets() -> None:
    features = SensorFeatures(rate=26.0, measures=["mean"], spans=(1.0, 3.0), contexts=(5,), lags=(0, 4)).fit(
        [walk()]
    )
    stream = features.stream()
    for _ in range(20):
        stream.push(walk(260))
    assert len(stream._signals[0]) < 120
    assert len(stream._base) < 8
    assert len(stream._plain) < 8


def test_a_stream_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="whole recording"):
        SensorFeatures(rate=26.0, relative=True).fit([walk()]).stream()
    stream = SensorFeatures(rate=26.0).fit([walk()]).stream()
    with pytest.raises(InputError, match="NaN"):
        stream.push([np.nan, 0.0, 0.0])
    stream.finish()
    with pytest.raises(InputError, match="finished"):
        stream.push([0.0, 0.0, 0.0])


def test_a_thousand_candidates_for_a_chest_accelerometer() -> None:
    features = SensorFeatures(rate=52.0, spans=(1.0, 5.0), contexts=(15, 61)).fit([walk()])
    assert features.n_features_out_ >= 1_000
    assert {name for name in MEASURES if name in ("sample entropy", "spectral entropy", "bands")}
