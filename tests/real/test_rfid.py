"""RFID trials: what the files hold, how readings become windows, and the table that compares the models."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from crfield import PlaceShift, ReadingFeatures
from crfield.errors import FormatError, InputError
from crfield.storage.datasets.rfid import ACTIVITIES, Trial, read_rfid_trials
from studies.activities.rfid.trials import (
    EXACT,
    LINEAR,
    MARKOV,
    MODELS,
    VERIFIED,
    model_and_grid,
    predict_trials,
    read_windows,
)
from studies.activities.rfid.trials import STUDY as rfid_trials
from studies.activities.rfid.windows import NAMES, trial_windows
from tests.real.conftest import folder


@pytest.fixture(scope="module")
def here(data: Path) -> str:
    """The folder in which the trials lie."""
    folder(data, "har_rfid")
    return str(data)


def test_sizes(here: str) -> None:
    trials = read_rfid_trials(Path(here) / "har_rfid" / "S1_Dataset.tar.gz")
    assert len(trials) == 60
    assert len({trial.name for trial in trials}) == 60
    activities = np.concatenate([trial.activity for trial in trials])
    assert len(activities) == 52_482
    assert {name: int((activities == name).sum()) for name in ACTIVITIES} == {
        "sit on bed": 15_162,
        "sit on chair": 4_381,
        "lying": 30_983,
        "ambulating": 1_956,
    }
    assert all((np.diff(trial.seconds) >= 0).all() for trial in trials)
    windows = read_windows({**rfid_trials.full, "data": here})
    assert all(
        x.shape == (len(y), len(NAMES)) and np.isfinite(x).all() for x, y in zip(windows.columns, windows.labels)
    )
    assert sum(map(len, windows.labels)) == 7_031


def test_columns_that_travel_are_the_same_in_another_room(here: str) -> None:
    """On the longest trial too, where running sums are longest."""
    trials = read_rfid_trials(Path(here) / "har_rfid" / "S1_Dataset.tar.gz")
    longest = max(trials, key=lambda trial: len(trial.seconds)).readings()
    assert len(longest) == 4_638
    assert longest.channel is not None
    assert len(np.unique(longest.channel)) == 12
    features = ReadingFeatures(travels=True)
    home = features.fit_transform([longest])[0]
    away = features.transform(PlaceShift().fit_transform([longest]))[0]
    assert np.isfinite(home).all()
    assert np.abs(home - away).max() < 1e-12


def test_models_beat_the_most_frequent_activity_by_far(here: str) -> None:
    """All models on other trials than they were trained on; none is chosen for."""
    data = read_windows({**rfid_trials.full, "data": here, "most_trials": 30})
    learn, test = list(range(0, 30, 2)), list(range(1, 30, 2))
    truth = np.concatenate(data.part(test)[1])
    common = max((truth == name).mean() for name in ACTIVITIES)
    for name in MODELS:
        found = np.concatenate(predict_trials(name, data, learn, test, inner_folds=0))
        assert (found == truth).mean() > common + 0.3, name


def test_the_table_and_its_differences(here: str) -> None:
    models = (EXACT, LINEAR, MARKOV)
    found = rfid_trials(data=here, seeds=[0, 1], folds=2, inner_folds=2, most_trials=8, models=models)
    assert [row[0] for row in found.rows] == list(models)
    for name in models:
        by_trial = found[name, "windows, by trial"].mean
        for other, column in ((LINEAR, "− linear chain, by trial"), (EXACT, "− virtual evidence, by trial")):
            if name != other:
                wanted = by_trial - found[other, "windows, by trial"].mean
                assert found[name, column].mean == pytest.approx(wanted, abs=1e-9)
            else:
                assert found[name, column] is None
    assert len(found.claims) == 2
    assert not [claim for claim in found.claims if VERIFIED in claim.sentence]


# ------------------------------------------------------------------------------------------- without the data


def test_windows_of_a_trial() -> None:
    trial = Trial(
        "t",
        np.array([0.0, 0.5, 1.9, 7.0]),
        np.array([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        np.array([0, 0, 3, 1]),
        np.array([-60.0, -62.0, -64.0, -50.0]),
        np.array([0.0, np.pi, 1.0, 1.0]),
        np.array(["lying", "lying", "ambulating", "sit on bed"]),
    )
    columns, labels = trial_windows(trial)
    told = [dict(zip(NAMES, row)) for row in columns]
    assert labels.tolist() == ["lying", "sit on bed"], "empty windows are left out; most readings decide"
    assert told[0]["frontal mean"] == 1.0
    assert told[0]["frontal greatest"] == 2.0
    assert told[0]["share of antenna 1"] == pytest.approx(2 / 3)
    assert told[0]["strength of antenna 1"] == -61.0
    assert told[0]["strength of antenna 2"] == -75.0
    assert told[0]["phase turn"] == pytest.approx(2.0)
    assert told[0]["gap"] == 0.0
    assert told[1]["gap"] == pytest.approx(np.log1p(5.1))
    assert told[1]["vertical change"] == -1.0
    assert told[0]["front angle"] == pytest.approx(np.pi / 4)


def test_foreign_archives() -> None:
    def packed(text: bytes, name: str = "set/d1p01M") -> io.BytesIO:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        stream.seek(0)
        return stream

    for wrong in (
        b"0,0,0,0,1,0,0,0\n",
        b"0,0,0,0,9,0,0,0,1\n",
        b"0,0,0,0,1,0,0,0,7\n",
        b"a,b\n",
        b"0,nan,0,0,1,0,0,0,1\n",
    ):
        with pytest.raises(FormatError, match="d1p01M"):
            read_rfid_trials(packed(wrong))
    with pytest.raises(FormatError, match="no trials"):
        read_rfid_trials(packed(b"", name="README.txt"))
    with pytest.raises(FormatError, match="archive"):
        read_rfid_trials(io.BytesIO(b"no archive"))
    with pytest.raises(InputError, match="no model"):
        model_and_grid("guess")
