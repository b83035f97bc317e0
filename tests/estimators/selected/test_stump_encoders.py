"""`StumpEncoder` and `StumpSelector`: flat rows, sequences and graphs in and out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

import crfield
from crfield import ChainCRF, Graph, GraphCRF, LogitBoost, StumpEncoder, StumpSelector, chain
from crfield.errors import InputError, LabelError, ModelFileError, NotFittedError, ShapeError

both = pytest.mark.parametrize("maker", [StumpEncoder, StumpSelector])


def sequences(seed: int = 0, n: int = 8) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Three labels that stay for a while; columns 1 and 3 tell them apart, 0 is noise, 2 is constant."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(rng.integers(0, 3, 6), 5)[: int(rng.integers(18, 30))]
        columns = rng.normal(size=(len(labels), 4))
        columns[:, 1] += 4.0 * (labels > 0)
        columns[:, 2] = 1.0
        columns[:, 3] += 4.0 * (labels == 2)
        X.append(columns)
        y.append(np.array(["a", "b", "c"])[labels])
    return X, y


@parametrize_with_checks([StumpEncoder(), StumpSelector(n_rounds=5)])
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


@both
def test_cells_that_are_no_real_numbers_are_refused(maker: Any) -> None:
    y = ["a", "b"]
    with pytest.raises(ShapeError, match="Complex data not supported"):
        maker().fit(np.array([[1j], [2.0]]), y)
    with pytest.raises(TypeError, match=r"X must be numbers .* not 'dict'"):
        maker().fit(np.array([[{}], [2.0]], dtype=object), y)
    with pytest.raises(ShapeError, match="X must be numbers"):
        maker().fit(np.array([["x"], [2.0]], dtype=object), y)
    with pytest.raises(ShapeError, match=r"0 sample\(s\)"):
        maker().fit(np.zeros((0, 3)), [])
    with pytest.raises(ShapeError, match=r"0 feature\(s\)"):
        maker().fit(np.zeros((2, 0)), y)
    assert maker().fit(np.array([[1.0], [2.0]], dtype=object), y).transform(np.zeros((0, 1))).shape == (0, 1)


def entropy(labels: np.ndarray) -> float:
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(share * np.log(share)).sum())


def test_stumps_have_the_largest_information_gain(body: str) -> None:
    X, y = sequences(n=3)
    x, labels = np.concatenate(X), np.concatenate(y)
    encoder = StumpEncoder(max_bins=255).fit(X, y)
    assert [q.column for q in encoder.questions_] == [0, 1, 3]
    for question, gain in zip(encoder.questions_, encoder.gains_, strict=True):
        column = x[:, question.column]
        gains = {}
        for t in np.unique(column)[:-1]:
            parts = labels[column > t], labels[column <= t]
            gains[t] = entropy(labels) - sum(len(part) / len(labels) * entropy(part) for part in parts)
        best = max(gains, key=gains.__getitem__)
        assert gain == pytest.approx(gains[best], rel=1e-9)
        np.testing.assert_array_equal(column > question.threshold, column > best)


def test_selected_stumps_are_those_of_the_rounds() -> None:
    X, y = sequences()
    selector = StumpSelector(n_rounds=12).fit(X, y)
    model = LogitBoost(n_rounds=12).fit(np.concatenate(X), np.concatenate(y))
    assert selector.get_feature_names_out().tolist() == list(dict.fromkeys(model.rounds_.picks))
    assert selector.gains_.sum() == pytest.approx(sum(r.gain for r in model.rounds_))


@both
def test_the_form_that_comes_in_goes_out(maker: Any) -> None:
    X, y = sequences()
    encoder = maker().fit(X, y)
    made = encoder.transform(X)
    assert isinstance(made, list)
    assert [m.shape[0] for m in made] == [x.shape[0] for x in X]
    assert {v for m in made for v in np.unique(m)} == {0.0, 1.0}
    assert made[0].shape[1] == len(encoder.get_feature_names_out()) == len(encoder.questions_)
    flat = maker().fit(np.concatenate(X), np.concatenate(y))
    table = flat.transform(np.concatenate(X))
    assert isinstance(table, np.ndarray)
    np.testing.assert_array_equal(table, np.concatenate(made))
    thin = maker().fit([sparse.csr_matrix(x) for x in X], y)
    np.testing.assert_array_equal(np.concatenate(thin.transform([sparse.csr_matrix(x) for x in X])), table)
    graphs = [chain(x) for x in X]
    for graph, wanted in zip(maker().fit(graphs, y).transform(graphs), made, strict=True):
        assert isinstance(graph, Graph)
        np.testing.assert_array_equal(graph.nodes["node"], wanted)
    assert encoder.transform([]) == []
    assert encoder.transform([np.zeros((0, 4)), np.zeros((1, 4))])[0].shape[0] == 0


@both
def test_kinds_of_nodes_have_questions_of_their_own(maker: Any) -> None:
    X, y = sequences(n=6)
    graphs, labels = [], []
    for x, own in zip(X, y, strict=True):
        places = np.where(own[::3] == "c", "out", "in")
        readings = np.where(places == "out", 2.0, -2.0)[:, None] + np.random.default_rng(0).normal(
            size=(len(places), 1)
        )
        graphs.append(Graph({"state": x, "place": readings, "bare": 2}))
        labels.append({"state": own, "place": places, "bare": ["u", "v"]})
    encoder = maker().fit(graphs, labels)
    assert set(encoder.questions_) == {"state", "place"}
    made = encoder.transform(graphs)[0]
    assert made.nodes["place"].shape[1] == len(encoder.questions_["place"])
    assert made.kinds == graphs[0].kinds
    together = maker().fit(graphs, [np.concatenate(list(one.values())) for one in labels])
    assert together.questions_ == encoder.questions_
    assert encoder.get_feature_names_out()[0].startswith("state: x[")


@both
def test_pipelines_with_fields(maker: Any) -> None:
    X, y = sequences()
    test_X, test_y = sequences(seed=1)
    model = make_pipeline(maker(), ChainCRF()).fit(X, y)
    assert model.score(test_X, test_y) > 0.9
    assert (
        model.predict(test_X)[0].tolist()
        == ChainCRF().fit(model[0].transform(X), y).predict(model[0].transform(test_X))[0].tolist()
    )
    graphs, test_graphs = [chain(x) for x in X], [chain(x) for x in test_X]
    assert make_pipeline(maker(), GraphCRF()).fit(graphs, y).score(test_graphs, test_y) > 0.9
    search = GridSearchCV(make_pipeline(maker(), ChainCRF()), {"chaincrf__l2": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8


@both
def test_unknown_labels_and_missing_values_are_no_trouble(maker: Any) -> None:
    X, y = sequences()
    hidden = [[None if k % 4 == 0 else label for k, label in enumerate(labels)] for labels in y]
    kept = [np.arange(len(labels)) % 4 != 0 for labels in y]
    one = maker().fit(X, hidden)
    other = maker().fit([x[k] for x, k in zip(X, kept, strict=True)], [l[k] for l, k in zip(y, kept, strict=True)])
    assert one.questions_ == other.questions_
    gaps = [x.copy() for x in X]
    for x, labels in zip(gaps, y, strict=True):
        x[labels == "b", 0] = np.nan
    encoder = maker().fit(gaps, y)
    assert "x[0] is missing" in encoder.get_feature_names_out()
    place = encoder.get_feature_names_out().tolist().index("x[0] is missing")
    np.testing.assert_array_equal(encoder.transform(gaps)[0][:, place], y[0] == "b")


@both
def test_what_cannot_be_encoded_is_said(maker: Any) -> None:
    X, y = sequences(n=3)
    with pytest.raises(NotFittedError, match="not fitted"):
        maker().transform(X)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(maker())
    with pytest.raises(InputError, match="needs y"):
        maker().fit(X, None)
    with pytest.raises(ShapeError, match="3 parts"):
        maker().fit(X, y[:2])
    with pytest.raises(ShapeError, match="same number of columns"):
        maker().fit([X[0], X[1][:, :2]], y[:2])
    with pytest.raises(LabelError, match="label"):
        maker().fit(X, [[None] * len(labels) for labels in y])
    with pytest.raises(ShapeError, match="numbers"):
        maker().fit([[["a", "b"]]], [["x"]])
    encoder = maker().fit(X, y)
    with pytest.raises(ShapeError, match="expecting 4"):
        encoder.transform([X[0][:, :3]])
    with pytest.raises(InputError, match="numeric"):
        maker().fit([chain([["fast"], ["slow"]])], [["x", "y"]])


@both
def test_one_class_and_constant_columns_leave_nothing_or_little(maker: Any) -> None:
    constant = maker().fit([np.ones((4, 2))], [["a", "b", "a", "b"]])
    assert constant.transform([np.ones((3, 2))])[0].shape == (3, 0)
    single = maker().fit(np.arange(6.0).reshape(3, 2), ["a", "a", "a"])
    assert single.transform(np.ones((2, 2))).shape[0] == 2


@both
def test_files_pickles_and_clones(maker: Any, tmp_path: Path) -> None:
    X, y = sequences()
    graphs = [Graph({"state": x, "place": x[:, :2]}) for x in X]
    for data, labels in ((X, y), (graphs, [{"state": one, "place": one} for one in y])):
        encoder = maker(max_bins=16).fit(data, labels)
        encoder.save(tmp_path / "encoder.crfield")
        for copy in (crfield.load(tmp_path / "encoder.crfield"), pickle.loads(pickle.dumps(encoder))):
            assert type(copy) is maker
            assert copy.get_params() == encoder.get_params()
            assert copy.questions_ == encoder.questions_
            assert copy.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
            for one, other in zip(copy.transform(data), encoder.transform(data), strict=True):
                if isinstance(one, Graph):
                    one, other = one.nodes["state"], other.nodes["state"]
                np.testing.assert_array_equal(one, other)
    twin = clone(encoder)
    assert twin.get_params() == encoder.get_params()
    assert not hasattr(twin, "questions_")
    data = bytearray((tmp_path / "encoder.crfield").read_bytes())
    data[40] ^= 0xFF
    (tmp_path / "encoder.crfield").write_bytes(bytes(data))
    with pytest.raises(ModelFileError):
        crfield.load(tmp_path / "encoder.crfield")


def test_names_of_columns_are_used() -> None:
    encoder = StumpEncoder().fit(np.array([[0.0, 1.0], [1.0, 1.0]]), ["a", "b"])
    assert encoder.get_feature_names_out(["speed", "height"]).tolist() == ["speed > 0.5"]
    with pytest.raises(InputError, match="n_rounds"):
        StumpSelector(n_rounds=0).fit(np.eye(2), ["a", "b"])
