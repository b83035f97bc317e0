"""The experiment on handwritten words: what it chooses, what it may look at, and what it tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield.errors import InputError
from studies.handwriting.kernel_letters import (
    FEW,
    FULL,
    GREEDY,
    LINEAR,
    MANY,
    MODELS,
    STUDY,
    options_of,
    run_fold,
)

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SMALL: dict[str, Any] = {**FULL, "seeds": [0, 1], "n_components": 32, "steps": 20, "inner_steps": 10}


def write_letters(folder: Path, *, strange_fold: int | None = None) -> Path:
    """Ten folds of six words of four letters each; the letters of one fold may be other letters than they look."""
    rng = np.random.default_rng(0)
    shapes = rng.random((3, 128)) < 0.5
    codes = rng.integers(0, 3, size=240)
    pixels = shapes[codes] ^ (rng.random((240, 128)) < 0.25)
    fold = np.repeat(np.arange(10), 6)
    labels = codes.copy()
    if strange_fold is not None:
        here = np.repeat(fold == strange_fold, 4)
        labels[here] = (labels[here] + 1) % 3
    (folder / "letters").mkdir(parents=True)
    np.savez(
        folder / "letters" / "letters.npz",
        pixels=np.packbits(pixels, axis=1),
        labels=labels,
        offsets=np.arange(0, 241, 4),
        fold=fold,
    )
    return folder


def test_a_fold_is_tested_on_and_never_chosen_by(tmp_path: Path) -> None:
    plain, strange = write_letters(tmp_path / "plain"), write_letters(tmp_path / "strange", strange_fold=0)
    first, second = (
        run_fold({**SMALL, "data": str(folder), "models": [FEW]}, {"seed": 0}) for folder in (plain, strange)
    )
    assert first["models"][FEW]["letters"] > 0.7
    assert second["models"][FEW]["letters"] < 0.3
    for name in ("gamma", "l2", "held out"):
        assert first[name] == second[name]
    assert len(first["held out"]) == len(FULL["gammas"]) + len(FULL["penalties"]) - 1
    assert first["held out"][f"{first['gamma']:g}, {first['l2']:g}"] == max(first["held out"].values())
    other = run_fold({**SMALL, "data": str(strange), "models": [FEW]}, {"seed": 9})
    assert max(other["held out"].values()) < 0.5, "the fold after the one tested on is what chooses"


def test_the_table(tmp_path: Path) -> None:
    found = STUDY(data=str(write_letters(tmp_path)), seeds=[0, 1], n_components=32)
    assert [row[0] for row in found.rows] == list(MODELS)
    assert [found[name, "columns"] for name in (LINEAR, MANY, FEW, GREEDY)] == [128, 32, 4, 4]
    assert 0.5 < found[MANY, "letters"].mean <= 1
    assert found.claims[0].sentence == "landmarks: ≥ 94 % of the letters of fold 0"
    assert any("gamma, l2 (in so many folds) = " in note for note in found.notes)


def test_cases_are_folds() -> None:
    assert [case["seed"] for case in STUDY.cases(FULL)] == list(range(10))
    for folds in ([], [10], [-1]):
        with pytest.raises(InputError, match="folds are numbers of 0 … 9"):
            STUDY.cases({**FULL, "seeds": folds})
    with pytest.raises(InputError, match="there is no model"):
        options_of("forest", 40)


def test_what_was_found() -> None:
    """The figure that is asked for, and that it was found by the settings of the whole form."""
    told = json.loads((RESULTS / "kernel-letters.json").read_text(encoding="utf-8"))
    assert told["settings"] == FULL
    assert [case["seed"] for case in told["cases"]] == list(range(10))
    rows = {row["model"]: row for row in told["rows"]}
    assert rows[MANY]["first fold"] >= 0.94
    assert rows[MANY]["letters"]["mean"] >= 0.94
    for case in told["cases"]:
        assert case["held out"][f"{case['gamma']:g}, {case['l2']:g}"] == max(case["held out"].values())
