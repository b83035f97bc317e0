"""`DenseCRF`: images, volumes and points, unaries of all kinds, and what is told of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import crfield
from crfield import DenseCRF
from crfield.errors import FeatureError, InputError, LabelError, ShapeError


def images(n: int = 6, *, seed: int = 0, noise: float = 0.6) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Blocks of two labels, seen in noise."""
    rng = np.random.default_rng(seed)
    truth = [np.kron(rng.integers(0, 2, (2, 3)), np.ones((7, 7), int)) for _ in range(n)]
    return [t + rng.normal(scale=noise, size=t.shape) for t in truth], [np.where(t, "sky", "sea") for t in truth]


def probabilities(y: list[np.ndarray], *, seed: int = 0, right: float = 0.6) -> list[np.ndarray]:
    """What a mediocre network says of two labels."""
    rng = np.random.default_rng(seed)
    made = []
    for labels in y:
        chance = np.where(labels == "sky", right, 1 - right)
        p = np.clip(chance + rng.normal(scale=0.25, size=chance.shape), 0.02, 0.98)
        made.append(np.stack([1 - p, p], axis=-1))
    return made


def test_better_than_pixels_alone() -> None:
    X, y = images()
    model = DenseCRF(sweeps=5, max_iter=30, tol=1e-2).fit(X[:4], y[:4])
    alone = DenseCRF(sweeps=0, learn_widths=False, tol=1e-2).fit(X[:4], y[:4]).score(X[4:], y[4:])
    assert model.score(X[4:], y[4:]) > alone + 0.05
    assert model.sweeps_ == 5
    assert len(model.widths_) == len(model.compatibilities_) == 2


def test_unaries_from_outside() -> None:
    X, y = images(noise=0.3)
    unary = probabilities(y)
    model = DenseCRF(sweeps=5, max_iter=30, tol=1e-2).fit(X[:4], y[:4], unary=unary[:4])
    assert model.local_ is None
    alone = np.mean([((p[..., 1] > 0.5) == (t == "sky")).mean() for p, t in zip(unary[4:], y[4:])])
    assert model.score(X[4:], y[4:], unary=unary[4:]) > alone + 0.1
    assert model.predict(X[4:], unary=unary[4:])[0].shape == y[4].shape
    with pytest.raises(InputError, match="predict\\(X, unary=probabilities\\)"):
        model.predict(X)
    with pytest.raises(InputError, match="probabilities"):
        model.predict(X[:1], unary=[-unary[0]])
    with pytest.raises(ShapeError, match=r"unary\[0\] must be probabilities of shape \(14, 21, 2\)"):
        model.predict(X[:1], unary=[unary[0][..., :1]])
    with pytest.raises(ShapeError, match="one array for each of 2 images"):
        model.predict(X[:2], unary=unary[:1])


@pytest.mark.parametrize("unknown", [None, "?"])
def test_scribbles(unknown: Any) -> None:
    X, y = images(1, noise=0.2)
    scribble = np.full(y[0].shape, unknown, object)
    for row in (3, 10):
        scribble[row, ::3] = y[0][row, ::3]
    model = DenseCRF(unknown=unknown, colour_weight=10.0, colour_width=0.3, certainty=0.9).untrained(["sea", "sky"])
    found = model.predict(X, unary=[scribble])[0]
    assert (found == y[0]).mean() > 0.95
    with pytest.raises(LabelError, match="land"):
        model.predict(X, unary=[np.full(y[0].shape, "land")])


def test_volumes_and_points_are_read_alike() -> None:
    """An image is a volume of one layer, and its pixels are points."""
    X, y = images(3, noise=0.4)
    unary = probabilities(y)
    options: dict[str, Any] = {"colour_width": 0.5, "sweeps": 4}
    image = DenseCRF(**options).untrained(["sea", "sky"]).predict_proba(X, unary=unary)
    columns = []
    for x in X:
        row, column = np.mgrid[: x.shape[0], : x.shape[1]]
        columns.append(np.stack([column, row, x], axis=-1).reshape(-1, 3))
    points = DenseCRF(form="points", n_positions=2, **options).untrained(["sea", "sky"])
    found = points.predict_proba(columns, unary=[p.reshape(-1, 2) for p in unary])
    for one, other in zip(image, found):
        np.testing.assert_allclose(one.reshape(-1, 2), other, atol=1e-4)
    volume = DenseCRF(form="volume", accuracy="high", **options).untrained(["sea", "sky"])
    layers = volume.predict_proba([x[None] for x in X], unary=[p[None] for p in unary])
    flat = DenseCRF(accuracy="high", **options).untrained(["sea", "sky"]).predict_proba(X, unary=unary)
    assert layers[0].shape == (1, *unary[0].shape)
    assert np.abs(layers[0][0] - flat[0]).mean() < 0.05


def test_convergent_update_settles() -> None:
    X, y = images(2)
    unary = probabilities(y)
    repel = DenseCRF(smooth_weight=-30.0, colour_weight=0.0, colour_width=1.0, update="convergent")
    found = repel.untrained(["sea", "sky"]).infer(X, unary=unary)
    assert all(one.converged for one in found)
    assert all(np.diff(one.bound).min() > -1e-3 for one in found if one.bound is not None)
    plain = repel.set_params(update="parallel", sweeps=50).untrained(["sea", "sky"]).infer(X, unary=unary)
    assert not any(one.converged for one in plain)
    with pytest.raises(InputError, match="convergent"):
        DenseCRF(update="convergent", normalization="before").fit(X, y)


def test_labels_that_are_missing() -> None:
    X, y = images(4)
    partly = [t.astype(object) for t in y]
    for t in partly:
        t[::2] = None
    t[1, 1] = {"sea", "sky"}
    model = DenseCRF(sweeps=2, max_iter=10, tol=1e-2, learn_widths=False).fit(X, partly)
    assert model.score(X, y) > 0.8
    assert model.score(X, partly) > 0.8


def test_classes_of_a_network_that_y_lacks() -> None:
    X, y = images(2)
    unary = [np.concatenate([p, np.full((*p.shape[:2], 1), 0.05)], axis=-1) for p in probabilities(y)]
    model = DenseCRF(classes=["sea", "sky", "land"], sweeps=1, learn_widths=False, tol=1e-2)
    model.fit(X, y, unary=unary)
    assert model.classes_.tolist() == ["sea", "sky", "land"]
    assert model.predict_proba(X, unary=unary)[0].shape == (14, 21, 3)


def test_files(tmp_path: Path) -> None:
    X, y = images(2)
    unary = probabilities(y)
    model = DenseCRF(compatibility="diagonal", sweeps=2, learn_widths=False, tol=1e-2).fit(X, y, unary=unary)
    model.save(tmp_path / "dense.crfield")
    again = crfield.load(tmp_path / "dense.crfield")
    np.testing.assert_array_equal(again.predict_proba(X, unary=unary)[0], model.predict_proba(X, unary=unary)[0])
    DenseCRF(colour_width=1.0).untrained([1, 2]).save(tmp_path / "plain.crfield")
    assert crfield.load(tmp_path / "plain.crfield").sweeps_ == 5
    tree = DenseCRF(DecisionTreeClassifier(max_depth=2), sweeps=1, learn_widths=False, tol=1e-2).fit(X, y)
    with pytest.raises(InputError, match="joblib"):
        tree.save(tmp_path / "tree.crfield")


def test_wrong_data_are_told_of() -> None:
    X, y = images(3)
    with pytest.raises(ShapeError, match=r"Write \[image\]"):
        DenseCRF().fit(X[0], y[0])
    with pytest.raises(LabelError, match="images of labels"):
        DenseCRF().fit(X, None)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="shape"):
        DenseCRF().fit(X, [t[:-1] for t in y])
    with pytest.raises(ShapeError, match="entries"):
        DenseCRF().fit(X, y[:-1])
    bad = [x.copy() for x in X]
    bad[1][1, 1] = np.nan
    with pytest.raises(FeatureError, match="graph 1, node 22"):
        DenseCRF().fit(bad, y)
    with pytest.raises(FeatureError, match="numbers"):
        DenseCRF().fit([np.full((2, 2), "a")], [np.zeros((2, 2), int)])
    with pytest.raises(InputError, match="two labels"):
        DenseCRF().fit(X, [np.zeros(x.shape, int) for x in X])
    with pytest.raises(ShapeError, match="components"):
        DenseCRF().fit([np.zeros((2, 2, 20))], [np.array([[0, 1], [0, 1]])])
    with pytest.raises(ShapeError, match="n_positions"):
        DenseCRF(form="points").fit([np.zeros((4, 2))], [np.array([0, 1, 0, 1])])
    model = DenseCRF(sweeps=1, learn_widths=False, tol=1e-2).fit(X, y)
    with pytest.raises(ShapeError, match="channels"):
        model.predict([np.zeros((2, 2, 3))])
    with pytest.raises(FeatureError, match="one scale"):
        model.predict([np.full((2, 2), 1e9)])
    options = ({"sweeps": -1}, {"sweeps": "all"}, {"smooth_width": 0.0}, {"form": "film"}, {"accuracy": "best"})
    for bad_option in options:
        with pytest.raises(InputError, match=next(iter(bad_option))):
            DenseCRF(**bad_option).fit(X, y)  # type: ignore[arg-type]
