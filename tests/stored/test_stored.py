"""Files that earlier versions wrote are read for ever, with the same answers.

Each folder beside this file holds what one version stored (`tests.stored.make`).
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from sklearn.pipeline import Pipeline

import crfield
from crfield.estimators.base.load import KINDS
from crfield.storage.archive import read_archive
from tests.stored.cases import CASES, Case, answers, strings
from tests.stored.make import ENCODED, HERE, TRAINING

FOLDERS = sorted(path.parent for path in HERE.glob("*/answers.json"))
STORED = [(folder, case) for folder in FOLDERS for case in CASES if (folder / f"{case.name}.crfield").exists()]
each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def told(folder: Path, name: str) -> Any:
    return json.loads((folder / "answers.json").read_text())[name]


def close(one: Any, other: Any, rounding: float = 1e-9) -> bool:
    """Equal labels, and numbers that differ by rounding at most."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key], rounding) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b, rounding) for a, b in zip(one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=rounding, abs_tol=1e-12)
    return bool(one == other)


@pytest.mark.parametrize(("folder", "case"), STORED, ids=[f"{f.name}-{c.name}" for f, c in STORED])
@pytest.mark.parametrize("mmap", [False, True])
def test_a_stored_model_answers_as_when_it_was_stored(folder: Path, case: Case, mmap: bool) -> None:
    model = crfield.load(folder / f"{case.name}.crfield", mmap=mmap, **case.load)
    assert type(model) is type(case.model())
    # what scikit-learn's Pipeline forwards to its first step is there or not, as that step is
    shown = set(dir(crfield.load(folder / f"{case.name}.crfield", **case.load))) - (
        set(dir(Pipeline)) if isinstance(model, Pipeline) else set()
    )
    assert all(hasattr(model, name) for name in shown if name.endswith("_")), (
        "what is learnt shows before the first question too"
    )
    assert close(told(folder, case.name), answers(model, case), case.rounding)


@pytest.mark.parametrize(("folder", "case"), STORED, ids=[f"{f.name}-{c.name}" for f, c in STORED])
def test_a_mapped_model_shows_what_it_has_learnt(folder: Path, case: Case) -> None:
    model, mapped = (crfield.load(folder / f"{case.name}.crfield", mmap=mmap, **case.load) for mmap in (False, True))
    names = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
    assert [name for name in names if not hasattr(mapped, name)] == []


def test_every_kind_is_stored() -> None:
    kinds = {read_archive(folder / f"{case.name}.crfield").header["kind"] for folder, case in STORED}
    assert kinds == set(KINDS), "a new kind of model file: add a case and run python -m tests.stored.make"


@each_folder
def test_a_stored_checkpoint_goes_on(folder: Path, tmp_path: Path) -> None:
    path = shutil.copy(folder / "stopped.checkpoint", tmp_path)
    seen: list[int] = []
    model = crfield.ChainCRF(checkpoint=path, callback=lambda now, _: seen.append(now.n_iter), **TRAINING)
    model.fit(*strings(12, 0))
    assert seen[0] == 5, "it begins where it was stopped"
    assert close(told(folder, "stopped")["value"], model.history_[3].value)
    assert model.converged_
    assert math.isclose(model.objective_, told(folder, "finished")["objective"], rel_tol=1e-9)


@each_folder
def test_a_stored_data_set_is_read(folder: Path) -> None:
    dataset = crfield.EncodedDataset(folder / ENCODED)
    assert (dataset.n_sequences, dataset.n_shards > 1) == (12, True)
    found = crfield.ChainCRF(**TRAINING).fit(dataset).objective_
    assert math.isclose(found, told(folder, "finished")["objective"], rel_tol=1e-9)


@each_folder
def test_a_stored_model_of_crfsuite_is_read(folder: Path) -> None:
    model = crfield.load(folder / "chain.crfsuite")
    assert [labels.tolist() for labels in model.predict(strings(4, 1)[0])] == told(folder, "crfsuite")["predict"]
