"""Recordings of people: what the files hold, candidates on them, and a small form of the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crfield.features.sensors import SensorFeatures
from crfield.metrics import segments
from crfield.storage.datasets.recordings import CHEST_ACTIVITIES, CHEST_RATE, read_chest
from studies.activities.models import CLOCK, LOGISTIC, LOGISTIC_HMM, LOGISTIC_MEMORY, STACKED
from studies.activities.rfid.activities import STUDY as rfid_activities
from studies.activities.rfid.activities import read_readings
from tests.real.conftest import folder


def test_the_script_of_the_chest_recordings(data: Path) -> None:
    frames = read_chest(folder(data, "chest_acc"))
    assert len(frames) == 10
    assert sum(map(len, frames)) == 1_420_490
    script = [CHEST_ACTIVITIES[k - 1] for k in (1, 2, 3, 4, 3, 5, 3, 6, 7)]
    for frame in frames:
        assert frame.labels is not None
        assert [label for *_, label in segments([label for label in frame.labels if label is not None])] == script


def test_candidates_of_a_person_offline_and_streamed(data: Path) -> None:
    frame = read_chest(folder(data, "chest_acc"), people=[3])[0].part(40_000, 44_000)
    features = SensorFeatures(rate=CHEST_RATE, spans=(1.0, 5.0), contexts=(15, 61)).fit([frame.values])
    rows = features.transform([frame.values])[0]
    assert rows.shape == (76, 1_380)
    assert np.isfinite(rows).all()
    stream = features.stream()
    came = [stream.push(part) for part in np.array_split(frame.values, 9)]
    assert np.array_equal(np.concatenate([*came, stream.finish()]), rows)


def test_readings_of_a_few_trials(data: Path) -> None:
    folder(data, "har_rfid")
    some = read_readings({"data": str(data), "most_trials": 6})
    assert len(some.groups) == 6
    assert all(np.isfinite(table).all() for table in some.columns)
    models = (LOGISTIC, LOGISTIC_HMM, LOGISTIC_MEMORY, STACKED, CLOCK)
    found = rfid_activities(data=str(data), folds=2, most_trials=6, n_selected=32, models=models)
    assert found[LOGISTIC_HMM, "accuracy, pooled"] > found[CLOCK, "accuracy, pooled"] + 0.2
    for model in (LOGISTIC_MEMORY, STACKED):
        assert found[model, "macro F1"].mean > 2.0 * found[CLOCK, "macro F1"].mean
