"""Worlds and quick forms of the experiments with incomplete information."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.errors import InputError
from crfield.report.findings import Interval
from crfield.simulate.visual_words import EASY, HARD, VisualWords, make_visual_words
from studies.framework import run_study
from studies.incomplete import rivals, rows, text, visual
from studies.incomplete import text_large as large
from studies.incomplete import text_windows as windows

# ------------------------------------------------------------------------------------------------- visual words


@pytest.mark.parametrize(
    ("setting", "seed", "first", "sums"),
    [
        (HARD, 0, [3, 2, 0, 2, 2, 1, 0, 2], [59_170, 17_578, 5_955_499, 8_920_784]),
        (EASY, 1, [3, 3, 0, 2, 0, 0, 1, 2], [129_445, 51_943, 13_042_828, 25_975_099]),
    ],
)
def test_visual_words_of_a_seed_are_those_of_the_earlier_study(
    setting: Any, seed: int, first: list[int], sums: list[int]
) -> None:
    made = make_visual_words(random_state=seed, **setting)
    assert made.labels[:8].tolist() == first
    by_word = int((made.counts * np.arange(1, 201)).sum())
    by_picture = int((made.foreground * np.arange(1, 1_001)[:, None]).sum())
    assert [int(made.counts.sum()), int(made.foreground.sum()), by_word, by_picture] == sums


def test_parts_do_not_meet() -> None:
    train, known, test = make_visual_words(101, n_words=20).parts(observed=0.3, random_state=4)
    assert sorted([*train, *test]) == list(range(101))
    assert (len(train), len(test), int(known.sum())) == (50, 51, 15)


def test_the_posterior_is_that_of_the_generator() -> None:
    """Against the trapezium rule on a fine grid, background by background."""
    from scipy.stats import beta

    made = make_visual_words(5, n_words=6, n_classes=3, points=(3, 9), random_state=2)
    shown = 0.7 * made.objects + 0.3 * made.backgrounds.mean(axis=0)
    shares = np.linspace(0, 1, 20_001)[:, None]
    density = beta(20 * 0.3, 20 * 0.7).pdf(shares[:, 0])
    behind = [(0.5 / 6, back) for back in made.backgrounds]
    behind += [(0.5 / 18, 0.5 * back + 0.5 * other) for back in made.backgrounds for other in made.objects]
    for picture, answer in zip(made.counts, made.posterior()):
        likelihood = np.zeros(3)
        for y in range(3):
            for chance, back in behind:
                chances = np.prod((shares * shown[y] + (1 - shares) * back) ** picture, axis=1)
                likelihood[y] += chance * np.trapezoid(density * chances, shares[:, 0])
        np.testing.assert_allclose(answer, likelihood / likelihood.sum(), rtol=1e-7)


def test_the_posterior_is_calibrated_and_contours_help() -> None:
    made = make_visual_words(2_000, random_state=3)
    hidden, seen = made.posterior(), made.posterior(observed=True)
    for answer in (hidden, seen):
        right = answer.argmax(axis=1) == made.labels
        assert right.mean() == pytest.approx(answer.max(axis=1).mean(), abs=0.02), "as often right as it says"
    assert (seen.argmax(axis=1) == made.labels).mean() > (hidden.argmax(axis=1) == made.labels).mean() + 0.05


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": -1},
        {"n_words": 0},
        {"points": (5, 5)},
        {"clutter": 1.5},
        {"foreground": 0.0},
    ],
)
def test_worlds_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        make_visual_words(**{"n": 3, **wrong})


def test_no_pictures() -> None:
    made = make_visual_words(0, n_words=5)
    assert isinstance(made, VisualWords)
    assert made.posterior().shape == (0, 4)
    with pytest.raises(InputError, match="observed"):
        made.parts(observed=2)


# --------------------------------------------------------------------------------------------------- text windows


def test_features_of_a_token() -> None:
    assert windows.token_features(["El", "Sr.", "Peña-X9"], 2) == [
        *("bias", "w-2=El", "w-1=Sr.", "w0=Peña-X9", "w1=<>", "w2=<>"),
        *("p1=P", "s1=9", "p2=Pe", "s2=X9", "p3=Peñ", "s3=-X9", "p4=Peña", "s4=a-X9"),
        *("capital", "capital inside", "digit", "hyphen"),
    ]
    assert windows.token_features([","], 0)[-1] == "mark"


def test_columns_are_features_met_twice_in_training() -> None:
    case = windows.text_case(windows.PHRASES, 1, n_hidden=40, n_observed=10, n_test=15)
    table = windows.TokenTable().fit(case.train)
    seen: dict[str, int] = {}
    for words in case.train.words:
        for t in range(len(words)):
            for feature in windows.token_features(words, t):
                seen[feature] = seen.get(feature, 0) + 1
    assert set(table.code) == {feature for feature, count in seen.items() if count >= 2}
    assert case.columns.shape == (len(case.train.label_codes), len(table.code))
    assert (case.columns != table.columns(case.train)).nnz == 0
    assert case.test_columns.shape[0] == len(case.test.label_codes)
    assert case.known.sum() == sum(map(len, case.observed.words))
    assert not case.known[: len(case.hidden.label_codes)].any()


def test_a_seed_is_a_draw() -> None:
    one, same, other = (windows.text_case(windows.PHRASES, s, n_hidden=20, n_observed=5, n_test=5) for s in (1, 1, 2))
    assert one.hidden.words == same.hidden.words
    assert one.hidden.words != other.hidden.words


def test_tags_of_windows_stay_in_their_sentence() -> None:
    sentences = windows.phrase_sentences(4)
    around = sentences.windowed_tags()
    assert (around[:, 2] == sentences.tag_codes).all()
    starts = sentences.offsets[:-1]
    assert (around[starts, :2] == -1).all()
    assert (around[sentences.offsets[1:] - 1, 3:] == -1).all()


def test_text_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="CRFIELD_DATA"):
        windows.text_case("np", 0)
    with pytest.raises(FileNotFoundError):
        windows.text_case("np", 0, data=str(tmp_path))
    with pytest.raises(InputError, match="no task"):
        windows.read_task(str(tmp_path), "poems")
    with pytest.raises(InputError, match="at least one"):
        windows.text_case(windows.PHRASES, 0, n_observed=0)


# --------------------------------------------------------------------------------------------------------- studies


@pytest.mark.parametrize("world", ["hard", "easy"])
def test_visual_words_give_the_figures_of_the_earlier_study(world: str) -> None:
    """Seed 0, 1,000 pictures: accuracies of 500 test pictures to the last one, likelihoods to three places."""
    made, train, known, test = visual.world_of({"n": 1_000}, {"world": world, "seed": 0})
    options = {row.name: row.options for row in visual.methods()}
    noted = [(name, score, value) for where, name, score, value in visual.NOTED if where == world]
    for name in {name for name, _, _ in noted}:
        scores = visual.scored(visual.fitted(made, train, known, options[name], 0), made, test)
        for own, score, value in noted:
            if own == name:
                assert scores[score] == pytest.approx(value, abs=0.0006), (name, score)


def test_visual_words_in_small() -> None:
    settings = {**visual.STUDY.quick, "seeds": [1], "n": 60, "l2": [0.1]}
    outcomes = [(case, visual.run(settings, case)) for case in visual.cases(settings)]
    found = visual.STUDY.found(settings, outcomes)
    names = [row.name for row in visual.methods()]
    assert [row[0] for row in found.rows][: len(names) + 1] == [
        "hard: ceiling",
        *(f"hard: {n}" for n in names),
    ]
    for row in found.rows:
        assert all(isinstance(cell, Interval) or (cell is None and "ceiling" in row[0]) for cell in row[1:])
    ceiling = found["hard: ceiling", "log-likelihood"].mean
    assert all(found[f"hard: {name}", "log-likelihood"].mean < ceiling for name in names)
    assert len(found.charts) == 1
    assert not any("earlier study, seed 0" in claim.sentence for claim in found.claims)


def test_text_in_small() -> None:
    """Every method on made-up phrases; who sees the part of the phrase is better off."""
    settings = {**text.STUDY.quick, "seeds": [1], "n_hidden": 25, "n_observed": 12, "n_test": 20, "l2": [1.0]}
    case = {"task": windows.PHRASES, "seed": 1}
    outcome = text.run(settings, case)
    assert set(outcome) == {row.name for row in text.methods()}
    for name, scores in outcome.items():
        assert all(np.isfinite(list(scores.values()))), name
        assert ("F CMN" in scores) == ("left" not in name)
        if name.startswith(rows.BL2):
            assert scores["ll"] == scores["ll seen"], "it has no hidden part"
    for name in (text.WINDOW, text.HCRF, f"{rows.BL1}, mix"):
        assert outcome[name]["ll seen"] > outcome[name]["ll"] + 0.01, name
    found = text.STUDY.found(settings, [(case, outcome)])
    assert found["phrases: ours, mix", "F"].mean == outcome["ours, mix"]["F"]
    assert found["phrases: ours, mix, left", "F, CMN"] is None
    assert all("phrases" in claim.sentence for claim in found.claims)


def test_the_large_study_has_rows_of_the_small_one() -> None:
    assert set(large.METHODS) <= {row.name for row in text.methods()}
    settings = {
        **large.STUDY.quick,
        "n_hidden": 12,
        "n_observed": 12,
        "n_test": 10,
        "methods": ["ours, mix", "BL2, mix"],
    }
    assert set(large.STUDY.run(settings, {"task": windows.PHRASES, "seed": 0})) == {"ours, mix", "BL2, mix"}


def test_cases_without_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRFIELD_DATA", raising=False)
    assert {case["task"] for case in text.cases(text.STUDY.quick)} == {windows.PHRASES}
    with pytest.raises(InputError, match="CRFIELD_DATA"):
        text.run(text.STUDY.full, text.cases(text.STUDY.full)[0])
    monkeypatch.setenv("CRFIELD_DATA", "somewhere")
    assert {case["task"] for case in text.cases(text.STUDY.quick)} == {"np"}


def test_every_task_and_world_has_its_seeds() -> None:
    assert len(visual.cases(visual.STUDY.full)) == 20
    assert len(visual.STUDY.full["seeds"]) >= 5
    assert len(text.STUDY.full["seeds"]) >= 5
    assert len(large.STUDY.full["seeds"]) >= 5


# ---------------------------------------------------------------------------------------------------- rows and claims


def test_claims_need_the_whole_interval() -> None:
    assert rows.above_claim("better", Interval(0.2, 0.1, 0.3)).holds
    assert rows.above_claim("better", Interval(0.2, -0.1, 0.5)).holds is None
    assert rows.above_claim("better", Interval(-0.2, -0.3, -0.1)).holds is False
    assert rows.above_claim("better", Interval(0.2, np.nan, np.nan)).holds is None, "one repetition shows nothing"
    assert rows.tie_claim("as good", Interval(-0.001, -0.004, 0.002), 0.005).holds
    assert rows.tie_claim("as good", Interval(-0.004, -0.1, 0.1), 0.005).holds is None
    assert rows.tie_claim("as good", Interval(-0.016, -0.02, -0.012), 0.005).holds is False
    assert rows.noted_claim("as noted", 0.6581, 0.658, 0.0006).holds
    assert not rows.noted_claim("as noted", 0.660, 0.658, 0.0006).holds


def test_scores_of_answers() -> None:
    answers = np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    labels = np.array([0, 1, 1, 0])
    scores = rows.answer_scores(answers, labels, np.array([0.25, 0.75]))
    assert scores["right"] == 0.5
    assert scores["ll"] == pytest.approx(np.log([0.9, 0.6, 0.4, 0.2]).mean())
    assert scores["F"] == 0.5
    # Mass (.525, .475) brought to (.25, .75): the third answer turns to label 1.
    assert scores["F CMN"] == pytest.approx(4 / 5)
    assert rows.f_measure(np.zeros(3, int), np.zeros(3, int)) == 0.0
    assert np.isfinite(rows.log_likelihood(np.array([[0.0, 1.0]]), np.array([0])))


def test_folds_keep_sentences_whole() -> None:
    sentence = np.repeat(np.arange(10), 3)
    folds = rows.folds_of(sentence, 3, np.random.default_rng(1))
    assert all(len(set(folds[sentence == s])) == 1 for s in range(10))
    assert sorted(np.bincount(folds)) == [9, 9, 12]


def test_rivals_of_incomplete_boost() -> None:
    """A small form: where the hidden value decides what the columns mean, it is above the plain rivals."""
    settings = {**rivals.STUDY.quick, "seeds": [1], "rows": 300, "tests": 500, "pictures": 60}
    outcomes = run_study(rivals.STUDY, settings)
    told = {case["world"]: outcome for case, outcome in outcomes}[rivals.SWITCH]
    for given in (0, 1):
        assert told[rivals.OURS][given] > told[rivals.MEAN][given] + 0.02
    found = rivals.STUDY.found(settings, outcomes)
    assert len(found.rows) == 11
    assert len(found.claims) == 6
