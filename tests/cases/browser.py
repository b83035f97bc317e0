"""A real browser for the tests of pages: the system's Chromium, driven by Playwright; nothing is downloaded.

`launch` gives the browser and `opened` a page of it that writes down what it asked for and what it complained of.
Where Chromium or Playwright is missing the tests that use them are skipped, or fail if CRFIELD_BROWSER=required.

`shown` writes a picture for people to look at, into CRFIELD_PICTURES or ``build/pictures``; no test compares it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def launch() -> Iterator[Any]:
    """A Playwright browser without a window; skips, or fails where one is required, if there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        _missing("no Chromium on the path: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed: pip install playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def _missing(words: str) -> None:
    if os.environ.get("CRFIELD_BROWSER") == "required":
        pytest.fail(f"{words} (CRFIELD_BROWSER=required)")
    pytest.skip(words)


@dataclass
class Opened:
    """A page, the addresses it asked for, and what it complained of: errors on the console and of its scripts."""

    page: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Any, address: str = "", **options: Any) -> Iterator[Opened]:
    """A new page in a context of its own, at an address if one is given; ``options`` are those of the context.

    ``color_scheme="dark"``, ``viewport={"width": 390, "height": 844}``, ``java_script_enabled=False``,
    ``offline=True``.
    """
    usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}  # nothing moves while it is seen
    context = browser.new_context(**{**usual, **options})
    context.set_default_timeout(20_000)
    try:
        found = Opened(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: message.type == "error" and found.errors.append(message.text))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        if address:
            found.page.goto(address)
        yield found
    finally:
        context.close()


def shown(page: Any, name: str, **options: Any) -> Path:
    """The path of a picture of the page, for people to look at."""
    folder = Path(os.environ.get("CRFIELD_PICTURES") or Path(__file__).parents[2] / "build" / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    page.screenshot(path=str(path), **options)
    return path
