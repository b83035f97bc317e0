"""Model files of `IncompleteBoost`: every structure there and back, and files that were tampered with."""

from __future__ import annotations

import io
import pickle
import random
from typing import Any

import numpy as np
import pytest

from crfield import IncompleteBoost, load
from crfield.boosting.incomplete.hidden.chain import tag_windows
from crfield.errors import CrfieldError, InputError, ModelFileError
from crfield.storage.archive import read_archive, write_archive
from tests.cases.model_file_fuzz import edited

TAGS = np.array(["noun", "other", "verb"])


def cases() -> dict[str, tuple[IncompleteBoost, np.ndarray, np.ndarray, Any, dict[str, Any]]]:
    """A fitted model of each structure with its data, what is known of h, and other arguments of prediction."""
    rng = np.random.default_rng(0)
    tag = rng.integers(0, 3, 60)
    X = (rng.random((60, 4)) < 0.4).astype(float)
    y = np.where((tag == 1) ^ (rng.random(60) < 0.2), "in", "out")
    some = [TAGS[k].item() if i < 30 else None for i, k in enumerate(tag)]
    two = [[value, bool(i % 2) if i % 3 else None] for i, value in enumerate(some)]
    windows = tag_windows([TAGS[tag[:20]].tolist(), TAGS[tag[20:40]].tolist(), 20], before=1, after=1)
    counts = rng.poisson(1.0, (60, 4)).astype(float)
    front = rng.binomial(counts.astype(int), 0.4)
    seen = [front[i] if i < 30 else None for i in range(60)]
    lengths = {"lengths": [20, 40]}
    made = {
        "value": (IncompleteBoost(prior="learnt", interactions=[0, 2]), X, y, some, {}),
        "numbers": (IncompleteBoost(loss="exp", reference=[1.0, 2.0, 1.0]), X, tag, None, {}),
        "left": (IncompleteBoost(left=2, class_mass=True, answer="joint"), X, y, some, lengths),
        "attributes": (IncompleteBoost(structure="attributes", prior="learnt"), X, y, two, {}),
        "named": (IncompleteBoost(hidden_values=["noun", "other", "verb", "x"], loss="hcrf"), X, y, some, {}),
        "chain": (IncompleteBoost(structure="chain", loss="joint", pairs=True, prior="learnt"), X, y, windows, {}),
        "bag": (IncompleteBoost(structure="bag", loss="joint", prior="learnt", l2=0.1), counts, y, seen, {}),
        "samples": (IncompleteBoost(structure="bag", n_samples=5, random_state=1, l2=0.1), counts, y, seen, {}),
        "without": (IncompleteBoost(structure="bag", baseline="without_hidden", loss="joint"), counts, y, seen, {}),
    }
    return {
        name: (model.fit(X, y, hidden=hidden, **more), X, y, hidden, more)
        for name, (model, X, y, hidden, more) in made.items()
    }


CASES = cases()


def written(model: IncompleteBoost) -> bytes:
    stream = io.BytesIO()
    model.save(stream)
    return stream.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_files_and_pickles_answer_the_same(name: str) -> None:
    model, X, y, hidden, more = CASES[name]
    for copy in (load(io.BytesIO(written(model))), pickle.loads(pickle.dumps(model))):
        assert type(copy) is IncompleteBoost
        for known in (None, hidden):
            np.testing.assert_array_equal(
                copy.predict_proba(X, hidden=known, **more), model.predict_proba(X, hidden=known, **more)
            )
        assert copy.predict(X, **more).dtype == model.predict(X, **more).dtype
        np.testing.assert_array_equal(copy.classes_, model.classes_)
        assert copy.hidden_classes_ == model.hidden_classes_
        assert copy.mean_loss(X, y, hidden=hidden, **more) == model.mean_loss(X, y, hidden=hidden, **more)
        for fact in ("objective_", "n_iter_", "converged_", "stop_reason_", "n_features_in_"):
            assert getattr(copy, fact) == getattr(model, fact)
        mine, other = copy.get_params(), model.get_params()
        assert all(np.array_equal(mine[key], other[key]) for key in other)
        assert written(copy) == written(model)


def test_functions_are_not_stored() -> None:
    _, X, y, some, _ = CASES["value"]
    model = IncompleteBoost(prior=lambda rows: np.tile([0.5, 0.3, 0.2], (len(rows), 1))).fit(X, y, hidden=some)
    copy = load(io.BytesIO(written(model)))
    assert copy.prior == "constant"
    copy.set_params(prior=model.prior)
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", CASES)
def test_edited_files_are_refused_or_usable(name: str) -> None:
    """Whatever is in a file, it is refused as damaged, or gives a model that answers or says why it does not."""
    model, X, _, hidden, more = CASES[name]
    data = written(model)
    rng = random.Random(name)
    refused = 0
    for _ in range(60):
        changed = edited(data, rng)
        if changed is None:
            continue
        try:
            loaded = load(io.BytesIO(changed))
        except ModelFileError:
            refused += 1
            continue
        except InputError as error:
            pytest.fail(f"not told as a damaged file: {error}")
        with np.errstate(all="ignore"):
            for known in (None, hidden):
                try:
                    loaded.predict_proba(X, hidden=known, **more)
                except CrfieldError:
                    continue
    assert refused > 10


def test_a_file_of_another_kind() -> None:
    model = CASES["value"][0]
    archive = read_archive(io.BytesIO(written(model)))
    for change in ({"form": None}, {"n_features": 3}, {"labels": ["in"]}, {"model": {}}, {"label_type": "V9"}):
        stream = io.BytesIO()
        write_archive(stream, {**archive.header, **change}, archive.arrays)
        stream.seek(0)
        with pytest.raises(ModelFileError):
            load(stream)
