"""The comparison on groups, on people who are made up: nobody is met in training, settings come from inner folds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crfield.errors import InputError
from crfield.features.sensors.readings import means_about, reading_columns
from crfield.training.segment_memory import SegmentStates, with_memory
from studies.activities import stacked_chain
from studies.activities.models import (
    BOOSTED,
    CHAINS,
    COLUMNS,
    LOGISTIC,
    LOGISTIC_HMM,
    LOGISTIC_MEMORY,
    MODELS,
    STACKED,
    TREES,
    Grids,
    family,
)
from studies.activities.rivals import Plan, Recorded, inside_of, run_fold, separating_columns
from studies.activities.stacked_chain import StackedChain
from studies.activities.tables import Comparison
from studies.framework import run_study

GRIDS = Grids(
    strengths=(0.1,),
    rounds=(3, 5),
    penalties=(10.0,),
    deviations=(1.0,),
    tree_rounds=(15,),
    trees_on_all=(False, True),
    factors=(0.2, 1.0),
    max_iter=20,
)
PLAN = Plan(folds=4, inner_folds=2, n_selected=12, thin=2, grids=GRIDS)


def people(n: int = 4, *, seed: int = 0) -> Recorded:
    """Sit, stand, walk, stand, climb: two columns tell sitting and moving, ten tell nothing."""
    rng = np.random.default_rng(seed)
    columns, labels = [], []
    for _ in range(n):
        words = np.repeat(np.array(["sit", "stand", "walk", "stand", "climb"], object), rng.integers(15, 25, 5))
        table = rng.normal(size=(len(words), 12))
        table[:, 3] += 4.0 * (words == "sit")
        table[:, 7] += 4.0 * np.isin(words, ["walk", "climb"])
        labels.append(np.append(words, [None]))
        columns.append(np.concatenate([table, table[-1:]]))
    return Recorded(columns, labels, [f"p{k}" for k in range(n)], [f"c{k}" for k in range(12)])


def test_every_model_labels_those_it_has_not_met() -> None:
    data = people(6)
    plan = replace(PLAN, folds=2)
    settings = {"inner_folds": plan.inner_folds}
    made_up = Comparison(
        lambda settings: data,
        lambda settings: plan,
        lambda settings, data: "made up",
        {"macro F1": 0.1},
        together=True,
        others="",
    )
    study = made_up.study(settings, settings)
    outcomes = run_study(study, settings)
    assert sorted(k for _, fold in outcomes for k in fold["test"]) == [0, 1, 2, 3, 4, 5]
    table = study.found(settings, outcomes)
    assert [row[0] for row in table.rows] == list(MODELS)
    for model in (STACKED, COLUMNS, TREES, LOGISTIC_MEMORY):
        assert table[model, "macro F1"].mean > table[LOGISTIC, "macro F1"].mean
        assert table[model, "segment F1@50"].mean > 0.6
    assert "12 candidate columns" in str(table)
    assert any(f"the best chain is {model!r}" in str(table) for model in CHAINS)
    assert f"{STACKED} above {LOGISTIC}, segment F1@50" in [claim.sentence for claim in table.claims]


def test_the_tested_person_changes_nothing_in_training() -> None:
    data = people()
    plan = replace(PLAN, models=(LOGISTIC, LOGISTIC_HMM, STACKED))
    first = run_fold(data, plan, 1)
    data.columns[1] = data.columns[1] + 100.0
    data.labels[1] = np.array(["sit"] * len(data.labels[1]), dtype=object)
    second = run_fold(data, plan, 1)
    assert run_fold(data, plan, 1) == second  # the same bits again
    assert first["columns"] == second["columns"]
    assert first["settings"] == second["settings"]


def test_scores_of_a_training_person_come_from_those_who_have_not_met_him() -> None:
    data = people()
    inside = inside_of(data, np.arange(12), [0, 1, 2], PLAN)
    inside.chosen[BOOSTED] = 5
    inside.out_of_group(BOOSTED, 0)
    inside.out_of_group(BOOSTED, 3)
    assert [met for _, met in inside.fitted] == [(1,), (0, 1, 2)]
    with pytest.raises(InputError, match="needs 'logistic regression' or 'gradient boosting'"):
        run_fold(data, replace(PLAN, models=(STACKED,)), 0)


def test_selection_takes_the_columns_that_tell_and_no_copies() -> None:
    data = people()
    chosen = separating_columns(data, [0, 1, 2], Plan(folds=4, n_selected=2, thin=1))
    assert sorted(chosen.tolist()) == [3, 7]
    for k, table in enumerate(data.columns):
        data.columns[k] = np.concatenate([table, 2.0 * table[:, 3:4], np.ones((len(table), 1))], axis=1)
    chosen = separating_columns(data, [0, 1, 2], Plan(folds=4, n_selected=14, thin=1))
    assert sorted(chosen.tolist()) in ([*range(12)], [*range(3), *range(4, 13)])  # no copy of 3, nothing constant


def test_columns_of_a_stranger_are_clipped() -> None:
    data = people()
    data.columns[3] = data.columns[3] * 1e6
    inside = inside_of(data, np.array([3, 7]), [0, 1, 2], PLAN)
    assert np.abs(inside.columns[3]).max() == 4.0


def test_models_and_folds_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="there is no model 'oracle'"):
        family("oracle", GRIDS)
    with pytest.raises(InputError, match="folds must lie in 2 … 4"):
        run_fold(people(), Plan(folds=5), 0)
    assert family(BOOSTED, GRIDS)[1:] == ((3, 5), (1.0,))
    both = [(15, memory, on_all) for memory in (False, True) for on_all in (False, True)]
    assert family(TREES, GRIDS)[1:] == (tuple(both), (0.2, 1.0))


# -------------------------------------------------------------------------------------------------------- memory


def test_memory_follows_a_script_that_labels_alone_cannot() -> None:
    script = ["a"] * 5 + ["b"] * 5 + ["a"] * 5 + ["c"] * 5
    node = np.zeros((20, 3))
    node[10:15, 0] = 2.0
    node[5:10, 1] = 2.0
    node[15:, 2] = 2.0
    for memory in (False, True):
        states = SegmentStates.counted([script], ["a", "b", "c"], memory=memory, smoothing=0.0)
        assert len(states.label) == (4 if memory else 3)
    assert states.codes(script) == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    assert "".join("abc"[k] for k in states.best_labels(node)) == "".join(script)
    flat = states.best_labels(np.zeros((20, 3)))
    assert [k for k, before in zip(flat, [-1, *flat]) if k != before] in ([0], [0, 1], [0, 1, 0], [0, 1, 0, 2])
    assert (states.allowed == 0).sum() == 4 + 5  # staying; and a→b, a→c, b→a, a→b, a→c
    assert states.best_labels(np.zeros((0, 3))).tolist() == []


def test_memory_of_unknown_steps() -> None:
    assert with_memory([None, "a", None, "a", "b"]) == [(None, "a"), (None, "a"), ("a", "b")]
    assert with_memory([]) == []


# ------------------------------------------------------------------------------------------------------- stacking


def test_trust_in_scores_is_as_great_as_sequences_ask_for() -> None:
    """One source tells; one is as sure and tells nothing; a source repeated over ten steps counts about once."""
    rng = np.random.default_rng(0)
    words, sources = [], []
    for _ in range(12):
        labels = np.repeat(rng.integers(0, 2, 8), 10)
        said = np.where(rng.random(8) < 0.85, labels[::10], 1 - labels[::10]).repeat(10)  # wrong for a whole stretch
        noise = rng.integers(0, 2, 8).repeat(10)
        words.append([("a", "b")[k] for k in labels])
        sources.append([np.log(np.where(np.arange(2) == own[:, None], 0.95, 0.05)) for own in (said, noise)])
    states = SegmentStates.counted(words, ["a", "b"], memory=False, smoothing=0.1)
    chain = StackedChain.learnt(states, sources, words)
    assert 0.02 < chain.scales[0] < 0.5
    assert 0.0 <= chain.scales[1] < 0.3 * chain.scales[0]
    never = SegmentStates.counted(words, ["a", "b"], memory=True, smoothing=0.0)
    with pytest.raises(InputError, match="smoothing above 0"):
        StackedChain.learnt(never, sources, words)


def test_the_stacked_chain_is_at_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it ends no step to either side is better, unknown labels included; and a scale is never negative."""
    import scipy.optimize

    real, slopes = scipy.optimize.minimize, []

    def watched(function, begin, **options):
        found = real(function, begin, **options)
        for own in np.eye(len(begin)):
            high, low = function(found.x + 1e-5 * own)[0], function(found.x - 1e-5 * own)[0]
            slopes.append((high - low) / 2e-5)
            assert slopes[-1] == pytest.approx(float(function(found.x)[1] @ own), abs=1e-6)
        return found

    monkeypatch.setattr(stacked_chain, "minimize", watched)
    rng = np.random.default_rng(1)
    words = [["a", "a", None, "b", "b", "a", "c"], ["a", "b", "b", "a", "c", "c"]]
    sources = [[rng.normal(size=(len(own), 3)) for _ in range(2)] for own in words]
    states = SegmentStates.counted(words, ["a", "b", "c"], memory=True, smoothing=0.1)
    chain = StackedChain.learnt(states, sources, words)
    assert np.abs(slopes[2:]).max() < 1e-2
    for scale, slope in zip(chain.scales, slopes):
        assert abs(slope) < 1e-2 or (scale == 0.0 and slope > 0)


# ------------------------------------------------------------------------------------------------------ readings


def test_means_about_a_reading() -> None:
    rng = np.random.default_rng(0)
    seconds, values = np.cumsum(rng.exponential(1.0, 50)), rng.normal(loc=1e6, size=(50, 2))
    mean, count = means_about(seconds, values, before=2.0, after=0.5)
    for k, t in enumerate(seconds):
        near = (seconds >= t - 2.0) & (seconds <= t + 0.5)
        assert count[k] == near.sum()
        assert mean[k] == pytest.approx(values[near].mean(axis=0), rel=1e-12)


def test_columns_of_readings() -> None:
    rng = np.random.default_rng(0)
    seconds = np.cumsum(rng.exponential(1.0, 40))
    sender, strength, values = rng.integers(0, 3, 40), rng.uniform(-70, -50, 40), rng.normal(size=(40, 3))
    table, names = reading_columns(
        seconds, values, sender, strength, names=("a", "b", "c"), n_senders=3, radii=(2.0, 5.0)
    )
    assert table.shape == (40, len(names))
    assert len(set(names)) == len(names)
    assert np.isfinite(table).all()
    near = np.abs(seconds - seconds[9]) <= 5.0
    assert table[9, names.index("share of sender 2, ±5s")] == pytest.approx((sender[near] == 1).mean())
    assert table[9, names.index("b deviation, ±5s")] == pytest.approx(values[near, 1].std())
    assert table[9, names.index("readings, ±5s")] == pytest.approx(np.log(near.sum()))
    later, earlier = near & (seconds >= seconds[9]), near & (seconds <= seconds[9])
    turn = values[later, 0].mean() - values[earlier, 0].mean()
    assert table[9, names.index("a after less before, ±5s")] == pytest.approx(turn)
    empty = reading_columns(seconds[:0], values[:0], sender[:0], strength[:0], names=("a", "b", "c"), n_senders=3)[0]
    assert empty.shape[0] == 0


# ------------------------------------------------------------------------------------------------------- the page


@pytest.mark.parametrize("name", ["chest-persons", "rfid-activities"])
def test_the_page_shows_what_was_found(name: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "methods" / "activity-results.md").read_text(encoding="utf-8")
    assert (docs / "results" / f"{name}.txt").read_text(encoding="utf-8") in page
    told = json.loads((docs / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert told["command"].removesuffix(" --json") in page
    assert told["title"] in page
    assert [row["model"] for row in told["rows"]] == list(MODELS)
    for claim in told["claims"]:
        verdict = {True: "yes", False: "NO", None: "open"}[claim["holds"]]
        assert f"{verdict:4} {claim['claim']}: {claim['found']}" in page
