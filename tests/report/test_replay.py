"""The page of a replay: what its script shows is what was put in, in a browser or at least in Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crfield import Replay, make_soccer, make_tag
from crfield.errors import InputError, LabelError, ShapeError

NODE = shutil.which("node")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
CHECK = Path(__file__).with_name("replay_check.js")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def shown(page: str, folder: Path, *frames: int) -> dict[str, Any]:
    """What the page's script shows at the start, at these frames, while it plays, and so on."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [str(NODE), str(CHECK), str(path), *map(str, frames)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def guessed() -> tuple[Any, np.ndarray, np.ndarray]:
    """A game, labels that are wrong in frames 100 … 149, and marginals that say so."""
    game = make_tag(0.1, random_state=4)
    predicted = game.labels.copy()
    predicted[100:150] = (predicted[100:150] + 1) % 3
    return game, predicted, 0.1 + 0.7 * np.eye(3)[predicted]


@needs_node
def test_the_script_shows_positions_labels_and_marginals(tmp_path: Path) -> None:
    game, predicted, marginals = guessed()
    seen = shown(Replay.of(game, predicted=predicted, marginals=marginals).html(), tmp_path, 120, 10**9)
    assert seen["ready"] == str(len(game)) == "360"
    first, middle, last = seen["at"]
    assert (first["frame"], middle["frame"], last["frame"]) == (0, 120, 359)
    assert (first["wrong"], middle["wrong"], last["wrong"]) == (False, True, False)
    assert (middle["truth"], middle["predicted"]) == (str(game.labels[120]), str(predicted[120]))
    assert middle["time"].startswith("2.00 s")
    assert middle["score"] == f"{100 * (1 - 21 / 121):.1f} %"
    assert [float(x) for x in middle["bars"]] == pytest.approx(marginals[120], abs=0.005)
    places = [[agent["x"], agent["y"]] for agent in seen["agents"]]
    np.testing.assert_allclose(places, game.positions[120], atol=0.5001)


@needs_node
def test_play_pause_click_and_keys(tmp_path: Path) -> None:
    game, predicted, marginals = guessed()
    seen = shown(Replay.of(game, predicted=predicted, marginals=marginals).html(), tmp_path)
    assert 33 <= seen["playing"]["frame"] <= 36, "0.6 s at 60 frames a second"
    assert "pause" in seen["playing"]["play"]
    assert "play" in seen["paused"]["play"]
    assert seen["paused"]["frame"] == seen["playing"]["frame"]
    assert seen["clicked"]["frame"] == 180
    assert seen["stepped"]["frame"] == 181
    assert min(seen["calls"][name] for name in ("arc", "fillRect", "lineTo", "fillText")) > 100


@needs_node
def test_thinned_soccer_without_predictions(tmp_path: Path) -> None:
    game = make_soccer(0.1, n_players=2, random_state=1)
    seen = shown(Replay.of(game, every=3).html(), tmp_path, 40)
    assert seen["ready"] == "120"
    assert seen["at"][1]["truth"] == game.labels[120]
    assert seen["at"][1]["predicted"] == ""
    assert [agent["name"] for agent in seen["agents"]] == game.agents
    assert 11 <= seen["playing"]["frame"] <= 12


@needs_node
@pytest.mark.parametrize("steps", [0, 1])
def test_games_of_no_and_one_frame(steps: int, tmp_path: Path) -> None:
    game = make_tag(steps / 3600)
    seen = shown(Replay.of(game, predicted=game.labels, marginals=np.full((steps, 3), 1 / 3)).html(), tmp_path, 5)
    assert seen["ready"] == str(steps)
    assert all(look["frame"] == 0 for look in seen["at"])


@needs_browser
def test_the_page_comes_up_in_a_browser(tmp_path: Path) -> None:
    game, predicted, marginals = guessed()
    path = tmp_path / "page.html"
    path.write_text(Replay.of(game, predicted=predicted, marginals=marginals).html(), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    command = [str(BROWSER), *flags, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert 'data-ready="360"' in done.stdout, done.stderr
    assert "(frame 1 of 360)" in done.stdout


def test_the_page_asks_nothing_of_the_network() -> None:
    page = Replay.of(make_tag(0.05)).html()
    assert not re.search(r"(src|href)\s*=|url\(|@import|fetch\(|import\s*\(|XMLHttp|://", page)
    assert "default-src 'none'" in page


def test_names_cannot_end_the_script_or_the_title() -> None:
    nasty = "</script><b>&"
    game = SimpleNamespace(
        positions=np.zeros((2, 1, 2)),
        labels=[nasty, nasty],
        agents=[nasty],
        rate=1.0,
        field=(10.0, 10.0),
        diameter=1.0,
    )
    page = Replay.of(game, title=nasty).html()
    assert page.count("</script>") == 2
    assert "<b>" not in page


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    frame = Replay.of(make_tag(0.05))._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert frame.count("<") == 2, "all of the page is escaped"


def test_large_fields_fit_into_sixteen_bits() -> None:
    from crfield.report.replay_page import replay_data

    game = make_tag(0.01)
    far = SimpleNamespace(**{**vars(game), "positions": game.positions * 1e3, "labels": game.labels})
    data = replay_data(Replay.of(far))
    assert data["unit"] == pytest.approx(np.abs(game.positions).max() * 1e3 / 32_000)


def test_what_does_not_fit_is_refused() -> None:
    game = make_tag(0.05)
    for error, options, words in (
        (ShapeError, {"predicted": game.labels[:-1]}, "one entry for each of 180 steps, got 179"),
        (LabelError, {"predicted": np.full(180, 7)}, "7, which is not among the classes"),
        (ShapeError, {"marginals": np.zeros((180, 2))}, r"must be \(180, 3\)"),
        (InputError, {"marginals": np.full((180, 3), np.nan)}, "between 0 and 1"),
        (InputError, {"every": 0}, "integer ≥ 1"),
    ):
        with pytest.raises(error, match=words):
            Replay.of(game, **options)
    broken = SimpleNamespace(**{**vars(game), "positions": np.full((180, 3, 2), np.nan)})
    with pytest.raises(InputError, match="finite"):
        Replay.of(broken)
