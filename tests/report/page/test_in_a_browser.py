"""The page of a report in a real browser: clicked through, by pointer and by keyboard, with the network watched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, GridCRF
from tests.cases.browser import launch, opened, shown
from tests.report.page.hostile import NASTY, hostile_report

ACCESSIBLE = """() => {
  const told = (e) => (e.getAttribute("aria-label") || e.textContent || e.labels?.[0]?.textContent || "").trim();
  const named = (e) => told(e) || document.getElementById(e.getAttribute("aria-labelledby"));
  const bad = [];
  const all = "button, input, select, canvas, svg[role=img], [role=region], [role=group]";
  for (const e of document.querySelectorAll(all))
    if (!named(e)) bad.push(e.outerHTML.slice(0, 80));
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
    const own = Number(e.tagName[1]);
    if (own > level + 1) bad.push(`${e.tagName} after H${level}: ${e.textContent}`);
    level = own;
  }
  for (const name of ["main", "nav", "header", "footer"]) if (!document.querySelector(name)) bad.push(name);
  if (!document.documentElement.lang) bad.push("lang");
  return bad;
}"""

CONTRAST = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const shares = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255);
    const part = shares.map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * part[0] + .7152 * part[1] + .0722 * part[2];
  };
  const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name);
  const out = {};
  const inks = ["--ink", "--soft", "--accent", "--good", "--bad", "--warn"];
  for (const ink of inks) for (const paper of ["--paper", "--card"]) {
    const [a, b] = [light(get(ink)), light(get(paper))].sort((x, y) => y - x);
    out[`${ink} on ${paper}`] = (a + .05) / (b + .05);
  }
  return out;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch() as found:
        yield found


@pytest.fixture(scope="module")
def report() -> Any:
    phrases = crfield.make_phrases(160, random_state=1)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    model = ChainCRF(l2=3.0).fit(X[:60], phrases.labels[:60])
    words = phrases.tokens[60:]
    return model.report(
        X[60:],
        phrases.labels[60:],
        n_shown=30,
        title="Ingredient phrases",
        show=None,
        names=[f"Phrase {k}" for k in range(len(words))],
    )


@pytest.fixture(scope="module")
def address(report: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.save(path)
    return path.as_uri()


def test_from_the_confusion_to_a_step_and_what_would_flip_it(browser: Any, address: str, report: Any) -> None:
    first = report.groups[0]
    with opened(browser, address) as seen:
        page = seen.page
        page.get_by_role("button", name=f"{first.count} {first.gold} taken for {first.predicted}").click()
        told = page.locator("#found").inner_text()
        count = int(told.split()[0])
        judged = report.judged
        g, p = judged.labels.index(first.gold), judged.labels.index(first.predicted)
        fitting = [s for s in report.items if ((s.item.gold == g) & (s.item.predicted == p)).any()]
        assert count == len(fitting) > 0
        assert f"where {first.gold} was taken for {first.predicted}" in told
        step = page.locator(".step.hit").first
        assert step.get_attribute("aria-expanded") == "true", "the first such step is open"
        assert f"true: {first.gold}" in step.inner_text()
        detail = page.locator(".detail").first
        assert f"wrong: the true label is {first.gold}" in detail.inner_text()
        assert f"Why {first.predicted} and not" in detail.inner_text()
        flip = detail.locator(".flip")
        assert flip.is_hidden()
        detail.get_by_role("button", name="What would flip it?").click()
        assert flip.is_visible()
        shown_item, place = (
            fitting[0],
            int(np.flatnonzero((fitting[0].item.gold == g) & (fitting[0].item.predicted == p))[0]),
        )
        expected = shown_item.why[place].flip
        words = flip.inner_text()
        assert (expected.becomes or "nothing was found") in words
        for gone in expected.removed:
            assert gone.name in words
        shown(page, "report-drill-down")
        page.get_by_role("button", name="Leave this confusion").click()
        assert page.locator("#found").inner_text().startswith(f"{len(report.items)} of the {len(report.items)}")
        assert seen.requests == [address], "nothing but the file itself is asked for"
        assert seen.errors == []


def test_probabilities_that_are_shown_are_those_of_the_model(browser: Any, address: str, report: Any) -> None:
    item = report.items[1]
    with opened(browser, address) as seen:
        article = seen.page.locator(f'article[data-item="{item.number}"]')
        for step in range(len(item.item)):
            article.locator(".step").nth(step).click()
            rows = article.locator(".bar").all_inner_texts()
            best = rows[0].split("\n")
            k = int(item.item.chance[step].argmax())
            assert best[0].startswith(report.judged.labels[k])
            value = float(re.sub("[^0-9.]", "", best[-1]))
            assert value == pytest.approx(100 * item.item.chance[step, k], abs=0.11)
        first = article.locator("ol.best li").first.inner_text()
        assert first.startswith(f"{100 * item.best[0].probability:.1f}")
        assert seen.errors == []


def test_search_filter_and_order(browser: Any, address: str, report: Any) -> None:
    with opened(browser, address) as seen:
        page = seen.page
        page.select_option("#show", "right")
        right = sum(not s.item.wrong.any() for s in report.items)
        assert page.locator("#found").inner_text().startswith(f"{right} of")
        page.select_option("#show", "all")
        page.select_option("#order", "errors")
        most = max(int(s.item.wrong.sum()) for s in report.items)
        assert f"{most} of" in page.locator("article .bad").first.inner_text()
        word = report.items[0].texts[0]
        page.fill("#text", word)
        with_it = [s for s in report.items if word.lower() in " ".join(s.texts).lower() or word in s.item.name]
        assert page.locator("#found").inner_text().startswith(f"{len(with_it)} of")
        name = report.features[0].name
        page.fill("#feature-text", name[:6])
        rows = page.locator("#feature-rows th").all_inner_texts()
        assert rows
        assert all(name[:6].lower() in row.lower() for row in rows)
        page.fill("#feature-text", "no feature is called so")
        assert page.locator("#feature-count").inner_text() == "No feature fits."
        page.fill("#feature-text", "")
        page.select_option("#feature-label", "O" if "O" in report.judged.labels else report.judged.labels[0])
        assert len(set(page.locator("#feature-rows td.name").all_inner_texts())) == 1
        assert seen.errors == []


def test_the_keyboard_is_enough(browser: Any, address: str) -> None:
    with opened(browser, address) as seen:
        page = seen.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.locator("article").nth(1).locator(".step").first.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        chosen = page.locator("article").nth(1).locator(".step").nth(1)
        assert chosen.get_attribute("aria-expanded") == "true"
        assert page.locator("article").nth(1).locator(".detail").count() == 1
        page.keyboard.press("Tab")
        inside = "document.activeElement.closest('article') !== null && !document.activeElement.matches('.step')"
        assert page.evaluate(inside), "steps are one stop of the tabulator; the next is the button of the details"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) != "none", "what has the focus can be seen"
        cell = page.locator("#confusion button").first
        cell.focus()
        page.keyboard.press("Enter")
        assert cell.get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.activeElement.id") == "sequences-heading"
        assert seen.errors == []


def test_light_and_dark_and_the_switch(browser: Any, address: str) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, address, color_scheme="light") as seen:
        page = seen.page
        light = page.evaluate(paper)
        assert all(ratio >= 4.5 for ratio in page.evaluate(CONTRAST).values()), page.evaluate(CONTRAST)
        shown(page, "report-light")
        page.get_by_role("button", name="Switch to dark colours").click()
        dark = page.evaluate(paper)
        assert dark != light
        assert all(ratio >= 4.5 for ratio in page.evaluate(CONTRAST).values()), page.evaluate(CONTRAST)
        shown(page, "report-dark")
        page.get_by_role("button", name="Switch to light colours").click()
        assert page.evaluate(paper) == light
        assert seen.errors == []
    with opened(browser, address, color_scheme="dark") as seen:
        assert seen.page.evaluate(paper) == dark, "a dark system gets a dark page"
        seen.page.get_by_role("button", name="Switch to light colours").click()
        assert seen.page.evaluate(paper) == light


def test_names_for_screen_readers_and_order_of_headings(browser: Any, address: str) -> None:
    with opened(browser, address) as seen:
        assert seen.page.evaluate(ACCESSIBLE) == []


@pytest.mark.parametrize("width", [390, 768])
def test_small_screens_need_no_sideways_scrolling(browser: Any, address: str, width: int) -> None:
    with opened(browser, address, viewport={"width": width, "height": 844}) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        shown(seen.page, f"report-{width}", full_page=True)


def test_without_a_script_the_essentials_are_there(browser: Any, address: str, report: Any) -> None:
    with opened(browser, address, java_script_enabled=False) as seen:
        text = seen.page.locator("main").inner_text()
        assert f"{100 * report.judged.accuracy[0]:.1f}" in text
        assert "Kinds of errors" in text
        assert report.items[0].texts[0] in text, "some items are there as plain text"
        assert seen.page.locator("#theme").is_hidden(), "what does nothing is not shown"
        assert seen.page.locator("#controls").is_hidden()
        assert seen.requests == [address]


def test_hostile_names_are_shown_and_not_obeyed(browser: Any, tmp_path: Path) -> None:
    made = hostile_report()
    path = tmp_path / "hostile.html"
    made.save(path)
    with opened(browser, path.as_uri()) as seen:
        page = seen.page
        assert page.title() == NASTY
        for step in page.locator(".step").all()[:8]:
            step.click()
        for button in page.locator(".flip-button").all():
            button.click()
        for cell in page.locator("#confusion button").all():
            cell.click()
        page.fill("#feature-text", "script")
        assert page.locator("#feature-rows tr").count() > 0
        assert NASTY[:40] in page.locator(".step").first.inner_text()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        assert seen.requests == [path.as_uri()]
        assert seen.errors == []


def test_a_recording_over_time(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    gold = [np.repeat(rng.integers(0, 3, 12), 30) for _ in range(2)]
    X = [np.c_[g + rng.normal(size=len(g)), rng.normal(size=len(g))] for g in gold]
    y = [np.array(["sit", "walk", "run"])[g] for g in gold]
    report = ChainCRF(l2=1.0).fit(X[:1], y[:1]).report(X, y, seconds=0.5, signal_names=["chest", "wrist"])
    path = tmp_path / "recording.html"
    report.save(path)
    with opened(browser, path.as_uri()) as seen:
        page = seen.page
        article = page.locator("article").first
        item = report.items[0]
        seek = article.get_by_role("slider")
        seek.focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        names = report.judged.labels
        told = article.locator(".seek-row").inner_text()
        assert told == f"At 0.5 s: true {names[item.item.gold[1]]}, predicted {names[item.item.predicted[1]]}"
        canvas = article.locator("canvas")
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] - 6, "y": 10})
        assert f"predicted {names[item.item.predicted[-1]]}" in article.locator(".seek-row").inner_text()
        ink = "(c) => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        assert canvas.evaluate(ink) > 10, "something is drawn"
        page.locator("#errors button[data-open]").first.click()
        assert "Why" in page.locator(".detail").first.inner_text()
        page.locator("article").first.scroll_into_view_if_needed()
        shown(page, "report-recording")
        assert seen.requests == [path.as_uri()]
        assert seen.errors == []


def test_images_and_their_marginals(browser: Any, tmp_path: Path) -> None:
    made = crfield.make_noisy_images(5, (12, 16), n_bases=2, random_state=0)
    X = [image[..., None] for image in made.images]
    model = GridCRF(objective="pseudo_likelihood").fit(X[:3], list(made.labels[:3]))
    report = model.report(X, list(made.labels))
    path = tmp_path / "images.html"
    report.save(path)
    with opened(browser, path.as_uri()) as seen:
        page = seen.page
        article, item = page.locator("article").first, report.items[0]
        assert article.locator("canvas").count() == 4
        article.locator("canvas").nth(2).focus()
        at = int(np.flatnonzero(item.item.wrong)[0]) if item.item.wrong.any() else 0
        page.keyboard.press("ArrowRight")
        row, column = divmod(at + 1, 16)
        detail = article.locator(".detail").inner_text()
        assert detail.startswith(f"row {row}, column {column}: ")
        assert "by itself, without its neighbours" in detail
        article.locator("select").select_option("1")
        bright = "(c) => c.getContext('2d').getImageData(1, 1, 1, 1).data[0]"
        expected = 20 + item.item.chance[0, 1] * (255 - 20)
        assert article.locator("canvas").nth(3).evaluate(bright) == pytest.approx(expected, abs=2)
        article.scroll_into_view_if_needed()
        shown(page, "report-images")
        assert seen.requests == [path.as_uri()]
        assert seen.errors == []
