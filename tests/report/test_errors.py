"""Errors grouped by confusion, with examples and what spoke for them; how a step is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from crfield import MEMM, ChainCRF
from crfield.report.errors import error_groups, step_text


def test_errors_are_grouped_and_explained() -> None:
    X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=dog"]], [["w=the"], ["w=cat"]]]
    model = ChainCRF(l2=0.1).fit(X, [["D", "N", "V"], ["D", "N"], ["D", "N"]])
    y = [["D", "V", "V"], [None, "V"], [{"D", "V"}, "X"]]
    report = error_groups(model, X, y, n_examples=1, context=1, n_strongest=2)
    assert (report.n_steps, report.n_errors) == (6, 3)
    assert report.rows() == [
        {"gold": "V", "predicted": "N", "count": 2, "share": 2 / 3, "rate": 2 / 3},
        {"gold": "X", "predicted": "N", "count": 1, "share": 1 / 3, "rate": 1.0},
    ]
    first, second = (group.examples[0] for group in report)
    chances = model.predict_proba(X)
    assert first.probability == max(chances[0][1][1], chances[1][1][1])
    assert (first.text, second.text, second.before, second.after) == ("w=dog", "w=cat", ("w=the",), ())
    assert first.margin == pytest.approx(model.explain(X[first.sequence], 1, against="V", removals=0).margin)
    assert second.margin is None  # nobody knows what speaks for X
    assert len(first.strongest) == 2
    assert all(item.amount > 0 for item in first.strongest)
    assert "V → N" in str(report)
    assert len(report.example_rows()) == 2
    assert str(error_groups(model, X, model.predict(X))) == "no errors in 7 steps"
    assert [len(group.examples) for group in error_groups(model, X, y, n_groups=1)] == [2, 0]
    assert error_groups(model, X, y, show=lambda x, t: f"<{t}>")[0].examples[0].text == "<1>"


def test_errors_of_models_that_cannot_explain_themselves() -> None:
    X = [[["w=the"], ["w=dog"]], [["w=a"], ["w=dog"]]]
    model = MEMM(l2=0.1).fit(X, [["D", "N"], ["D", "N"]])
    group = error_groups(model, X, [["D", "D"], ["D", "N"]])[0]
    assert (group.gold, group.predicted, group.examples[0].strongest, group.examples[0].margin) == (
        "D",
        "N",
        (),
        None,
    )


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ([{"pos": "NN", "form": "dog"}], "dog"),
        ([{"pos": "NN", "n": 1.0}], "pos=NN"),
        ([{"w=dog": 1.0}], "w=dog"),
        ([("dog", "NN")], "dog"),
        ([[("w=dog", 1.0)]], "w=dog"),
        ([[]], "#0"),
        ([{}], "#0"),
        (np.zeros((1, 2)), "#0"),
        (csr_array(np.zeros((1, 2))), "#0"),
    ],
    ids=["form", "text", "name", "row", "pairs", "nothing", "empty", "dense", "sparse"],
)
def test_texts_of_steps(x: Any, text: str) -> None:
    assert step_text(x, 0) == text
