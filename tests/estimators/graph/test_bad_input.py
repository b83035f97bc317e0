"""Graph estimators meet what people hand in by mistake: the words they answer with, and what survives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import (
    DiscriminativeRandomField,
    Edges,
    FactorialCRF,
    Graph,
    GraphCRF,
    GridCRF,
    MarkovRandomField,
)
from crfield.errors import ConvergenceWarning, DataWarning, InputError, LabelError, ShapeError
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.inference.graphs.site_search import IcmEngine

RING = Edges([(0, 1), (1, 2), (2, 3), (3, 0)], symmetric=True)


def rings(n: int = 6, seed: int = 0) -> tuple[list[Graph], list[list[str]]]:
    rng = np.random.default_rng(seed)
    y = [[("a", "b")[k] for k in rng.integers(0, 2, 4)] for _ in range(n)]
    X = [Graph(np.array([[label == "b"] for label in labels]) + rng.normal(scale=0.4, size=(4, 1))) for labels in y]
    return [Graph(x.nodes["node"], {"near": RING}) for x in X], y


def images(n: int = 4) -> tuple[list[np.ndarray], list[np.ndarray]]:
    X = [np.random.default_rng(k).normal(size=(3, 4)) for k in range(n)]
    return X, [(x > 0).astype(int) for x in X]


def test_an_engine_is_an_object() -> None:
    X, y = rings()
    with pytest.raises(InputError, match=r"got the class LoopyEngine. Write LoopyEngine\(\)"):
        GraphCRF(engine=LoopyEngine).fit(X, y)
    model = GraphCRF().fit(X, y).set_params(map_engine=LoopyEngine)
    with pytest.raises(InputError, match="map_engine must be an engine object"):
        model.predict(X)


@pytest.mark.parametrize("maker", [GridCRF, DiscriminativeRandomField, MarkovRandomField])
@pytest.mark.parametrize("bad", [{"engine": "lopy"}, {"decode": "best"}, {"n_jobs": 0}, {"engine": None}])
def test_questions_are_checked_before_training(maker: Any, bad: dict[str, Any]) -> None:
    X, y = images()
    with pytest.raises(InputError, match=next(iter(bad))):
        maker(**bad).fit(X, y)


@pytest.mark.parametrize("maker", [GridCRF, DiscriminativeRandomField, MarkovRandomField])
def test_images_of_the_wrong_form(maker: Any) -> None:
    X, y = images()
    with pytest.raises(ShapeError, match=r"Write \[image\]"):
        maker().fit(X[0], y[0])
    with pytest.raises(LabelError, match="images of labels"):
        maker().fit(X, None)
    with pytest.raises(ShapeError, match="must have the shape"):
        maker().fit(X, [labels.T for labels in y])


def test_layers_of_the_wrong_form() -> None:
    X, y = [np.eye(3)] * 2, [{"a": [0, 1, 0], "b": [1, 1, 0]}] * 2
    with pytest.raises(InputError, match="different names"):
        FactorialCRF(layers=["a", "a"]).fit(X, [np.zeros((3, 2), int)] * 2)
    model = FactorialCRF().fit(X, y)
    with pytest.raises(ShapeError):
        model.fit(X, [np.zeros((2, 3), int)] * 2)
    assert model.layers_ == ["a", "b"]
    assert model.predict(X)[0].shape == (3, 2)
    assert model.predict_proba([np.zeros((0, 3))])[0]["b"].shape == (0, 2)
    first_left_out = FactorialCRF().fit([X[0], *X], [{"other": [0]}, *y], sample_weight=[0, 1, 1])
    assert first_left_out.layers_ == ["a", "b"]


@pytest.mark.parametrize("labels", [[False, True], [0.5, 1.5], [("a", 1), ("b", 2)], [1, "b"]])
def test_a_field_has_labels_of_any_kind(labels: list[Any]) -> None:
    X, _ = rings()
    y = [[labels[int(v > 0.5)] for v in x.nodes["node"][:, 0]] for x in X]
    model = DiscriminativeRandomField().fit(X, y)
    assert {type(label) for label in model.predict(X)[0]} <= {type(label) for label in labels}
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"local": "logistic"}, "local must be a classifier object"),
        ({"cv": 0}, "cv must be"),
        ({"between": "edges"}, "needs edge features"),
        ({"l2": -1.0}, "l2 must be"),
    ],
)
def test_what_a_discriminative_field_refuses(options: dict[str, Any], words: str) -> None:
    X, y = images()
    with pytest.raises(InputError, match=words):
        DiscriminativeRandomField(**options).fit(X, y)


def test_what_a_markov_field_refuses() -> None:
    X, y = images()
    with pytest.raises(InputError, match="field must be a GraphCRF"):
        MarkovRandomField(field=crfield.ChainCRF()).fit(X, y)
    with pytest.raises(InputError, match=r"density of label 1 .* cannot be fitted"):
        MarkovRandomField().fit([np.arange(4.0).reshape(2, 2)], [np.array([[0, 0], [0, 1]])])


def test_features_that_no_density_knows_tell_nothing() -> None:
    from sklearn.neighbors import KernelDensity

    X, y = images()
    model = MarkovRandomField(KernelDensity(kernel="tophat", bandwidth=0.2)).fit(X, y)
    table = model.predict_proba([np.full((2, 2), 1e6)])[0]
    np.testing.assert_allclose(table.sum(axis=-1), 1.0)


def test_pseudo_likelihood_says_when_unknown_labels_leave_it_little() -> None:
    X, y = rings()
    half = [[labels[0], None, labels[2], None] for labels in y]
    with pytest.warns(DataWarning, match="0 of 12 labelled nodes"):
        GraphCRF(objective="pseudo_likelihood").fit(X, [[*y[0]], *half[1:]][1:] + [[None, "a", None, "b"]])


def test_probabilities_that_had_not_settled_are_told_of() -> None:
    X, y = rings()
    model = GraphCRF(engine=LoopyEngine(max_sweeps=1), objective="pseudo_likelihood").fit(X, y)
    with pytest.warns(ConvergenceWarning, match="LoopyEngine"):
        model.predict_proba(X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "contrastive", "max_iter": 3}, "Raise max_iter"),
        ({"objective": "perceptron", "engine": IcmEngine()}, "can prove that none was"),
        ({"objective": "perceptron", "max_iter": 2, "l2": 0.0}, "Every epoch had a mistake"),
        ({"max_iter": 1}, "Raise max_iter or tol"),
    ],
)
def test_advice_fits_what_was_trained(options: dict[str, Any], words: str) -> None:
    X, y = rings()
    if "engine" in options:  # else mistakes cannot be avoided, and no epoch would be the last
        y = [[str(v > 0.5) for v in x.nodes["node"][:, 0]] for x in X]
    with pytest.warns(ConvergenceWarning, match=words):
        GraphCRF(**options).fit(X, y)


@pytest.mark.filterwarnings("ignore::crfield.errors.ConvergenceWarning")
def test_files_of_models_without_a_value_and_of_tuples(tmp_path: Path) -> None:
    X, y = rings()
    model = GraphCRF(objective="contrastive", max_iter=3).fit(X, y)
    model.save(tmp_path / "sampled.crfield")
    loaded = crfield.load(tmp_path / "sampled.crfield")
    assert np.isnan(loaded.objective_)
    assert loaded.explain() == model.explain()
    pairs = [[("a", 1.5)] * 4, [("b", 2)] * 4] * 3
    GraphCRF(forbidden=[("near", ("a", 1.5), ("b", 2))]).fit(X, pairs).save(tmp_path / "tuples.crfield")
    again = crfield.load(tmp_path / "tuples.crfield")
    assert again.forbidden == [("near", ("a", 1.5), ("b", 2))]
    again.fit(X, pairs)
