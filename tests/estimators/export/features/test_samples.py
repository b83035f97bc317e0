"""Samples in, label out: the header measures windows as `SensorFeatures` do, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from crfield import ChainCRF, Pipeline, SelectedCRF, SensorFeatures
from crfield.errors import InputError, NotFittedError, ShapeError
from crfield.estimators.export.export import export_model
from crfield.estimators.export.step_scores import DenseSteps
from crfield.features.sensors import MEASURES, Sensor
from crfield.features.sensors.measures import SPECTRAL
from tests.estimators.export.features.compiled import BUILDS, QUICK, Answers, run

each_build = pytest.mark.parametrize("build", BUILDS, ids=[" ".join(build) for build in BUILDS])
compiled = pytest.mark.skipif(not BUILDS, reason="no C compiler")
PLAIN = tuple(name for name in MEASURES if name not in SPECTRAL)
PUSH = "      said = robot_push(&s, in + 1);"


def swaying(n: int, *, axes: int = 3, seed: int = 0) -> np.ndarray:
    """Activity that comes and goes, with silences."""
    rng = np.random.default_rng(seed)
    loud = rng.integers(0, 3, n // 40 + 1).repeat(40)[:n, None]
    return rng.normal(size=(n, axes)) * loud + np.arange(axes) + 0.1 * np.cumsum(rng.normal(size=(n, axes)), axis=0)


def heard(features: SensorFeatures, samples: np.ndarray, path: Path) -> Answers:
    """What a header with some model of all columns says of samples; a row that is ready has a label."""
    n_columns = features.n_features_out_
    steps = DenseSteps(np.random.default_rng(0).normal(size=(n_columns, 2)), np.zeros((2, 2)))
    export_model(steps, ["a", "b"], path, max_lag=5, features=features)
    return run(QUICK, path, PUSH, samples, n_columns=n_columns, n_labels=2)


@pytest.fixture(scope="module")
def mover() -> tuple[ChainCRF, np.ndarray, np.ndarray, list[Any]]:
    """A chain with features of sensors inside, samples of 10,000 steps, their columns and labels in Python."""
    samples = swaying(30_000, axes=2)
    features = SensorFeatures(
        rate=6.0, hop=0.5, spans=(0.5, 1.5), measures=("mean", "deviation", "correlation"), causal=True
    ).fit([samples])
    rows = features.transform([samples])[0]
    y = np.where(rows[:300, 1] > 0.8, "move", "rest")
    model = ChainCRF(features=features, standardize=True, tol=1e-1).fit([samples[:900]], [y])
    stream = ChainCRF(standardize=True, tol=1e-1).fit([rows[:300]], [y]).stream()
    return model, samples, rows, [stream.push(row).label for row in rows]


@each_build
def test_a_chain_of_sensors_for_ten_thousand_steps(build: list[str], mover: Any, tmp_path: Path) -> None:
    model, samples, rows, labels = mover
    model.export(tmp_path / "robot.h")
    found = run(build, tmp_path / "robot.h", PUSH, samples, n_columns=rows.shape[1], n_labels=2)
    ready = found.labels != -3
    assert np.flatnonzero(ready).tolist() == list(range(2, 30_000, 3))
    assert np.array_equal(found.columns[ready], rows)
    assert [model.classes_[k] for k in found.labels[ready]] == labels
    first = (tmp_path / "robot.h").read_text().splitlines()
    assert f"State: {found.bytes:,} bytes" in first[1]
    assert "operations for the features and" in first[2]
    stream = model.features.stream()
    assert np.array_equal(stream.push(samples[:90]), rows[:30])
    model.export(tmp_path / "columns.h", features=False)
    assert "sample" not in (tmp_path / "columns.h").read_text()


@compiled
@pytest.mark.parametrize(
    "options",
    [
        {"rate": 10.0, "contexts": (3, 5), "powers": (1, 3), "lags": (0, 2, 9)},
        {"rate": 9.7, "hop": 0.7, "spans": (0.1, 30.0)},  # windows of one sample and of hundreds, uneven steps
    ],
    ids=["contexts", "uneven"],
)
def test_every_measure_that_can_be_written(options: dict[str, Any], tmp_path: Path) -> None:
    samples = swaying(1200)
    samples[300:340] = samples[300]  # nothing varies
    features = SensorFeatures(measures=PLAIN, causal=True, **options).fit([samples])
    found, rows = heard(features, samples, tmp_path / "robot.h"), features.transform([samples])[0]
    assert (found.labels != -3).sum() == len(rows) > 100
    wrong = np.flatnonzero((found.columns[found.labels != -3] != rows).any(axis=0))
    assert features.get_feature_names_out()[wrong].tolist() == []
    assert f"State: {found.bytes:,} bytes" in (tmp_path / "robot.h").read_text()


@compiled
def test_sensors_of_different_rates_and_one_that_falls_silent(tmp_path: Path) -> None:
    recording = {"chest": swaying(520), "wrist": swaying(200, axes=1, seed=1)}
    features = SensorFeatures(
        sensors={"chest": 26.0, "wrist": Sensor(10.0, ("turn",))},
        measures=("mean", "energy"),
        spans=(1.0, 2.0),
        contexts=(4,),
        causal=True,
    ).fit([recording])
    rows = features.transform([recording])[0]
    steps = DenseSteps(np.ones((rows.shape[1], 2)), np.zeros((2, 2)))
    export_model(steps, ["a", "b"], tmp_path / "robot.h", max_lag=5, features=features)
    # two seconds of one sensor, then two of the other; at the end nine of the first alone
    fed = []
    for second in range(0, 20, 2):
        fed += [[0, *sample] for sample in recording["chest"][second * 26 : (second + 2) * 26].tolist()]
        fed += [[1, *sample, 0, 0] for sample in recording["wrist"][second * 10 : (second + 2) * 10].tolist()]
    fed += [[0, 1.0, 2.0, 3.0]] * 26 * 9
    push = "      said = robot_push(&s, (int)in[1], in + 2);"
    found = run(QUICK, tmp_path / "robot.h", push, np.array(fed), n_columns=rows.shape[1], n_labels=2)
    assert np.array_equal(found.columns[found.labels >= 0], rows)
    assert found.labels[-1] == -4  # the ninth step ahead
    assert set(found.labels[-26 * 9 : -1]) == {-3}


@compiled
def test_columns_without_a_weight_are_not_computed(tmp_path: Path) -> None:
    samples = swaying(1000)
    features = SensorFeatures(rate=10.0, causal=True).fit([samples])
    rows = features.transform([samples])[0]
    names = features.get_feature_names_out().tolist()
    spread = rows[:, names.index("x deviation of 1s")]
    model = SelectedCRF(options={"max_features": 1}, method="grafting", validation=None).fit([rows], [spread > 0.8])
    used = [name for name in names if name in {names[int(item.name[2:-1])] for item in model.features_}]
    assert used
    assert not [name for name in used if "Hz" in name]
    model.export(tmp_path / "robot.h", features=features)
    found = run(QUICK, tmp_path / "robot.h", PUSH, samples, n_columns=rows.shape[1], n_labels=2)
    ready, place = found.labels != -3, [names.index(name) for name in used]
    assert np.array_equal(found.columns[ready][:, place], rows[:, place])
    assert [bool(model.classes_[k]) for k in found.labels[ready]] == [
        bool(now.label) for now in map(model.stream().push, rows)
    ]


@compiled
def test_a_pipeline_is_exported_whole_and_begins_anew(tmp_path: Path) -> None:
    samples = swaying(400)
    features = SensorFeatures(rate=10.0, measures=("mean", "energy"), contexts=(3,), lags=(0, 2), causal=True)
    pipe = Pipeline(
        make_pipeline(features, ChainCRF(standardize=True, tol=1e-1)).fit([samples], [["a", "b"] * 20]).steps
    )
    pipe.export(tmp_path / "robot.h")
    twice = np.concatenate([samples[:200], np.full((1, 3), np.nan), samples[:200]])
    twice[50] = [1.0, np.inf, 1.0]  # left out
    found = run(QUICK, tmp_path / "robot.h", PUSH, twice, n_columns=12 * 4, n_labels=2)
    assert found.labels[50] == -2
    ready = found.labels >= 0
    ready[200] = False
    rows = features.fit([samples]).transform([np.delete(samples[:200], 50, axis=0), samples[:200]])
    assert np.array_equal(found.columns[ready], np.concatenate(rows))


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    samples = swaying(200)

    def tried(features: Any, suffix: str = ".h", n_columns: int | None = None) -> None:
        wide = n_columns or features.n_features_out_
        steps = DenseSteps(np.ones((wide, 2)), np.zeros((2, 2)))
        export_model(steps, ["a", "b"], tmp_path / f"robot{suffix}", max_lag=5, features=features)

    options: dict[str, Any] = {"rate": 10.0, "measures": ("mean",), "causal": True}
    for change, words in (
        ({"causal": False}, "look ahead"),
        ({"relative": True}, "whole recording"),
        ({"measures": ("mean", "peak", "bands")}, "bands, peak: measures of the spectrum.*out of mean, deviation"),
        ({"powers": (1, 1.5)}, "whole numbers in 1 … 16 to be exported, got 1.5"),
        ({"hop": 0.05}, "a sample or more"),
    ):
        with pytest.raises(InputError, match=words):
            tried(SensorFeatures(**options | change).fit([samples]))
    features = SensorFeatures(**options)
    with pytest.raises(NotFittedError):
        tried(features, n_columns=4)
    with pytest.raises(ShapeError, match="4 columns and the model was trained on 5"):
        tried(features.fit([samples]), n_columns=5)
    with pytest.raises(InputError, match="C headers"):
        tried(features, ".py")
    assert not list(tmp_path.iterdir())
