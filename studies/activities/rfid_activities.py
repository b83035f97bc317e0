"""Older people with a batteryless sensor: a chain with selected columns against its rivals, reading by reading.

Sixty trials (`storage.datasets.rfid`), four activities. A step is a reading, so that nothing is said about time in
which the sensor was not heard, and what is scored does not depend on how anybody cuts windows. Columns are about each
reading and the time around it (`features.sensors.readings`); whole trials are left out, and everything is chosen
within the training trials (`studies.activities.rivals`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from crfield.features.sensors.readings import reading_columns
from crfield.report.findings import Findings
from crfield.storage.datasets.rfid import ANTENNAS, read_rfid_trials
from studies.activities.models import MODELS, Grids
from studies.activities.rivals import Plan, Recorded
from studies.activities.tables import recorded, run_folds, table_of

READER = "studies.activities.rfid_activities:read_readings"
AXES = ("frontal", "vertical", "lateral")
TO_BEAT = {"accuracy": 0.984, "macro F1": 0.938, "segment F1@50": 0.818}  # boosting and Viterbi, as first measured


def rfid_activities(
    folder: str,
    *,
    folds: int = 10,
    inner_folds: int = 3,
    most_trials: int | None = None,
    n_selected: int = 120,
    models: Sequence[str] = MODELS,
    n_jobs: int = 1,
) -> Findings:
    """All models on the same folds of trials."""
    plan = Plan(
        folds=folds,
        inner_folds=inner_folds,
        n_selected=n_selected,
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
        models=tuple(models),
    )
    options = (most_trials,)
    found = run_folds(READER, folder, options, plan, n_jobs=n_jobs)
    data = recorded(READER, folder, options)
    return table_of(
        f"RFID trials: {len(data.labels)} trials, {sum(map(len, data.labels)):,} readings; {folds} folds of trials",
        found,
        data,
        plan,
        to_beat=TO_BEAT,
        together=True,
        notes=(f"everything is chosen by {inner_folds} folds within the training trials",),
    )


def read_readings(folder: str, most_trials: int | None = None) -> Recorded:
    """The trials of ``har_rfid/S1_Dataset.tar.gz`` in the folder; or some, spread out."""
    trials = read_rfid_trials(os.path.join(folder, "har_rfid", "S1_Dataset.tar.gz"))
    if most_trials is not None and most_trials < len(trials):
        trials = [trials[k] for k in np.linspace(0, len(trials) - 1, most_trials).astype(int)]
    made = [
        reading_columns(t.seconds, t.acceleration, t.antenna, t.strength, names=AXES, n_senders=ANTENNAS)
        for t in trials
    ]
    labels = [np.array(trial.activity.tolist(), dtype=object) for trial in trials]
    return Recorded([columns for columns, _ in made], labels, [trial.name for trial in trials], made[0][1])
