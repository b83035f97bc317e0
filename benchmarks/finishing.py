"""Does training with default options come to its end? Steps, evaluations, and how far from the best value known.

Numeric columns as they come (counts of a chest accelerometer around 2,000, statistics of RFID readings) and
standardised, the raw ones with an l1 penalty too, one sequence of 200,000 raw samples, and Spanish names with an l1
penalty. Each is fitted once with the defaults and once for long with a tolerance a thousand times smaller; the least
value of all stands for the optimum.
Without the data generated columns serve: means of 10⁵, deviations from 10⁻³ to 10⁴, and phrases.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import crfield
from benchmarks.corpora import Bench, Labelled, entity_strings
from benchmarks.stopping import Data, phrases
from benchmarks.table import Row

TOL = 1e-4
FAR = {"tol": 1e-7, "max_iter": 3000}
FAR_SPARSE = {"tol": 1e-6, "max_iter": 1500}


def chest(data: Path, *, long: int | None = None) -> tuple[list[np.ndarray], list[list[str]]]:
    """Mean, deviation, least and greatest value of each axis by the second; or one sequence of raw samples."""
    from crfield.storage.datasets.recordings import CHEST_RATE, read_chest

    X, y = [], []
    people = range(1, 3) if long else range(1, 11)
    for frame in read_chest(data / "chest_acc", people=people):
        assert frame.labels is not None
        known = np.array([label is not None for label in frame.labels])
        values, labels = frame.values[known].astype(float), np.array(frame.labels, dtype=object)[known]
        if not long:
            width = round(CHEST_RATE)
            n = len(values) // width
            window = values[: n * width].reshape(n, width, -1)
            values = np.concatenate([f(window, axis=1) for f in (np.mean, np.std, np.min, np.max)], axis=1)
            labels = labels[width // 2 : n * width : width]
        X.append(values)
        y.append(labels.tolist())
    if long:
        return [np.concatenate(X)[:long]], [[label for labels in y for label in labels][:long]]
    return X, y


def rfid(data: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Statistics of the readings of two seconds each."""
    from studies.activities.rfid.trials import STUDY, read_windows

    windows = read_windows({**STUDY.full, "data": str(data)})
    return list(windows.columns), list(windows.labels)


def made(seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Columns around 10⁵ with deviations from 10⁻³ to 10⁴ whose level follows three labels."""
    rng = np.random.default_rng(seed)
    deviation, level = 10.0 ** np.linspace(-3, 4, 8), rng.standard_normal((3, 8))
    y = [np.repeat(rng.integers(0, 3, 12), 5) for _ in range(20)]
    return [(level[labels] + rng.standard_normal((60, 8))) * deviation + 1e5 for labels in y], y


def all_data(bench: Bench) -> Iterator[Data]:
    """Every set, raw and standardised."""
    sets: dict[str, Any] = {"made columns": made}
    data = bench.data
    if data is not None and (data / "chest_acc").is_dir():
        sets["chest, by the second"] = lambda: chest(data)
        if not bench.quick:
            sets["chest, 200,000 samples"] = lambda: chest(data, long=200_000)
    if data is not None and (data / "har_rfid").is_dir():
        sets["RFID windows"] = lambda: rfid(data)
    for name, read in sets.items():
        X, y = read()
        for standardize in (False, True):
            yield Data(f"{name}, {'standardised' if standardize else 'raw'}", X, y, {"standardize": standardize})
        for l2 in (1.0, 0.0) if "samples" not in name else ():
            yield Data(f"{name}, raw, l1 = 1, l2 = {l2:g}", X, y, {"l1": 1.0, "l2": l2})
    spanish = None if data is None else data / "conll2002" / "esp.train.gz"
    for penalty in ({"l1": 1.0}, {"l1": 1.0, "l2": 0.0}):
        words = ", ".join(f"{k} = {v:g}" for k, v in penalty.items())
        if spanish is None or not spanish.exists():
            text = phrases(300 if bench.quick else 1000)
            yield Data(f"{text.name}, {words}", text.X, text.y, penalty)
        else:
            X, y = crfield.read_columns(spanish).split_column(-1)
            part = Labelled(list(X), [tags.tolist() for tags in y])
            part = part.first(1000) if bench.quick else part
            yield Data(f"Spanish names, {words}", entity_strings(part.rows), part.tags, penalty)


def run(bench: Bench) -> list[Row]:
    """A row for each set: the gap to the best value known, in tolerances."""
    rows = []
    for data in all_data(bench):
        far = FAR_SPARSE if "l1" in data.options else FAR
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = crfield.ChainCRF(**data.options, n_jobs=1).fit(data.X, data.y)
            best = crfield.ChainCRF(**data.options, **far, n_jobs=1).fit(data.X, data.y)
        least = min(model.objective_, *(step.value for step in best.history_))
        rows.append(
            Row(
                f"finishing: {data.name}",
                (model.objective_ / least - 1) / TOL,
                unit="of tol",
                required=1.0,
                better="less",
                ours=f"{model.objective_:,.3f}",
                rival=f"{least:,.3f}",
                note=f"{'came to its end' if model.converged_ else 'DID NOT END'} after {model.n_iter_} steps, "
                f"{model.n_evaluations_} evaluations; the long run {best.n_iter_} steps"
                f"{'' if best.converged_ else ', not at its end'}; {model.plan_}",
                detail={"converged": model.converged_, "steps": model.n_iter_, "evaluations": model.n_evaluations_},
            )
        )
    return rows
