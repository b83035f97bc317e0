"""The figures of the experiments on graphs that are asked for, and the quick forms of all of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield.errors import InputError
from crfield.report.findings import Claim, Findings, Interval, mean_interval, paired_interval
from crfield.simulate.order_chains import make_order_chains
from crfield.training.gradient_check import DISAGREE, UNSETTLED
from studies.catalogue import CATALOGUE, study_named
from studies.graphs import graph_defaults
from studies.graphs import order_chains as orders
from studies.graphs.noisy_images import STUDY as noisy_images
from studies.graphs.snakes import cell_shares, colours_around, read_snakes
from studies.graphs.wearable_layers import APART, LAYERS, MODELS
from studies.graphs.wearable_layers import STUDY as wearable_layers
from tests.cases.command_line import run, works

# ------------------------------------------------------------------------------------------------ chains of order k


@pytest.mark.parametrize("order", sorted(orders.NOTED_SEEDS))
def test_order_chains_at_full_size(order: int) -> None:
    """On the seeds of the earlier study: its ceiling, exact likelihood within .01, pseudo-likelihood within .02."""
    mean = {}
    for name in (orders.CEILING, orders.TRUE, orders.PSEUDO):
        worlds = [make_order_chains(0.9, order, random_state=seed) for seed in orders.NOTED_SEEDS[order]]
        mean[name] = float(np.mean([orders.run_model(name, world).single for world in worlds]))
    assert mean[orders.CEILING] == pytest.approx(orders.NOTED_CEILING[order], abs=0.0006)
    assert abs(mean[orders.TRUE] - mean[orders.CEILING]) <= 0.01
    assert abs(mean[orders.PSEUDO] - orders.NOTED_PSEUDO[order]) <= 0.02


@pytest.mark.parametrize("order", orders.FAILING)
def test_the_bethe_likelihood_from_zero_says_that_it_failed(order: int) -> None:
    outcome = orders.run_model(
        orders.BETHE, make_order_chains(0.9, order, n_chains=1 + order, length=100, random_state=1)
    )
    assert outcome.converged is False
    assert outcome.reason in (UNSETTLED, DISAGREE)
    assert outcome.warned


@pytest.mark.parametrize("order", orders.FAILING)
def test_exact_likelihood_on_all_relations_survives_where_bethe_fails(order: int) -> None:
    world = make_order_chains(0.9, order, n_chains=4, length=600, random_state=1)
    outcome = orders.run_model(orders.EXACT, world)
    assert outcome.converged
    assert abs(outcome.single - orders.run_model(orders.TRUE, world).single) <= 0.01


# -------------------------------------------------------------------------------------------------------- others


def test_noisy_images() -> None:
    """Fields are far above pixels alone, right densities above wrong ones, and the DRF keeps up with the MRF."""
    found = noisy_images(seeds=(0, 1, 2), n_train=3, n_test=4, size=32)
    right = {row[0]: row[3].mean for row in found.rows}
    assert right["logistic regression"] + 0.05 < right["MRF"]
    assert right["MRF, one Gaussian"] + 0.02 < right["MRF"]
    for name in ("DRF", "DRF, likelihood"):
        assert right[name] == pytest.approx(right["MRF"], abs=0.003)
    assert [claim.sentence for claim in found.claims if not claim.holds] == []


@pytest.mark.parametrize(
    ("make", "n", "options", "least", "most_alone"),
    [
        (graph_defaults._blocks, 20, {"directed": True}, 0.93, 0.5),
        (graph_defaults._crosses, 12, {"l2": 0.01}, 0.97, 0.94),
        (graph_defaults._shapes("bimodal"), 3, {}, 0.92, 0.7),
        (graph_defaults._world(0.8), 3, {}, 0.5, 0.9),
        (graph_defaults._world(0.0), 3, {}, 0.5, 0.9),
        (partial(graph_defaults._scenes, shape=(18, 26)), 3, {}, 0.3, 0.9),
    ],
)
def test_the_default_of_wide_graphs(make: Any, n: int, options: Any, least: float, most_alone: float) -> None:
    """On new images: as good as is asked, and not below the model without edges."""
    images = make(n + 10, np.random.default_rng(1))
    alone, auto, *_ = graph_defaults.one_set(images, n, options, compare=False).values()
    assert alone < most_alone
    assert auto >= max(least, alone - graph_defaults.WORST)


def test_wearable_layers() -> None:
    found = wearable_layers(n_episodes=6, length=120, folds=3)
    assert [row[0] for row in found.rows] == list(MODELS)
    assert found[LAYERS, "both"].mean > found[APART, "both"].mean
    assert found[LAYERS, "motion"].mean > found[APART, "motion"].mean


def test_snakes_without_their_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRFIELD_DATA", raising=False)
    with pytest.raises(InputError, match="CRFIELD_DATA"):
        study_named("snakes")()
    with pytest.raises(FileNotFoundError):
        read_snakes(str(tmp_path))
    (tmp_path / "snakes").mkdir()
    np.savez(tmp_path / "snakes" / "snakes.npz", X_train_shapes=np.array([[1, 1, 3]]))
    with pytest.raises(InputError, match="not the snakes that were expected"):
        read_snakes(str(tmp_path))


def test_snake_features_and_shares() -> None:
    picture = np.zeros((2, 3, 3), int)
    picture[0, 2] = 255
    seen = colours_around(picture)
    assert seen.shape == (2, 3, 72)
    assert seen[1, 1, 2 * 8 + 7] == 1, "white above to the right"
    assert seen[0, 0, :24].sum() == 0, "nothing above the picture"
    truth, guess = [np.array([[0, 1], [2, 0]])], [np.array([[0, 1], [1, 0]])]
    assert cell_shares(truth, guess) == [0.75, 0.5]


# ------------------------------------------------------------------------------------------------------- findings


def test_intervals_are_those_of_student() -> None:
    from scipy.stats import t

    values = np.random.default_rng(0).normal(size=7)
    low, high = t.interval(0.95, 6, values.mean(), values.std(ddof=1) / np.sqrt(7))
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    assert paired_interval(values + 0.5, values).mean == pytest.approx(0.5)
    assert np.isnan(mean_interval([0.3]).low)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mean_interval([]),
        lambda: paired_interval([1.0], [1.0, 2.0]),
        lambda: Findings("t", ("a", "b"), (("x",),)),
        lambda: Findings("t", ("a",), (("x",),))["y", "a"],
        lambda: study_named("roses"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError):
        wrong()


def test_a_claim_that_fails_is_shown_as_failed() -> None:
    found = Findings("t", ("a", "b"), (("x", Interval(0.5, 0.25, 0.75)),), (Claim("better", False, "-.1"),))
    assert found.verdict == "1 of 1 claims do not hold: better"
    assert "NO   better: -.1" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["rows"] == [
        {"a": "x", "b": {"mean": 0.5, "low": 0.25, "high": 0.75}}
    ]


# ---------------------------------------------------------------------------------------------------- command line


def test_the_command_prints_a_table_or_json() -> None:
    told = json.loads(works("experiment", "wearable-layers", "--quick", "--json").stdout)
    assert [row["model"] for row in told["rows"]] == list(MODELS)
    assert {"title", "verdict", "rows", "claims", "notes"} == set(told)
    shown = works("experiment", "wearable-layers", "--quick").stdout
    assert told["title"] in shown
    assert told["claims"][0]["claim"] in shown


def test_the_command_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRFIELD_DATA", raising=False)
    assert run("experiment", "roses").exit_code == 2
    failed = run("experiment", "snakes", "--quick")
    assert failed.exit_code == 1
    assert "--data FOLDER" in failed.output


def test_every_experiment_has_a_quick_form() -> None:
    for name, entry in CATALOGUE.items():
        study = study_named(name)
        assert study.quick.keys() >= study.full.keys(), name
        assert study.quick != study.full, name
        assert entry.summary
        assert entry.cost
