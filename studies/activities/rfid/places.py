"""Do columns travel? Models trained in one room, tested in it and as other rooms would have heard the same trials.

Whoever trains in one room and labels in another finds out what the model had learnt: people, or antennas. There is
one room here (`storage.datasets.rfid`), so others are made of it: of each trial that is left out, and of no other,

    exchanged          no antenna keeps its number, up to 6 dB are added to or taken from the strengths of each, and
                       its phases are turned (`PlaceShift`); another draw for each trial
    one antenna less   the same, and one of the four is missing with all it heard; what is left is labelled and scored

and every model labels them as well as the trial itself. Three sets of columns (`ReadingFeatures`):

    guide's            those of `reading_columns`: shares and strengths of antennas by number among them
    travelling         those that do not describe a place
    both

The clock has no sensor: the most frequent training label at the same step. Whole trials are left out; columns are
selected and settings chosen by inner folds of training trials, as they were recorded: nobody is told that there will
be another room. "Exchanged" is what travelling columns do not see, by construction, so there they can only hold, and
what the study tells is by how much the others fall and what the exchange costs at home. "One antenna less" nothing
here is made for.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Hashable
from functools import lru_cache

import numpy as np

from crfield.errors import CrfieldWarning
from crfield.estimators.tuning.group_folds import GroupPredictions
from crfield.features.sensors.places.shift import PlaceShift
from crfield.features.sensors.places.transformer import ReadingFeatures
from crfield.features.sensors.readings import reading_columns
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.storage.datasets.rfid import ANTENNAS
from studies.activities.models import BOOSTED_HMM, CLOCK, COLUMNS, GAUSSIAN, LOGISTIC, TREES, Grids
from studies.activities.rfid.windows import AXES, read_some_trials
from studies.activities.rivals import Plan, Recorded, chosen_and_predicted, inside_of, separating_columns
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, crossed, gap_text

GUIDE, TRAVELLING, BOTH = "guide's", "travelling", "both"
SAME, EXCHANGED, FEWER = "same room", "exchanged", "one antenna less"
SETS, ROOMS = (GUIDE, TRAVELLING, BOTH), (SAME, EXCHANGED, FEWER)
SCORES = ("accuracy", "macro F1", "segment F1@50")
MODELS = (LOGISTIC, BOOSTED_HMM, GAUSSIAN, COLUMNS, TREES)
MARGIN = 0.05  # of macro F1, that travelling columns may cost at home

cases = crossed(fold="folds", columns=(*SETS, CLOCK))


def run(settings: Settings, case: Case) -> Outcome:
    """Scores of every left-out trial in every room by every model on one set of columns."""
    known = json.dumps({name: value for name, value in settings.items() if name != "n_jobs"}, sort_keys=True)
    rooms, masks = _rooms(known, os.environ.get("CRFIELD_DATA"))
    n = len(rooms[SAME].labels)
    test = np.array_split(np.random.default_rng(0).permutation(n), settings["folds"])[case["fold"]].tolist()
    learn = [k for k in range(n) if k not in test]
    data, asked = _with_other_rooms(rooms, test, masks[GUIDE if case["columns"] == CLOCK else case["columns"]])
    plan = _plan(settings)
    found: Outcome = {"scores": {}, "kept": {}, "settings": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's words on convergence
        inside = inside_of(data, separating_columns(data, learn, plan), learn, plan)
        for model in [CLOCK] if case["columns"] == CLOCK else settings["models"]:
            every = [k for own in asked.values() for k in own]
            chosen, labels = chosen_and_predicted(model, inside, every)
            said = dict(zip(every, labels, strict=True))
            found["settings"][model] = f"{chosen['setting']} × {chosen['factor']:g}"
            found["scores"][model] = {room: _scores(data, own, said) for room, own in asked.items()}
            same = [said[k] == said[j] for k, j in zip(asked[SAME], asked[EXCHANGED], strict=True)]
            found["kept"][model] = float(np.concatenate(same).mean())
    return found


def _plan(settings: Settings) -> Plan:
    return Plan(
        folds=settings["folds"],
        inner_folds=settings["inner_folds"],
        n_selected=settings["n_selected"],
        most_alike=0.98,
        thin=3,
        grids=Grids(
            strengths=(0.01, 0.1),
            rounds=(40, 120),
            penalties=(),
            penalties_of_all=(30.0, 100.0, 300.0),
            deviations=(1.0,),
            tree_rounds=(settings["tree_rounds"],),
            memories=(False,),
            factors=(0.5, 1.0, 2.0),
            max_iter=settings["max_iter"],
        ),
    )


@lru_cache(maxsize=1)
def _rooms(settings: str, folder: str | None) -> tuple[dict[str, Recorded], dict[str, np.ndarray]]:
    """All trials as each room hears them, with all columns, and which columns are of each set."""
    trials = read_some_trials(json.loads(settings))
    heard, labels = [trial.readings() for trial in trials], [trial.activity for trial in trials]
    features = ReadingFeatures(axes=AXES).fit(heard)
    names = features.get_feature_names_out().tolist()
    groups: list[Hashable] = [trial.name for trial in trials]
    home = labels_as_objects(labels)
    rooms = {SAME: Recorded(features.transform(heard), home, groups, names)}
    for room, silent in ((EXCHANGED, 0), (FEWER, 1)):
        there, words = [], []
        for k, (one, own) in enumerate(zip(heard, home, strict=True)):
            place = PlaceShift(silent=silent, random_state=k).fit(heard)
            there += place.transform([one])
            words += place.labels([one], [own])
        rooms[room] = Recorded(features.transform(there), words, groups, names)
    some = heard[0]
    guides = reading_columns(some.seconds, some.values, some.sender, some.strength, names=AXES, n_senders=ANTENNAS)[1]
    return rooms, {
        GUIDE: np.isin(names, guides),
        TRAVELLING: ~features.describes_place_,
        BOTH: np.ones(len(names), dtype=bool),
    }


def labels_as_objects(labels: list[np.ndarray]) -> list[np.ndarray]:
    """Words as objects, as models of the comparison have them."""
    return [np.array([*own.tolist(), None], dtype=object)[:-1] for own in labels]


def _with_other_rooms(
    rooms: dict[str, Recorded], test: list[int], mask: np.ndarray
) -> tuple[Recorded, dict[str, list[int]]]:
    """Trials at home, then those to be tested as other rooms hear them; and where each room's are."""
    home = rooms[SAME]
    columns, labels, groups = list(home.columns), list(home.labels), list(home.groups)
    asked = {SAME: test}
    for room in (EXCHANGED, FEWER):
        own = [k for k in test if len(rooms[room].labels[k])]
        asked[room] = list(range(len(labels), len(labels) + len(own)))
        columns += [rooms[room].columns[k] for k in own]
        labels += [rooms[room].labels[k] for k in own]
        groups += [rooms[room].groups[k] for k in own]
    names = [name for name, wanted in zip(home.names, mask, strict=True) if wanted]
    return Recorded([table[:, mask] for table in columns], labels, groups, names), asked


def _scores(data: Recorded, sequences: list[int], said: dict[int, np.ndarray]) -> dict[str, dict[str, float]]:
    told = GroupPredictions(
        tuple(data.groups[k] for k in sequences),
        tuple(data.labels[k] for k in sequences),
        tuple(said[k] for k in sequences),
    ).scores()
    return {name: {str(group): value for group, value in told[name].items()} for name in SCORES}


# ----------------------------------------------------------------------------------------------------------- findings


def by_trial(outcomes: Outcomes, columns: str, model: str, room: str, score: str) -> dict[str, float]:
    """The score of every trial."""
    found: dict[str, float] = {}
    for case, outcome in outcomes:
        if case["columns"] == columns:
            found |= outcome["scores"][model][room][score]
    return found


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A row for each model and set of columns, every score in every room."""
    pairs = [(model, columns) for model in settings["models"] for columns in SETS] + [(CLOCK, CLOCK)]
    rows = []
    for model, columns in pairs:
        cells = [
            mean_interval(by_trial(outcomes, columns, model, room, score).values())
            for score in ("macro F1", "accuracy", "segment F1@50")
            for room in ROOMS
        ]
        rows.append((model if model == CLOCK else f"{model}, {columns}", *cells))
    heads = [f"{score}, {room}" for score in ("macro F1", "accuracy", "segment F1@50") for room in ROOMS]
    notes = [
        f"every model is trained in the first room, on the other trials; settings are chosen by "
        f"{settings['inner_folds']} inner folds of these",
        "± is half of a 95 % interval over trials",
    ]
    for model in settings["models"]:
        told = []
        for columns in SETS:
            chosen = Counter(o["settings"][model] for case, o in outcomes if case["columns"] == columns)
            told.append(f"{columns} {', '.join(f'{name} ({count})' for name, count in chosen.most_common())}")
        notes.append(f"{model}, setting × factor (folds): {'; '.join(told)}")
    n = len(by_trial(outcomes, CLOCK, CLOCK, SAME, "accuracy"))
    title = f"RFID trials in other rooms: {n} trials, {settings['folds']} folds of trials"
    return Findings(title, ("model, columns", *heads), tuple(rows), notes=tuple(notes))


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """What exchanging antennas does to each set of columns, trial by trial."""

    def both(one: tuple[str, str, str], other: tuple[str, str, str], score: str) -> tuple[list[float], list[float]]:
        first, second = (by_trial(outcomes, *place, score) for place in (one, other))
        trials = [name for name in first if name in second]
        return [first[name] for name in trials], [second[name] for name in trials]

    found = []
    for model in settings["models"]:
        at_home, away, fewer = ((GUIDE, model, room) for room in ROOMS)
        sentence = f"{model}: guide's columns fall where antennas are exchanged, macro F1"
        found.append(above(sentence, *both(at_home, away, "macro F1")))
        for score in ("macro F1", "accuracy"):
            sentence = f"{model}: guide's columns fall below the clock, {score}"
            found.append(above(sentence, *both((CLOCK, CLOCK, EXCHANGED), away, score)))
        kept = [outcome["kept"][model] for case, outcome in outcomes if case["columns"] == TRAVELLING]
        sentence = f"{model}: travelling columns hold, every label is the same"
        found.append(Claim(sentence, min(kept) == 1.0, f"{100 * float(np.mean(kept)):.2f} %"))
        for score in ("macro F1", "accuracy"):
            sentence = f"{model}: travelling columns above the clock where antennas are exchanged, {score}"
            found.append(above(sentence, *both((TRAVELLING, model, EXCHANGED), (CLOCK, CLOCK, EXCHANGED), score)))
        for room, there in ((EXCHANGED, away), (FEWER, fewer)):
            sentence = f"{model}: travelling columns above the guide's, {room}, macro F1"
            found.append(above(sentence, *both((TRAVELLING, model, room), there, "macro F1")))
        gap = paired_interval(*both((TRAVELLING, model, SAME), at_home, "macro F1"))
        sentence = f"{model}: at home travelling columns cost less than {MARGIN:g} of macro F1"
        found.append(Claim(sentence, gap.within(-MARGIN), gap_text(gap)))
    return found


FULL: Settings = {
    "folds": 5,
    "inner_folds": 2,
    "most_trials": None,
    "n_selected": 120,
    "tree_rounds": 120,
    "max_iter": 200,
    "models": list(MODELS),
}
STUDY = Study(
    FULL,
    {**FULL, "folds": 2, "most_trials": 10, "n_selected": 60, "tree_rounds": 40, "max_iter": 60},
    cases,
    run,
    report,
    claims,
)
