"""Positions in, label out: the header and the module compute the columns that the stream computes, bit by bit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, SelectedCRF
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ShapeError
from crfield.estimators.export.export import export_model
from crfield.estimators.export.step_scores import DenseSteps
from crfield.features.relational import STANDARD, Catalogue, FeatureStream, Specification
from crfield.features.relational.examples import TAG_LARGE
from crfield.features.relational.functions import AGGREGATES
from tests.estimators.export.features.compiled import BUILDS, QUICK, run

each_build = pytest.mark.parametrize("build", BUILDS, ids=[" ".join(build) for build in BUILDS])
PUSH = """
      unsigned char there[3];
      for (int a = 0; a < 3; a++) there[a] = in[1 + a] != 0.0;
      said = robot_push(&s, in + 4, there, in + 10, in + 11);"""
# every function and every aggregate of the language at least once: a test below counts them
EVERYTHING = """
raw     state : comp(pos(r),c) + comp(acc(r),c) | for r in robots, c in xy | pow 1,2,3,0.5,-1,20
chase   state : select_min((dist(k,j), dot(rel(k,j),vel(k))) for j in robots if j != k) | for k in robots | win mean 5
flee    state : select_max((dist(k,j), cross(rel(k,j),relvel(k,j))) for j in robots) | for k in robots
slow    trans : speed(a)                 | for a in robots | test <,<=,>,>= 3,9 | win all 1,6 | win any 4 | lag 0,3
turn    state : cosang(vel(a), lag(vel(a), 3)) + angle(vel(a)) * angle(vel(a), rel(a,b))
        | for a in robots, b in robots | where a < b | win max 2,7 | win min 3
logic   trans : (lt(dist(a,b),4) and not lag(dist(a,b) < 4, 2)) or speed(a) == 0 | for a in robots, b in robots
        | where a != b
more    trans : ((le(speed(a),2) != gt(speed(a),1)) + (ge(speed(a),1) <= eq(speed(a),0)) + (speed(a) > 1)
        - (speed(a) >= 2)) | for a in robots
sums    state : sum(speed(o) for o in robots) - mean(speed(o) for o in robots) / count(speed(o) > 2 for o in robots)
groups  state : any(dist(a,o) > 4 for o in robots if o != a) + all(dist(a,o) > 1 for o in robots if o != a)
        | for a in robots
nearest state : min(dist(a,o) for o in robots if o != a) + max(speed(o) for o in robots) + closest(a,robots)
        | for a in robots | lag 0,2
nested  state : sum(min(dist(a,o) for o in robots if o != a) for a in robots) + max(1, speed('0'))
maths   state : (abs(-speed(a)) + sqrt(comp(pos(a),x)) + exp(comp(pos(a),y)) + log(speed(a)) + sin(speed(a))
        + cos(speed(a)) + sign(comp(vel(a),x)) + clip(speed(a),1,3) + choose(speed(a) < 2, 5, speed(a)))
        | for a in robots
vectors state : norm(unit(vel(a)) * 2 - 3 * unit(pos(a)) / speed(a) + -pos(a)) | for a in robots
here    state : present(a) + const(2)    | for a in robots | lag 0,1
smooth  state : past_mean(speed(a), 3) + past_min(speed(a), 1) + past_max(delta(speed(a)), 4) | for a in robots
weary   state : charge(a) + lag(clock, 1) | for a in robots | win mean 2
"""


def everything() -> Catalogue:
    spec = Specification.parse(EVERYTHING)
    return spec.expand(labels=2, agents=3, channels=["clock"], agent_channels=["charge"])


def absent_games(n: int) -> np.ndarray:
    """(n, 14) who is present, positions, a clock and charges; NaN where somebody is absent; two ends."""
    rng = np.random.default_rng(0)
    there = rng.random((n // 5, 3)).repeat(5, axis=0) > 0.15
    there[: n // 3] = True
    there[n // 2 : n // 2 + 3] = False
    places = rng.normal(0, 0.7, (n, 3, 2)).cumsum(axis=0)
    places[: n // 2] = np.round(places[: n // 2] * 4) / 4  # values meet thresholds exactly
    places = np.where(there[:, :, None], places, np.nan).reshape(n, 6)
    charge = np.where(there, rng.normal(size=(n, 3)), np.nan)
    rows = np.column_stack([there, places, rng.normal(size=n), charge])
    rows[[n // 4, n - 1]] = np.nan
    return rows


def streamed(stream: FeatureStream, rows: np.ndarray) -> np.ndarray:
    out: list[np.ndarray] = []
    for row in rows:
        if np.isnan(row).all():
            stream.reset()
            out.append(out[-1])
            continue
        there, places, clock, charge = row[:3], row[3:9].reshape(3, 2), row[9], row[10:]
        out.append(
            stream.push(
                places, present=there != 0, channels={"clock": clock}, agent_channels={"charge": charge.tolist()}
            )
        )
    return np.array(out)


@pytest.fixture(scope="module")
def away() -> tuple[FeatureStream, np.ndarray, np.ndarray]:
    """A stream of everything, games in which agents come and go, and the columns that Python finds."""
    catalogue, rows = everything(), absent_games(300)
    stream = catalogue.stream(np.arange(catalogue.n_columns), rate=4.0)
    return stream, rows, streamed(stream, rows)


def exported(stream: FeatureStream, path: Path) -> DenseSteps:
    """The stream before some model of its columns."""
    rng = np.random.default_rng(1)
    steps = DenseSteps(rng.normal(size=(len(stream.columns), 2)), np.zeros((2, 2)))
    export_model(steps, LabelCoder.from_classes(["a", "b"]).labels, path, max_lag=5, features=stream)
    return steps


@pytest.fixture(scope="module")
def seeker() -> tuple[SelectedCRF, np.ndarray, list[Any], np.ndarray]:
    """A model of tag, 10,000 steps of a game, and what streams in Python say of them."""
    train = crfield.make_tag(0.3, scheme="unconstrained", random_state=1)
    game = crfield.make_tag(2.8, scheme="unconstrained", random_state=2).positions[:10_000]
    catalogue = Specification.parse(TAG_LARGE).expand(labels=3, agents=3)
    model = SelectedCRF(features=catalogue, rate=60.0, options={"max_features": 9}, validation=None)
    model.fit([train.positions], [train.labels])
    stream, columns, told = model.stream(), [], []
    features, model_stream = stream.features, model.stream(features=None)
    assert features is not None
    model_stream.features = None
    for places in game:
        columns.append(features.push(places))
        told.append(model_stream.push(columns[-1]))
    return model, game, told, np.array(columns)


@each_build
def test_a_selected_model_of_tag_for_ten_thousand_steps(build: list[str], seeker: Any, tmp_path: Path) -> None:
    model, game, told, columns = seeker
    header = tmp_path / "seeker.h"
    model.export(header)
    push = "      said = seeker_push(&s, in + 1, NULL);"
    found = run(build, header, push, game.reshape(len(game), -1), n_columns=columns.shape[1], n_labels=3)
    assert np.array_equal(found.columns, columns)
    assert [model.classes_[k] for k in found.labels] == [now.label for now in told]
    assert np.abs(found.probabilities - [now.probabilities for now in told]).max() < 1e-12
    first = header.read_text().splitlines()[:3]
    assert f"State: {found.bytes:,} bytes" in first[1]
    assert re.search(r"at most [\d,]+ operations for the features and ([\d,]+ for|those of) the model", first[2])


@each_build
def test_all_of_the_language_while_agents_come_and_go(build: list[str], away: Any, tmp_path: Path) -> None:
    stream, rows, expected = away
    exported(stream, tmp_path / "robot.h")
    quickly = [*build[:2], "-O0"]
    found = run(quickly, tmp_path / "robot.h", PUSH, rows, n_columns=len(stream.columns), n_labels=2)
    wrong = np.flatnonzero((found.columns != expected).any(axis=0))
    assert [stream.catalogue.column_name(int(k)) for k in wrong] == []
    assert f"State: {found.bytes:,} bytes" in (tmp_path / "robot.h").read_text()


def test_the_module_while_agents_come_and_go(away: Any, tmp_path: Path) -> None:
    stream, rows, expected = away
    exported(stream, tmp_path / "robot.py")
    made: dict[str, Any] = {}
    exec((tmp_path / "robot.py").read_text(), made)
    features = made["Features"]()
    found: list[Any] = []
    for row in rows.tolist():
        if np.isnan(row).all():
            features.begin()
            found.append(found[-1])
            continue
        places, charge = np.reshape(row[3:9], (3, 2)).tolist(), {"charge": row[10:]}
        found.append(features.push(places, row[:3], {"clock": row[9]}, charge))
    assert np.array_equal(found, expected)


def test_the_module_of_a_selected_model(seeker: Any, tmp_path: Path) -> None:
    model, game, told, _ = seeker
    model.export(tmp_path / "robot.py")
    made: dict[str, Any] = {}
    exec((tmp_path / "robot.py").read_text(), made)
    stream = made["Stream"]()
    for places, now in zip(game[:300].tolist(), told):
        assert stream.push(places)["label"] == now.label
    with pytest.raises(ValueError, match="agent 1 is not finite"):
        stream.push([[0.0, 0.0], [float("nan"), 0.0], [0.0, 0.0]])
    assert len(stream.finish()["committed"]) > 0
    assert stream.push(game[0].tolist())["label"] == told[0].label  # velocities begin anew too


def test_the_text_of_the_language_is_whole() -> None:
    """What `EVERYTHING` calls is everything there is."""
    nodes = everything().graph.nodes
    called = {node.fixed[0] for node in nodes if node.operation == "apply"}
    gathered = {node.fixed[0] for node in nodes if node.operation == "gather"}
    assert called == set(STANDARD.names)
    assert gathered == set(AGGREGATES)


@pytest.mark.skipif(not BUILDS, reason="no C compiler")
def test_velocities_are_given_where_no_rate_tells_them(tmp_path: Path) -> None:
    catalogue = Specification.parse("v state : speed(a) | for a in robots | win mean 3").expand(labels=2, agents=2)
    stream, rows = catalogue.stream([0, 1]), np.random.default_rng(0).normal(size=(20, 8))
    exported(stream, tmp_path / "robot.h")
    found = run(
        QUICK,
        tmp_path / "robot.h",
        "      said = robot_push(&s, in + 1, NULL, in + 5);",
        rows,
        n_columns=2,
        n_labels=2,
    )
    pushed = [stream.push(row[:4].reshape(2, 2), velocities=row[4:].reshape(2, 2)) for row in rows]
    assert np.array_equal(found.columns, pushed)


@pytest.mark.skipif(not BUILDS, reason="no C compiler")
def test_numbers_that_are_not_finite_change_nothing(tmp_path: Path) -> None:
    catalogue = Specification.parse("d state : delta(dist(a,b)) | for a in robots, b in robots | where a < b").expand(
        labels=2, agents=2
    )
    stream = catalogue.stream([0])
    exported(stream, tmp_path / "robot.h")
    rows = np.array([[0.0, 0, 1, 0], [0, np.inf, 3, 0], [0, 0, 4, 0]])
    push = "      said = robot_push(&s, in + 1, NULL);"
    found = run(QUICK, tmp_path / "robot.h", push, rows, n_columns=1, n_labels=2)
    assert found.labels[1] == -2
    assert found.columns[2] == [3.0]


def test_columns_alone_and_what_cannot_be_written(seeker: Any, tmp_path: Path) -> None:
    model, _, _, columns = seeker
    model.export(tmp_path / "plain.h", features=False)
    assert "NAME" not in (tmp_path / "plain.h").read_text()
    assert "positions" not in (tmp_path / "plain.h").read_text()
    table = STANDARD.adding("half", lambda v: v / 2, takes=["scalar"])
    own = Specification.parse("f state : half(speed(r)) | for r in robots").expand(
        labels=2, agents=3, functions=table
    )
    chain = ChainCRF(standardize=True, tol=1e-2).fit([columns[:50, :3]], [["a", "b"] * 25])
    for features, error, words in (
        (own.stream([0, 1, 2], rate=1.0), InputError, "half, a function of your own"),
        (own, InputError, "catalogue.stream"),
        (everything().stream([0, 1], rate=1.0), ShapeError, "2 columns and the model was trained on 3"),
        ("positions", InputError, "got str"),
    ):
        with pytest.raises(error, match=words):
            chain.export(tmp_path / "robot.h", features=features)
    assert not (tmp_path / "robot.h").exists()


def test_words_of_the_user_are_no_code(tmp_path: Path) -> None:
    catalogue = Specification.parse("d state : speed(a) | for a in robots").expand(
        labels=2, agents=["*/ int", 'NAME"\n@x@\\']
    )
    exported(catalogue.stream([0, 1], rate=1.0), tmp_path / "robot.h")
    text = (tmp_path / "robot.h").read_text()
    if BUILDS:
        push = "      said = robot_push(&s, in + 1, NULL);"
        run(QUICK, tmp_path / "robot.h", push, np.zeros((2, 4)), n_columns=2, n_labels=2)
    assert text.count("*/ int") == text.count('"d(*/ int)"')  # in a string alone
