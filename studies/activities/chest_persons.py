"""Ten people with an accelerometer on the chest: a chain with selected columns against its rivals.

One person is left out at a time (`storage.datasets.recordings.read_chest`); steps are windows of one second,
candidates those of `SensorFeatures` with windows of one and five seconds, contexts of 15 and 61 steps.

All recordings follow one script, so a clock without any sensor gets a fair accuracy; macro F1 and segments tell more.
Models of sequences learn the script from the labels of the other people: that 2 follows 1. Those with memory also
learn what follows what after which, which in a script is everything; on lives without one they would gain less.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from crfield.features.sensors.transformer import SensorFeatures
from crfield.report.findings import Findings
from crfield.storage.datasets.recordings import CHEST_RATE, read_chest
from studies.activities.models import MODELS
from studies.activities.rivals import Plan, Recorded
from studies.activities.tables import recorded, run_folds, table_of

READER = "studies.activities.chest_persons:read_people"
TO_BEAT = {"macro F1": 0.445, "segment F1@50": 0.444}  # logistic regression and a scaled Viterbi, as first measured


def chest_persons(
    folder: str,
    *,
    people: Sequence[int] = tuple(range(1, 11)),
    inner_folds: int = 3,
    n_selected: int = 60,
    models: Sequence[str] = MODELS,
    n_jobs: int = 1,
) -> Findings:
    """All models on the same people."""
    plan = Plan(
        folds=len(people),
        inner_folds=inner_folds,
        n_selected=n_selected,
        thin=5,
        models=tuple(models),
    )
    options = (tuple(people),)
    found = run_folds(READER, folder, options, plan, n_jobs=n_jobs)
    data = recorded(READER, folder, options)
    return table_of(
        f"chest accelerometer: {len(people)} people, {sum(map(len, data.labels)):,} seconds; one person left out",
        found,
        data,
        plan,
        to_beat=TO_BEAT,
        together=False,
        notes=(f"everything is chosen by {inner_folds} folds of the other people",),
    )


def read_people(folder: str, people: Sequence[int]) -> Recorded:
    """The people of ``chest_acc`` in the folder, as steps of one second."""
    frames = read_chest(os.path.join(folder, "chest_acc"), people=people)
    features = SensorFeatures(rate=CHEST_RATE, spans=(1.0, 5.0), contexts=(15, 61))
    X = [frame.values for frame in frames]
    columns = features.fit(X).transform(X)
    labels = features.labels([frame.labels for frame in frames])
    return Recorded(columns, labels, [frame.name for frame in frames], features.get_feature_names_out().tolist())
