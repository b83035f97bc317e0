"""Ten people with an accelerometer on the chest: a chain with selected columns against its rivals.

One person is left out at a time (`storage.datasets.recordings.read_chest`); steps are windows of one second,
candidates those of `SensorFeatures` with windows of one and five seconds, contexts of 15 and 61 steps.

All recordings follow one script, so a clock without any sensor gets a fair accuracy; macro F1 and segments tell more.
Models of sequences learn the script from the labels of the other people: that 2 follows 1. Those with memory also
learn what follows what after which, which in a script is everything; on lives without one they would gain less.
"""

from __future__ import annotations

from crfield.features.sensors.transformer import SensorFeatures
from crfield.storage.datasets.recordings import CHEST_RATE, read_chest
from studies.activities.models import MODELS
from studies.activities.rivals import Plan, Recorded
from studies.activities.tables import Comparison
from studies.framework import Settings, data_path

TO_BEAT = {"macro F1": 0.445, "segment F1@50": 0.444}  # logistic regression and a scaled Viterbi, as first measured


def plan(settings: Settings) -> Plan:
    """One person is left out at a time."""
    return Plan(
        folds=len(settings["people"]),
        inner_folds=settings["inner_folds"],
        n_selected=settings["n_selected"],
        thin=5,
        models=tuple(settings["models"]),
    )


def title(settings: Settings, data: Recorded) -> str:
    """How many people, and for how long."""
    seconds = sum(map(len, data.labels))
    return f"chest accelerometer: {len(settings['people'])} people, {seconds:,} seconds; one person left out"


def read_people(settings: Settings) -> Recorded:
    """The people of ``chest_acc``, as steps of one second."""
    frames = read_chest(data_path(settings, "chest_acc"), people=settings["people"])
    features = SensorFeatures(rate=CHEST_RATE, spans=(1.0, 5.0), contexts=(15, 61))
    X = [frame.values for frame in frames]
    columns = features.fit(X).transform(X)
    labels = features.labels([frame.labels for frame in frames])
    return Recorded(columns, labels, [frame.name for frame in frames], features.get_feature_names_out().tolist())


FULL: Settings = {"people": list(range(1, 11)), "inner_folds": 3, "n_selected": 60, "models": list(MODELS)}
STUDY = Comparison(read_people, plan, title, TO_BEAT, together=False, others="of the other people").study(
    FULL, {**FULL, "people": [2, 3, 6], "inner_folds": 2, "n_selected": 40}
)
