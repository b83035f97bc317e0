"""Older people with a batteryless sensor: a chain with selected columns against its rivals, reading by reading.

Sixty trials (`storage.datasets.rfid`), four activities. A step is a reading, so that nothing is said about time in
which the sensor was not heard, and what is scored does not depend on how anybody cuts windows. Columns are about each
reading and the time around it (`features.sensors.readings`); whole trials are left out, and everything is chosen
within the training trials (`studies.activities.rivals`).
"""

from __future__ import annotations

import numpy as np

from crfield.features.sensors.readings import reading_columns
from crfield.storage.datasets.rfid import ANTENNAS
from studies.activities.models import MODELS, Grids
from studies.activities.rfid.windows import read_some_trials
from studies.activities.rivals import Plan, Recorded
from studies.activities.tables import Comparison
from studies.framework import Settings

AXES = ("frontal", "vertical", "lateral")
TO_BEAT = {"accuracy": 0.984, "macro F1": 0.938, "segment F1@50": 0.818}  # boosting and Viterbi, as first measured


def plan(settings: Settings) -> Plan:
    """Whole trials are left out."""
    return Plan(
        folds=settings["folds"],
        inner_folds=settings["inner_folds"],
        n_selected=settings["n_selected"],
        thin=3,
        most_alike=0.98,
        grids=Grids(
            strengths=(0.01, 0.1),
            rounds=(40, 120),
            tree_rounds=(60, 120),
            trees_on_all=(False, True),
            penalties=(3.0, 30.0),
            penalties_of_all=(30.0, 100.0, 300.0),
            factors=(0.2, 0.3, 0.5, 1.0, 2.0),
        ),
        models=tuple(settings["models"]),
    )


def title(settings: Settings, data: Recorded) -> str:
    """How many trials, readings and folds."""
    readings = sum(map(len, data.labels))
    return f"RFID trials: {len(data.labels)} trials, {readings:,} readings; {settings['folds']} folds of trials"


def read_readings(settings: Settings) -> Recorded:
    """The trials as sequences of readings."""
    trials = read_some_trials(settings)
    made = [
        reading_columns(t.seconds, t.acceleration, t.antenna, t.strength, names=AXES, n_senders=ANTENNAS)
        for t in trials
    ]
    labels = [np.array(trial.activity.tolist(), dtype=object) for trial in trials]
    return Recorded([columns for columns, _ in made], labels, [trial.name for trial in trials], made[0][1])


FULL: Settings = {"folds": 10, "inner_folds": 3, "most_trials": None, "n_selected": 120, "models": list(MODELS)}
STUDY = Comparison(read_readings, plan, title, TO_BEAT, together=True, others="within the training trials").study(
    FULL, {**FULL, "folds": 2, "most_trials": 10, "n_selected": 60}
)
