"""What can be said, what it means, and where a fault is shown."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress

import numpy as np
import pytest

from crfield.errors import InputError, ModelFileError, TemplateError
from crfield.features.relational import STANDARD, Catalogue, Recordings, Specification
from crfield.features.relational.examples import TAG_SMALL

GAME = {"labels": ["a", "b", "rest"], "teams": {"us": ["a", "b"], "them": ["c"]}, "objects": ["ball"]}


def values(line: str, moving: np.ndarray, **words: object) -> np.ndarray:
    """(N, columns) of one template for agents 0, 1, … and one label."""
    catalogue = Specification.parse(line).expand(**{"labels": 1, "agents": moving.shape[1], **words})  # type: ignore[arg-type]
    return catalogue.on(moving, rate=1.0).chunk(np.arange(catalogue.n_columns))


@pytest.mark.parametrize(
    ("text", "said", "under"),
    [
        ("near : dist(a,b)", "'state' or 'trans'", ":"),
        ("near state dist(a,b)", "':'", "dist"),
        ("near state : dist(a,b", "to close dist(", ""),
        ("near state : dist(a b) | for a in agents, b in agents", "to close", "b"),
        ("near state : speed(a) | each a in agents", "one of the clauses", "each"),
        ("near state : speed(a) | for a in nobody", "no domain 'nobody'", "a in nobody"),
        ("near state : speed(z)", "takes an agent", "z"),
        ("near state : sped(a) | for a in agents", "did you mean speed", "sped(a)"),
        ("near state : vel(a) | for a in agents", "expected a scalar, got a vector", "vel(a)"),
        ("near state : dot(vel(a), 3) | for a in agents", "(vector, vector)", "dot(vel(a), 3)"),
        ("near state : speed(a) | for a in agents | where speed(a) < 3", "expected a variable", "speed(a)"),
        ("near state : speed(a) | for a in agents | where Yp == a", "'trans'", "Yp"),
        ("near state : speed(a) | for a in agents | where a < 'rest'", "have an order", "a < 'rest'"),
        ("near state : speed(a) | for a in agents | where a == 'nemo'", "'nemo'", "'nemo'"),
        ("near state : speed(a) | for a in agents | where a != a", "stands for nothing", "near"),
        ("near state : speed(a) | for a in agents | test < 5:1:1", "a ≤ b", "5"),
        ("near state : speed(a) | for a in agents | test = 5", "the character '='", "="),
        ("near state : speed(a) | for a in agents | test < 1,1", "twice", "test"),
        ("near state : speed(a) | for a in agents | test < 1 | pow 2", "0 or 1", "pow"),
        ("near state : speed(a) | for a in agents | win most 3", "kind of window", "most"),
        ("near state : speed(a) | for a in agents | win all 0", "an integer ≥", "0"),
        ("near state : speed(a) | for a in agents | lag 1.5", "an integer ≥", "1.5"),
        ("near state : speed(a) | for a in agents, a in us", "is a loop variable already", "a in us"),
        ("near state : min(dist(a,b) for b in them if b == a) | for a in us", "nothing is left", "min(dist(a,b)"),
        ("near state : (1,2)", "select_min", "(1,2)"),
        ("near state : 'a'", "conditions only", "'a'"),
        ("near state : __import__('os')", "no function '__import__'", "__import__('os')"),
        ("near state : speed(a).real | for a in agents", "the character '.'", "."),
        ("near state : 1 < 2 < 3", "one comparison", "<"),
        ("near state : const(1)\nnear state : const(2)", "already", "near"),
        ("near state : comp(vel(a), z) | for a in agents", "an axis", "z"),
        ("near state : lag(speed(a), -1) | for a in agents", "a number of steps", "-1"),
        ("near state : 1e999", "too large", "1e999"),
    ],
)
def test_faults_are_shown_under_their_place(text: str, said: str, under: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Specification.parse(text).expand(**GAME)  # type: ignore[arg-type]
    message, line, carets = str(caught.value).split("\n")
    assert said in message
    start, end = carets.index("^"), carets.rindex("^") + 1
    assert line[start:end].startswith(under)
    assert line.strip() in text


@pytest.mark.parametrize(
    "text", ["a state : " + "(" * 3000, "a state : " + "-" * 1500 + "x", "a state : " + "1+" * 900]
)
def test_no_text_exhausts_the_stack(text: str) -> None:
    with pytest.raises(TemplateError):
        Specification.parse(text).expand(labels=1)


def test_any_text_is_read_or_refused() -> None:
    rng = np.random.default_rng(0)
    parts = [
        "a",
        "state",
        ":",
        "(",
        ")",
        "|",
        "for",
        "in",
        "robots",
        "dist",
        ",",
        "<",
        "5",
        "~",
        "Y",
        "'q'",
        "-",
        "if",
    ]
    for _ in range(2000):
        words = rng.choice(parts, rng.integers(1, 14)).tolist()
        with suppress(TemplateError):
            Specification.parse("x state : " + " ".join(words)).expand(labels=2, agents=2)


def test_conditions_tie_labels_to_agents() -> None:
    spec = Specification.parse(
        """
        mine  state : speed(r)  | for r in us | where Y == r
        other state : speed(r)  | for r in us | where Y != r and Y != 'rest'
        pass  trans : dist(p,q) | for p in us, q in us | where Yp == p and Y == q and p != q
        stay  trans : const(1)  | where Y == Yp
        team  state : const(1)  | where Y in us
        late  trans : const(1)  | where Yp < Y
        """
    )
    catalogue = spec.expand(**GAME)  # type: ignore[arg-type]
    assert catalogue.counts == {"mine": 2, "other": 2, "pass": 2, "stay": 3, "team": 2, "late": 3}
    names = [catalogue.name(k) for k in range(len(catalogue))]
    assert names[:6] == [
        "mine(a) | a",
        "mine(b) | b",
        "other(a) | b",
        "other(b) | a",
        "pass(a,b) | a→b",
        "pass(b,a) | b→a",
    ]
    assert names[6:9] == ["stay | a→a", "stay | b→b", "stay | rest→rest"]


def test_domains_and_single_objects() -> None:
    text = "d state : dist(r, ball) + dist(r, 'c') | for r in us | where r not in them"
    assert Specification.parse(text).expand(**GAME).n_columns == 2  # type: ignore[arg-type]
    for wrong in (
        {"labels": 0},
        {"labels": 2, "agents": ["a", "a"]},
        {"labels": 2, "agents": ["a"], "teams": {"us": ["b"]}},
        {"labels": 2, "teams": {"all": ["b"]}},
        {"labels": "ab"},
    ):
        with pytest.raises(InputError):
            Specification.parse("d state : const(1)").expand(**wrong)  # type: ignore[arg-type]


def test_a_template_may_run_over_lines_and_hold_remarks() -> None:
    text = "# first\nnear trans : dist(a,\n   b)   # far\n  | for a in robots,\n b in robots | where a < b\n"
    with pytest.raises(TemplateError, match="expected a variable, got the end"):
        Specification.parse(text)
    joined = text.replace("robots,\n b", "robots, b")
    assert Specification.parse(joined).expand(labels=2, agents=3).n_candidates == 12


def test_expressions_mean_what_they_say() -> None:
    rng = np.random.default_rng(3)
    moving = rng.normal(size=(9, 2, 2))
    p, q = moving[:, 0], moving[:, 1]
    v = np.vstack([np.zeros(2), np.diff(p, axis=0)])
    w = np.vstack([np.zeros(2), np.diff(q, axis=0)])
    far = np.linalg.norm(p - q, axis=1)
    two = "| for a in robots, b in robots | where a < b"
    for text, wanted in {
        "1 + 2 * 3 - 4 / 8": np.full(9, 6.5),
        "-(2 - 5) * 2": np.full(9, 6.0),
        "1 / 0": np.zeros(9),
        "dist(a,b) / 2": far / 2,
        "dist(b,a)": far,
        "norm(pos(a) - pos(b) * 2)": np.linalg.norm(p - 2 * q, axis=1),
        "comp(rel(a,b), y)": (q - p)[:, 1],
        "comp(relvel(a,b), x)": (w - v)[:, 0],
        "speed(a) < speed(b)": (np.linalg.norm(v, axis=1) < np.linalg.norm(w, axis=1)) * 1.0,
        "not speed(a) < 1 and speed(b) >= 1": ((np.linalg.norm(v, axis=1) >= 1) & (np.linalg.norm(w, axis=1) >= 1))
        * 1.0,
        "cosang(vel(a), vel(a))": np.concatenate([[0.0], np.ones(8)]),
        "angle(rel(a,b))": np.arctan2(*(q - p).T[::-1]),
        "cross(pos(a), pos(b))": p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0],
        "norm(acc(a))": np.linalg.norm(np.vstack([np.zeros(2), np.diff(v, axis=0)]), axis=1),
        "lag(dist(a,b), 3)": far[np.maximum(np.arange(9) - 3, 0)],
        "delta(dist(a,b), 2)": far - far[np.maximum(np.arange(9) - 2, 0)],
        "past_max(dist(a,b), 2)": np.maximum(far, far[np.maximum(np.arange(9) - 1, 0)]),
        "max(dist(a,b), 1, 0.5)": np.maximum(far, 1.0),
        "choose(dist(a,b) > 1, 5, 7)": np.where(far > 1, 5.0, 7.0),
        "count(dist(a,o) < 1 for o in robots)": 1.0 + (far < 1),
        "sum(speed(o) for o in robots if o != b)": np.linalg.norm(v, axis=1),
        "mean(comp(pos(o), x) for o in robots)": moving[:, :, 0].mean(axis=1),
        "any(dist(o,b) > 1 for o in robots)": (far > 1) * 1.0,
        "all(dist(o,b) > 1 for o in robots)": np.zeros(9),
        "select_min((comp(pos(o),x), comp(pos(o),y)) for o in robots)": np.where(
            p[:, 0] <= q[:, 0], p[:, 1], q[:, 1]
        ),
        "select_max(comp(pos(o),x), comp(pos(o),y) for o in robots)": np.where(p[:, 0] >= q[:, 0], p[:, 1], q[:, 1]),
        "closest(a, robots)": far,
        "sqrt(-1) + abs(-2) + sign(-3) + clip(9, 0, 4)": np.full(9, 5.0),
    }.items():
        found = values(f"f state : {text} {two}", moving)[:, 0]
        assert found == pytest.approx(wanted, abs=1e-12), text


def test_windows_tests_lags_and_powers_by_loops() -> None:
    rng = np.random.default_rng(4)
    moving = rng.normal(size=(30, 1, 1)).cumsum(axis=0)
    g = moving[:, 0, 0]
    head = "f state : comp(pos(r), x) | for r in robots"
    tests = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
    for kind, gather in (("all", all), ("any", any)):
        for sign, test in tests.items():
            found = values(f"{head} | test {sign} -1,0.5 | win {kind} 1,4 | lag 0,3", moving, axes="x")
            k = 0
            for width in (1, 4):
                for lag in (0, 3):
                    for threshold in (-1, 0.5):
                        ends = [max(t - lag, 0) for t in range(30)]
                        wanted = [gather(test(g[max(0, e - width + 1) : e + 1], threshold)) for e in ends]
                        assert found[:, k].tolist() == [float(x) for x in wanted]
                        k += 1
    for kind, gather in (("mean", np.mean), ("min", np.min), ("max", np.max)):
        found = values(f"{head} | win {kind} 4 | pow 1,2,0.5", moving, axes="x")
        wanted = np.array([gather(g[max(0, t - 3) : t + 1]) for t in range(30)])
        assert found[:, 0] == pytest.approx(wanted)
        assert found[:, 1] == pytest.approx(wanted**2)
        assert found[:, 2] == pytest.approx(np.sign(wanted) * np.sqrt(np.abs(wanted)))


def doubled(a: np.ndarray) -> np.ndarray:
    return 2 * a


def test_users_add_functions_and_channels() -> None:
    table = STANDARD.adding("doubled", doubled, takes=["scalar"])
    words = {"labels": 2, "agents": 2, "channels": ["clock"], "agent_channels": ["charge"], "functions": table}
    spec = Specification.parse("f state : doubled(charge(r)) - clock | for r in robots")
    catalogue = spec.expand(**words)  # type: ignore[arg-type]
    charge = np.arange(6.0).reshape(3, 2)
    played = Recordings.of(np.zeros((3, 2, 2)), channels={"clock": [np.ones(3)]}, agent_channels={"charge": [charge]})
    assert np.array_equal(catalogue.on(played).chunk(np.array([0, 1])), 2 * charge - 1)
    for wrong in ("norm", "two words", "lag", "Y"):
        with pytest.raises(InputError):
            STANDARD.adding(wrong, doubled, takes=["scalar"])
    with pytest.raises(InputError):
        STANDARD.adding("odd", doubled, takes=["agent"])
    with pytest.raises(InputError, match="doubled"):
        Catalogue.from_state(catalogue.state())
    again = Catalogue.from_state(json.loads(json.dumps(catalogue.state())), functions=table)
    for copy in (again, pickle.loads(pickle.dumps(catalogue))):
        assert [copy.name(k) for k in range(4)] == [catalogue.name(k) for k in range(4)]
        assert np.array_equal(copy.on(played).chunk(np.array([0, 1])), 2 * charge - 1)


def test_damaged_headers_are_refused() -> None:
    good = Specification.parse(TAG_SMALL).expand(labels=3, agents=3).state()
    assert Catalogue.from_state(good).n_candidates == 324
    for key in good:
        for value in (None, 3, [3], {"robots": [["agent", 9]]}, "x state : ("):
            if (key, value) == ("functions", []):
                continue
            with pytest.raises((ModelFileError, InputError)):
                Catalogue.from_state({**good, key: value})
