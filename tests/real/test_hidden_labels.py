"""Half of the labels hidden: the experiment in its quick form."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.catalogue import study_named
from studies.text.hidden_labels import ALL, LABELS, SENTENCES, chunk_template, hide
from tests.real.conftest import folder


def test_the_quick_experiment(data: Path) -> None:
    folder(data, "conll2000")
    found = study_named("hidden-labels")(quick=True, data=str(data))
    assert [row[0] for row in found.rows] == [ALL, LABELS, SENTENCES]
    assert found[ALL, "F1"].mean > found[LABELS, "F1"].mean > 0.84
    assert found[ALL, "F1 − all labels"] is None


def test_each_label_is_hidden_by_itself() -> None:
    y = [["A"] * 2_000, ["B"] * 2_000]
    hidden = hide(y, np.random.default_rng(0), 0.25)
    for own, label in zip(hidden, "AB", strict=True):
        assert set(own) == {label, None}
        assert abs(own.count(None) - 500) < 80


def test_the_template_is_that_of_the_benchmarks() -> None:
    from benchmarks.corpora import WINDOWS, template_of

    assert chunk_template() == template_of(WINDOWS)
