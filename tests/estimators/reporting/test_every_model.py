"""Every estimator that predicts labels has a report: it shows what the model says, and says what it lacks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, ChainCRFCV, Edges, Graph, GraphCRF, Pipeline, SensorFeatures, TextFeatures
from crfield.errors import InputError
from crfield.estimators.reporting.by_scores import explained_by_scores
from crfield.estimators.reporting.items import SIGNALS
from crfield.report.page.shown import GRAPH, PICTURE, TEXT, TIME
from tests.cases.estimators import FRONT_DOOR, PLAIN, Front, exact, some_chains, world
from tests.report.page.test_page import Reader, data_of

BY_FRONT = pytest.mark.parametrize("front", FRONT_DOOR, ids=lambda front: front.estimator.__name__)
LOOKS = {"GraphCRF": GRAPH, "BoostedRandomField": GRAPH, "HMM": TIME, "FactorialCRF": TIME} | dict.fromkeys(
    ("GridCRF", "DenseCRF", "DiscriminativeRandomField", "MarkovRandomField"), PICTURE
)


def fitted(front: Front) -> tuple[Any, Any, Any]:
    X, y = front.data(12, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return front.estimator().fit(X, y), X, y


@BY_FRONT
def test_the_report_of_a_model(front: Front) -> None:
    model, X, y = fitted(front)
    report = model.report(X, y)
    assert report.judged.accuracy[0] == pytest.approx(model.score(X, y), abs=1e-12)
    name = front.estimator.__name__
    assert {shown.look for shown in report.items} <= {LOOKS.get(name, TEXT), TEXT}
    page = report.html()
    assert Reader(page).open == []
    data = data_of(page)
    assert len(data["items"]) == len(report.items) > 0
    if hasattr(model, "predict_proba"):
        assert report.judged.calibration is not None
        for item in report.judged.items:
            assert item.chance is not None
            np.testing.assert_allclose(item.chance.sum(axis=1), 1.0, atol=1e-6)
    assert report.title in str(report)
    assert report.to_markdown().startswith("# ")
    for facts in ("transitions", "features"):
        has = {"transitions": report.transitions, "features": report.features}[facts]
        assert (has is None) == any(facts in words for words in report.missing)
    drawn = ">Learning curve<" in page
    assert drawn != any("no learning curve" in words for words in report.missing)


@BY_FRONT
def test_a_notebook_shows_what_was_found(front: Front) -> None:
    model, _, _ = fitted(front)
    drawn = model._repr_html_()
    assert drawn.count('<div class="crfield-fitted">') == 1
    assert model._repr_mimebundle_()["text/html"].count('<div class="crfield-fitted">') == 1
    block = drawn.split('<div class="crfield-fitted">')[1]
    assert "labels" in block
    assert "<script" not in block
    assert "crfield-fitted" not in front.estimator()._repr_html_(), "nothing is fitted yet"


@pytest.mark.parametrize("estimator", [e for e, cells in PLAIN.items() if cells], ids=lambda e: e.__name__)
def test_the_other_models(estimator: type[Any]) -> None:
    X, y = PLAIN[estimator](None)  # type: ignore[misc]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator().fit(X, y)
    if estimator.__name__ == "ContinuousCRF":
        with pytest.raises(InputError, match="predicts numbers"):
            model.report(X, y)
        return
    report = model.report(X, y)
    assert report.judged.accuracy[0] == pytest.approx(model.score(X, y))
    assert Reader(report.html()).open == []


def test_names_in_a_notebook_are_escaped() -> None:
    X, y = [[["a"], ["b"]]], [["<img src=x onerror=alert(1)>", "</table><b>"]]
    drawn = ChainCRF().fit(X, y)._repr_html_()
    block = drawn.split('<div class="crfield-fitted">')[1]
    assert "<img" not in block
    assert "&lt;img src=x" in block
    assert "converged" in block
    assert "objective" in block


def test_a_search_and_a_pipeline_report_what_answers() -> None:
    X, y = some_chains(20, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = ChainCRFCV(l2s=[1.0], cv=2).fit(X, y)
    assert search.report(X, y).kind == "ChainCRF"
    words = [["Ana", "lives", "in", "Lima"], ["Eva", "sings"]]
    pipe = Pipeline([("words", TextFeatures()), ("chain", ChainCRF())]).fit(
        words, [["PER", "O", "O", "LOC"], ["PER", "O"]]
    )
    report = pipe.report(words, [["PER", "O", "O", "LOC"], ["PER", "PER"]])
    assert report.items[0].texts == ("Eva", "sings")
    assert report.items[0].why[1].flip is not None
    assert "TextFeatures" in report.card["Model"]["kind"]


def test_sensors_before_a_model_name_its_columns() -> None:
    rng = np.random.default_rng(0)
    raw = [rng.normal(size=(600, 2)) * np.repeat([[1.0], [4.0]], 300, axis=0) for _ in range(3)]
    features = SensorFeatures(rate=20.0, spans=(1.0,)).fit(raw)
    y = [np.repeat(["still", "moving"], 15) for _ in raw]
    pipe = Pipeline([("windows", features), ("chain", ChainCRF(standardize=True))]).fit(raw, y)
    report = pipe.report(raw, y)
    names = set(features.get_feature_names_out())
    assert report.features is not None
    assert {f.name for f in report.features if f.name[0] != "("} <= names
    assert {
        c.name for item in report.items for t in item.why.values() for c in t.contributions if c.name[0] != "("
    } <= names
    assert len(report.items[0].signals) == 2
    assert (report.items[0].look, report.items[0].seconds) == (TIME, 1.0)


def test_reasons_by_scores_add_up_to_the_margin_of_the_weights() -> None:
    X, y = some_chains(20, 1)
    model = exact(l2=1.0).fit(X, y)
    x = max(X, key=len)
    potentials, chance = model.potentials([x]), model.predict_proba([x])[0]
    said = [model.classes_.tolist().index(label) for label in model.predict([x])[0].tolist()]
    told = explained_by_scores(potentials, model.classes_.tolist(), chance, enumerate(said))
    for step in range(len(x)):
        own, other = told[step], model.explain(x, step, removals=0)
        assert (own.label, own.other) == (other.label, other.other)
        assert own.margin == pytest.approx(other.margin, abs=1e-9)
        assert sum(c.amount for c in own.contributions) == pytest.approx(own.margin, abs=1e-9)


def test_labels_that_the_model_does_not_know_are_errors() -> None:
    X, y = world(10)
    rows = [[[word] for word, _, _ in x] for x in X]
    model = ChainCRF().fit(rows, y)
    strange = [["Z" if t == 0 else label for t, label in enumerate(labels)] for labels in y]
    report = model.report(rows, strange)
    assert report.judged.labels[-1] == "Z"
    assert report.judged.scores["Z"].recall == 0.0
    assert "Never predicted although it is there: Z" in report.html()


@pytest.mark.parametrize("form", ["dict", "list"])
def test_nodes_of_several_kinds_have_labels_with_their_kind(form: str) -> None:
    day = Graph(
        {"motion": [["fast"], ["slow"]], "place": [["loud"], ["quiet"], ["still"]]},
        {"at": Edges([(0, 0), (1, 1)], between=("motion", "place"))},
    )
    truth: Any = {"motion": ["run", "sit"], "place": ["street", "home", "bed"]}
    model = GraphCRF(l2=0.1).fit([day, day], [truth] * 2)
    gold: Any = {"motion": ["run", "sit"], "place": ["street", "home", "cellar"]}  # of which the model does not know
    if form == "list":
        gold = [*gold["motion"], *gold["place"]]
    report = model.report([day], [gold])
    labels = ["motion: run", "motion: sit", "place: bed", "place: home", "place: street", "place: cellar"]
    assert list(report.judged.labels) == labels
    (item,) = report.judged.items
    assert [labels[code] for code in item.gold] == [labels[k] for k in (0, 1, 4, 3, 5)]
    assert [labels[code] for code in item.predicted] == [labels[k] for k in (0, 1, 4, 3, 2)]
    assert report.judged.accuracy[0] == pytest.approx(0.8)
    assert item.chance is not None
    chances = model.predict_proba([day])[0]
    np.testing.assert_allclose(item.chance[:2, :2], chances[:2, :2])
    np.testing.assert_allclose(item.chance[2:, 2:5], chances[2:, :3])
    assert not item.chance[:2, 2:].any()
    assert not item.chance[2:, [0, 1, 5]].any()
    open_ones = model.report([day], [{"motion": ["run", None]}])  # nothing is known of the places
    assert open_ones.judged.n_judged == 1


def test_of_many_columns_those_are_drawn_that_tell_labels_apart() -> None:
    rng = np.random.default_rng(0)
    y = [np.repeat(rng.integers(0, 2, 10), 4) for _ in range(4)]
    X = [rng.normal(size=(40, 30)) for _ in y]
    telling = {3, 17, 29}
    for x, labels in zip(X, y):
        x[:, sorted(telling)] += 4.0 * labels[:, None]
    report = ChainCRF().fit(X, y).report(X, y)
    for shown in report.items:
        assert shown.look == TIME
        drawn = {int(signal.name[2:-1]) for signal in shown.signals}
        assert telling < drawn
        assert len(drawn) == SIGNALS
