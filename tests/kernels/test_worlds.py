"""Worlds of robots: both bodies play the same game, limits and rules hold, cameras do what they say."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from crfield import make_soccer, make_tag, robot_vision, tag_columns
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.features.columns import trajectories
from crfield.features.columns.trajectories import TAG_SETS, Scaling
from crfield.kernels import choice, worlds
from crfield.simulate.tag_vision import _runs
from tests.cases.command_line import run, works

PAIRS = [(0, 1), (0, 2), (1, 2)]


def moves(positions: np.ndarray, rate: float) -> np.ndarray:
    return np.diff(positions, axis=0) * rate


def compiled() -> bool:
    try:
        with choice.use("native"):
            choice.body("worlds")
    except ImportError:
        return False
    return True


needs_both = pytest.mark.skipif(not compiled(), reason="the compiled kernels are not built here")


@needs_both
@pytest.mark.parametrize("robots", [2, 3, 12])
@pytest.mark.parametrize("hourglass", [True, False])
def test_tag_is_the_same_game_on_both_bodies(robots: int, hourglass: bool) -> None:
    games = []
    for body in ("native", "numpy"):
        with choice.use(body):
            games.append(worlds.tag_steps(1500, robots, 2**63 + 5, hourglass=hourglass, pause_steps=20))
    assert games[0].tags == games[1].tags > 0
    assert (games[0].positions == games[1].positions).all()
    assert (games[0].labels == games[1].labels).all()


@needs_both
@pytest.mark.parametrize("players", [2, 5])
def test_soccer_is_the_same_game_on_both_bodies(players: int) -> None:
    games = []
    for body in ("native", "numpy"):
        with choice.use(body):
            games.append(worlds.soccer_steps(2500, players, 11, goal=2500.0))
    assert games[0].goals.sum() > 0
    for one, other in zip(*games):
        assert (one == other).all()


@needs_both
def test_the_tracker_is_the_same_on_both_bodies() -> None:
    rng = np.random.default_rng(0)
    measured, seen = rng.normal(size=(200, 4, 2)), rng.random((200, 4)) < 0.7
    found = []
    for body in ("native", "numpy"):
        with choice.use(body):
            found.append(worlds.track(measured, seen, alpha=0.3, beta=0.05))
    assert (found[0] == found[1]).all()


@needs_both
def test_the_compiled_bodies_check_what_they_get() -> None:
    with choice.use("native"):
        native = choice.body("worlds")
    rules = (True, 1, 1e3, 1e3, 1e3, 1e3, 10, 100.0, 10.0, 1e3, 50.0, 60.0, True)
    for positions, labels, changed in (
        (np.empty((5, 3, 2)), np.empty(4, np.int64), rules),
        (np.empty((5, 1, 2)), np.empty(5, np.int64), rules),
        (np.empty((5, 3, 3)), np.empty(5, np.int64), rules),
        (np.empty((5, 3, 2)), np.empty(5, np.int64), (*rules[:2], np.inf, *rules[3:])),
        (np.empty((5, 3, 2)), np.empty(5, np.int64), (*rules[:11], np.nan, True)),
    ):
        with pytest.raises(ValueError, match=r"need|lie|two robots"):
            native.tag_steps(positions, labels, *changed)
    codes = np.empty(5, np.int64)
    with pytest.raises(ValueError, match="need"):
        native.soccer_steps(np.empty((5, 4, 2)), codes, codes, np.empty((5, 4), np.int64), codes[:2], 1, *[1e3] * 9)
    with pytest.raises(ValueError, match="need"):
        native.track(np.empty((5, 2, 2)), np.ones((5, 3), np.uint8), 0.3, 0.1, np.empty((5, 2, 2)))


def test_robots_keep_to_their_limits(body: str) -> None:
    game = make_tag(0.3, scheme="unconstrained", contact=False, top_speed=1200.0, top_acceleration=2500.0, rate=50.0)
    velocity = moves(game.positions, 50.0)
    assert np.linalg.norm(velocity, axis=2).max() < 1200.0 + 1e-6
    inside = (np.abs(game.positions) < [1749.9, 1999.9]).all(axis=2)
    change = np.linalg.norm(moves(velocity, 50.0), axis=2)
    free = inside[2:] & inside[1:-1] & inside[:-2]
    assert free.mean() > 0.9
    assert change[free].max() < 2500.0 + 1e-5


@pytest.mark.parametrize("scheme", ["hourglass", "unconstrained"])
@pytest.mark.parametrize("n_robots", [2, 3, 5])
def test_limits_hold_away_from_contact_and_pushes_have_one(body: str, scheme: str, n_robots: int) -> None:
    """What the page says: limits where nobody is near, twice the way of a frame and the overlap in contact."""
    game = make_tag(3.0 if body == "native" else 0.5, scheme=scheme, n_robots=n_robots, random_state=1)
    way = game.top_speed / game.rate
    apart = np.linalg.norm(game.positions[:, :, None] - game.positions[:, None], axis=3) + np.diag(
        [np.inf] * n_robots
    )
    inside = (np.abs(game.positions) < [1749.9, 1999.9]).all(axis=2)
    alone = (apart.min(axis=2) > game.diameter + 2 * way) & inside
    velocity = moves(game.positions, game.rate)
    speed = np.linalg.norm(velocity, axis=2)
    change = np.linalg.norm(moves(velocity, game.rate), axis=2)
    assert alone.mean() > 0.6
    assert speed[alone[1:]].max() < game.top_speed + 1e-6
    assert change[alone[2:] & alone[1:-1]].max() < 3000.0 + 1e-5
    if n_robots < 4:
        assert speed.max() < 2.01 * game.top_speed
    if body == "native" and n_robots > 2:
        assert change.max() > 10 * 3000.0, "collisions are hard"


@pytest.mark.parametrize("scheme", ["hourglass", "unconstrained"])
def test_the_rules_of_tag(scheme: str) -> None:
    """A tag needs closeness, is followed by a pause of the new seeker, and shows in its first frame or the second."""
    game = make_tag(10.0, scheme=scheme, random_state=5)
    distance = trajectories.distances(game.positions, PAIRS)
    changes = game.changes
    assert 60 < len(changes) < 140
    pair = {frozenset(p): k for k, p in enumerate(PAIRS)}
    first = second = 0
    for t in changes.tolist():
        apart = distance[:, pair[frozenset((int(game.labels[t - 1]), int(game.labels[t])))]]
        assert min(apart[t], apart[t - 1]) < 240.0
        first += bool(apart[t - 1] >= 240.0)
        second += bool(apart[t - 1] < 240.0)
        speed = np.linalg.norm(moves(game.positions[t : t + 295, game.labels[t]], 60.0), axis=1)
        assert speed[40:].max(initial=0.0) < 1e-6, "the new seeker stands"
    assert first > 15
    assert second > 15
    assert np.diff(changes).min() >= 300, "nobody is tagged while the seeker pauses"


def test_the_seeker_drives_at_its_nearest_neighbour() -> None:
    game = make_tag(5.0, random_state=2)
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    cosine = trajectories.chasing(game.positions, pairs)
    speed = np.linalg.norm(moves(game.positions, 60.0), axis=2)
    apart = trajectories.distances(game.positions, pairs)
    found = []
    for t in range(1, len(game)):
        s = int(game.labels[t])
        if speed[t - 1, s] > 1000.0:
            mine = [k for k, (a, _) in enumerate(pairs) if a == s]
            found.append(cosine[t, min(mine, key=lambda k: apart[t, k])])
    assert np.mean(found) > 0.9


def test_contact_keeps_robots_apart() -> None:
    pairs = [(a, b) for a in range(6) for b in range(a)]
    solid, ghosts = (make_tag(3.0, n_robots=6, random_state=1, contact=contact) for contact in (True, False))
    closest = [trajectories.distances(game.positions, pairs).min() for game in (solid, ghosts)]
    assert closest[0] > 150.0
    assert closest[1] < 100.0
    assert sorted(set(solid.labels.tolist())) == list(range(6)), "any number can play"


def test_seeds_and_sizes() -> None:
    one, same, other = (make_tag(0.1, random_state=seed) for seed in (1, 1, 2))
    assert (one.positions == same.positions).all()
    assert not (one.positions == other.positions).all()
    assert len(make_tag(0.0)) == 0
    assert make_tag(0.0).changes.tolist() == []
    assert len(make_soccer(0.0)) == 0
    assert make_tag(20.0).positions.shape == (72_000, 3, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheme": "spiral"}, "scheme must be one of 'hourglass'"),
        ({"minutes": -1.0}, "0 ≤ minutes"),
        ({"minutes": float("nan")}, "0 ≤ minutes"),
        ({"n_robots": 1}, "2 to 1000 robots, got 1"),
        ({"n_robots": 40}, "need a larger field"),
        ({"top_speed": 0.0}, "top_speed must be a positive"),
        ({"top_acceleration": float("inf")}, "top_acceleration must be a positive"),
        ({"pause": -1.0}, "pause must be"),
        ({"tag_gap": float("nan")}, "gap must be"),
        ({"minutes": 1e6}, "steps × robots"),
    ],
)
def test_games_that_cannot_be_played(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_tag(**options)


def test_the_rules_of_soccer() -> None:
    game = make_soccer(4.0, random_state=3)
    assert sum(game.goals) > 2
    carried = game.carrier >= 0
    side = np.where(game.carrier < 5, "us", "them")
    assert (game.labels[carried] == side[carried]).all()
    roles = game.roles
    assert ((roles == "carrier").sum(axis=1) <= 1).all()
    assert set(roles[:, 0].tolist()) <= {"keeper", "carrier"}
    shares = [(game.labels == name).mean() for name in ("us", "them", "loose")]
    assert min(shares) > 0.1
    # markers stand between their opponent and their own goal
    marks = roles[:, 2] == "marker"
    behind = game.positions[:, 2, 0] < game.positions[:, 7, 0]
    assert behind[marks].mean() > 0.7
    with pytest.raises(InputError, match="at least two robots"):
        make_soccer(1.0, n_players=1)


def test_vision_noise_tracker_and_latency() -> None:
    game = make_tag(2.0, random_state=3)
    raw = robot_vision(game, noise=2.0, dropout=0.0, latency=0, tracker=None, random_state=1)
    error = raw.positions - game.positions
    assert error.std() == pytest.approx(2.0, rel=0.05)
    assert (raw.labels == game.labels).all()
    tracked = robot_vision(game, noise=2.0, dropout=0.0, latency=3, random_state=1)
    jitter = [np.diff(seen.positions - game.positions, axis=0).std() for seen in (raw, tracked)]
    assert jitter[1] < 0.4 * jitter[0], "the tracker smooths"
    assert (tracked.labels[3:] == game.labels[:-3]).all()
    again = robot_vision(game, noise=2.0, dropout=0.0, latency=3, random_state=1)
    assert (again.positions == tracked.positions).all()
    assert len(robot_vision(make_tag(0.0), swap=0.5)) == 0


def test_vision_dropout_and_swaps() -> None:
    for share, gap in ((0.02, 1.0), (0.2, 8.0)):
        lost = _runs(np.random.default_rng(1), (200_000, 1), share, gap)
        assert lost.mean() == pytest.approx(share, rel=0.1)
    game = make_tag(2.0, random_state=3)
    held = robot_vision(game, noise=0.0, dropout=0.3, gap=5.0, latency=0, tracker=None)
    assert (held.positions[0] == game.positions[0]).all()
    still = (np.diff(held.positions, axis=0) == 0).all(axis=2)
    assert 0.2 < still[np.linalg.norm(np.diff(game.positions, axis=0), axis=2) > 10].mean() < 0.4
    mixed = robot_vision(game, noise=0.0, dropout=0.0, latency=0, swap=1.0, swap_seconds=0.5, tracker=None)
    wrong = (mixed.positions != game.positions).any(axis=2)
    assert 0.02 < wrong.mean() < 0.6
    ordered = [np.sort(seen.positions[:, :, 0], axis=1) for seen in (mixed, game)]
    assert (ordered[0] == ordered[1]).all(), "robots change names, not places"


@pytest.mark.parametrize(
    "options",
    [{"dropout": 1.0}, {"swap": 1.5}, {"noise": -1.0}, {"gap": 0.5}, {"latency": -1}, {"tracker": (0.0, 1.0)}],
)
def test_vision_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"must be|expected"):
        robot_vision(make_tag(0.05), **options)


def test_windows_against_the_definition() -> None:
    rng = np.random.default_rng(0)
    flags = rng.random((60, 2)) < 0.8
    for window in (1, 2, 7, 100):
        slow = [[flags[max(t - window + 1, 0) : t + 1, r].all() for r in range(2)] for t in range(60)]
        assert trajectories.held(flags, window).tolist() == np.array(slow, float).tolist()


def test_closeness_against_the_definition() -> None:
    game = make_tag(1.0, random_state=1)
    near = trajectories.distances(game.positions, PAIRS) < 240.0
    found = trajectories.closeness(game.positions, PAIRS)
    for t in range(2, len(game)):
        assert (found[t] == ((near[t] | near[t - 1]) & ~near[t - 2])).all()


@pytest.mark.parametrize("scheme", ["hourglass", "unconstrained"])
def test_closeness_marks_the_hand_offs(scheme: str) -> None:
    """All of them: the features of the table capture exactly what a tag needs."""
    game = make_tag(10.0, scheme=scheme, random_state=3)
    found = trajectories.closeness(game.positions, PAIRS)
    ends = [frozenset(p) for p in PAIRS]
    marked = [
        found[t, ends.index(frozenset((int(game.labels[t - 1]), int(game.labels[t]))))] for t in game.changes.tolist()
    ]
    assert np.mean(marked) == 1.0
    assert found.max(axis=1).mean() < 0.02, "and hardly anything else"


def test_the_sets_of_the_table_count_as_in_the_thesis() -> None:
    """Features with three labels: state columns once per label, transition columns once per pair of labels."""
    walk = np.cumsum(np.random.default_rng(0).normal(size=(300, 3, 2)), axis=0)

    def count(name: str, **options: Any) -> int:
        link = tag_columns(walk, name, powers=(1, 2), **options).link
        return int(3 * (link == 0).sum() + 9 * (link == 1).sum())

    assert [count(name) for name in ("positions", "velocities", "chasing", "distance (U)")] == [36, 18, 36, 54]
    windows = [name for name in TAG_SETS if name.startswith("velocity thresholds")]
    assert sum(map(count, windows)) == 108
    everything = count("redundant", lags=(5,)) - count("velocity thresholds 1/60 s") + sum(map(count, windows))
    assert everything == 324
    for name in TAG_SETS:
        columns = tag_columns(walk, name)
        assert len(set(columns.names)) == len(columns.names) == columns.values.shape[1]
        assert np.isfinite(columns.values).all()
        assert columns.state.shape[1] + columns.transition.shape[1] == len(columns.names)


def test_columns_hold_what_their_names_say() -> None:
    game = make_tag(1.0, random_state=1)
    found = tag_columns(game.positions, "redundant", powers=(1, 2), lags=(5,))
    value = dict(zip(found.names, found.values.T))
    step = np.diff(game.positions, axis=0, prepend=game.positions[:1]) * 60.0
    speed = np.linalg.norm(step, axis=2)
    assert (value["pos(1).y"] == game.positions[:, 1, 1]).all()
    assert (value["vel(2).x"] == step[:, 2, 0]).all()
    assert (value["speed(2)^2"] == speed[:, 2] ** 2).all()
    assert (value["speed(0)<300 for 1"] == (speed[:, 0] < 300.0)).all()
    assert (value["speed(0)>300 for 1"] == (speed[:, 0] > 300.0)).all()
    assert (value["close(0,2)"] == trajectories.closeness(game.positions, [(0, 2)])[:, 0]).all()
    assert (value["not close(0,2)"] == 1.0 - value["close(0,2)"]).all()
    assert (value["chase(2,0)"] == trajectories.chasing(game.positions, [(2, 0)])[:, 0]).all()
    assert (value["straight(1,5)"] == trajectories.straightness(game.positions, 5)[:, 1]).all()
    nearest = np.minimum(*trajectories.distances(game.positions, [(0, 1), (0, 2)]).T)
    np.testing.assert_allclose(value["nearing(0)"][1:], np.diff(nearest), atol=1e-9)
    linked = {name for name, link in zip(found.names, found.link.tolist()) if link}
    assert linked == {name for name in found.names if "close(" in name}


def test_columns_look_back_only() -> None:
    """A prefix of a trajectory has the same columns as the whole."""
    game = make_tag(0.2, random_state=1)
    whole = tag_columns(game.positions, "redundant", powers=(1, 2)).values
    for steps in (0, 1, 2, 333):
        part = tag_columns(game.positions[:steps], "redundant", powers=(1, 2)).values
        assert (part == whole[:steps]).all()


def test_chasing_normalised_and_not() -> None:
    game = make_tag(0.2, random_state=1)
    plain = trajectories.chasing(game.positions, PAIRS, normalised=False)
    cosine = trajectories.chasing(game.positions, PAIRS)
    assert np.abs(cosine).max() <= 1.0
    lengths = trajectories.distances(game.positions, PAIRS)
    speed = np.linalg.norm(trajectories.velocities(game.positions), axis=2)[:, [0, 0, 1]]
    np.testing.assert_allclose(cosine * (lengths * speed + 1e-6), plain, rtol=1e-9, atol=1e-6)


def test_scaling_is_learnt_from_training_data_alone() -> None:
    train, test = (tag_columns(make_tag(1.0, random_state=k).positions, "distance & chasing (N)") for k in (1, 2))
    scaling = Scaling.of([train])
    scaled = scaling(train)
    np.testing.assert_allclose(scaled.values.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(scaled.values.std(axis=0), 1.0, atol=1e-9)
    np.testing.assert_allclose(scaling(test).values * scaling.deviation + scaling.mean, test.values, atol=1e-9)
    left = tag_columns(make_tag(1.0, random_state=1).positions, "distance & chasing (U)")
    assert (Scaling.of([left])(left).transition == left.transition).all()
    constant = tag_columns(np.zeros((20, 3, 2)), "many", powers=(1, 2))
    assert np.isfinite(Scaling.of([constant])(constant).values).all()
    with pytest.raises(ShapeError, match="expected 12 columns"):
        scaling(tag_columns(np.zeros((5, 2, 2)), "positions"))


def test_trajectories_that_cannot_be_used() -> None:
    broken = np.zeros((5, 3, 2))
    broken[3, 1, 0] = np.inf
    with pytest.raises(FeatureError, match="inf at step 3, robot 1, x"):
        tag_columns(broken, "positions")
    with pytest.raises(ShapeError, match=r"\(steps, robots, 2\), got \(5, 3\)"):
        tag_columns(broken[:, :, 0], "positions")
    with pytest.raises(InputError, match="no feature set 'speed'; there are 'positions'"):
        tag_columns(np.zeros((5, 3, 2)), "speed")
    with pytest.raises(InputError, match="at least two robots"):
        tag_columns(np.zeros((5, 1, 2)), "redundant")


def test_the_three_tables_hold_the_same_game(tmp_path: Any) -> None:
    game = make_tag(0.05, scheme="unconstrained", random_state=7)
    for name in ("game.csv", "game.jsonl", "game.npz", "game.csv.gz"):
        works("simulate", "tag", "--minutes", 0.05, "--scheme", "unconstrained", "--seed", 7, "-o", tmp_path / name)
    table = np.loadtxt(tmp_path / "game.csv", delimiter=",", skiprows=1)
    assert (tmp_path / "game.csv").read_text().startswith("time,label,robot0.x,robot0.y,")
    np.testing.assert_allclose(table[:, 2:].reshape(-1, 3, 2), game.positions, atol=6e-4)
    assert (table[:, 1] == game.labels).all()
    lines = [json.loads(line) for line in (tmp_path / "game.jsonl").read_text().splitlines()]
    np.testing.assert_allclose([line["positions"] for line in lines], game.positions, atol=6e-4)
    with np.load(tmp_path / "game.npz", allow_pickle=False) as arrays:
        assert (arrays["positions"] == game.positions).all()
        assert (arrays["labels"] == game.labels).all()
        assert arrays["agents"].tolist() == ["robot0", "robot1", "robot2"]


def test_soccer_on_standard_output_and_a_page(tmp_path: Any) -> None:
    done = works("simulate", "soccer", "--minutes", 0.02, "--robots", 2, "--replay", tmp_path / "game.html", "-q")
    rows = done.stdout.splitlines()
    assert len(rows) == 73
    assert rows[0].startswith("time,label,carrier,us0.role,us1.role,them0.role,them1.role,us0.x")
    assert "<canvas" in (tmp_path / "game.html").read_text(encoding="utf-8")
    npz = works("simulate", "soccer", "--minutes", 0.02, "--robots", 2, "--format", "npz", "-q").stdout_bytes
    assert np.load(io.BytesIO(npz))["roles"].shape == (72, 4)


def test_vision_on_the_command_line(tmp_path: Any) -> None:
    for name, flags in (("true.npz", ()), ("seen.npz", ("--vision",))):
        works("simulate", "tag", "--minutes", 0.1, "-o", tmp_path / name, *flags)
    true, seen = (np.load(tmp_path / name) for name in ("true.npz", "seen.npz"))
    off = np.abs(true["positions"] - seen["positions"])
    assert 0.1 < np.median(off) < 5.0


def test_wrong_commands_say_so() -> None:
    assert run("simulate", "chess").exit_code == 2
    assert run("simulate", "soccer", "--vision").exit_code == 2
    refused = run("simulate", "tag", "--robots", 1)
    assert refused.exit_code == 1
    assert "robots, got 1" in refused.output
