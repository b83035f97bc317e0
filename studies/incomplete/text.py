"""Words of phrases and of names, with parts of speech for some sentences: tables 3 and 4 of the paper.

Haffari, Wang, Wang, Mori & Jiao (2008, section 6.2) ask of each word whether it belongs to a name. The part of
speech, collapsed to five values, is known in some of the training sentences; at the test it is hidden (table 3) or
given (table 4). The tasks are those of `text_windows`; English CoNLL-2003, which they use, is not free, so noun
phrases of CoNLL-2000 and Spanish names of CoNLL-2002 take its place, with 300 sentences without and 80 with parts of
speech. (They have 5,000 and 6,000, more than these corpora hold; `incomplete_text_large` takes half of that.) Rows
(`incomplete_rows` says what BL1, BL2 and BL3 are):

    mix                  the likelihood as the paper states it, constant prior, l2 = 1
    learnt prior         q₀(h | x) by logistic regression on the sentences with parts of speech
    exp                  the paper's unnormalised model
    jensen, joint        the convex bounds of mix
    hcrf                 a hidden CRF that sees the tags where they are known
    γ = 5                sentences with tags count five times
    parallel             50 parallel updates, as the paper trains
    left                 labels of the two words before are features; decided word by word from the left
    window               the hidden part is the chain of the five tags in the window
    chosen               l2 of the best likelihood in three folds of the training sentences
    all tags             the parts of speech of all training sentences known: what more annotation would give

F is of the words that are part of a phrase or name; *CMN*: after class-mass normalisation, which needs the whole test
set at once and therefore does not go with decisions from the left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.boosting.incomplete.hidden.chain import OUTSIDE
from crfield.estimators.boosted.incomplete.boost import IncompleteBoost
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings
from studies.framework import Case, Outcome, Outcomes, Settings, Study, curve
from studies.incomplete.rows import (
    BL1,
    BL2,
    BL3,
    OURS,
    Method,
    above_claim,
    answer_scores,
    choose,
    folds_of,
    gap_of,
    interval_of,
    log_likelihood,
    method,
    noted_claim,
    quiet,
    tie_claim,
    values_of,
)
from studies.incomplete.text_windows import N_TAGS, PHRASES, TASKS, Sentences, TextCase, text_case

LEARNT = f"{OURS}, mix, learnt prior"
HCRF = f"{OURS}, hcrf, learnt prior"
WINDOW = f"{OURS}, hcrf, window"
COLUMNS = (
    "method",
    *("F", "F, CMN", "right", "log-likelihood", "−log loss"),
    *("F, tags", "F, CMN, tags", "right, tags", "log-likelihood, tags", "−log loss, tags"),
)
_SCORES = ("F", "F CMN", "right", "ll", "loss", "F seen", "F CMN seen", "right seen", "ll seen", "loss seen")
_GRID = (0.1, 0.3, 1.0, 3.0)
_FOLDS = 3
_LEFT = 2
_ALL_TAGS = "all tags"


def methods() -> list[Method]:
    """All rows.

    >>> [row.name for row in methods()][:4]
    ['ours, mix', 'BL1, mix', 'BL2, mix', 'BL3, mix']
    """
    everyone = (OURS, BL1, BL2, BL3)
    rows = [method(f"{who}, mix") for who in everyone]
    rows.append(method(f"{BL3}, mix, random start", start="random"))
    rows += [method(f"{who}, mix, learnt prior", prior="learnt") for who in (OURS, BL1, BL3)]
    rows += [method(f"{who}, exp", loss="exp") for who in everyone]
    rows += [method(f"{OURS}, {loss}", loss=loss) for loss in ("jensen", "joint", "hcrf")]
    rows.append(method(HCRF, loss="hcrf", prior="learnt"))
    rows.append(method(f"{OURS}, mix, γ = 5", gamma=5.0))
    rows.append(method(f"{HCRF}, γ = 5", loss="hcrf", prior="learnt", gamma=5.0))
    rows += [method(f"{who}, mix, parallel", solver="parallel", max_iter=50) for who in everyone]
    rows += [method(f"{who}, mix, left", left=_LEFT) for who in everyone]
    rows.append(method(f"{OURS}, mix, left, learnt prior", left=_LEFT, prior="learnt"))
    windows: dict[str, Any] = {"structure": "chain", "prior": "learnt"}
    rows += [method(f"{OURS}, {loss}, window", loss=loss, **windows) for loss in ("joint", "hcrf")]
    rows.append(method(f"{BL1}, joint, window", loss="joint", **windows))
    rows.append(method(f"{WINDOW}, left", loss="hcrf", left=_LEFT, **windows))
    strengths = [{"l2": l2} for l2 in _GRID]
    rows += [method(f"{who}, mix, chosen", strengths) for who in everyone]
    rows.append(method(f"{LEARNT}, chosen", strengths, prior="learnt"))
    rows.append(Method(_ALL_TAGS, {"start": "zero", "prior": "learnt"}))
    return rows


def data_folder() -> str | None:
    """The folder with the corpora, None where there is none."""
    return os.environ.get("CRFIELD_DATA") or None


def cases(settings: Settings) -> list[Case]:
    """A case for each task and seed; where there are no corpora, of the tasks that do without, if there are any."""
    tasks = settings["tasks"] if data_folder() else settings.get("without data") or settings["tasks"]
    return [{"task": task, "seed": seed} for task in tasks for seed in settings["seeds"]]


def run(settings: Settings, case: Case) -> Outcome:
    """Scores of every method on one draw of sentences."""
    sizes = {name: settings[name] for name in ("n_hidden", "n_observed", "n_test")}
    drawn = text_case(case["task"], case["seed"], data=data_folder(), **sizes)
    outcome: Outcome = {}
    for row in _rows_of(settings):
        options = dict(row.options)
        picked: dict[str, Any] = {}
        if row.chosen:
            grid = [one for one in row.chosen if one["l2"] in settings["l2"]]
            picked = choose(grid, [_validated(drawn, {**options, **one}) for one in grid])
        known = np.ones_like(drawn.known) if row.name == _ALL_TAGS else drawn.known
        model = fitted(drawn, {**options, **picked}, known)
        outcome[row.name] = {**scored(model, drawn), **picked}
    return outcome


def _rows_of(settings: Settings) -> list[Method]:
    """The methods of a study: all, or those that it names."""
    return [row for row in methods() if row.name in settings.get("methods", [row.name])]


def fitted(
    drawn: TextCase, options: Mapping[str, Any], known: np.ndarray, rows: np.ndarray | None = None
) -> IncompleteBoost:
    """A model of the training tokens (of ``rows`` only, whole sentences), whose tags are ``known`` or not."""
    train = drawn.train
    model = IncompleteBoost(**{"fit_intercept": False, "random_state": drawn.seed, **options})
    tags = _tags(train, model.structure, known)
    labels, lengths = train.label_codes, np.diff(train.offsets)
    if rows is None:
        columns = drawn.columns
    else:
        columns, tags, labels = drawn.columns[rows], [tags[i] for i in rows], labels[rows]
        lengths = _lengths_of(train, rows)
    with quiet():
        return model.fit(columns, labels, hidden=tags, lengths=lengths)


def scored(model: IncompleteBoost, drawn: TextCase) -> Outcome:
    """Scores on the test sentences, tags hidden and tags seen."""
    test, labels = drawn.test, drawn.test.label_codes
    lengths = np.diff(test.offsets)
    without = model.baseline == "without_hidden"
    shares = None if model.left else np.bincount(drawn.train.label_codes, minlength=2) / len(drawn.known)
    nothing = None if without else _tags(test, model.structure, np.zeros(len(labels), bool))
    seen = None if without else _tags(test, model.structure, np.ones(len(labels), bool))
    options: dict[str, Any] = {"lengths": lengths}
    found = model.predict_proba(drawn.test_columns, hidden=nothing, **options)
    known = model.predict_proba(drawn.test_columns, hidden=seen, **options)
    loss, seen_loss = (
        -float(np.log(model.mean_loss(drawn.test_columns, labels, loss="exp", hidden=tags, **options)))
        for tags in (nothing, seen)
    )
    return {
        **answer_scores(found, labels, shares),
        "loss": loss,
        **{f"{name} seen": value for name, value in answer_scores(known, labels, shares).items()},
        "loss seen": seen_loss,
    }


def _tags(sentences: Sentences, structure: str, known: np.ndarray) -> list[Any]:
    """What of the tags is known: a value or a window for each token, None where it is hidden."""
    if structure != "chain":
        return [tag if seen else None for tag, seen in zip(sentences.tag_codes.tolist(), known)]
    return [
        [OUTSIDE if tag < 0 else tag if seen else None for tag in around]
        for around, seen in zip(sentences.windowed_tags().tolist(), known)
    ]


def _validated(drawn: TextCase, options: Mapping[str, Any]) -> float:
    """Mean log-likelihood of sentences that were left out, their tags hidden."""
    train = drawn.train
    sentence = np.repeat(np.arange(len(train)), np.diff(train.offsets))
    folds, labels, total = folds_of(sentence, _FOLDS, np.random.default_rng(drawn.seed)), train.label_codes, 0.0
    for fold in range(_FOLDS):
        kept, left = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        model = fitted(drawn, options, drawn.known, kept)
        found = model.predict_proba(drawn.columns[left], lengths=_lengths_of(train, left))
        total += len(left) * log_likelihood(found, labels[left])
    return total / len(labels)


def _lengths_of(sentences: Sentences, rows: np.ndarray) -> np.ndarray:
    """Lengths of the sentences that the rows (whole sentences, in order) make up."""
    sentence = np.repeat(np.arange(len(sentences)), np.diff(sentences.offsets))
    return np.unique(sentence[rows], return_counts=True)[1]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Rows of all methods in every task, the paper's claims and those of an earlier study, and a chart."""
    tasks = list(dict.fromkeys(case["task"] for case, _ in outcomes))
    names = [row.name for row in _rows_of(settings)]
    rows = [
        (f"{task}: {name}", *(interval_of(outcomes, name, score, task=task) for score in _SCORES))
        for task in tasks
        for name in names
    ]
    shown = [name for name in names if name.endswith(", mix") or "learnt" in name or "window" in name]
    charts = tuple(
        Chart(
            f"{task}: {TASKS[task].summary if task in TASKS else 'first words of made-up ingredients'}",
            "method",
            "log-likelihood",
            tuple(
                curve(title, shown, [values_of(outcomes, name, score, task=task) for name in shown])
                for title, score in (("tags hidden", "ll"), ("tags known", "ll seen"))
            ),
        )
        for task in tasks
    )
    return Findings(
        f"Single decisions on words, {settings['n_hidden']:,} sentences without and {settings['n_observed']:,} with "
        f"{N_TAGS} kinds of tags, {settings['n_test']:,} to test on; {len(settings['seeds'])} seeds",
        COLUMNS,
        tuple(rows),
        notes=("± is half of the 95 % interval over seeds; corpora have the same test sentences for all of them",),
        charts=charts,
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's, ours and those of an earlier study, task by task."""
    tasks = dict.fromkeys(case["task"] for case, _ in outcomes)
    return [claim for task in tasks for claim in _claims(settings, outcomes, task)]


def _claims(settings: Settings, outcomes: Outcomes, task: str) -> list[Claim]:
    names = {row.name for row in _rows_of(settings)}
    claims = []

    def above(start: str, one: str, other: str, scores: Mapping[str, str]) -> None:
        if {one, other} <= names:
            for score, words in scores.items():
                gap = gap_of(outcomes, one, other, score, task=task)
                claims.append(above_claim(f"{start}: {one} above {other}, {words}", gap))

    hidden, known = f"{task}, tags hidden", f"{task}, tags known"
    for loss, score in (("mix", {"ll": "log-likelihood"}), ("exp", {"loss": "−log loss"})):
        one = f"{OURS}, {loss}"
        for rival in (BL1, BL2, BL3):
            above(f"paper, {hidden}", one, f"{rival}, {loss}", {"F": "F", **score})
        seen = {f"{name} seen": words for name, words in {"F": "F", **score}.items()}
        above(f"paper, {known}", one, f"{BL1}, {loss}", seen)
    rivals = [float(np.mean(values_of(outcomes, f"{who}, mix", "F", task=task))) for who in (BL1, BL2, BL3)]
    margin = float(np.mean(values_of(outcomes, f"{OURS}, mix", "F", task=task))) - max(rivals)
    sentence = f"paper, {hidden}: {OURS}, mix about 1.3 points of F above the best baseline"
    claims.append(Claim(sentence, margin >= 0.01, f"{margin:+.4f}"))
    likelihood, both = {"ll seen": "log-likelihood"}, {"F seen": "F", "ll seen": "log-likelihood"}
    for other in (f"{OURS}, mix", f"{BL1}, mix", f"{BL2}, mix"):
        above(f"ours, {known}", LEARNT, other, likelihood)
    for other in (f"{OURS}, mix", LEARNT, f"{BL1}, mix", f"{BL2}, mix"):
        above(f"ours, {known}", HCRF, other, both)
    for other in (HCRF, f"{BL1}, joint, window"):
        above(f"ours, {known}", WINDOW, other, both)
    above(f"ours, {hidden}", WINDOW, f"{BL2}, mix", {"F": "F", "ll": "log-likelihood"})
    gap = gap_of(outcomes, f"{OURS}, mix", f"{BL2}, mix", "F", task=task)
    claims.append(tie_claim(f"ours, {hidden}: {OURS}, mix and {BL2}, mix within .005 of F", gap, 0.005))
    return claims + _noted_claims(settings, outcomes, task)


def _noted_claims(settings: Settings, outcomes: Outcomes, task: str) -> list[Claim]:
    sizes = tuple(settings[name] for name in ("n_hidden", "n_observed", "n_test"))
    if sizes != NOTED_SIZES or 0 not in settings["seeds"]:
        return []
    first = [one for one in outcomes if one[0]["seed"] == 0]
    words = {"ll seen": "log-likelihood, tags known", "right seen": "right, tags known"}
    return [
        noted_claim(
            f"ours, {task}, earlier study, seed 0: {name}, {words.get(score, score)}",
            values_of(first, name, score, task=task)[0],
            noted,
            NOTED_WITHIN,
        )
        for where, name, score, noted in NOTED
        if where == task
    ]


# Figures of an earlier study of the same sentences, seed 0. Its Spanish ones are of text read in a wrong encoding and
# are met by that alone: tests/real/test_incomplete_text.py.
NOTED_SIZES = (300, 80, 300)
NOTED_WITHIN = 0.0006  # it stopped after 60 steps, we at a tolerance
NOTED = (
    ("np", f"{OURS}, mix", "right", 0.9461),
    ("np", f"{BL2}, mix", "right", 0.9460),
    ("np", f"{BL3}, mix", "right", 0.9460),
    ("np", f"{BL1}, mix", "right", 0.833),
    ("np", LEARNT, "ll seen", -0.1193),
    ("np", LEARNT, "right seen", 0.9547),
    ("np", f"{OURS}, mix", "ll seen", -0.1308),
    ("np", f"{OURS}, mix", "right seen", 0.9488),
    ("np", f"{BL1}, mix", "ll seen", -0.1350),
    ("np", f"{BL1}, mix", "right seen", 0.9550),
    ("np", f"{BL2}, mix", "ll seen", -0.1407),
    ("bnp", f"{OURS}, mix", "F", 0.8834),
    ("bnp", f"{BL2}, mix", "F", 0.8837),
    ("bnp", f"{BL3}, mix", "F", 0.8834),
    ("bnp", f"{BL1}, mix", "F", 0.7910),
    ("bnp", LEARNT, "ll seen", -0.1496),
    ("bnp", f"{OURS}, mix", "ll seen", -0.1543),
    ("bnp", f"{BL1}, mix", "ll seen", -0.2144),
    ("bnp", f"{BL2}, mix", "ll seen", -0.1554),
)


STUDY = Study(
    {
        "tasks": ["np", "bnp", "ner"],
        "seeds": list(range(5)),
        "n_hidden": 300,
        "n_observed": 80,
        "n_test": 300,
        "l2": list(_GRID),
    },
    {
        "tasks": ["np"],
        "without data": [PHRASES],
        "seeds": [0, 1, 2],
        "n_hidden": 100,
        "n_observed": 30,
        "n_test": 100,
        "l2": [0.3, 1.0],
    },
    cases,
    run,
    report,
    claims,
)
