"""Lazy columns: scores are inner products with the columns, whoever computes them; streams give the same columns."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise

import numpy as np
import pytest

from crfield.core.topology import Chains
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.features.lazy_columns import LazyColumns, MatrixColumns
from crfield.features.relational import STANDARD, Catalogue, Recordings, Specification
from crfield.features.relational.examples import TAG_LARGE, TAG_SMALL

RICH = """
plain  state : dist(a,b)                | for a in robots, b in robots | where a < b | pow 1,2
same   trans : const(1)                 | where Y == Yp
mine   state : speed(a)                 | for a in robots | where Y == a | test <,>= 0.5,1,2 | win any 1,3 | lag 0,2
far    trans : dist(a,b)                | for a in robots, b in robots | where a != b and Y != Yp
                                        | test <,<=,>,>= 0:3:0.25,7 | win all 1,5 | win mean 4 | lag 0,1,40
turned state : cosang(vel(a), lag(vel(a), 3)) | for a in robots | test <,<=,>,>= -1,0,1 | win max 2
mixed  trans : count(dist(a,o) < 1 for o in robots if o != a) + norm(acc(a)) | for a in robots | win mean 3 | pow 1,3
"""


def games(seed: int = 0, lengths: tuple[int, ...] = (40, 0, 1, 23, 2)) -> list[np.ndarray]:
    """Positions on a coarse lattice, so that values meet thresholds exactly."""
    rng = np.random.default_rng(seed)
    return [np.round(rng.normal(0, 0.6, (n, 3, 2)).cumsum(axis=0) * 4) / 4 for n in lengths]


def gradients(columns: LazyColumns, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    chains, labels = columns.chains, columns.n_labels
    return rng.normal(size=(chains.n_nodes, labels)), rng.normal(size=(chains.n_edges, labels, labels))


def by_columns(columns: LazyColumns, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Every score from a column that was made."""
    made, places = columns.chunk(np.arange(columns.n_columns)), columns.places()
    at_heads = made[columns.chains.heads]
    return np.array(
        [
            made[:, k] @ node[:, label] if previous < 0 else at_heads[:, k] @ edge[:, previous, label]
            for k, previous, label in zip(*places, strict=True)
        ]
    )


def matrix() -> MatrixColumns:
    rng = np.random.default_rng(2)
    chains = Chains.from_lengths([5, 0, 1, 7])
    return MatrixColumns(rng.normal(size=(13, 4)), chains=chains, n_labels=3, transition=rng.normal(size=(13, 2)))


def sparse_matrix() -> MatrixColumns:
    from scipy.sparse import random_array

    chains = Chains.from_lengths([5, 0, 1, 7])
    parts = [random_array((13, k), density=0.3, rng=np.random.default_rng(k), format="coo") for k in (4, 2)]
    return MatrixColumns(parts[0], chains=chains, n_labels=3, transition=parts[1])


def relational(labels: int = 3) -> LazyColumns:
    return Specification.parse(RICH).expand(labels=labels, agents=3).on(games(), rate=1.0)


@pytest.mark.parametrize("make", [matrix, sparse_matrix, relational, lambda: relational(4), lambda: relational(6)])
def test_scores_are_those_of_the_columns(body: str, make) -> None:  # type: ignore[no-untyped-def]
    columns = make()
    node, edge = gradients(columns)
    found = columns.scores(node, edge)
    assert found.shape == (columns.n_candidates,) == (len(columns.places().column),)
    assert np.abs(found - by_columns(columns, node, edge)).max() < 1e-9
    assert np.array_equal(found, columns.scores(node, edge, n_jobs=3))


def test_scores_are_the_same_on_both_bodies() -> None:
    from crfield.kernels import choice

    pytest.importorskip("crfield.kernels._families")
    found = []
    for name in ("numpy", "native"):
        with choice.use(name):
            columns = relational()
            found.append((columns.scores(*gradients(columns)), columns.chunk(np.arange(columns.n_columns))))
    assert np.array_equal(found[0][1], found[1][1])
    assert np.abs(found[0][0] - found[1][0]).max() < 1e-11


@pytest.mark.parametrize("text", [TAG_SMALL, TAG_LARGE])
def test_scores_of_the_sets_of_tag(text: str) -> None:
    rng = np.random.default_rng(0)
    played = Recordings.of([rng.normal(0, 4, (80, 3, 2)).cumsum(axis=0) * 10 for _ in range(2)], rate=60.0)
    columns = Specification.parse(text).expand(labels=3, agents=3).on(played)
    node, edge = gradients(columns)
    assert columns.scores(node, edge) == pytest.approx(by_columns(columns, node, edge), rel=1e-11, abs=1e-9)


def test_no_more_is_kept_than_allowed() -> None:
    catalogue = Specification.parse(RICH).expand(labels=3, agents=3)
    tight, roomy = catalogue.on(games(), rate=1.0, memory=3000), catalogue.on(games(), rate=1.0)
    assert np.array_equal(tight.scores(*gradients(tight)), roomy.scores(*gradients(roomy)))
    assert np.array_equal(tight.chunk(np.arange(40, 0, -1)), roomy.chunk(np.arange(40, 0, -1)))
    assert sum(array.nbytes for array in tight._kept.values()) <= 3000 < tight.chains.n_nodes * 8 * 8


def test_recordings_do_not_look_into_each_other() -> None:
    catalogue = Specification.parse(RICH).expand(labels=3, agents=3)
    everything = np.arange(catalogue.n_columns)
    whole = catalogue.on(games(), rate=1.0)
    made = whole.chunk(everything)
    for (start, end), game in zip(pairwise(whole.chains.offsets), games(), strict=True):
        assert np.array_equal(made[start:end], catalogue.on([game], rate=1.0).chunk(everything))


def test_nothing_to_look_at() -> None:
    catalogue = Specification.parse(RICH).expand(labels=3, agents=3)
    columns = catalogue.on([np.zeros((0, 3, 2))], rate=1.0)
    assert not columns.scores(np.zeros((0, 3)), np.zeros((0, 3, 3))).any()
    assert columns.chunk(np.array([0, 5])).shape == (0, 2)
    assert columns.chunk(np.zeros(0, int)).shape == (0, 0)


def test_parts_of_a_gradient_that_nobody_needs() -> None:
    columns = (
        Specification.parse("s state : speed(r) | for r in robots").expand(labels=2, agents=3).on(games(), rate=1.0)
    )
    node, edge = gradients(columns)
    assert np.array_equal(columns.scores(node, None), columns.scores(node, edge))
    with pytest.raises(ShapeError, match="node"):
        columns.scores(None, edge)
    with pytest.raises(ShapeError, match="edge"):
        relational().scores(np.zeros((66, 3)), np.zeros((1, 3, 3)))
    with pytest.raises(ShapeError, match="edge"):
        relational().scores(np.zeros((66, 3)), None)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda c: c.on(np.zeros((5, 2, 2))), ShapeError),
        (lambda c: c.on(np.zeros((5, 3))), ShapeError),
        (lambda c: c.on([np.zeros((5, 3, 2)), np.zeros((5, 4, 2))]), ShapeError),
        (lambda c: c.on(np.full((5, 3, 2), np.nan)), FeatureError),
        (lambda c: c.on("games"), ShapeError),
        (lambda c: c.on(games(), rate=1.0).chunk(np.array([10**6])), InputError),
        (lambda c: c.on(games(), rate=1.0).chunk(np.array([0.5])), InputError),
        (lambda c: c.name(-1), InputError),
        (lambda c: c.column_name(10**7), InputError),
        (lambda c: c.stream([0], rate=0), InputError),
        (lambda c: c.stream([0]).push(np.zeros((2, 2))), ShapeError),
        (lambda c: c.stream([0]).push(np.full((3, 2), np.inf)), FeatureError),
        (lambda c: c.stream([0]).restore({"memories": [1]}), InputError),
        (lambda c: Recordings.of(np.zeros((3, 1, 2)), rate=-1), FeatureError),
        (lambda c: Recordings.of(np.zeros((3, 1, 2)), channels={"t": [np.zeros(2)]}), ShapeError),
        (lambda c: MatrixColumns(np.full((2, 1), np.inf), chains=Chains.from_lengths([2]), n_labels=2), FeatureError),
        (lambda c: MatrixColumns(np.zeros((3, 1)), chains=Chains.from_lengths([2]), n_labels=2), ShapeError),
        (lambda c: MatrixColumns(np.zeros((2, 1)), chains=Chains.from_lengths([2]), n_labels=0), InputError),
    ],
)
def test_refusals(wrong, error: type[Exception]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error):
        wrong(Specification.parse(RICH).expand(labels=3, agents=3))


def test_functions_that_do_not_keep_their_word() -> None:
    for body, error in (
        (lambda a: a[:2], ShapeError),
        (lambda a: "x", FeatureError),
        (lambda a: a / 0, FeatureError),
    ):
        table = STANDARD.adding("mine", body, takes=["scalar"])  # type: ignore[arg-type]
        spec = Specification.parse("f state : mine(1 + speed(r)) | for r in robots")
        catalogue = spec.expand(labels=2, agents=3, functions=table)
        with np.errstate(divide="ignore"):
            with pytest.raises(error):
                catalogue.on(games(), rate=1.0).chunk(np.array([0]))
            if body(np.ones(1)) is not None and error is not ShapeError:
                with pytest.raises(error):
                    catalogue.stream([0], rate=1.0).push(np.zeros((3, 2)))


def streamed(catalogue: Catalogue, game: np.ndarray, columns: np.ndarray, rate: float) -> np.ndarray:
    stream = catalogue.stream(columns, rate=rate)
    return np.array([stream.push(step) for step in game]).reshape(len(game), len(columns))


@pytest.mark.parametrize("text", [RICH, TAG_SMALL, TAG_LARGE])
def test_a_stream_gives_the_same_columns(text: str) -> None:
    catalogue = Specification.parse(text).expand(labels=3, agents=3)
    rng = np.random.default_rng(5)
    columns = rng.permutation(catalogue.n_columns)[:150]
    for game in games(7, (60, 1)):
        batch = catalogue.on(Recordings.of(game, rate=60.0)).chunk(columns)
        assert np.abs(streamed(catalogue, game, columns, 60.0) - batch).max() < 1e-12


def test_a_stream_goes_on_where_it_was() -> None:
    catalogue = Specification.parse(RICH).expand(labels=3, agents=3)
    columns = np.arange(catalogue.n_columns)
    (game,) = games(8, (60,))
    whole = streamed(catalogue, game, columns, 1.0)
    for cut in (0, 1, 7, 45):
        first = catalogue.stream(columns, rate=1.0)
        for step in game[:cut]:
            first.push(step)
        saved = json.loads(json.dumps(first.state()))
        for again in (catalogue.stream(columns, rate=1.0).restore(saved), pickle.loads(pickle.dumps(first))):
            assert np.array_equal(np.array([again.push(step) for step in game[cut:]]), whole[cut:])
        first.reset()
        assert np.array_equal(np.array([first.push(step) for step in game]), whole)


def test_a_stream_remembers_no_more_than_it_must() -> None:
    catalogue = Specification.parse(RICH).expand(labels=3, agents=3)
    stream = catalogue.stream(np.arange(catalogue.n_columns), rate=1.0)
    (game,) = games(9, (300,))
    sizes = []
    for step in game:
        stream.push(step)
        sizes.append(len(json.dumps(stream.state())))
    assert max(sizes[200:]) < 1.3 * max(sizes[:120])


def test_streams_have_channels_and_functions() -> None:
    table = STANDARD.adding("half", lambda v: v / 2, takes=["vector"], gives="vector")
    spec = Specification.parse(
        "f state : norm(half(pos(r))) + charge(r) * lag(clock, 1) | for r in robots | win mean 2"
    )
    catalogue = spec.expand(labels=1, agents=3, channels=["clock"], agent_channels=["charge"], functions=table)
    rng = np.random.default_rng(0)
    (game,) = games(3, (20,))
    clock, charge = rng.normal(size=20), rng.normal(size=(20, 3))
    played = Recordings.of(game, channels={"clock": [clock]}, agent_channels={"charge": [charge]})
    stream = catalogue.stream([0, 1, 2])
    found = [
        stream.push(game[t], channels={"clock": clock[t]}, agent_channels={"charge": charge[t]}) for t in range(20)
    ]
    assert np.abs(np.array(found) - catalogue.on(played).chunk(np.arange(3))).max() < 1e-13
    with pytest.raises(FeatureError, match="clock"):
        stream.push(game[0], agent_channels={"charge": charge[0]})
    with pytest.raises(FeatureError, match="charge"):
        catalogue.on(Recordings.of(game, channels={"clock": [clock]}))


def test_sequences_of_one_step_have_no_edges() -> None:
    columns = MatrixColumns(
        np.ones((2, 1)), chains=Chains.from_lengths([1, 1]), n_labels=2, transition=np.ones((2, 1))
    )
    assert columns.scores(np.ones((2, 2)), np.zeros((0, 2, 2))).tolist() == [2, 2, 0, 0, 0, 0]
    assert columns.scores(np.ones((2, 2)), None).tolist() == [2, 2, 0, 0, 0, 0]
