"""Speeds have a unit: no template that speaks of them is computed without a rate, and a wrong one is told of."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from crfield import SelectedCRF
from crfield.core.target import Target
from crfield.errors import DataWarning, FeatureError
from crfield.features.relational import Recordings, Specification
from crfield.features.relational.examples import TAG_LARGE
from crfield.selection.problem import SelectionProblem
from crfield.simulate.tag import make_tag

NEAR = "near state : dist(a,b) | for a in robots, b in robots | where a < b | test < 500,1000\n"
SLOW = "slow state : speed(a) | for a in robots | test < 100:500:100\n"
JOLT = "jolt state : norm(acc(a)) | for a in robots\n"


def catalogue(text: str) -> Any:
    return Specification.parse(text).expand(labels=3, agents=3)


def test_a_template_without_velocities_needs_no_rate() -> None:
    game = make_tag(0.1)
    found = catalogue(NEAR).on(game.positions).chunk(np.arange(6))
    stream = catalogue(NEAR).stream(np.arange(6))
    assert np.array_equal([stream.push(step) for step in game.positions], found)
    model = SelectedCRF(features=catalogue(NEAR), options={"max_features": 2}, refit_l2=1.0)
    assert model.fit([game.positions], [game.labels]).rate is None


@pytest.mark.parametrize(("text", "name"), [(NEAR + SLOW, "slow"), (JOLT, "jolt"), (SLOW + JOLT, "slow, jolt")])
def test_velocities_without_a_rate_are_refused(text: str, name: str) -> None:
    game, words = make_tag(0.1), catalogue(text)
    last = [words.n_columns - 1]
    for wrong in (
        lambda: words.on(game.positions),
        lambda: words.on(Recordings.of(game.positions)),
        lambda: words.stream(last).push(game.positions[0]),
        lambda: SelectedCRF(features=words).fit([game.positions], [game.labels]),
    ):
        with pytest.raises(FeatureError, match=r"expected rate=, .* got none\. Pass it") as told:
            wrong()
        assert name.rsplit(", ", maxsplit=1)[-1] in str(told.value)
    with pytest.raises(FeatureError, match="have the rate"):
        words.on(Recordings.of(game.positions, rate=60.0), rate=30.0)


def test_velocities_that_are_given_need_no_rate_but_accelerations_do() -> None:
    game = make_tag(0.1)
    pace = np.diff(game.positions, axis=0, prepend=game.positions[:1]) * 60.0
    given = Recordings.of(game.positions, velocities=pace)
    columns = np.arange(15)
    found = catalogue(SLOW).on(given).chunk(columns)
    assert np.array_equal(found, catalogue(SLOW).on(game.positions, rate=60.0).chunk(columns))
    stream = catalogue(SLOW).stream(columns)
    assert np.array_equal([stream.push(p, velocities=v) for p, v in zip(game.positions, pace, strict=True)], found)
    with pytest.raises(FeatureError, match="jolt"):
        catalogue(JOLT).on(given)
    with pytest.raises(FeatureError, match="jolt"):
        catalogue(JOLT).stream([0])


def test_thresholds_in_other_units_are_told_of() -> None:
    """At a rate of 1 the speeds of tag are millimetres a frame, and three of four thresholds never change."""
    game = make_tag(2.0, random_state=100)

    def problem(rate: float) -> SelectionProblem:
        columns = catalogue(TAG_LARGE).on(game.positions, rate=rate)
        return SelectionProblem(columns, Target(columns.chains, 3, game.labels))

    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        assert problem(game.rate).usable.sum() == 1152  # 1,164 in the thesis
    with pytest.warns(DataWarning, match=r"velthr say nothing .* velthr: 4\d of 60 .* rate is 1 steps a second"):
        assert problem(1.0).usable.sum() < 1100
    metres = catalogue(NEAR).on(game.positions / 1000.0)
    assert [(one.template, one.constant, one.thresholds) for one in metres.constant_tests()] == [("near", 6, 6)]
    with pytest.warns(DataWarning, match="near say"):
        SelectedCRF(features=catalogue(NEAR)).fit([game.positions / 1000.0], [game.labels])
    assert catalogue(NEAR).on(np.zeros((0, 3, 2))).constant_tests() == []


def test_the_study_of_tag_speaks_of_seconds() -> None:
    from studies.vail.tag.selection import _candidates

    columns, _ = _candidates(make_tag(0.2))
    assert columns.recordings.rate == 60.0  # type: ignore[attr-defined]
    assert columns.constant_tests() == []  # type: ignore[attr-defined]
