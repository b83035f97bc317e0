"""Figures of the hidden Markov model and of the M-estimator on tag and on a known chain.

The quick ones run always, on less data than the studies; CRFIELD_LONG=1 runs ten and twenty minutes of tag, a few
minutes of CPU.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from crfield.training.m_estimate import m_estimate
from studies.framework import run_study
from studies.vail import m_estimator
from studies.vail.m_estimator import known_model, tag_game, without_constants
from studies.vail.tag import observations, smoothing
from studies.vail.tag.models import Encoded, judge, likelihood

long = pytest.mark.skipif(not os.environ.get("CRFIELD_LONG"), reason="CRFIELD_LONG=1 runs the long studies")


def test_refreshed_weights_are_those_of_maximum_likelihood() -> None:
    """On a known chain of 3 labels and 10 steps they agree, and both approach the truth as data grow."""
    far = []
    for n in (100, 2000):
        layout, batch, target, truth = known_model(n, 1)
        exact = likelihood(Encoded(batch, target), layout, l2=1e-6, max_iter=500, tol=1e-10).weights
        found = m_estimate(layout, batch, target, block=None, l2=1e-6, refreshes=30, tol=1e-9).weights
        goal, ml, own = (without_constants(layout, weights) for weights in (truth, exact, found))
        far.append(float(np.sqrt(np.mean((ml - goal) ** 2))))
        assert np.sqrt(np.mean((own - ml) ** 2)) < 1e-3
    assert far[1] < 0.5 * far[0]


def test_tag_has_93_weights_and_refreshing_keeps_up() -> None:
    train, _, test = tag_game(1, 3.0)
    layout = train.layout()
    assert layout.n_weights == 93
    ml = judge(test, layout, likelihood(train, layout, l2=1.0, max_iter=60).weights)
    own = judge(test, layout, m_estimate(layout, train.batch, train.target, refreshes=6, l2=1.0).weights)
    assert own.accuracy > ml.accuracy - 0.05
    assert own.log_prob < 0
    assert own.log_prob > 1.5 * ml.log_prob


SMALL = {
    "observations": (
        observations,
        {"seeds": [1], "sets": ["velocities", "distance (N)"], "minutes": 1.5, "max_iter": 30},
    ),
    "smoothing": (smoothing, {"seeds": [1], "minutes": 5, "factors": [1, 3], "max_iter": 60}),
    "m-estimator": (
        m_estimator,
        {"seeds": [1], "sizes": [50], "minutes": 1, "max_iter": 20, "penalties": [1.0], "ridges": [0.1]},
    ),
}


@pytest.mark.parametrize("name", list(SMALL))
def test_studies_on_little_data(name: str) -> None:
    module, settings = SMALL[name]
    outcomes = run_study(module.STUDY, settings)  # type: ignore[attr-defined]
    assert json.loads(json.dumps(outcomes)) == [list(pair) for pair in outcomes], "plain values, for the JSON"
    found = module.STUDY.found(settings, outcomes)  # type: ignore[attr-defined]
    assert found.claims
    assert found.charts
    assert all(claim.sentence.startswith(("paper: ", "ours: ")) for claim in found.claims)
    if name == "observations":
        for scheme in ("hourglass", "unconstrained"):
            assert found[f"{scheme}: velocities", "CRF"].mean > 0.8
            assert found[f"{scheme}: distance (N)", "CRF, l2 = 1"].mean <= 0.6
            assert found[f"{scheme}: velocities", "CRF"].mean > found[f"{scheme}: velocities", "HMM"].mean
    if name == "smoothing":
        for _, outcome in outcomes:
            assert outcome["HMM, discriminative"] > outcome["HMM, counted"] + 0.03


@long
def test_table_2_2_with_twenty_minutes() -> None:
    settings = {"seeds": [1], "minutes": 20, "factors": [1, 2, 3, 4, 5], "max_iter": 200}
    for _, outcome in run_study(smoothing.STUDY, settings):
        assert abs(outcome["HMM, discriminative"] - outcome["CRF"]) <= 0.015
        assert outcome["HMM, counted"] < outcome["HMM, smoothed on test"] < outcome["CRF"]


@long
def test_table_2_1_with_twenty_minutes() -> None:
    sets = ["positions", "chasing", "distance (N)", "distance & chasing (N)"]
    settings = {"seeds": [1], "sets": sets, "minutes": 20, "max_iter": 200}
    for case, outcome in run_study(observations.STUDY, settings):
        assert outcome["CRF"][0] >= outcome["HMM"][0], case
        if case["set"] == "distance (N)":
            assert outcome["CRF"][0] <= 0.6
        if case["set"] == "distance & chasing (N)":
            assert outcome["CRF, l2 = 1"][0] >= 0.96
