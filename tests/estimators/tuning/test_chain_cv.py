"""Penalties chosen by folds: the walk finds what single trainings find, in fewer steps."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score

import crfield
from crfield import MEMM, ChainCRF, ChainCRFCV, MEstimatedCRF
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.metrics import token_accuracy_scorer
from tests.cases.estimators import as_dicts, as_strings, exact, same, world

L1S, L2S = (0.0, 0.5), (4.0, 1.0, 0.1)


def data(n: int = 24) -> tuple[Any, Any]:
    X, y = world(n, seed=3)
    return as_strings(X), y


def test_scores_are_those_of_single_trainings() -> None:
    X, y = data()
    folds = list(KFold(3).split(X))
    search = ChainCRFCV(exact(), l1s=L1S, l2s=L2S, cv=folds, scoring="log_likelihood").fit(X, y)
    assert search.l1s_.tolist() == sorted(L1S, reverse=True)
    assert search.l2s_.tolist() == sorted(L2S, reverse=True)
    assert search.scores_.shape == (2, 3, 3)
    for k, (train, test) in enumerate(folds):
        for i, l1 in enumerate(search.l1s_):
            for j, l2 in enumerate(search.l2s_):
                alone = exact(l1=l1, l2=l2).fit([X[n] for n in train], [y[n] for n in train])
                held = alone.log_prob([X[n] for n in test], [y[n] for n in test])
                steps = sum(len(y[n]) for n in test)
                # Objectives within 1e-10 of their optimum leave weights, and scores, a root of that apart.
                assert search.scores_[i, j, k] == pytest.approx(held.sum() / steps, abs=1e-5)
    best = np.unravel_index(search.scores_.mean(axis=-1).argmax(), (2, 3))
    assert (search.l1_, search.l2_) == (search.l1s_[best[0]], search.l2s_[best[1]])
    assert search.best_score_ == search.scores_.mean(axis=-1).max()


def test_the_walk_saves_steps() -> None:
    X, y = data(40)
    chain = ChainCRF(solver="lbfgs", tol=1e-6)
    walked = ChainCRFCV(chain, l2s=(2.0, 1.7, 1.4, 1.2, 1.0), cv=2, refit=False).fit(X, y)
    single = [ChainCRFCV(chain, l2s=(l2,), cv=2, refit=False).fit(X, y).n_iter_.sum() for l2 in walked.l2s_]
    assert walked.n_iter_.sum() < 0.8 * sum(single)


def test_the_refit_is_a_plain_fit(tmp_path: Path) -> None:
    X, y = data()
    search = ChainCRFCV(ChainCRF(transition_pairs="all"), l2s=L2S, cv=3, scoring="accuracy").fit(X, y)
    plain = ChainCRF(transition_pairs="all", l2=search.l2_).fit(X, y)
    assert np.array_equal(plain.coef_, search.best_estimator_.coef_)
    assert same(search.predict(X), plain.predict(X))
    assert search.score(X, y) == plain.score(X, y)
    assert np.array_equal(search.log_prob(X, y), plain.log_prob(X, y))
    assert [p.tolist() for p in search.predict_proba(X)] == [p.tolist() for p in plain.predict_proba(X)]
    search.save(tmp_path / "best.crf")
    again = crfield.load(tmp_path / "best.crf")
    assert again.l2 == search.l2_
    assert same(again.predict(X), plain.predict(X))


def test_threads_do_not_change_a_bit() -> None:
    X, y = data()
    one, two = (ChainCRFCV(l1s=L1S, l2s=L2S, cv=4, n_jobs=jobs, refit=False).fit(X, y) for jobs in (1, 2))
    assert np.array_equal(one.scores_, two.scores_)
    assert np.array_equal(one.n_iter_, two.n_iter_)


def test_groups_are_held_out_together() -> None:
    """Each group has words and a labelling of its own, so nothing is learnt about one that is held out."""
    X = [[[f"g{group}{label}"] for label in "AB"] for group in range(4) for _ in range(3)]
    y = [["A", "B"] if group % 2 else ["B", "A"] for group in range(4) for _ in range(3)]
    groups = [group for group in range(4) for _ in range(3)]
    chain = ChainCRF(intercept=False, boundaries=False, transition_pairs="none")
    shuffled = ChainCRFCV(chain, l2s=(0.1,), cv=4, scoring="accuracy").fit(X, y)
    apart = ChainCRFCV(chain, l2s=(0.1,), cv=4, scoring="accuracy").fit(X, y, groups=groups)
    assert shuffled.best_score_ == 1.0
    assert apart.best_score_ <= 0.5
    with pytest.raises(InputError, match="groups must have"):
        apart.fit(X, y, groups=groups[1:])
    with pytest.raises(InputError, match="number of groups"):
        apart.set_params(cv=5).fit(X, y, groups=groups)


def test_a_label_of_one_sequence_is_no_error_where_it_is_held_out() -> None:
    X, y = data()
    y = [["Z"] * len(y[0]), *y[1:]]
    for scoring in ("f1", "accuracy", "log_likelihood"):
        search = ChainCRFCV(l2s=(1.0,), cv=3, scoring=scoring).fit(X, y)
        assert np.isfinite(search.scores_).all()
        assert "Z" in search.classes_


def test_ties_go_to_the_stronger_penalty() -> None:
    X, y = [[["a"], ["b"]]] * 6, [["A", "B"]] * 6
    assert ChainCRFCV(l2s=(0.1, 0.3, 0.2), cv=3, scoring="accuracy").fit(X, y).l2_ == 0.3


def test_spans_partial_labels_weights_and_scorers() -> None:
    X = [[["ana"], ["vega"], ["runs"]], [["in"], ["lima"]], [["ana"], ["runs"]]] * 4
    y = [["B-PER", "I-PER", "O"], ["O", "B-LOC"], ["B-PER", "O"]] * 4
    spans = ChainCRFCV(ChainCRF(constraints="bio"), l2s=(1.0, 0.1), cv=3).fit(X, y)
    assert spans.best_score_ == 1.0
    partial = [[None, *labels[1:]] for labels in y[:6]] + y[6:]
    told = ChainCRFCV(l2s=(1.0, 0.1), cv=3, scoring="log_likelihood").fit(X, partial)
    assert np.isfinite(told.scores_).all()
    own = ChainCRFCV(l2s=(1.0,), cv=3, scoring=token_accuracy_scorer).fit(X, y)
    assert "score" in own.table()
    weights = [0.0] * 3 + [1.0] * 9
    some = ChainCRFCV(l2s=(1.0, 0.1), cv=3, scoring="log_likelihood").fit(X, y, weights)
    rest = ChainCRFCV(l2s=(1.0, 0.1), cv=3, scoring="log_likelihood").fit(X[3:], y[3:])
    assert np.array_equal(some.scores_, rest.scores_)


def test_other_forms_and_models() -> None:
    X, y = world(15, seed=1)
    assert ChainCRFCV(ChainCRF(standardize=True), l2s=(1.0, 0.1), cv=3).fit(as_dicts(X), y).best_score_ > 0.5
    assert isinstance(ChainCRFCV(MEMM(), l2s=(1.0,), cv=3).fit(as_strings(X), y).best_estimator_, MEMM)


def test_scikit_learn_manners() -> None:
    X, y = data()
    search = ChainCRFCV(ChainCRF(min_count=2), l2s=(1.0, 0.1), cv=2)
    twin = clone(search)
    assert repr(twin) == repr(search)
    assert twin.get_params()["estimator__min_count"] == 2
    search.fit(X, y)
    assert not hasattr(twin, "scores_")
    assert same(pickle.loads(pickle.dumps(search)).predict(X), search.predict(X))
    assert len(cross_val_score(twin, X, y, cv=2)) == 2
    rows = search.rows()
    assert [row["chosen"] for row in rows].count(True) == 1
    assert "← chosen" in search.table()


def test_nothing_is_answered_before_fit_or_without_refit() -> None:
    X, y = data()
    search = ChainCRFCV(l2s=(1.0,), cv=2, refit=False)
    for ask in (lambda: search.predict(X), search.rows, search.table):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask()
    search.fit(X, y)
    assert search.l2_ == 1.0
    with pytest.raises(NotFittedError, match="refit=False"):
        search.predict(X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"l2s": ()}, "l2s"),
        ({"l2s": 1.0}, "list of one or more"),
        ({"l1s": (-1.0,)}, "at least 0"),
        ({"l1s": (float("nan"),)}, "at least 0"),
        ({"scoring": "beauty"}, "scoring"),
        ({"cv": 1}, "cv must lie"),
        ({"cv": 99}, "cv must lie"),
        ({"cv": "five"}, "cv="),
        ({"estimator": 3}, "estimator"),
        ({"estimator": MEstimatedCRF()}, "estimator"),
        ({"estimator": ChainCRF(validation_fraction=0.5)}, "validation_fraction"),
        ({"estimator": ChainCRF(decode="loud")}, "decode"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_used_is_refused(options: dict[str, Any], words: str) -> None:
    X, y = data()
    with pytest.raises(InputError, match=words):
        ChainCRFCV(**{"l2s": (1.0,), "cv": 2, **options}).fit(X, y)


def test_lengths_that_differ_are_refused_and_early_ends_told() -> None:
    X, y = data()
    with pytest.raises(InputError, match="equally many"):
        ChainCRFCV(cv=2).fit(X, y[1:])
    with pytest.raises(InputError, match="equally many"):
        ChainCRFCV(cv=2).fit(X)
    with pytest.warns(ConvergenceWarning, match="of the folds"):
        ChainCRFCV(ChainCRF(max_iter=1), l2s=(1.0,), cv=2, refit=False).fit(X, y)
