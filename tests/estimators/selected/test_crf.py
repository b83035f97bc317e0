"""`SelectedCRF`: every form of input, recordings, choices, streams, files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import crfield
from crfield import Recordings, SelectedCRF, Specification
from crfield.errors import CrfieldError, InputError, ModelFileError
from crfield.features.relational import STANDARD
from crfield.report.displays.paths import plot_paths, plot_weights
from crfield.report.weights import LabelPair
from tests.cases.estimators import as_arrays, as_csr, as_dicts, as_strings, world

SPEC = """
chasing state : cosang(rel(a,b), vel(a)) | for a in robots, b in robots | where a != b
slow    state : speed(a) | for a in robots | test <,> 100:700:200 | win all 1,10
touch   trans : dist(a,b) | for a in robots, b in robots | where a < b | test < 240,300 | lag 0,1
"""


def sensors(n: int = 8, *, seed: int = 0, columns: int = 12) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Columns 3 and 5 tell two labels of three, the others nothing."""
    rng = np.random.default_rng(seed)
    y = [np.repeat(rng.choice(["rest", "run", "walk"], 8), 5) for _ in range(n)]
    X = []
    for labels in y:
        x = rng.normal(size=(len(labels), columns)) * 100 + 7
        x[:, 3] += 300 * (labels == "run")
        x[:, 5] -= 300 * (labels == "walk")
        X.append(x)
    return X, y


def games(seconds: float = 15.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    played = [
        crfield.make_tag(seconds / 60, scheme="unconstrained", random_state=seed, pause=1.0) for seed in range(4)
    ]
    return [game.positions for game in played], [game.labels for game in played]


CATALOGUE = Specification.parse(SPEC).expand(labels=3, agents=3)


def test_it_finds_what_matters_and_says_so_in_the_users_units() -> None:
    X, y = sensors()
    model = SelectedCRF(options={"patience": 5, "max_features": 8}).fit(X, y)
    names = {item.name for item in model.features_[:2]}
    assert names <= {"x[3]", "x[5]"}
    assert model.score(*sensors(seed=1)) > 0.9
    assert model.n_features_ == len(model.features_) == model.path_[model.n_iter_].n_features
    assert (np.diff(np.abs(model.strengths_)) <= 1e-12).all()
    strongest, strength = model.features_[0], model.strengths_[0]
    column = np.concatenate([x[:, int(strongest.name[2:-1])] for x in X])
    # The deviation is that of the part that was trained on, so about that of the whole.
    assert strongest.weight * column.std() == pytest.approx(strength, rel=0.2)
    assert model.transitions_.weights.shape == (3, 3)


@pytest.mark.parametrize(
    "write", [as_dicts, as_strings, as_arrays, as_csr], ids=["dicts", "strings", "arrays", "csr"]
)
def test_all_forms_of_input(write: Any) -> None:
    X, y = world(16, seed=1)
    model = SelectedCRF(transition_features="all", options={"max_features": 6}, refit_l2=1.0).fit(write(X), y)
    assert model.score(write(X), y) > 0.5
    potentials = model.potentials(write(X))
    problem_like = model.predict_proba(write(X))
    assert len(problem_like) == 16
    assert potentials.n_labels == 3


def test_the_model_is_the_one_that_was_selected() -> None:
    """Scores of the kept model give the likelihood of the last training, whatever the columns are made of."""
    X, y = world(16, seed=1)
    for write in (as_dicts, as_csr):
        model = SelectedCRF(
            transition_features="all", validation=None, refit_l2=None, boundaries=True, options={"max_features": 9}
        ).fit(write(X), y)
        assert any(isinstance(item.label, LabelPair) for item in model.features_)
        assert -model.log_prob(write(X), y).sum() == pytest.approx(model.path_[-1].model.loss, rel=1e-9)
    X, y = games(10.0)
    model = SelectedCRF(features=CATALOGUE, rate=60.0, validation=None, refit_l2=None, options={"max_features": 6})
    model.fit(X, y)
    assert -model.log_prob(X, y).sum() == pytest.approx(model.path_[-1].model.loss, rel=1e-9)


def test_recordings_streams_and_files(tmp_path: Path) -> None:
    X, y = games()
    model = SelectedCRF(features=CATALOGUE, rate=60.0, options={"max_features": 6}, validation=0.3)
    model.fit(X[:3], y[:3])
    assert model.score(X[3:], y[3:]) > 0.4
    one = [Recordings.of([x], rate=60.0) for x in X]
    np.testing.assert_array_equal(model.predict(one)[0], model.predict(X)[0])
    stream = model.stream()
    followed = np.array([stream.push(step).probabilities for step in X[3][:200]])
    short = model.predict_proba([X[3][:200]])[0]
    np.testing.assert_allclose(followed[-1], short[-1], atol=1e-9)
    path = tmp_path / "tag.crfield"
    model.save(path)
    copy = crfield.load(path)
    for other in (copy, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(X)[0], model.predict_proba(X)[0])
        assert [*other.features_] == [*model.features_]
        assert other.path_.rows()[1:] == model.path_.rows()[1:] or np.isnan(other.path_.rows()[1]["penalty"])
        assert other.path_.best.number == model.path_.best.number
    assert copy.fit(X[:3], y[:3]).n_features_ == model.n_features_


@pytest.mark.parametrize("part", ["columns", "weights", "link_weights"])
def test_damaged_files_are_refused(part: str, tmp_path: Path) -> None:
    from crfield.storage.archive import read_archive, write_archive

    X, y = games(10.0)
    model = SelectedCRF(method="grafting", features=CATALOGUE, rate=60.0, options={"max_features": 4}, refit_l2=1.0)
    model.fit(X, y)
    path = tmp_path / "tag.crfield"
    model.save(path)
    archive = read_archive(path)
    arrays = {name: np.array(archive.arrays[name]) for name in archive.arrays}
    arrays[f"chosen/{part}"] = arrays[f"chosen/{part}"].ravel()[:1] + 10**6
    write_archive(path, archive.header, arrays)
    with pytest.raises(ModelFileError):
        crfield.load(path)


def test_functions_of_ones_own_are_not_saved(tmp_path: Path) -> None:
    table = STANDARD.adding("energy", lambda v: (v * v).sum(axis=1), takes=["vector"])
    hot = Specification.parse("hot state : energy(vel(a)) | for a in robots").expand(
        labels=3, agents=3, functions=table
    )
    X, y = games(10.0)
    model = SelectedCRF(features=hot, rate=1.0, options={"max_features": 2}, refit_l2=1.0).fit(X, y)
    with pytest.raises(InputError, match="joblib"):
        model.save(tmp_path / "hot.crfield")


def test_ways_to_choose_a_round() -> None:
    X, y = sensors(6, columns=7)
    options = {"max_features": 3, "patience": 3}
    other = sensors(3, seed=5, columns=7)
    for validation in (0.3, 3, None, other):
        model = SelectedCRF(validation=validation, options=options).fit(X, y)
        assert np.isnan(model.path_[0].held_error) == (validation is None)
        assert model.refit_l2_ == 1.0 if validation is None else model.refit_l2_ in (0.01, 0.1, 1.0, 10.0, 100.0)
        assert model.score(*other) > 0.85
    kept = SelectedCRF(validation=0.3, options=options, refit_l2=None).fit(X, y)
    assert kept.refit_l2_ is None


def test_one_long_recording_is_cut_in_time() -> None:
    X, y = sensors(6)
    model = SelectedCRF(options={"max_features": 4}).fit([np.concatenate(X)], [np.concatenate(y)])
    assert model.path_.best.held_error < 0.3


def test_partial_labels_and_weights() -> None:
    X, y = sensors()
    loose: list[Any] = [[None if t % 7 == 0 else str(label) for t, label in enumerate(labels)] for labels in y]
    loose[0][1] = {"run", "walk"}
    model = SelectedCRF(options={"max_features": 4, "patience": 3}).fit(X, loose, sample_weight=np.arange(8.0) + 1)
    assert model.score(*sensors(seed=1)) > 0.95


def test_callback_and_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = sensors()
    model = SelectedCRF(method="grafting", callback=lambda one: one.number == 2, verbose=2).fit(X, y)
    assert len(model.path_) == 3
    assert model.stop_reason_ == "callback"
    assert capsys.readouterr().err.count("SelectedCRF (grafting): step") == 3
    pytest.importorskip("matplotlib")
    figure = plot_paths({"grafting": model.path_}, measure="held_nll", against="seconds")
    assert figure.axes[0].get_ylabel() == "held-out −log p per step"
    assert len(plot_weights(model.path_).axes[0].lines) == 3
    with pytest.raises(InputError, match="measure"):
        plot_paths(model.path_, measure="luck")


def test_label_ties_follow_the_labels_of_the_data() -> None:
    """``where Y == a`` means the label of that name, in whatever order the catalogue was told of it."""
    spec = Specification.parse("mine state : speed(a) | for a in robots | where Y == a")
    catalogue = spec.expand(labels=["c", "b", "a"], agents=["a", "b", "c"])
    rng = np.random.default_rng(0)
    y = [np.repeat(rng.choice(["a", "b", "c"], 12), 10) for _ in range(4)]
    X = []
    for labels in y:
        pace = np.stack([np.where(labels == name, 9.0, 1.0) for name in "abc"], axis=1)
        X.append(np.cumsum(rng.normal(size=(120, 3, 2)) * pace[:, :, None], axis=0))
    model = SelectedCRF(features=catalogue, rate=1.0, options={"max_features": 3}).fit(X, y)
    assert {(item.name, item.label) for item in model.features_} <= {
        ("mine(a)", "a"),
        ("mine(b)", "b"),
        ("mine(c)", "c"),
    }
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "luck"}, "method"),
        ({"options": {"depth": 2}}, "no option"),
        ({"options": [1]}, "dict"),
        ({"features": SPEC}, "expand"),
        ({"validation": 1.5}, "validation"),
        ({"validation": 1}, "validation"),
        ({"refit_l2": "much"}, "refit_l2"),
        ({"refit_l2": -1.0}, "refit_l2"),
        ({"criterion": "f1"}, "criterion"),
        ({"rate": 0}, "rate"),
        ({"min_count": 0}, "min_count"),
        ({"intercept": 1}, "intercept"),
        ({"callback": 3}, "callback"),
        ({"feature_names": ["a"]}, "names"),
    ],
    ids=lambda value: "-".join(f"{k}" for k in value) if isinstance(value, dict) else str(value),
)
def test_words_for_what_cannot_be(options: dict[str, Any], match: str) -> None:
    X, y = sensors(4)
    with pytest.raises(CrfieldError, match=match):
        SelectedCRF(**options).fit(X, y)


def test_words_for_recordings_that_do_not_fit() -> None:
    X, y = games(10.0)
    model = SelectedCRF(features=CATALOGUE, rate=60.0, options={"max_features": 1})
    with pytest.raises(InputError, match="list"):
        model.fit(Recordings.of(X), y)
    with pytest.raises(CrfieldError, match="agents"):
        model.fit([x[:, :2] for x in X], y)
    with pytest.raises(CrfieldError, match="NaN"):
        model.fit([np.full_like(X[0], np.nan)], y[:1])
    with pytest.raises(CrfieldError):
        SelectedCRF().fit([np.zeros((0, 2))], [[]])
    with pytest.raises(InputError, match="too few"):
        SelectedCRF().fit([np.zeros((1, 2))], [["a"]])
    lonely = SelectedCRF(validation=None).fit([np.zeros((3, 2))], [["a", "a", "a"]])
    assert lonely.predict([np.zeros((2, 2))])[0].tolist() == ["a", "a"]
    csr = SelectedCRF(options={"max_features": 1}).fit([sp.csr_array(np.eye(6))], [list("aabbaa")])
    assert csr.n_features_ <= 1


# ------------------------------------------------------------------------------------------- the default for columns


def sparse(seed: int, **options: Any) -> tuple[Any, Any, Any]:
    world = crfield.make_sparse_columns(random_state=seed, **{"n_chains": 32, "n_columns": 300, **options})
    return (
        (world.features[:12], world.labels[:12]),
        (world.features[12:], world.labels[12:]),
        set(world.true.tolist()),
    )


def test_the_default_finds_the_few_true_columns_of_many() -> None:
    """Grafting by errors on a quarter, the default before, finds less than half of them."""
    train, test, true = sparse(2001, n_columns=2000)
    model = SelectedCRF().fit(*train)
    chosen = {int(item.name[2:-1]) for item in model.features_}
    assert len(chosen & true) >= 0.75 * len(true)
    assert len(chosen & true) >= 0.75 * len(chosen)
    assert model.score(*test) >= 0.94


def test_where_nothing_is_true_little_is_chosen() -> None:
    (X, y), test, _ = sparse(3, n_true=0, n_columns=100)
    model = SelectedCRF().fit(X, y)
    assert model.n_features_ <= 3
    most = np.bincount(np.concatenate(y)).argmax()
    assert model.score(*test) >= np.mean(np.concatenate(test[1]) == most) - 0.03


def test_what_auto_is_and_why(tmp_path: Path) -> None:
    X, y = sensors()
    model = SelectedCRF().fit(X, y)
    assert model.path_.method == "relaxed"
    assert model.path_.criterion == "nll"
    assert model.stop_reason_ == "best of 5 folds"
    assert model.path_.best is model.path_[model.n_iter_]
    assert model.choice_.startswith(f"relaxed: {model.n_features_} of ")
    assert "in 5 folds" in model.choice_
    model.save(tmp_path / "chosen.crfield")
    copy = crfield.load(tmp_path / "chosen.crfield")
    assert copy.choice_ == model.choice_
    assert copy.path_.best.number == model.path_.best.number
    assert copy.get_params()["validation"] == "auto"
    assert SelectedCRF(options={"m": 2}).fit(X, y).path_.method == "grafting"
    with pytest.raises(InputError, match="no option"):
        SelectedCRF(options={"m": 2, "decay": 0.5}).fit(X, y)
    played, labels = games(10.0)
    computed = SelectedCRF(features=CATALOGUE, rate=60.0, options={"max_features": 3}).fit(played, labels)
    assert computed.path_.method == "grafting"
    assert SelectedCRF(validation=None, refit_l2=None, options={"max_features": 2}).fit(X, y).choice_.endswith("path")


def test_files_of_before_the_choice_was_kept_load(tmp_path: Path) -> None:
    from crfield.storage.archive import read_archive, write_archive

    X, y = sensors(4)
    model = SelectedCRF(method="grafting", validation=0.25, criterion="error", options={"max_features": 2}).fit(X, y)
    path = tmp_path / "old.crfield"
    model.save(path)
    archive = read_archive(path)
    header = {name: value for name, value in archive.header.items() if name != "n_candidates"}
    header["path"] = {name: value for name, value in header["path"].items() if name != "chosen"}
    write_archive(path, header, {name: np.array(archive.arrays[name]) for name in archive.arrays})
    old = crfield.load(path)
    assert old.path_.best.number == model.path_.best.number
    assert old.choice_.startswith(f"grafting: {model.n_features_}, ")
    header["n_candidates"] = -1
    write_archive(path, header, {name: np.array(archive.arrays[name]) for name in archive.arrays})
    with pytest.raises(ModelFileError, match="candidates"):
        crfield.load(path)


def test_penalties_of_ones_own_in_folds() -> None:
    """A grid that begins above the first slope: rounds of folds and of all data mean the same penalties."""
    X, y = sensors(4)
    usual = SelectedCRF(method="relaxed", validation=2).fit(X, y)
    grid = [round_.penalty for round_ in usual.path_][1:]
    above = SelectedCRF(
        method="relaxed", validation=2, options={"lambdas": [4 * grid[0], 3 * grid[0], 2 * grid[0], *grid]}
    ).fit(X, y)
    assert [*above.features_] == [*usual.features_] or above.n_features_ <= usual.n_features_
    assert above.score(X, y) > 0.9
