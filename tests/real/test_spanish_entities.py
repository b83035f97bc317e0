"""Spanish names by TextFeatures: the experiment in its quick form, accents, and tags that keep their scheme."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np

from crfield import ChainCRF, TextFeatures, read_columns
from crfield.metrics import check_scheme, span_f1, spans
from studies.catalogue import study_named
from studies.text.spanish_entities import read_names
from tests.real.conftest import folder


def test_the_quick_experiment(data: Path) -> None:
    folder(data, "conll2002")
    found = study_named("spanish-entities")(quick=True, data=str(data))
    assert [row[0] for row in found.rows] == ["shapes together", "without affixes"]
    assert found["shapes together", "F1 testb"] > 0.6
    assert found["without affixes", "F1 testb"] is None
    assert [claim.holds for claim in found.claims] == [False, True]


def test_accents_are_read_and_ill_formed_names_are_written_as_bio(data: Path) -> None:
    path = str(folder(data, "conll2002") / "esp.train.gz")
    X, y = read_names(path)
    words = {row[0] for sentence in X[:1000] for row in sentence}
    assert {"España", "José", "más"} <= words
    assert not any("Ã" in word or "\ufffd" in word for word in words)
    raw = read_columns(path)[6_700:6_800].split_column(-1)[1]
    assert check_scheme(raw, "iob2") is not None
    assert check_scheme(y, "iob2") is None
    assert [spans(tags) for tags in y[6_700:6_800]] == [spans(tags) for tags in raw]


def test_only_the_rules_keep_random_models_legal(data: Path) -> None:
    X, y = read_names(str(folder(data, "conll2002") / "esp.testa.gz"), 60)
    features = TextFeatures()
    for rules, legal in (("bio", True), (None, False)):
        model = ChainCRF(constraints=rules, tol=1e-2).fit(features.transform(X), y)
        assert span_f1(y, model.predict(features.transform(X))) > 0.9
        wild, weights = copy(model), np.random.default_rng(0).normal(scale=3.0, size=len(model.coef_))
        wild._model = replace(model.column_model("weights"), weights=weights)
        assert (check_scheme([t.tolist() for t in wild.predict(features.transform(X))], "iob2") is None) == legal
