"""Model files of boosted fields that were tampered with: refused, or models that work; nothing else."""

from __future__ import annotations

import io
import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from crfield import BoostedRandomField, VirtualEvidenceBoosting, load
from crfield.errors import InputError, ModelFileError
from crfield.storage.archive import read_archive, write_archive
from tests.cases.estimators import some_graphs, some_layers
from tests.cases.model_file_fuzz import edited

NAMES = ("stumps", "trees", "categories", "linear field", "stump field")


@cache
def case(name: str) -> tuple[bytes, Any]:
    """A model file and data for its model."""
    X, y = some_graphs(8, 0)
    if name == "categories":
        X, layered = some_layers(8, 0)
        X, y = [np.round(x) for x in X], [labels[:, 0] for labels in layered]
    models: dict[str, Any] = {
        "stumps": VirtualEvidenceBoosting(n_rounds=10),
        "trees": VirtualEvidenceBoosting(n_rounds=6, learner="tree"),
        "categories": VirtualEvidenceBoosting(n_rounds=10, discrete=(1,)),
        "linear field": BoostedRandomField(n_rounds=5),
        "stump field": BoostedRandomField(n_rounds=5, learner="stump"),
    }
    stream = io.BytesIO()
    models[name].fit(X, y).save(stream)
    return stream.getvalue(), X


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_edited_files(name: str) -> None:
    data, X = case(name)
    rng = random.Random(name)
    refused = used = 0
    for _ in range(60):
        changed = edited(data, rng)
        if changed is None:
            continue
        try:
            model = load(io.BytesIO(changed))
        except ModelFileError:
            refused += 1
            continue
        try:
            model.predict(X)
            model.predict_proba(X)
            repr((model, model.rounds_))
            model.save(io.BytesIO())
            used += 1
        except InputError:  # a model of other columns or relations, or scores that add up to more than a double holds
            continue
    assert refused > 15
    assert used > 3


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("stumps", lambda h: h["steps"][0].__setitem__(0, 5)),
        ("stumps", lambda h: h["steps"][0].__setitem__(2, 3)),
        ("stumps", lambda h: h["steps"][0][3].__setitem__("column", 10**6)),
        ("stumps", lambda h: h["steps"][0][3].__setitem__("missing", 2)),
        ("stumps", lambda h: h["steps"].pop()),
        ("trees", lambda h: h["steps"][0][3]["children"].__setitem__(0, [0, 0])),
        ("trees", lambda h: h["steps"][0][3]["children"].__setitem__(0, [1])),
        ("trees", lambda h: h["steps"][0][3]["leaf"].__setitem__(-1, 99)),
        ("trees", lambda h: h["steps"][0][3]["cuts"].__setitem__(0, None)),
        ("linear field", lambda h: h["rounds_played"][0].__setitem__(1, [99, -1, 0.0])),
        ("linear field", lambda h: h["rounds_played"][0].__setitem__(1, [0, 50, 0.0])),
        ("linear field", lambda h: h["rounds_played"].pop()),
        ("linear field", lambda h: h.__setitem__("relations", [7])),
    ],
)
def test_damage_is_named(name: str, edit: Any) -> None:
    archive = read_archive(io.BytesIO(case(name)[0]))
    header = archive.header
    edit(header)
    stream = io.BytesIO()
    write_archive(stream, header, {key: archive.arrays[key] for key in archive.arrays})
    with pytest.raises(ModelFileError):
        load(io.BytesIO(stream.getvalue()))
