"""Values that print as tables show tables in notebooks: the same numbers, well-formed, with every text escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import crfield
from crfield.boosting.round_table import Round, RoundTable
from crfield.estimators.tuning.group_folds import GroupPredictions
from crfield.metrics import confusion, label_report, segment_report, span_report
from crfield.metrics.notebook import MOST_ROWS, Table
from crfield.report.calibration import reliability
from crfield.report.importance import FeatureImportance, ImportanceList
from crfield.report.marginals import SequenceMarginals
from crfield.report.weights import FeatureList, FeatureWeight, LabelPair, TransitionTable

GOLD, SAID = [["B-X", "I-X", "O", "B-Y"]], [["B-X", "I-X", "O", "O"]]
HOSTILE = "<script>alert(1)</script>&\x1b[31m"


class Reader(HTMLParser):
    """Rows of cells, other texts, and whether every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.bold: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        assert tag in ("table", "thead", "tbody", "tr", "th", "td", "p", "b", "br"), tag
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if set(self.open) & {"td", "th"}:
            self.rows[-1][-1] += data
            if self.open[-1] == "b":
                self.bold.append(data)
        elif "p" in self.open:
            self.texts.append(data)


def read(value: Any) -> Reader:
    return Reader(value._repr_html_())


def test_reports_of_labels_and_spans() -> None:
    report = span_report(GOLD, SAID)
    shown = read(report)
    assert shown.rows[0] == ["kind", "precision", "recall", "f1", "support"]
    assert shown.rows[1] == ["X", "1.0000", "1.0000", "1.0000", "1"]
    assert [row[0] for row in shown.rows[3:]] == ["micro average", "macro average", "weighted average"]
    assert shown.rows[3][3] == f"{report.f1:.4f}"
    assert shown.texts == ["1 of 1 predicted spans right, 2 gold; accuracy 0.7500 over 4 tokens"]
    assert shown.texts[0] in str(report)
    assert [row[0] for row in read(label_report(GOLD, SAID)).rows[1:5]] == ["B-X", "B-Y", "I-X", "O"]


def test_confusion_and_segments() -> None:
    shown = read(confusion([["a", "b", "b"]], [["a", "b", "a"]]))
    assert shown.rows == [["gold \\ predicted", "a", "b"], ["a", "1", "."], ["b", "1", "1"]]
    assert shown.bold == ["1", "1"]
    report = segment_report([["a", "a", "b"]], [["a", "b", "b"]])
    shown = read(report)
    assert shown.rows[0] == ["segments", "2 gold, 2 predicted"]
    assert all(name in str(report) and value in str(report) for name, value in shown.rows[1:])


def test_weights() -> None:
    table = TransitionTable(["B", "O"], np.array([[-1.5, 2.0], [np.nan, 0.75]]))
    shown = read(table)
    assert shown.rows == [["from \\ to", "B", "O"], ["B", "-1.50", "2.00"], ["O", "·", "0.75"]]
    assert shown.bold == ["2.00", "0.75"]
    many = TransitionTable(range(30), np.eye(30))
    assert len(read(many).rows) == 1 + MOST_ROWS
    assert read(TransitionTable([], np.zeros((0, 0)))).rows == [["no labels"]]
    features = FeatureList([FeatureWeight("w=the", "B", 2.0)])
    assert read(features).rows == [["name", "label", "weight"], ["w=the", "B", "+2.0000"]]
    assert read(FeatureList([])).rows == [["name", "label", "weight"]]


@pytest.fixture(scope="module")
def model() -> Any:
    X = [[["w=a", "c"], ["w=b"], ["w=a"]], [["w=b"], ["w=a"]]] * 3
    y = [["A", "B", "A"], ["B", "A"]] * 3
    return crfield.ChainCRF().fit(X, y)


def test_what_a_model_tells(model: Any) -> None:
    X, y = [[["w=a"], ["w=b"]]], [["A", "A"]]
    told = model.explain(X[0], 0)
    shown = read(told)
    assert shown.texts[0] == str(told).splitlines()[0]
    assert len(shown.rows) == 1 + len(told.contributions)
    important = model.feature_importance(X)
    assert [row[0] for row in read(important).rows[1:]] == [item.name for item in important]
    errors = crfield.error_groups(model, X, y)
    assert read(errors).rows[1][:3] == ["A", "B", "1"]
    assert "examples" in read(errors).texts, "the second table has a title of its own"
    assert read(crfield.error_groups(model, X, [["A", "B"]])).texts[0] == "no errors in 2 steps"
    assert read(model.top_features()).rows[0] == ["name", "label", "weight"]
    assert len(read(model.transitions_).rows) == 3
    compared = crfield.compare_inference(model.potentials(X), engines=["junction_tree", "mean_field"])
    assert {row[0] for row in read(compared).rows} == {"engine", "junction_tree", "mean_field"}
    trainers = crfield.compare_trainers(X, y, X_test=X, y_test=y, trainers=["lbfgs", "perceptron"])
    assert [row[0] for row in read(trainers).rows] == ["trainer", "lbfgs", "perceptron"]


def test_other_tables() -> None:
    shown = read(reliability([0.9, 0.8, 0.9, 0.2], [True, True, False, False], bins=5))
    assert [row[2] for row in shown.rows] == ["count", "1", "3"]
    assert shown.texts == ["expected calibration error 0.2000"]
    told = SequenceMarginals(["the", "dog"], ["D", "N"], np.array([[0.9, 0.1], [0.2, 0.8]]))
    assert read(told).rows[1:] == [["the", "D", "0.900", "N", "0.100"], ["dog", "N", "0.800", "D", "0.200"]]
    assert read(SequenceMarginals([], ["D"], np.zeros((0, 1)))).rows == [["empty sequence"]]
    rounds = RoundTable([Round(1, "feature", "x[4] > 0.5", 12.5, 0.69), Round(2, "relation", "+1", 3.25, 0.6)])
    assert [row[:4] for row in read(rounds).rows[1:]] == [
        ["1", "feature", "x[4] > 0.5", "12.5"],
        ["2", "relation", "+1", "3.25"],
    ]
    numbers = np.random.default_rng(0).normal(size=(6, 8, 3))
    path = crfield.SelectedCRF().fit(list(numbers), [np.where(x[:, 1] > 0, "a", "b").tolist() for x in numbers]).path_
    assert len(read(path).rows) == 1 + len(path.rounds)
    groups = GroupPredictions(("ann", "bob"), (("a", "b"), ("a", "a")), (("a", "b"), ("a", "b")))
    assert [row[:2] for row in read(groups).rows] == [
        ["group", "accuracy"],
        ["ann", "1.000"],
        ["bob", "0.500"],
        ["mean", "0.750"],
    ]
    assert str(groups).splitlines()[2].split()[:2] == ["bob", "0.500"]


def test_labels_of_two_steps_are_shown_as_a_pair() -> None:
    listed = ImportanceList((FeatureImportance("w=dog", LabelPair("B", "I"), 0.75, 0.6, 2, "edge"),))
    assert read(listed).rows[1][:2] == ["w=dog", "B → I"]


def test_texts_are_shown_and_not_obeyed() -> None:
    y = [[HOSTILE, "b"]]
    for value in (confusion(y, y), label_report(y, y), TransitionTable([HOSTILE], np.zeros((1, 1)))):
        html = value._repr_html_()
        assert "<script" not in html
        assert "\x1b" not in html
        assert any("<script>alert(1)</script>&\\x1b[31m" in cell for row in Reader(html).rows for cell in row)


def test_long_tables_are_cut_and_say_so() -> None:
    shown = Reader(Table(["n"], [[str(k)] for k in range(MOST_ROWS + 5)]).html())
    assert len(shown.rows) == 1 + MOST_ROWS
    assert shown.texts == ["… and 5 more"]
