"""`BestChain`: the table, what is chosen and why, budgets, files, streams, and that nobody who is asked has a say."""

from __future__ import annotations

import io
import re
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import BestChain, choose
from crfield.core.parameters import parameter
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ModelFileError, ShapeError
from crfield.estimators.choice.columns import ChosenColumns
from crfield.estimators.choice.decoding import SETTINGS, Decoding, Setting, log_floored
from crfield.estimators.choice.folds import GroupFolds
from crfield.estimators.choice.search import Search, families_named
from crfield.estimators.choice.sources import FAMILIES, SINGLE_STEPS, Source
from crfield.estimators.tuning.group_folds import macro_f1
from crfield.metrics import segment_f1
from tests.cases.estimators import Front, some_numbers
from tests.contracts import test_front_door as test_front_door_of_all

QUICK = ("logistic regression", "Gaussian")
PROMISES = (  # of the front door, but for weights of sequences, which it does not take
    "test_init_only_stores",
    "test_parameters_are_named_and_documented",
    "test_params_clone_and_repr",
    "test_fit_changes_neither_parameters_nor_data",
    "test_learnt_names_end_in_an_underscore",
    "test_the_same_data_give_the_same_model_whatever_was_before",
    "test_among_the_tools_of_scikit_learn",
    "test_editors_may_ask_for_everything",
    "test_nothing_is_answered_before_fit",
    "test_a_fit_that_fails_leaves_the_old_model",
    "test_answers_have_one_form",
    "test_score_is_the_share_of_right_labels",
    "test_many_threads_may_use_one_model",
)
MEANS = {"sit": (1.0, 0.0, 0.0), "walk": (0.0, 1.0, 0.0), "stand": (0.0, 0.0, 1.0)}


@cache
def script(n: int = 6, seed: int = 0, noise: float = 0.8) -> tuple[list[np.ndarray], list[list[Any]], list[str]]:
    """sit, walk, stand, walk, sit by n recordings of half as many people; one step of each is not known."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words = np.repeat(["sit", "walk", "stand", "walk", "sit"], rng.integers(4, 9, 5))
        labels: list[Any] = words.tolist()
        X.append(np.array([MEANS[word] for word in labels]) + rng.normal(scale=noise, size=(len(labels), 3)))
        labels[2] = None
        y.append(labels)
    return X, y, [f"p{k // 2}" for k in range(n)]


class QuickChain(BestChain):
    """`BestChain` whose default takes no time."""

    candidates: Any = parameter(families_named, default=QUICK)


FRONT = Front(QuickChain, some_numbers, options=(("folds", 2), ("average", False)))


@pytest.mark.parametrize("name", PROMISES)
def test_front_door(name: str) -> None:
    getattr(test_front_door_of_all, name)(Front(QuickChain, some_numbers, options=(("folds", 2), ("average", False))))


@cache
def chosen() -> BestChain:
    X, y, groups = script()
    return BestChain(candidates=QUICK).fit(X, y, groups)


def test_every_family_goes_through_the_folds_and_into_a_file() -> None:
    X, y, groups = script()
    codes = [np.array([-1 if v is None else sorted(MEANS).index(v) for v in row]) for row in y]
    folds = GroupFolds.dealt(list(X), codes, groups, 2, n_labels=3)
    search = Search(folds, list(FAMILIES), [(None, 1.0)])
    taken, choice = search.run()
    assert not choice.not_run
    assert {row.entries[0].family for row in search.rows} == set(FAMILIES)
    assert choice.best.both.mean == max(row.both.mean for row in choice.rows) == pytest.approx(taken.mark)
    columns = ChosenColumns.learnt(X, codes, most=None)
    rows = [columns.apply(x) for x in X]
    for family, own in FAMILIES.items():
        source = Source.fitted(family, own.settings[0], rows, codes, seed=0, thin=1)
        found = source.chances(rows, 3)
        assert np.allclose(found.sum(axis=1), 1.0)
        again = Source.from_state(source.state(), 3, rows[0].shape[1])
        assert np.array_equal(again.chances(rows, 3), found)
        with pytest.raises(ModelFileError):
            Source.from_state(source.state(), 1, rows[0].shape[1])


def test_inner_answers_are_of_models_that_have_not_met_the_group() -> None:
    """The scores of a row, by a slow program: for each fold train on the others, decode, compare."""
    X, y, groups = script()
    model, labels = chosen(), sorted(MEANS)
    codes = [np.array([-1 if v is None else labels.index(v) for v in row]) for row in y]
    folds = GroupFolds.dealt(list(X), codes, groups, 3, n_labels=3)
    said: list[Any] = [None] * len(X)
    for fold in folds.folds:
        assert not {groups[k] for k in fold.learn} & {groups[k] for k in fold.asked}
        learn = [X[k] for k in fold.learn], [codes[k] for k in fold.learn]
        columns = ChosenColumns.learnt(*learn, most=None)
        source = Source.fitted("Gaussian", {}, [columns.apply(x) for x in learn[0]], learn[1], seed=0, thin=1)
        decoding = Decoding.counted(learn[1], 3, Setting("Markov model", _factor(model, "Gaussian + Markov model")))
        for k in fold.asked:
            logs = log_floored(source.chances([columns.apply(X[k])], 3))
            chains = Chains.from_lengths([len(logs)])
            said[k] = [labels[c] for c in decoding.best(logs, chains)]
    row = model.table_["Gaussian + Markov model"]
    for place, group in enumerate(dict.fromkeys(groups)):
        own = [k for k, name in enumerate(groups) if name == group]
        pair = [y[k] for k in own], [said[k] for k in own]
        assert row.macro_of_groups[place] == macro_f1(*pair)
        assert row.segment_of_groups[place] == segment_f1(*pair, overlap=0.5)


def _factor(model: BestChain, name: str) -> float:
    return float(model.table_[name].setting.split("× ")[1])


def test_what_is_chosen_does_best_in_the_table_and_says_why() -> None:
    X, y, groups = script()
    model = chosen()
    best = max((row for row in model.table_.rows), key=lambda row: row.both.mean)
    assert model.table_.best.both.mean == best.both.mean
    assert model.choice_.startswith(f"{model.table_.chosen}: ")
    assert "held-out groups" in model.choice_
    assert model.table_.n_groups == len(set(groups))
    again = choose(X, y, groups, candidates=QUICK)
    assert [row.marks for row in again.table_.rows] == [row.marks for row in model.table_.rows]
    assert all(map(np.array_equal, again.predict_proba(X), model.predict_proba(X)))
    alone = BestChain(candidates=QUICK, average=False).fit(X, y, groups)
    assert len(alone.members_) == 1
    assert not any("average" in row.name for row in alone.table_.rows)


def test_the_average_is_the_mean_of_its_members_and_one_decoding() -> None:
    X, y, groups = script(noise=1.2)
    model = BestChain(candidates=QUICK).fit(X, y, groups)
    fitted = model._fitted
    tables = [s.chances([c.apply(x) for x in X], 3) for c, s in zip(fitted.columns, fitted.sources, strict=True)]
    assert np.allclose(np.concatenate(list(model.step_chances(X))), np.mean(tables, axis=0), atol=1e-4)
    mean = [row for row in model.table_.rows if row.name.startswith("average")]
    single = max(row.both.mean for row in model.table_.rows if row not in mean)
    assert (len(model.members_) > 1) == (mean[0].both.mean > single)


def test_decoding_without_edges_is_each_step_alone_and_with_memory_the_best_path_of_pairs() -> None:
    codes = [np.array([0, 0, 1, 0, 2]), np.array([0, 1, 1, 0, 2, 2])]
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(3), size=5))
    chains = Chains.from_lengths([5])
    assert np.array_equal(Decoding.counted(codes, 3, Setting()).best(logs, chains), logs.argmax(axis=1))
    memory = Decoding.counted(codes, 3, Setting("memory", 1.0))
    labels, best = memory.space.label_of_state, (-np.inf, ())
    for path in np.ndindex(*[len(labels)] * 5):
        score = memory.start[path[0]] + sum(logs[t, labels[s]] for t, s in enumerate(path))
        score += sum(memory.edge[a, b] for a, b in pairwise(path))
        best = max(best, (score, path))
    assert memory.best(logs, chains).tolist() == labels[list(best[1])].tolist()
    assert len({repr(setting) for setting in SETTINGS}) == len(SETTINGS)


def test_budget_runs_the_first_family_and_names_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, groups = script()
    model = choose(X, y, groups, budget=0.0)
    assert set(model.members_) == {"logistic regression"}
    assert set(model.table_.not_run) == set(FAMILIES) - {"logistic regression"}
    assert "not run\n  Gaussian: budget" in str(model.table_)
    monkeypatch.setattr("crfield.estimators.choice.search.FEW_STEPS", 1)  # so that a part is tried first
    assert not choose(X, y, groups, budget=3600.0, candidates=QUICK).table_.not_run
    monkeypatch.setattr(Search, "_predicted", lambda *_: 4000.0)
    told = choose(X, y, groups, budget=3600.0, candidates=QUICK).table_.not_run["Gaussian"]
    assert re.fullmatch(r"budget: it would take about 4000.0 s, and 3\d\d\d.\d s are left", told)


def test_file_and_stream_answer_as_the_model() -> None:
    X, _, _ = script(seed=1)
    model = BestChain(candidates=QUICK, n_columns=2).fit(*script())
    stored = io.BytesIO()
    model.save(stored)
    stored.seek(0)
    again = crfield.load(stored)
    assert str(again.table_) == str(model.table_)
    assert again.columns_ == model.columns_
    assert all(map(np.array_equal, again.predict(X), model.predict(X)))
    stream, chances = again.stream(lag=1, viterbi=True), model.predict_proba(X[:1])[0]
    steps = [stream.push(row) for row in X[0]]
    assert steps[0].probabilities.shape == (3,)
    ended = stream.finish()
    assert np.allclose(ended.smoothed[-1], chances[-1])
    committed = [label for step in steps for label in step.committed] + list(ended.committed)
    assert committed == model.predict(X[:1])[0].tolist()
    several = again.streams(2, lag=1)
    together = [several.push([row, row], which=[0, 1]) for row in X[0]]
    assert [list(now.labels) for now in together] == [[step.label] * 2 for step in steps]
    assert np.array_equal(several.finish(1).smoothed, ended.smoothed)
    assert len(again.column_importance(X)) == 2
    told = again.explain_step(X[0], 3)
    assert told[0].label == again.classes_[again.step_chances(X[:1])[0][3].argmax()]


def test_many_columns_are_narrowed_by_the_first_family() -> None:
    X, y, groups = script()
    noise = np.random.default_rng(2)
    wide = [np.hstack([x, noise.normal(size=(len(x), 68)), x[:, :1] * 2.0]) for x in X]
    model = BestChain(candidates=["Gaussian"], folds=2).fit(wide, y, groups)
    assert len(model.columns_[0]) in (60, 71)  # the copy of a column is passed over
    assert {"x[1]", "x[2]"} < set(model.columns_[0])
    assert not {"x[0]", "x[71]"} <= set(model.columns_[0])
    few = BestChain(candidates=["Gaussian"], n_columns=np.int64(2)).fit(wide, y, groups)
    assert "2 columns" in few.table_.best.setting
    assert set(few.columns_[0]) < {"x[0]", "x[1]", "x[2]", "x[71]"}


def test_groups_reach_the_inner_folds_of_left_out_people() -> None:
    seen: list[Any] = []

    class Asking(BestChain):
        def fit(self, X: Any, y: Any, groups: Any = None) -> Any:
            seen.append(groups)
            return super().fit(X, y, groups)

    X, y, groups = script()
    crfield.predict_by_group(Asking(candidates=["Gaussian"], folds=2), X, y, groups)
    assert seen == [[group for group in groups if group != out] for out in dict.fromkeys(groups)]


def test_whole_sequences_do_not_stream() -> None:
    model = BestChain(candidates=["chain on columns"]).fit(*script())
    with pytest.raises(InputError, match=r"chain on columns look at whole sequences.*candidates"):
        model.stream()
    assert set(SINGLE_STEPS) < set(FAMILIES)
    assert model.explain_step(script()[0][0], 1, n=2)[0].kind == "column"


def test_words_become_columns_and_what_cannot_be_is_refused() -> None:
    X, y, groups = script()
    records = [[{"a": float(row[0]), "high": bool(row[1] > 0.5)} for row in x] for x in X]
    assert BestChain(candidates=QUICK).fit(records, y, groups).score(records, y) > 0.5
    with pytest.raises(InputError, match="at least two groups"):
        BestChain(candidates=QUICK).fit(X, y, ["all"] * len(X))
    with pytest.raises(ShapeError, match="one value for each of 6 sequences"):
        BestChain(candidates=QUICK).fit(X, y, groups[:-1])
    with pytest.raises(LabelError, match="nothing to choose between"):
        BestChain().fit(X, [["sit"] * len(x) for x in X])
    with pytest.raises(InputError, match="candidates must be 'all' or some of"):
        BestChain(candidates="boosting").fit(X, y)
