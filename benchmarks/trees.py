"""`TreeCRF` against scikit-learn's histogram boosting on the windows of the chest accelerometer.

Ten people, 27,240 labelled seconds, seven activities; the 60 columns that tell labels apart best, as the study of
them selects (`studies/activities/rivals.py`). Both run the same number of rounds, `HistGradientBoostingClassifier`
with its defaults but for early stopping. What a round is differs: the rival grows a tree of up to 31 leaves for each
label, from bins of 8 bits; `TreeCRF` one of depth 4 with a value for each label, and between two of them goes forward
and backward through every recording. So equal rounds are what users write, neither equal work nor equal models.

One thread each, CPU time, turn and turn about. Steps of unknown label are left out for the rival.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved
from crfield import TreeCRF

ALLOWED = 3.0  # times the rival's time
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    ", memory": {"memory": True},
    ", balanced": {"class_weight": "balanced"},
}


def windows(bench: Bench) -> tuple[list[np.ndarray], list[list[Any]]]:
    """Columns of every second of every person, and the labels."""
    from studies.activities.chest_persons import FULL, plan, read_people
    from studies.activities.rivals import separating_columns

    settings = {**FULL, "data": str(bench.data)}
    if bench.quick:
        settings["people"] = [2, 3, 6]
    data = read_people(settings)
    columns = separating_columns(data, range(len(data.columns)), plan(settings))
    return [np.ascontiguousarray(own[:, columns]) for own in data.columns], [list(own) for own in data.labels]


def run(bench: Bench) -> list[Row]:
    """The time of `fit` over the rival's, plain, with a memory, and with class weights."""
    if bench.data is None or not (bench.data / "chest_acc").is_dir():
        return [Row("trees: chest_acc is not in CRFIELD_DATA", None, unit="")]
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    X, y = windows(bench)
    rounds = 20 if bench.quick else 100
    told = np.array([label for own in y for label in own], dtype=object)
    known = np.array([label is not None for label in told])
    rows, labels = np.concatenate(X)[known], told[known].astype(str)

    def theirs() -> Any:
        return HistGradientBoostingClassifier(max_iter=rounds, early_stopping=False).fit(rows, labels)

    def ours(options: dict[str, Any]) -> Any:
        return lambda: TreeCRF(n_rounds=rounds, n_jobs=1, **options).fit(X, y)

    with threadpool_limits(1):
        rival, *mine = interleaved(theirs, *map(ours, VARIANTS.values()), turns=1 if bench.quick else 3)
    return [
        Row(
            f"trees: {len(rows):,} × {rows.shape[1]} chest windows, {rounds} rounds{name}, over histogram boosting",
            own.best / rival.best,
            required=None if bench.quick else ALLOWED,
            better="less",
            ours=seconds(own.best),
            rival=seconds(rival.best),
            note="rival: HistGradientBoostingClassifier",
            detail={"ours": own.seconds, "rival": rival.seconds},
        )
        for name, own in zip(VARIANTS, mine, strict=True)
    ]
