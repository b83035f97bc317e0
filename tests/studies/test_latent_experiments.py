"""What the experiments on latent states must show, on fewer seeds than in the documentation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crfield.errors import InputError
from crfield.simulate.sub_structure import make_sub_structure
from studies.catalogue import study_named
from studies.models import motions as of_motions
from studies.models import sub_structure as of_phases
from tests.cases.command_line import run, works

# ------------------------------------------------------------------------------------------------ labels with phases


def test_latent_states_are_worth_five_points_and_reach_the_bayes_rule() -> None:
    found = [of_phases.run({"n_sequences": 80, "n_test": 100}, {"seed": seed}) for seed in (0, 1)]
    latent, plain, bayes = (
        float(np.mean([outcome[name] for outcome in found]))
        for name in (of_phases.LATENT, of_phases.PLAIN, of_phases.BAYES)
    )
    assert latent >= plain + 0.05
    assert bayes - 0.02 <= latent <= bayes + 0.01


def test_the_command_shows_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(settings: Any, case: Any) -> dict[str, float]:
        return {name: 0.9 - 0.1 * k + 0.001 * case["seed"] for k, name in enumerate(of_phases.MODELS)}

    monkeypatch.setattr(of_phases, "STUDY", replace(of_phases.STUDY, run=fake))
    told = json.loads(works("experiment", "sub-structure", "--quick", "--json").stdout)
    assert [row["model"] for row in told["rows"]] == list(of_phases.MODELS)
    assert [claim["holds"] for claim in told["claims"]] == [True, False]


def test_the_world_is_as_it_says() -> None:
    world = make_sub_structure(n_sequences=30, length=200, n_labels=3, n_phases=4, random_state=3)
    states = np.concatenate(world.states)
    np.testing.assert_array_equal(np.concatenate(world.labels), states // 4)
    np.testing.assert_allclose(world.transition.sum(axis=1), 1, atol=1e-12)
    counts = np.zeros((12, 12))
    for path in world.states:
        np.add.at(counts, (path[:-1], path[1:]), 1)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), world.transition, atol=0.06)
    noise = np.concatenate(world.features) - world.means[states]
    assert noise.std() == pytest.approx(0.5, rel=0.02)
    again = make_sub_structure(n_sequences=30, length=200, n_labels=3, n_phases=4, random_state=3)
    np.testing.assert_array_equal(again.features[7], world.features[7])
    assert make_sub_structure(n_sequences=0).bayes_labels() == []


@pytest.mark.parametrize(
    ("options", "word"),
    [({"n_labels": 3}, "cyclic"), ({"length": 0}, "length"), ({"switch": 2.0}, "switch"), ({"noise": 0.0}, "noise")],
    ids=["labels", "length", "switch", "noise"],
)
def test_worlds_that_cannot_be(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make_sub_structure(**options)


# ----------------------------------------------------------------------------------------------- motions and vowels


def test_motions_on_a_set_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table without aeon: sequences that go up or down, whose means say nothing."""

    def some(n: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
        rng = np.random.default_rng(seed)
        y = np.resize(["down", "up"], n)
        line = np.linspace(-1, 1, 7)[:, None]
        rise = [line if label == "up" else -line for label in y]
        return [of_motions.with_squares(x + rng.normal(scale=0.2, size=x.shape)) for x in rise], y

    split = of_motions.Split("courses", some(16, 0), some(16, 1))
    monkeypatch.setattr(of_motions, "read_split", lambda name: split)
    found = of_motions.STUDY(sets=("courses",), seeds=(0, 1), states=(1, 2), penalties=(0.1,), folds=2, n_init=2)
    assert found["courses, hidden CRF", "accuracy"].mean == 1.0
    assert found["courses, hidden CRF", "chosen by cross-validation"] == "2 states, l2 = 0.1"
    assert found["courses, linear SVM", "accuracy"] < 1.0
    assert found.claims[0].holds


def test_motions_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_motions, "find_spec", lambda name: None)
    failed = run("experiment", "motions", "--quick")
    assert failed.exit_code == 1
    assert "aeon" in failed.output


def test_basic_motions() -> None:
    pytest.importorskip("aeon", reason="the data come with the package aeon (crfield[motions])")
    found = study_named("motions")(quick=True)
    assert found["BasicMotions, hidden CRF", "accuracy"] >= of_motions.WANTED
