"""The page as text: what is in it, that nothing in it is obeyed, its size, and the card in Markdown."""

from __future__ import annotations

import hashlib
import html.parser
import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF
from crfield.errors import InputError, ShapeError
from crfield.report.page.judged import Item, Judged
from crfield.report.page.model_report import LARGEST, ModelReport
from crfield.report.page.sample import sampled
from tests.report.page.hostile import NASTY, hostile_report

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Reader(html.parser.HTMLParser):
    """Elements, identifiers and texts of a page; open elements must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


@pytest.fixture(scope="module")
def report() -> ModelReport:
    phrases = crfield.make_phrases(120, random_state=1)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    model = ChainCRF(l2=30.0).fit(X[:60], phrases.labels[:60])
    return model.report(X[60:], phrases.labels[60:], n_shown=20)


@pytest.fixture(scope="module")
def page(report: ModelReport) -> str:
    return report.html()


def data_of(page: str) -> dict[str, Any]:
    return json.loads(page.split('id="data">')[1].split("</script>", maxsplit=1)[0])


def test_the_page_is_whole_and_says_what_the_report_says(report: ModelReport, page: str) -> None:
    reader = Reader(page)
    assert reader.open == []
    text = " ".join("".join(reader.texts).split())
    assert f"{100 * report.judged.accuracy[0]:.1f} %" in text
    for row in report.judged.scores.rows:
        assert f"{row.f1:.3f}" in text
    assert report.sample.words in text
    for heading in ("At a glance", "Scores by label", "Confusion", "Kinds of errors", "Calibration", "Transitions"):
        assert heading in text, "essentials are there without a script"
    ids = [value for _, name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for _, name, value in reader.attributes if name == "href" and value and value[0] == "#"]
    assert set(targets) <= set(ids)


def test_it_asks_nothing_of_the_network_and_runs_one_script(page: str) -> None:
    assert not re.search(
        r"(src|action|formaction)\s*=|url\(|@import|fetch\(|import\s*\(|XMLHttp|WebSocket|https:", page
    )
    assert [value for _, name, value in Reader(page).attributes if name == "href" and value and value[0] != "#"] == [
        "data:,"
    ]
    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script) == 1
    digest = b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    policy = re.search(r'Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1] == f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    assert "innerHTML" not in page
    assert not re.search(r"\son\w+=", page)


def test_hostile_names_are_texts() -> None:
    page = hostile_report().html()
    reader = Reader(page)
    assert reader.open == []
    assert "img" not in reader.tags
    assert reader.tags.count("script") == 2
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert NASTY[:30] in "".join(reader.texts), "it is shown, as text"
    assert "<" not in page.split('id="data">')[1].split("</script>")[0]
    data = data_of(page)
    assert data["labels"][0].startswith(f"B-{NASTY[:20]}")
    assert "\u202e" not in page
    assert "\u2028" not in page


def test_hostile_names_in_the_card() -> None:
    card = hostile_report().to_markdown()
    assert not re.search(r"(?<!\\)[<>`]", card)
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} <= {4, 6, 7}


def test_probabilities_of_the_page_are_those_of_the_model(report: ModelReport, page: str) -> None:
    data = data_of(page)
    for shown, item in zip(report.items, data["items"]):
        chance = np.frombuffer(b64decode(item["p"]), "<u2").reshape(-1, item["k"]) / 65535
        assert shown.item.chance is not None
        np.testing.assert_allclose(chance, shown.item.chance, atol=1e-5)
        assert np.frombuffer(b64decode(item["gold"]), "<i2").tolist() == shown.item.gold.tolist()
        assert set(item["why"]) == {str(t) for t in range(len(shown.item))}, (
            "every step of every item has its reasons"
        )
        for told in item["why"].values():
            rest = told["more"][1] if told["more"] else 0.0
            total = sum(part[2] for part in told["parts"]) + rest
            assert total == pytest.approx(told["margin"], abs=2e-3)


def test_items_are_drawn_by_kind_of_error(report: ModelReport) -> None:
    judged, sample = report.judged, report.sample
    assert len(sample.numbers) == len(set(sample.numbers)) == 20
    shown = set(sample.numbers)
    kinds = list(judged.errors().items())
    assert len(kinds) > 3
    for _, places in kinds[:5]:
        assert {int(k) for k in places[:, 0]} & shown, "of every common confusion there is an item"
    assert sample.right_shown > 0
    assert f"20 of {len(judged.items)} sequences are shown" in sample.words


def test_few_steps_are_allowed_and_the_rest_is_left_out() -> None:
    items = tuple(Item(str(k), np.full(10, k % 2), np.zeros(10, int)) for k in range(9))
    sample = sampled(Judged(("a", "b"), items), most=9, most_steps=35)
    assert len(sample.numbers) == 3
    assert "3 of 9" in sample.words
    assert sampled(Judged(("a", "b"), ()), most=3, most_steps=3).numbers == ()


def test_a_page_stays_below_two_megabytes(report: ModelReport, tmp_path: Path) -> None:
    large = replace(report.items[0], texts=tuple("word" * 25 for _ in report.items[0].texts))
    many = replace(report, items=tuple(replace(large, number=1000 + k) for k in range(900)))
    many.save(tmp_path / "page.html")
    size = (tmp_path / "page.html").stat().st_size
    assert 0 < size <= LARGEST
    shown = len(data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["items"])
    assert 100 < shown < 900
    assert f"{shown} of " in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_long_recordings_are_thinned_and_long_texts_cut() -> None:
    rng = np.random.default_rng(0)
    gold = np.repeat([0, 1, 0, 1], 1500)
    X, y = [np.c_[gold + rng.normal(size=6000), rng.normal(size=6000)]], [gold]
    made = ChainCRF(l2=1.0).fit(X, y).report(X, y, explained=5, seconds=0.5, signal_names=["a", "b"])
    item = data_of(made.html())["items"][0]
    assert (item["look"], item["factor"], item["seconds"]) == ("time", 5, 0.5)
    assert len(b64decode(item["gold"])) == 2 * 1200
    assert [signal["name"] for signal in item["signals"]] == ["a", "b"]
    assert sum(b64decode(item["bad"])) == len({t // 5 for t in np.flatnonzero(made.judged.items[0].wrong).tolist()})
    words = [[["w=a"] if k else ["w=b"] for k in gold[1200:1800]]]
    truth = [gold[1200:1800].tolist()]
    model = ChainCRF(l2=1.0).fit(words, truth)
    truth[0][500] = 1 - truth[0][500]
    item = data_of(model.report(words, truth, explained=5).html())["items"][0]
    assert item["from"] <= 500 < item["from"] + len(item["texts"]) == item["from"] + 300
    assert item["cut"] == f"steps {item['from']} … {item['from'] + 299} of 600"


def test_files_are_pages_or_cards(report: ModelReport, tmp_path: Path) -> None:
    report.save(tmp_path / "card.md")
    report.save(str(tmp_path / "page.html"))
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == report.to_markdown()
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == report.html()
    assert report.html() == report.html(), "the same report is the same page"


def test_a_notebook_shows_the_page_in_a_frame(report: ModelReport) -> None:
    frame = report._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert frame.count("<") == 2


def test_what_cannot_be_judged_is_refused(report: ModelReport) -> None:
    model = ChainCRF().fit([[["a"], ["b"]]], [["A", "B"]])
    with pytest.raises(ShapeError, match="one entry for each of the 1 entries of X, got 2"):
        model.report([[["a"]]], [["A"], ["B"]])
    with pytest.raises(ShapeError, match="has 1 steps but 2 labels"):
        model.report([[["a"]]], [["A", "B"]])
    with pytest.raises(InputError, match="n_shown must be an integer ≥ 0"):
        model.report([[["a"]]], [["A"]], n_shown=-1)
    with pytest.raises(InputError, match="predicts numbers"):
        crfield.ContinuousCRF().fit([np.ones((3, 1))], [np.ones(3)]).report([np.ones((3, 1))], [np.ones(3)])


def test_unknown_labels_are_not_judged() -> None:
    X = [[["a"], ["b"], ["a"]]] * 3
    model = ChainCRF(l2=0.1).fit(X, [["A", "B", "A"]] * 3)
    made = model.report(X, [["A", None, "A"], ["A", {"A", "B"}, {"B"}], [None] * 3])
    assert (made.judged.n_judged, made.judged.n_wrong) == (4, 1)
    assert made.scheme is None
    none = model.report(X, [[None] * 3] * 3)
    assert "none of which has a known label" in str(none)
    assert "nothing can be scored" in none.html()


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_curve_of_few_looks_is_left_out_with_a_reason(looks: int) -> None:
    phrases = crfield.make_phrases(30, random_state=1)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    model = ChainCRF(l2=30.0).fit(X, phrases.labels)
    model.history_, model.n_iter_ = model.history_[:looks], 14
    page = model.report(X, phrases.labels, n_shown=2).html()
    told = "training took 14 steps or epochs, the objective was looked at after " + f"{looks} of them"
    assert (told in page) == (looks < 3)
    assert (">Learning curve<" in page) == (looks == 3)


def test_a_loaded_model_says_that_it_has_no_curve(tmp_path: Path) -> None:
    phrases = crfield.make_phrases(30, random_state=1)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    model = ChainCRF(l2=30.0).fit(X, phrases.labels)
    model.save(tmp_path / "model.crf")
    report = crfield.load(tmp_path / "model.crf").report(X, phrases.labels, n_shown=2)
    assert "the model comes from a file" in report.html()
    assert "the model comes from a file" in report.to_markdown()
