"""The study of choosing: on made recordings, nothing of the left-out groups reaches what is chosen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from studies.activities import choosing
from studies.activities.models import LOGISTIC, Grids
from studies.activities.rivals import Plan, Recorded
from studies.framework import run_study

SETTINGS: dict[str, Any] = {
    "sets": ["chest"],
    "chest": {},
    "candidates": ["logistic regression", "Gaussian"],
    "budget": None,
    "rivals": [LOGISTIC],
}


def made(strange: bool) -> Recorded:
    """Four people; the labels of the last one are another's if they are strange."""
    rng = np.random.default_rng(0)
    labels = [np.repeat(np.array(["sit", "walk", "sit"], dtype=object), 8) for _ in range(4)]
    columns = [(own == "walk")[:, None] + rng.normal(scale=0.5, size=(24, 2)) for own in labels]
    if strange:
        labels[3] = np.repeat(np.array(["walk", "sit", "walk"], dtype=object), 8)
    return Recorded(columns, labels, ["ann", "bob", "cy", "dee"])


@pytest.mark.parametrize("strange", [False, True])
def test_left_out_groups_are_scored_and_have_no_say(strange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(folds=4, inner_folds=2, n_selected=2, thin=1, grids=Grids(strengths=(1.0,)), models=(LOGISTIC,))
    study = SimpleNamespace(FULL={"inner_folds": 2}, plan=lambda settings: plan)
    monkeypatch.setattr(choosing, "SETS", {"chest": study})
    monkeypatch.setattr(choosing, "_recorded", lambda *_: made(strange))
    cases = [{"set": "chest", "fold": 3}] if strange else choosing.cases(SETTINGS)
    outcomes = [(case, choosing.run(SETTINGS, case)) for case in cases]
    last = outcomes[-1][1]
    monkeypatch.setattr(choosing, "_recorded", lambda *_: made(not strange))
    other = choosing.run(SETTINGS, cases[-1])
    assert (last["chosen"], last["inner"]) == (other["chosen"], other["inner"])
    assert last["scores"][choosing.CHOSEN] != other["scores"][choosing.CHOSEN]
    if not strange:
        study_of_it = SimpleNamespace(cases=choosing.cases, run=choosing.run)
        known = {f'{{"fold": {k}, "set": "chest"}}': outcome for k, (_, outcome) in enumerate(outcomes)}
        assert run_study(study_of_it, SETTINGS, known=known) == outcomes  # type: ignore[arg-type]
        found = choosing.report(SETTINGS, outcomes)
        assert found[f"chest: {choosing.CHOSEN}", "both"].mean > 0.7
        claims = choosing.claims(SETTINGS, outcomes)
        assert [claim.sentence.split(", ")[-1] for claim in claims] == ["macro F1", "segment F1@50", "both"]
