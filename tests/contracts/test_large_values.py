"""Finite cells of any size, at every estimator's door: an answer that is one, or an error that names the cell.

One cell of one sequence is made huge. Whatever comes back must be finite probabilities that sum to one, with the
other sequences as they were; or an `InputError` with the sequence (or graph, or row), the step and the feature. Never
NaN, rows of zeros, or noise from numpy.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KernelDensity

from crfield import (
    HMM,
    BestChain,
    ChainCRF,
    ChainCRFCV,
    ClassifierHMM,
    ContinuousCRF,
    HiddenCRF,
    IncompleteBoost,
    KernelCRF,
    KernelLogistic,
    LatentDynamicCRF,
    MaxentClassifier,
    Pipeline,
    TreeCRF,
    encode_dataset,
)
from crfield.data.graphs.graph import Graph
from crfield.errors import CrfieldWarning, FeatureError, InputError, LabelError
from crfield.scoring.densities.gaussian import DiagonalGaussian, family_named
from tests.cases.estimators import CELLS, ESTIMATORS, HUGE, Data, dicts, graphs, steps, table

SIZES = (1e100, 1e155, 1e200, 1e300, 1e308, -1e308)


@dataclass(frozen=True)
class Case:
    """An estimator, its options, and data with a huge cell or without."""

    estimator: type[Any]
    data: Callable[[float | None], Data]
    options: tuple[tuple[str, Any], ...] = ()

    def model(self) -> Any:
        return self.estimator(**dict(self.options))

    @property
    def name(self) -> str:
        said = [str(value) if isinstance(value, str | int) else type(value).__name__ for _, value in self.options]
        return "-".join([self.estimator.__name__, self.data.__name__, *said])


SMALL: dict[type[Any], dict[str, Any]] = {  # for those whose defaults take long
    BestChain: {"candidates": ("logistic regression", "Gaussian")},
    ChainCRFCV: {"cv": 2, "l2s": (1.0,)},
    HiddenCRF: {"n_init": 1, "window": 1},
    LatentDynamicCRF: {"n_init": 1},
    TreeCRF: {"n_rounds": 5},
}
CASES = [
    *(Case(estimator, cells, tuple(SMALL.get(estimator, {}).items())) for estimator, cells in CELLS.items()),
    Case(ChainCRF, dicts, (("order", 2),)),
    Case(ChainCRF, steps, (("order", 2),)),
    Case(ChainCRF, steps, (("standardize", True), ("transition_features", "all"))),
    Case(ChainCRF, dicts, (("objective", "perceptron"), ("decode", "marginal"))),
    Case(ClassifierHMM, steps, (("classifier", LogisticRegression()),)),
    Case(HMM, steps, (("decode", "viterbi"), ("emissions", "full"))),
    Case(HMM, dicts, (("emissions", "mixture"),)),
    Case(HMM, steps, (("emissions", KernelDensity()),)),
    Case(HMM, steps, (("training", "discriminative"),)),
    Case(HMM, steps, (("training", "em"), ("n_init", 1))),
    Case(KernelCRF, dicts, (("similarity", "polynomial"),)),
    Case(KernelCRF, graphs, (("basis", "fourier"), ("n_components", 20))),
    Case(KernelLogistic, table, (("similarity", "polynomial"), ("gamma", 1.0))),
    Case(KernelLogistic, table, (("similarity", "laplacian"),)),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
PLACE = re.compile(r"(sequence 3, step 0|graph 3, node 0|row \d+|^step 0|stream 0, step 0).*(feature|column) '")


def quietly(call: Callable[[], Any]) -> Any:
    """The call with numpy's warnings as errors, and without those on convergence and data."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for ours in (CrfieldWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", ours)
        return call()


@cache
def fitted(case: Case) -> Any:
    X, y = case.data(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.model().fit(X, y)


def answered(call: Callable[[], Any]) -> Any:
    """What the call gives, or None where it refuses the cell by name."""
    try:
        return quietly(call)
    except InputError as error:
        said = str(error)
    assert PLACE.search(said), said
    return None


def tables(answer: Any) -> list[np.ndarray]:
    """Probabilities as tables, one for each sequence, whatever holds them."""
    if isinstance(answer, np.ndarray) and answer.dtype != object:
        return [answer]
    out = []
    for one in answer:
        out.append(
            np.concatenate(list(one.values()), axis=-1) / len(one) if isinstance(one, dict) else np.asarray(one)
        )
    return out


def check(found: Any, clean: Any) -> None:
    """Finite rows that sum to one; all sequences but one as they were."""
    for number, (own, before) in enumerate(zip(tables(found), tables(clean), strict=True)):
        assert np.isfinite(own).all()
        np.testing.assert_allclose(own.sum(axis=-1), 1.0, atol=1e-9)
        if len(tables(found)) > 1 and number != HUGE:
            np.testing.assert_allclose(own, before, atol=1e-12)


def streaming(model: Any) -> bool:
    """Whether it has streams; who has none says so."""
    if not hasattr(model, "stream"):
        return False
    try:
        return model.stream() is not None
    except InputError as error:
        said = str(error)
    assert re.search("cannot stream|chains over time", said), said
    return False


def test_every_estimator_is_here() -> None:
    asked = {estimator for estimator in ESTIMATORS if hasattr(estimator, "predict")}
    assert CELLS.keys() == asked - {Pipeline}


@every
@pytest.mark.parametrize("size", SIZES)
def test_answers_are_finite_or_refused_by_name(case: Case, size: float) -> None:
    model, (X, y), clean = fitted(case), case.data(size), case.data(None)[0]
    labels = answered(lambda: model.predict(X))
    if hasattr(model, "predict_proba"):
        found = answered(lambda: model.predict_proba(X))
        assert (found is None) == (labels is None)
        if found is not None:
            check(found, model.predict_proba(clean))
    if hasattr(model, "log_prob"):
        logs = answered(lambda: model.log_prob(X, y))
        assert logs is None or (not np.isnan(logs).any() and (case.estimator is ContinuousCRF or (logs <= 0).all()))
    if streaming(model):
        rows = X[HUGE].nodes["node"] if isinstance(X[HUGE], Graph) else X[HUGE]
        stream, streams = model.stream(lag=1, viterbi=True), model.streams(1)
        one, many = (answered(lambda: model.stream().push(rows[0])), answered(lambda: streams.push(rows[:1])))
        assert (one is None) == (many is None)
        steps_of = answered(lambda: [stream.push(x) for x in rows])
        if steps_of is not None:
            assert all(np.isfinite(now.probabilities).all() and now.probabilities.sum() > 0.999 for now in steps_of)
            assert np.isfinite(stream.finish().log_total)


@every
@pytest.mark.parametrize("size", [1e155, 1e200, -1e308])
def test_training_gives_a_model_or_refuses_by_name(case: Case, size: float) -> None:
    X, y = case.data(size)
    model = answered(lambda: case.model().fit(X, y))
    if model is not None and hasattr(model, "predict_proba"):
        clean = case.data(None)[0]
        check(quietly(lambda: model.predict_proba(clean)), model.predict_proba(clean))


# ------------------------------------------------------------------------------------------ densities

FAMILIES = ("gaussian", "full", "mixture")


@pytest.mark.parametrize("kind", FAMILIES)
def test_densities_fall_to_zero_and_never_to_nan(body: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 2)), np.eye(2)[rng.integers(0, 2, 60)]
    family = family_named(kind).fit(rows, labels)
    far = np.array([[0.0, size] for size in (1e100, 1e153, *SIZES[1:])])
    logs = quietly(lambda: family.log_density(far))
    assert not np.isnan(logs).any()
    assert np.isfinite(logs[:2]).all()
    assert np.isneginf(logs[2:]).all()
    assert [family.farthest(row) for row in far] == [1] * len(far)
    wide = DiagonalGaussian(np.zeros((2, 1)), np.array([[1.0], [1e100]]))
    np.testing.assert_allclose(quietly(lambda: wide.log_density(np.array([[1e200]])))[0, 1], -5e199)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_label_wide_enough_for_the_cell_takes_it(body: str, kind: str) -> None:
    """One label's densities bear 1e155 and the other's do not: that is an answer."""
    X = [np.array([[0.0], [1.0], [1e150], [-1e150], [0.5], [3e149]])]
    y = [["near", "near", "far", "far", "near", "far"]]
    with pytest.raises(FeatureError, match=r"sequence 0, step 2: feature 'x\[0\]' is 1e\+150, too large to train on"):
        HMM(kind).fit(X, y)
    X = [np.array([[0.0], [1.0], [1e130], [-1e130], [0.5], [3e129]])]
    model = quietly(lambda: HMM(kind, n_components=1, variance_floor=0.0).fit(X, y))
    asked = [np.array([[0.2], [1e160], [0.2]])]
    assert quietly(lambda: model.predict(asked))[0].tolist() == ["near", "far", "near"]
    np.testing.assert_allclose(model.predict_proba(asked)[0].sum(axis=1), 1.0)


def test_where_no_path_is_left_the_step_and_the_column_are_named() -> None:
    X, y = [np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])], [["a", "a", "b"]]
    model = HMM("categorical", smoothing=0.0, emission_smoothing=0.0).fit(X, y)
    asked = [X[0], np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])]
    for call in (model.predict, model.predict_proba, lambda X: model.log_prob(X, y * 2), model.best_labellings):
        with pytest.raises(LabelError, match=r"sequence 1, step 1 \(feature 'x\[\d\]' is \d\): no label is left"):
            call(asked)
    assert model.log_likelihood(asked)[1] == -np.inf  # which is the answer to that question
    named = HMM("categorical", smoothing=0.0, emission_smoothing=0.0).fit([[["dog"], ["runs"]]], [["N", "V"]])
    with pytest.raises(LabelError, match=r"sequence 0, step 0 \(feature 'runs' is 1\)"):
        named.predict([[["runs"], ["dog"]]])


def test_other_models_of_chains_say_where_no_path_is_left() -> None:
    X, y = [np.array([[0.0], [1.0]])] * 3, [["a", "b"]] * 3
    counted = ClassifierHMM(LogisticRegression(), smoothing=0.0).fit(X, y)
    start, transition = counted.start_probabilities_, counted.transition_probabilities_
    assert start.tolist() == [1.0, 0.0]
    counted._learn(replace(counted._fitted, transition=np.array([[0.0, 1.0], [0.0, 0.0]])))
    for decode in ("marginal", "viterbi"):
        with pytest.raises(LabelError, match="sequence 0, step 2: no label is left"):
            counted.set_params(decode=decode).predict([np.zeros((3, 1))])
    assert transition.shape == (2, 2)


def test_densities_of_estimators_far_away_still_differ() -> None:
    """A kernel density knows in logarithms which label is nearer, however far both are."""
    model = HMM(KernelDensity()).fit([np.array([[0.0], [0.1], [10.0], [10.1]])], [["low", "low", "high", "high"]])
    scores = model.potentials([np.array([[2000.0]])]).node[0]
    assert scores[list(model.classes_).index("high")] > scores[list(model.classes_).index("low")] + 1e4


def test_names_of_the_user_are_in_the_message() -> None:
    names = [{"speed": 1.0, "word": "a", "vector": np.ones(2)}, {"speed": 2.0, "word": "b", "vector": np.zeros(2)}]
    bad = [{**names[0], "vector": np.array([0.0, 1e200])}, names[1]]
    with pytest.raises(FeatureError, match=r"sequence 1, step 0: feature 'vector\[1\]' is 1e\+200, too large"):
        quietly(lambda: ChainCRF().fit([names, bad], [["A", "B"]] * 2))
    model = ChainCRF().fit([names, names], [["A", "B"]] * 2)
    with pytest.raises(FeatureError, match=r"sequence 0, step 1: feature 'speed' is 1e\+300, too large to be scored"):
        model.predict([[names[0], {"speed": 1e300}]])

    def mass(before: Any, label: Any, x: Any, t: int) -> float:
        return float(x[t])

    with pytest.raises(FeatureError, match=r"sequence 0, step 1: feature 'mass' is 1e\+155, too large"):
        ChainCRF(label_functions=[mass]).fit([[1.0, 1e155]], [["A", "B"]])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"height": [1.0, 1e200, 2.0], "width": [0.0, 1.0, 0.0]})
    for classifier in (MaxentClassifier(), KernelLogistic(), IncompleteBoost()):
        with pytest.raises(FeatureError, match=r"row 1: feature 'height' is 1e\+200, too large to train on"):
            classifier.fit(frame, ["a", "b", "a"])
    with pytest.raises(FeatureError, match=r"row 1: feature 'mass' is 1e\+200"):
        MaxentClassifier().fit([{"mass": 1.0}, {"mass": 1e200}], ["a", "b"])


def test_a_huge_score_costs_other_steps_no_digits(body: str) -> None:
    """Of runs of labels too, whose sums are relative to the best of each step."""
    X, y = dicts(None)
    model = ChainCRF(order=2).fit(X, y)
    for size in (1e20, 1e100, -1e200):
        check(model.predict_proba(dicts(size)[0]), model.predict_proba(X))


def test_products_that_leave_the_range_name_their_cell() -> None:
    """A cell may be small enough to be squared and too large for a polynomial of a gamma of one's own."""
    options: dict[str, Any] = {"similarity": "polynomial", "gamma": 1.0}
    with pytest.raises(FeatureError, match=r"sequence 3, step 0: feature 'x\[1\]' is 1e\+100, too large for this"):
        quietly(lambda: KernelCRF(**options).fit(*steps(1e100)))
    with pytest.raises(FeatureError, match=r"row \d+: feature 'x\[1\]' is 1e\+100, too large for this"):
        quietly(lambda: KernelLogistic(**options).fit(*table(1e100)))


def test_data_on_disk_hold_no_cell_that_training_would_refuse(tmp_path: Path) -> None:
    X, y = steps(1e155)
    parts = [(X[:2], y[:2]), (X[2:], y[2:])]
    with pytest.raises(FeatureError, match=r"sequence 3, step 0: feature 'x\[1\]' is 1e\+155, too large to train on"):
        quietly(lambda: encode_dataset(parts, tmp_path / "data"))
