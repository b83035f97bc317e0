"""What the pages say is true: their Python runs, their links and paths lead somewhere, their table is enforced."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_rooms import ROOMS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PLACE = re.compile(r"`((?:src|studies|native|tests|docs|examples|benchmarks|\.ci)/[\w./-]*)`")
NEEDS = re.compile(r"^<!-- needs: ([\w ]+) -->$", re.MULTILINE)  # packages without which a page cannot run
OUTSIDE = ("http://", "https://", "mailto:")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The headings as they appear behind ``#`` in an address."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def split_numbers(text: str) -> tuple[list[str], list[float]]:
    """Words without the decimal numbers, and those: the end of training moves their last digits."""
    number = re.compile(r"[+-]?\d+\.\d*")
    return number.sub("#", text).split(), [float(value) for value in number.findall(text)]


@each_page
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in " ".join(NEEDS.findall(page.read_text(encoding="utf-8"))).split():
        pytest.importorskip(name, reason=f"{page.name} needs {name}, which is not installed")
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS, encoding="utf-8")
    assert not failed, f"{failed} examples of {page.name} do not give what it says: see above"


@each_page
def test_no_python_goes_unrun(page: Path) -> None:
    """Outside the README, which is pasted as a whole, every block of Python is a session."""
    if page == README:
        return
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        assert language != "python" or text.startswith(">>> "), f"not a session, so never run:\n{text}"


def test_the_readme_can_be_pasted(tmp_path: Path) -> None:
    """Its first block goes line by line into a real interpreter, and its second is what comes out."""
    (python, code), (text, expected) = BLOCK.findall(README.read_text(encoding="utf-8"))[:2]
    assert (python, text) == ("python", "text")
    done = subprocess.run(
        [sys.executable, "-i", "-q", "-X", "utf8"],
        input=code,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Error" not in done.stderr, done.stderr
    words, numbers = split_numbers(expected)
    found, values = split_numbers(done.stdout)
    assert found == words, done.stdout
    # Probabilities are printed to two digits, weights to four, of which another processor may change the last two.
    assert values == pytest.approx(numbers, abs=2e-3), done.stdout


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith(OUTSIDE):
            continue
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        assert place.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}, but there is no such heading"


@each_page
def test_named_files_exist(page: Path) -> None:
    for name in PLACE.findall(prose(page)):
        assert (ROOT / name).exists(), f"{page.name} names {name}, which is not there"


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(prose(index))}
    missing = [page.name for page in (ROOT / "docs").rglob("*.md") if page != index and page.resolve() not in linked]
    assert not missing


def test_the_table_of_rooms_is_the_one_enforced() -> None:
    page = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\| ([^|]*) \|$", page, re.MULTILINE)
    order = [room for room, _ in rows]
    said: dict[str, set[str]] = {}
    for room, listed in rows:
        said[room] = set()
        for part in listed.split(", ") if listed != "nothing of ours" else []:
            first, _, last = part.partition(" … ")
            said[room] |= set(order[order.index(first) : order.index(last or first) + 1])
    assert said == ROOMS


def test_pictures_are_small_and_shown() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in LINK.findall(prose(page))}
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 150_000, f"{picture.name} is too large"
        assert picture.resolve() in shown, f"no page shows {picture.name}"
