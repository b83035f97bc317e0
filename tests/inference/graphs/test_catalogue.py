"""Engines by name, and the one that is chosen where none is named."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.catalogue import ENGINES, choose_engine, engine_class, engine_named
from crfield.inference.graphs.elimination import plan
from crfield.report.comparisons.inference import compare_inference
from crfield.simulate.fields import make_potts_grid
from tests.cases.chains import random_potentials

MAP_ONLY = ("icm", "annealing", "cuts", "expansion")


def grid(height: int, width: int) -> Graphs:
    """Four neighbours."""
    made = make_potts_grid((height, width), n_sweeps=0)
    return Graphs(np.array([0, height * width]), made.pairs[:, 0], made.pairs[:, 1])


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_of_the_catalogue_is_a_frozen_value(name: str) -> None:
    engine = engine_named(name)
    assert isinstance(engine, engine_class(name))
    assert engine == pickle.loads(pickle.dumps(engine))
    assert hash(engine) == hash(engine_named(name))
    for field in fields(engine):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(engine, field.name, None)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_answers_on_a_small_chain_or_says_why_not(name: str) -> None:
    scores = random_potentials(np.random.default_rng(3), [4, 2, 1], 2)
    comparison = compare_inference(scores, engines=[name])
    row = comparison[name]
    if name == "cuts" and not row.ran:
        assert "attract" in row.reason or "repel" in row.reason or "submodular" in row.reason
        return
    assert row.ran, row.reason
    assert row.map_score is not None
    best = BruteEngine().infer(scores, Semiring.MAX).total.sum()
    assert row.map_score <= best + 1e-9
    assert (row.total is None) == (name in MAP_ONLY)


def test_options_go_to_the_engine_and_wrong_ones_are_named() -> None:
    assert engine_named("chain", n_jobs=3) == ChainEngine(n_jobs=3)
    with pytest.raises(InputError, match=r"'chain' has no option 'damping'; it has n_jobs"):
        engine_named("chain", damping=0.5)
    with pytest.raises(
        InputError, match=r"no engine 'mean field'\. Did you mean 'mean_field'\? Engines: chain, forest"
    ):
        engine_named("mean field")


def star(leaves: int) -> Graphs:
    return Graphs(np.array([0, leaves + 1]), np.zeros(leaves, np.int64), np.arange(1, leaves + 1))


@pytest.mark.parametrize(
    ("topology", "name", "exact"),
    [
        (Chains.from_lengths([5, 3]), "chain", True),
        (star(6), "forest", True),
        (grid(4, 5), "junction_tree", True),
        (grid(40, 45), "loopy", False),
    ],
)
def test_the_choice_is_exact_where_it_can_be(topology: Any, name: str, exact: bool) -> None:
    choice = choose_engine(topology, 2, n_jobs=2)
    assert (choice.name, choice.exact) == (name, exact)
    assert isinstance(choice.engine, engine_class(name))
    assert choice.engine.n_jobs == 2  # type: ignore[attr-defined]
    assert choice.reason


def test_where_nobody_asks_for_threads_there_is_one() -> None:
    for topology in (Chains.from_lengths([5, 3]), star(6), grid(4, 5), grid(40, 45)):
        assert choose_engine(topology, 2).engine.n_jobs == 1  # type: ignore[attr-defined]


def test_the_choice_tells_its_numbers() -> None:
    reason = choose_engine(grid(4, 30), 2).reason
    assert reason.startswith("junction tree: width 4, ")
    assert "kB of tables" in reason
    reason = choose_engine(grid(4, 30), 2, budget=100).reason
    assert reason.startswith("exact inference would be too large: a junction tree of width 4, ")


def test_many_small_graphs_are_too_much_work_although_each_fits() -> None:
    one = grid(4, 4)
    many = Graphs(
        np.arange(101) * 16,
        np.concatenate([one.tails + 16 * k for k in range(100)]),
        np.concatenate([one.heads + 16 * k for k in range(100)]),
    )
    enough = int(plan(one, 3).n_bytes)
    assert choose_engine(one, 3, budget=enough).name == "junction_tree"
    assert choose_engine(many, 3, budget=enough).name == "loopy"


def test_large_graphs_are_looked_at_in_part() -> None:
    """A hopeless one is found out by a part of it; one that is long and thin is planned as a whole."""
    reason = choose_engine(grid(60, 60), 2).reason
    assert "for 2,500 of its nodes alone" in reason
    long = choose_engine(grid(2, 2_000), np.full(4_000, 2))
    assert long.name == "junction_tree"
    assert long.reason.startswith("junction tree: width 2, ")


def test_labels_that_a_node_lacks_take_no_room() -> None:
    wide = Potentials(np.zeros((36, 8)), np.zeros((1, 8, 8)), grid(6, 6))
    narrow = replace(wide, node=np.where(np.arange(8) < 2, 0.0, -np.inf) * np.ones((36, 1)))
    assert choose_engine(wide, budget=2**16).name == "loopy"
    assert choose_engine(narrow, budget=2**16).name == "junction_tree"


def test_a_topology_alone_needs_the_number_of_labels() -> None:
    with pytest.raises(InputError, match="n_labels ≥ 1, got None"):
        choose_engine(star(3))
