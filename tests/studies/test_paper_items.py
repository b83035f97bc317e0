"""Studies of single items of papers, on very little data: what they compute is what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.scoring.densities.gaussian import DiagonalGaussian
from crfield.training.markov.gradient import MarkovConditional
from studies.catalogue import study_named
from studies.framework import run_study
from studies.vail.tag.coordinates import climbed
from studies.virtual_evidence.combined import stouffer

SMALL = {
    "veb-evidence": {"k": [1], "seeds": [1, 2], "folds": 1, "inner": 1, "n_chains": 3, "length": 200, "rounds": 10},
    "hmm-coordinates": {"seeds": [1, 2], "minutes": 0.3, "iterations": 2, "step": 0.5, "max_iter": 10},
    "incomplete-patches": {"worlds": ["easy"], "seeds": [1, 2], "n": 100, "pictures": 5, "first": 3},
}


@pytest.mark.parametrize("name", SMALL)
def test_small_forms_have_rows_and_claims(name: str) -> None:
    study = study_named(name)
    outcomes = run_study(study, SMALL[name])
    assert json.loads(json.dumps(outcomes)) == [list(pair) for pair in outcomes], "plain values, for the JSON"
    found = study.found(SMALL[name], outcomes)
    assert found.rows
    assert {claim.sentence.split(",")[0].split(":")[0] for claim in found.claims} <= {"paper", "ours"}


def test_steps_along_coordinates_climb() -> None:
    """Each iteration asks twice for every parameter, never loses, and leaves distributions."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 0, 1], 10)
    rows = rng.normal(size=(40, 2)) + codes[:, None]
    target = Target(Chains.from_lengths([40]), 2, codes)
    problem = MarkovConditional(
        rows, target, np.full(2, 0.5), np.full((2, 2), 0.5), DiagonalGaussian(np.zeros((2, 2)), np.ones((2, 2)))
    )
    values = []
    for iterations in (0, 1, 5, 20):
        weights, asked = climbed(problem, iterations, 0.5)
        values.append(problem.evaluate(weights, np.empty(problem.n_weights)))
        assert asked == 1 + 2 * iterations * problem.n_weights
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.8 * values[0]
    start, transition, _ = problem.tables(weights)
    np.testing.assert_allclose([start.sum(), *transition.sum(axis=1)], 1.0)


def test_tests_are_combined() -> None:
    assert stouffer([0.02]) == pytest.approx(0.02)
    assert stouffer([0.1, 0.1, 0.1]) < 0.05 < stouffer([0.1, 0.1, 0.9])
