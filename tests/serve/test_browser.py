"""The pages in a real browser: clicked through, without a complaint, and without a request to anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crfield
from tests.cases.browser import Opened, launch, opened, shown
from tests.serve.served_models import HOSTILE, ask, real_server

Made = dict[str, Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch() as found:
        yield found


@pytest.fixture(scope="module")
def port(made: Made) -> Iterator[int]:
    folder = made["folder"]
    names = ("columns", "records", "numbers", "hostile")
    with real_server(*(folder / f"{name}.crfield" for name in names)) as (_, found):
        yield found


def quiet(seen: Opened, port: int) -> None:
    """Nothing was complained of, and nobody but the own server was asked."""
    assert seen.errors == []
    assert seen.requests
    own = (f"http://127.0.0.1:{port}/", f"blob:http://127.0.0.1:{port}/")
    assert [url for url in seen.requests if not url.startswith(own)] == []


def chosen(seen: Opened, model: str, text: str) -> None:
    seen.page.select_option("#model", model)
    seen.page.fill("#text", text)
    seen.page.press("#text", "Control+Enter")
    seen.page.wait_for_selector(".card")


def test_a_sequence_is_typed_and_explained(browser: Any, port: int, made: Made) -> None:
    x = made["columns"][0]
    with opened(browser, f"http://127.0.0.1:{port}/") as seen:
        chosen(seen, "columns", "\n".join(" ".join(row) for row in x))
        page, model = seen.page, made["models"]["columns"]
        assert page.locator(".step .tag").all_inner_texts() == [str(one) for one in model.predict([x])[0]]
        page.click(".step >> nth=1")
        best = model.predict_proba([x])[0][1]
        first = page.locator(".details .bars .number").first.inner_text()
        assert first.strip("<> %").split(".")[0] in (
            f"{100 * best.max():.1f}".split(".")[0],
            f"{100 * best.max():.0f}",
        )
        page.wait_for_selector(".n-best li:nth-child(5)")
        page.click(".why-button")
        page.wait_for_selector(".flip")
        told = model.explain(x, 1)
        assert told.contributions[0].text in page.locator(".bars.why").inner_text()
        assert f"Why {told.label}, and not {told.other}?" in page.locator(".details").inner_text()
        shown(page, "explorer", full_page=True)
        quiet(seen, port)


def test_a_file_is_dropped_and_sorted_by_doubt(browser: Any, port: int, made: Made) -> None:
    with opened(browser, f"http://127.0.0.1:{port}/") as seen:
        page = seen.page
        page.set_input_files("#file", made["folder"] / "dev.txt")
        page.wait_for_selector(".card >> nth=20")
        page.select_option("#order", "doubt")
        doubts = [float(text.split("doubt ")[1].split()[0]) for text in page.locator(".head").all_inner_texts()]
        assert doubts == sorted(doubts, reverse=True)
        assert "% as in the file" in page.inner_text("#summary")
        page.fill("#text", "one")
        page.click("#go")
        page.wait_for_selector("#status.error")
        assert "column" in page.inner_text("#status")
        quiet_but = [error for error in seen.errors if "422" not in error]  # the browser notes the refusal
        assert quiet_but == []


def test_a_file_that_comes_before_the_models_waits_for_them(browser: Any, port: int, made: Made) -> None:
    held: list[Any] = []
    with opened(browser) as seen:
        page = seen.page
        page.route("**/v1/models", lambda route: held.append(route))
        page.goto(f"http://127.0.0.1:{port}/")
        page.set_input_files("#file", made["folder"] / "dev.txt")
        page.wait_for_function("document.querySelector('#text').value.length > 100")
        held[0].continue_()
        page.wait_for_selector(".card >> nth=20")
        quiet(seen, port)


def test_numbers_are_a_timeline(browser: Any, port: int, made: Made) -> None:
    x = made["numbers"][0]
    with opened(browser, f"http://127.0.0.1:{port}/", color_scheme="dark") as seen:
        chosen(seen, "numbers", "\n".join(" ".join(f"{value:.3f}" for value in row) for row in x))
        page = seen.page
        page.click(".timeline canvas", position={"x": 300, "y": 60})
        page.wait_for_selector(".details .bars")
        assert "step" in page.locator(".timeline .note").inner_text()
        shown(page, "timeline-dark", full_page=True)
        quiet(seen, port)


def test_hostile_names_are_shown_and_nothing_more(browser: Any, port: int) -> None:
    with opened(browser, f"http://127.0.0.1:{port}/", viewport={"width": 390, "height": 844}) as seen:
        page = seen.page
        dialogs: list[Any] = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
        word = HOSTILE.replace(" ", "\u00a0")
        chosen(seen, "hostile", f"{word}\nb")
        assert page.locator(".step .word").first.inner_text().replace("\u00a0", " ") == HOSTILE
        chosen(seen, "hostile", "b\nb")
        page.click(".step >> nth=0")
        page.click(".why-button")
        page.wait_for_selector(".flip")
        assert HOSTILE in page.locator(".details").inner_text()
        assert page.locator("img").count() == 1  # the sign of the page
        assert dialogs == []
        quiet(seen, port)


def test_a_world_is_replayed(browser: Any, tmp_path: Path) -> None:
    game = crfield.make_tag(0.3, random_state=4)
    rows = ["t,robot,x,y,seeker"]
    for step, (places, seeker) in enumerate(zip(game.positions, game.labels)):
        rows += [f"{step / 60:.4f},{robot},{x:.0f},{y:.0f},{seeker}" for robot, (x, y) in enumerate(places)]
    table, model = tmp_path / "game.csv", tmp_path / "seeker.crfield"
    table.write_text("\n".join(rows) + "\n")
    from tests.cases.command_line import works

    works(
        *("select", table, "-m", model, "--features", "tag-small", "--time", "t", "--agent", "robot"),
        *("--label", "seeker", "--max-features", 3, "-q"),
    )
    with real_server(model) as (_, port), opened(browser, f"http://127.0.0.1:{port}/") as seen:
        seen.page.set_input_files("#file", table)
        frame = seen.page.frame_locator("#replay")
        frame.locator("#play").click()
        frame.locator("#time").wait_for()
        assert "frame" in frame.locator("#time").inner_text()
        quiet(seen, port)


def test_three_sequences_are_labelled_by_keyboard_and_kept(browser: Any, made: Made, tmp_path: Path) -> None:
    folder = made["folder"]
    words = (folder / "columns.crfield", "--label", folder / "pool.txt", "--store", tmp_path / "labels.sqlite")
    with real_server(*words, "--dev", folder / "dev.txt") as (_, port):
        with opened(browser, f"http://127.0.0.1:{port}/label") as seen:
            page, texts = seen.page, []
            for number in range(3):
                page.wait_for_selector(".step")
                title = page.inner_text("#task-title")
                texts.append(" ".join(page.locator("#steps .word").all_inner_texts()))
                page.keyboard.press("ArrowRight")
                page.keyboard.press("2")  # the second label for the second step
                page.keyboard.press("Home")
                page.keyboard.press("0")  # the first step is left open
                assert page.locator("#steps .tag").nth(0).inner_text() == "open"
                page.keyboard.press("Enter")
                page.wait_for_selector(f"#answers li >> nth={number}")
                page.wait_for_selector(f"#task-title:not(:has-text('{title}'))")
            quiet(seen, port)
            page.reload()
            page.wait_for_selector("#answers li >> nth=2")
            kept = page.locator("#answers button").all_inner_texts()
            assert [text[:70] for text in reversed(texts)] == kept
            assert page.locator("#answers li").first.inner_text().count("1 open") == 1
            page.wait_for_selector("#chart svg")
            page.locator("#answers button").first.click()
            page.wait_for_selector("#why-this:has-text('Answered before')")
            assert page.locator("#steps .tag").nth(0).inner_text() == "open"
            shown(page, "labelling", full_page=True)
            page.locator("#steps .step").nth(0).click()  # and by pointer
            page.locator("#labels button").nth(0).click()
            page.click("#store")
            page.wait_for_selector("#status:has-text('version 2')")
            quiet(seen, port)
        _, told = ask(port, "GET", "/v1/labelling/answers")
        labels = made["models"]["columns"].classes_.tolist()
        assert [one["labels"][1] for one in told["answers"]] == [labels[1]] * 3
        assert sorted(one["version"] for one in told["answers"]) == [1, 1, 2]
        assert sorted(one["open"] for one in told["answers"]) == [0, 1, 1]
        with opened(browser, f"http://127.0.0.1:{port}/label", viewport={"width": 390, "height": 844}) as other:
            other.page.wait_for_selector(".step")
            wide = other.page.locator("body").bounding_box()["width"]
            assert wide <= 390  # nothing is wider than a phone
            quiet(other, port)
