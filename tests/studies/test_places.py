"""The study of other rooms on made trials: who trains on what, what holds, and that the page shows what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield.storage.datasets.rfid import Trial
from studies.activities.models import CLOCK, GAUSSIAN, LOGISTIC
from studies.activities.rfid import places
from studies.activities.rfid.places import BOTH, EXCHANGED, FEWER, GUIDE, MODELS, SAME, SETS, STUDY, TRAVELLING
from studies.framework import run_study

SMALL: dict[str, Any] = {**STUDY.full, "folds": 2, "models": [LOGISTIC, GAUSSIAN], "n_selected": 40}


def trial(seed: int) -> Trial:
    """Lying and sitting at antenna 0, a chair at antenna 3; the trunk is up or not."""
    rng = np.random.default_rng(seed)
    words = np.repeat(["lying", "sit on bed", "ambulating", "sit on chair", "lying"], 24)
    near = np.select([words == "sit on chair", words == "ambulating"], [3, 2], 0)
    antenna = np.where(rng.random(120) < 0.8, near, rng.integers(0, 4, 120))
    up = np.where(words == "lying", 0.1, 1.0) + rng.normal(scale=0.1, size=120)
    motion = np.stack([(words == "ambulating") * rng.normal(size=120), up, np.zeros(120)], axis=1)
    seconds, phase = np.cumsum(rng.exponential(0.5, 120)), rng.uniform(0, 6, 120)
    return Trial(f"t{seed}", seconds, motion, antenna, rng.normal(-60, 1, 120), phase, words)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "read_some_trials", lambda settings: [trial(k) for k in range(6)])
    places._rooms.cache_clear()
    yield
    places._rooms.cache_clear()


@pytest.mark.usefixtures("made")
def test_columns_of_the_room_fall_and_those_that_travel_hold() -> None:
    outcomes = run_study(STUDY, SMALL)
    assert json.loads(json.dumps(outcomes)) == [list(pair) for pair in outcomes], "plain values, for the JSON"
    found = STUDY.found(SMALL, outcomes)
    assert [row[0] for row in found.rows] == [f"{m}, {s}" for m in SMALL["models"] for s in SETS] + [CLOCK]
    for model in SMALL["models"]:
        at_home, away = (found[f"{model}, {GUIDE}", f"accuracy, {room}"].mean for room in (SAME, EXCHANGED))
        assert at_home > 0.9
        assert away < 0.7
        at_home, away, fewer = (
            found[f"{model}, {TRAVELLING}", f"accuracy, {room}"].mean for room in (SAME, EXCHANGED, FEWER)
        )
        assert at_home == away > 0.85
        assert fewer > 0.6
    verdicts = {claim.sentence: claim.holds for claim in found.claims}
    assert verdicts[f"{LOGISTIC}: travelling columns hold, every label is the same"] is True
    assert verdicts[f"{LOGISTIC}: travelling columns above the guide's, exchanged, macro F1"] is True
    assert len(verdicts) == 9 * len(SMALL["models"])


@pytest.mark.usefixtures("made")
def test_only_trials_at_home_are_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    met, real = [], places.inside_of

    def watched(data: Any, columns: Any, learn: Any, plan: Any) -> Any:
        met.append((data, list(learn)))
        return real(data, columns, learn, plan)

    monkeypatch.setattr(places, "inside_of", watched)
    places.run({**SMALL, "models": [GAUSSIAN], "n_jobs": 1}, {"fold": 0, "columns": BOTH})
    ((data, learn),) = met
    assert len(data.labels) == 6 + 3 + 3
    assert max(learn) < 6, "the first six are at home"
    tested = {data.groups[k] for k in range(6, 12)}
    assert len(learn) == 3
    assert not tested & {data.groups[k] for k in learn}


def test_the_page_shows_what_was_found() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "methods" / "activity-results.md").read_text(encoding="utf-8")
    assert (docs / "results" / "rfid-places.txt").read_text(encoding="utf-8") in page
    told = json.loads((docs / "results" / "rfid-places.json").read_text(encoding="utf-8"))
    assert told["command"] in page
    assert [next(iter(row.values())) for row in told["rows"]] == [f"{m}, {s}" for m in MODELS for s in SETS] + [CLOCK]
