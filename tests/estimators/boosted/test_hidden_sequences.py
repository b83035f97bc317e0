"""`IncompleteBoost` on lists of sequences, and hidden columns that are measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crfield import IncompleteBoost
from crfield.boosting.incomplete.hidden.values import MOST_FRACTIONS
from crfield.errors import InputError, ShapeError
from tests.estimators.boosted.test_incomplete_boost import data

LENGTHS = [7, 0, 1, 52, 60]


def cut(rows: Any) -> list[Any]:
    """A list of sequences of what is laid end to end."""
    ends = np.cumsum(LENGTHS)
    return [rows[a:b] for a, b in zip(ends - LENGTHS, ends, strict=True)]


@pytest.mark.parametrize("form", ["arrays", "lists", "sparse"])
def test_lists_of_sequences_are_rows_with_lengths(form: str) -> None:
    X, y, some, _ = data(120)
    weight = np.array([1.0, 1.0, 2.0, 0.5, 1.0])
    rows = IncompleteBoost(left=1, l2=0.3).fit(X, y, np.repeat(weight, LENGTHS), hidden=some, lengths=LENGTHS)
    write: Any = {
        "arrays": list,
        "lists": lambda cut: [x.tolist() for x in cut],
        "sparse": lambda c: [*map(sp.csr_array, c)],
    }
    listed, labels, hidden = write[form](cut(X)), cut(y), cut(some)
    if form == "lists":
        labels = [own.tolist() for own in labels]
    model = IncompleteBoost(left=1, l2=0.3).fit(listed, labels, weight, hidden=hidden)
    np.testing.assert_array_equal(model.coef_, rows.coef_)
    wanted = rows.predict_proba(X, hidden=some, lengths=LENGTHS)
    found = model.predict_proba(listed, hidden=hidden)
    assert [part.shape for part in found] == [(n, 2) for n in LENGTHS]
    np.testing.assert_array_equal(np.concatenate(list(found)), wanted)
    np.testing.assert_array_equal(
        np.concatenate(list(model.predict_log_proba(listed, hidden=hidden))), np.log(wanted)
    )
    assert np.concatenate(list(model.predict(listed, hidden=hidden))).tolist() == (
        rows.predict(X, hidden=some, lengths=LENGTHS).tolist()
    )
    assert model.score(listed, labels, hidden=hidden) == rows.score(X, y, hidden=some, lengths=LENGTHS)
    assert model.mean_loss(listed, labels, hidden=hidden) == rows.mean_loss(X, y, hidden=some, lengths=LENGTHS)
    # of a sequence of which nothing is known: None
    hidden[3] = None
    none = model.predict_proba(listed, hidden=hidden)[3]
    np.testing.assert_array_equal(none, model.predict_proba([listed[3]], hidden=[[None] * 52])[0])


def test_sequences_that_do_not_fit() -> None:
    X, y, some, _ = data(120)
    model = IncompleteBoost(l2=0.3).fit(cut(X), cut(y), hidden=cut(some))
    for fit, error, words in [
        (lambda: model.predict(cut(X), lengths=LENGTHS), InputError, "Leave lengths out"),
        (lambda: model.fit(cut(X), cut(y)[:4]), ShapeError, "5 sequences and y has 4 entries"),
        (lambda: model.fit(cut(X), [*cut(y)[:4], y[:3]]), ShapeError, "sequence 4 has 60 steps, so y needs 60"),
        (lambda: model.predict(cut(X), hidden=[*cut(some)[:4], "noun"]), ShapeError, "hidden needs 60 entries"),
        (lambda: model.fit(cut(X), cut(y), [1.0]), ShapeError, "sample_weight must be one number for each of 5"),
        (lambda: model.predict([X, X[:, :2]]), ShapeError, "sequence 1 has 2 columns and sequence 0 has 5"),
    ]:
        with pytest.raises(error, match=words):
            fit()


def test_measurements_are_no_categories() -> None:
    X, y, _, _ = data(120)
    speed = np.random.default_rng(0).normal(size=120)
    with pytest.raises(InputError, match=r"120 different fractions.*bins.*np\.digitize.*hidden_values"):
        IncompleteBoost().fit(X, y, hidden=speed)
    with pytest.raises(InputError, match="different fractions"):
        IncompleteBoost(structure="attributes").fit(X, y, hidden=[("a", value) for value in speed.tolist()])
    for fine in (np.digitize(speed, [-0.5, 0.5]), np.arange(120.0), np.round(speed, 0), (speed[:MOST_FRACTIONS])):
        hidden = [*fine.tolist(), *[None] * (120 - len(fine))]
        assert len(IncompleteBoost(max_iter=3, tol=1.0).fit(X, y, hidden=hidden).hidden_classes_[0]) > 1
    named = IncompleteBoost(max_iter=3, tol=1.0, hidden_values=sorted(speed.tolist())).fit(X, y, hidden=speed)
    assert len(named.hidden_classes_[0]) == 120
