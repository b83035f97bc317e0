"""What choosing is worth: `BestChain` inside each outer training set, against the best rows of the tables.

The recordings, the folds and the candidate columns are those of `chest_persons` and `rfid.activities`. In each outer
fold `BestChain` gets all candidate columns of the training groups and nothing else: how many of them, which models,
settings, decoding, and whether to average are chosen by inner folds of these groups. The rows that did best in those
tables are computed again beside it by the same program, so that differences are taken group by group.

The claim is the modest one: not below the best row by more than the interval. The best row was picked by looking at
the tables, that is, at tested groups; choosing has no such knowledge. The whole form tries the five families that are
trained within seconds; `BestChain` knows three more.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from crfield.errors import CrfieldWarning
from crfield.estimators.choice.best_chain import BestChain
from crfield.estimators.tuning.group_folds import GroupPredictions
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from studies.activities import chest_persons
from studies.activities.models import BOOSTED_HMM, BOOSTED_MEMORY, LOGISTIC_MEMORY
from studies.activities.rfid import activities as rfid
from studies.activities.rivals import Recorded, run_fold
from studies.framework import Case, Outcome, Outcomes, Settings, Study, gap_text, where

CHOSEN = "chosen by inner folds"
MEASURED = ("accuracy", "macro F1", "segment F1@25", "segment F1@50")
SETS: Mapping[str, Any] = {"chest": chest_persons, "rfid": rfid}
TITLES = {"chest": "chest accelerometer, one person left out", "rfid": "RFID trials, folds of trials"}


def cases(settings: Settings) -> list[Case]:
    """A case for each fold that is left out."""
    counts = {name: SETS[name].plan(_own(settings, name)).folds for name in settings["sets"]}
    return [{"set": name, "fold": fold} for name, count in counts.items() for fold in range(count)]


def run(settings: Settings, case: Case) -> Outcome:
    """Scores of the left-out groups by what was chosen and by the rivals; what was chosen, and its CPU seconds."""
    own = _own(settings, case["set"])
    data = _recorded(case["set"], json.dumps(own, sort_keys=True), os.environ.get("CRFIELD_DATA"))
    found = run_fold(data, SETS[case["set"]].plan(own), case["fold"])
    test: list[int] = found["test"]
    learn = [k for k in range(len(data.labels)) if k not in set(test)]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        model = BestChain(candidates=settings["candidates"], budget=settings["budget"], folds=own["inner_folds"])
        model.fit(
            [data.columns[k] for k in learn],
            [data.labels[k].tolist() for k in learn],
            groups=[data.groups[k] for k in learn],
        )
    said = {
        name: [np.array([*row, None], dtype=object)[:-1] for row in rows] for name, rows in found["labels"].items()
    }
    said[CHOSEN] = list(model.predict([data.columns[k] for k in test]))
    groups, truth = tuple(data.groups[k] for k in test), tuple(data.labels[k] for k in test)
    scores = {name: GroupPredictions(groups, truth, tuple(rows)).scores() for name, rows in said.items()}
    return {
        "scores": {name: {m: list(told[m].values()) for m in MEASURED} for name, told in scores.items()},
        "chosen": model.table_.chosen,
        "setting": model.table_.best.setting,
        "inner": {row.name: row.both.mean for row in model.table_.rows if row.ran},
        "not_run": model.table_.not_run,
        "seconds": time.process_time() - began,
    }


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Means with intervals over the left-out groups, and what was chosen how often."""
    rows, notes = [], []
    for name in settings["sets"]:
        own = where(outcomes, set=name)
        for model in (*settings["rivals"], CHOSEN):
            values = (mean_interval(_of(own, model, measure)) for measure in MEASURED)
            rows.append((f"{name}: {model}", *values, mean_interval(_both(own, model))))
        often = Counter(outcome["chosen"] for _, outcome in own).most_common()
        notes.append(f"{name}, chosen (folds): " + "; ".join(f"{words} ({count})" for words, count in often))
        left_out = Counter(family for _, outcome in own for family in outcome["not_run"])
        if left_out:
            notes.append(f"{name}, not run (folds): " + ", ".join(f"{k} ({n})" for k, n in left_out.items()))
    title = "models chosen by inner folds: " + "; ".join(TITLES[name] for name in settings["sets"])
    notes.append("± is half of a 95 % interval over left-out groups; both is the mean of macro F1 and segment F1@50")
    return Findings(title, ("model", *MEASURED, "both"), tuple(rows), notes=tuple(notes))


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Against every rival: not below by more than the interval, in each score and in both together."""
    found = []
    for name in settings["sets"]:
        own = where(outcomes, set=name)
        for rival in settings["rivals"]:
            for measure in ("macro F1", "segment F1@50"):
                gap = paired_interval(_of(own, CHOSEN, measure), _of(own, rival, measure))
                sentence = f"{name}: not below {rival} by more than the interval, {measure}"
                found.append(Claim(sentence, bool(gap.high >= 0), gap_text(gap)))
            gap = paired_interval(_both(own, CHOSEN), _both(own, rival))
            sentence = f"{name}: not below {rival} by more than the interval, both"
            found.append(Claim(sentence, bool(gap.high >= 0), gap_text(gap)))
    return found


def _of(outcomes: Outcomes, model: str, measure: str) -> list[float]:
    return [value for _, outcome in outcomes for value in outcome["scores"][model][measure]]


def _both(outcomes: Outcomes, model: str) -> list[float]:
    return [
        (one + other) / 2
        for one, other in zip(
            *(_of(outcomes, model, measure) for measure in ("macro F1", "segment F1@50")), strict=True
        )
    ]


def _own(settings: Settings, name: str) -> dict[str, Any]:
    """The settings of one set of recordings, as its own study has them, with our rivals."""
    own = {**SETS[name].FULL, **settings[name], "models": list(settings["rivals"])}
    return own if settings.get("data") is None else {**own, "data": settings["data"]}


@lru_cache(maxsize=1)
def _recorded(name: str, settings: str, folder: str | None) -> Recorded:
    read = {"chest": chest_persons.read_people, "rfid": rfid.read_readings}[name]
    return read(json.loads(settings))


FULL: Settings = {
    "sets": ["chest", "rfid"],
    "chest": {},
    "rfid": {},
    "candidates": ["logistic regression", "Gaussian", "boosting", "chain on columns", "latent chain"],
    "budget": None,
    "rivals": [LOGISTIC_MEMORY, BOOSTED_HMM, BOOSTED_MEMORY],
}
QUICK: Settings = {
    **FULL,
    "chest": {"people": [2, 3, 6], "inner_folds": 2, "n_selected": 40},
    "rfid": {"folds": 2, "most_trials": 10, "n_selected": 60},
    "candidates": ["logistic regression", "Gaussian", "boosting"],
}
STUDY = Study(FULL, QUICK, cases, run, report, claims)
