"""The site: every page and public name is on it, no warning, no dead link, nothing from the network.

It is built by the commands of ``make docs``, but for the scripts of the gallery, which have tests of their own
(`test_gallery`) and are not run. One test builds it and looks at everything: workers that share tests out would
build it once each.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import crfield
import crfield.metrics

ROOT = Path(__file__).parents[2]
STAGE = ROOT / "docs" / "site" / "stage.py"
PARTS = ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_gallery", "numpydoc", "sphinx_copybutton")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=settings,
        check=False,
    )


def build(folder: Path) -> Path:
    staged = run(STAGE, folder / "source")
    assert staged.returncode == 0, staged.stderr
    options = ["-q", "-W", "--keep-going", "-c", ROOT / "docs", "-d", folder / "cache"]
    built = run("-m", "sphinx", *options, "-D", "plot_gallery=0", folder / "source", folder / "html")
    assert built.returncode == 0, built.stderr[-8000:]
    return (folder / "html").resolve()


class Page(HTMLParser):
    """The links, resources and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        wanted = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}.get(tag, "")
        if wanted in given:
            self.resources.append(given[wanted])


def parsed(site: Path) -> dict[Path, Page]:
    return {
        path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if "_static" not in path.parts
    }


@pytest.mark.slow
def test_the_site(tmp_path: Path) -> None:
    for part in PARTS:
        pytest.importorskip(part)
    site = build(tmp_path)
    pages = parsed(site)
    no_link_is_dead(site, pages)
    nothing_comes_from_the_network(site, pages)
    every_public_name_has_a_page(site)
    a_page_of_the_reference_shows_what_one_looks_for(site)
    all_pages_are_in_one_plain_text(site)


def no_link_is_dead(site: Path, pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.resources]:
            name, _, anchor = link.partition("#")
            name = unquote(name.partition("?")[0])
            if re.match(r"\w+:", link) or path.name == "search.html":
                continue
            target = (path.parent / name).resolve() if name else path.resolve()
            there = target.exists() and target.is_relative_to(site)
            if not there or (anchor and target in pages and unquote(anchor) not in pages[target].anchors):
                dead.append(f"{path.relative_to(site)} → {link}")
    assert not dead, "\n".join(dead[:40])


def nothing_comes_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    asked = {source for page in pages.values() for source in page.resources if re.match(r"(https?:)?//", source)}
    assert not asked
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import ['\"]https?:", sheet.read_text(encoding="utf-8")), (
            sheet
        )
    assert (site / "searchindex.js").stat().st_size > 100_000


def every_public_name_has_a_page(site: Path) -> None:
    names = [f"crfield.{name}" for name in crfield.__all__ if not name.startswith("_")]
    names += [f"crfield.metrics.{name}" for name in crfield.metrics.__all__]
    names += ["crfield.torch.CRFLayer", "crfield.compat.hmmlearn.GaussianHMM", "crfield.compat.sklearn_crfsuite.CRF"]
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines()}
    for name in names:
        assert (site / "reference" / f"{name}.html").exists(), f"{name} has no page"
        assert name in listed, f"{name} is not in objects.inv"


def a_page_of_the_reference_shows_what_one_looks_for(site: Path) -> None:
    text = (site / "reference" / "crfield.ChainCRF.html").read_text(encoding="utf-8")
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    for wanted in (
        "l1=0.0",  # the signature
        "Strengths of the penalties",  # a parameter
        "n_seen_intHow many sequences",  # a learnt attribute
        "predict_n_best",  # a method
        "DET",  # the example
        "Used in When a model says 90 %",  # the gallery
        "Tutorial",
    ):
        assert wanted in plain, f"{wanted!r} is not on the page"


def test_learnt_attributes_have_a_meaning() -> None:
    pytest.importorskip("sphinx")
    code = (
        f"import sys; sys.path.insert(0, {str(STAGE.parent)!r}); import reference, inspect\n"
        "for name in reference.names():\n"
        "    told = reference.attributes(name, inspect.getdoc(reference.thing(name)) or '')\n"
        "    for key, (kind, meaning) in told.items():\n"
        "        print(name, key) if not meaning else None"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    assert not done.stdout, f"docs/guides/fitted-models.md does not tell of\n{done.stdout}"


def all_pages_are_in_one_plain_text(site: Path) -> None:
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        title = page.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0]
        assert f"# {title}\n" in whole, f"{page.name} is not in llms-full.txt"
    assert "ChainCRF(*, l1=0.0" in whole
    assert "Robots that play tag: who seeks?" in whole
    listed = re.findall(r"\]\(([^)]+)\)$", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert all((site / place).exists() for place in listed)
    assert len(listed) > 200


# ---------------------------------------------------------------------------------------------- what is laid out


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(STAGE.parent))
    return importlib.import_module("stage")


def test_a_page_that_no_list_names_is_refused(stage: Any) -> None:
    lists = "".join(f"**{title}**: some\n\n- [A](a{k}.md): one\n\n" for k, title in enumerate(stage.SECTIONS))
    made = {name: "" for name in ("a0.md", "a1.md", "a2.md", "tutorial.md", "models.md")} | {"index.md": lists}
    assert "/a1\n" in stage.sections(made)["methods/index.md"]
    with pytest.raises(
        stage.SiteError, match=r"no list of docs/index\.md names docs/guides/lost\.md: add a line to one"
    ):
        stage.sections({**made, "guides/lost.md": ""})


def test_links_are_turned_to_where_the_site_shows_the_file(stage: Any) -> None:
    told = (
        "[a](../../CONTRIBUTING.md#tests) [b](../../src/crfield/errors.py) [c](input.md) [d](https://e.org) [e](#f)"
    )
    turned = "[a](../project/contributing.md#tests) [b](../source/src/crfield/errors.py.md) [c](../guides/input.md) "
    assert stage.turned(told, "guides/some.md", "docs/guides/some.md") == turned + "[d](https://e.org) [e](#f)"
    assert "class CrfieldError" in stage.views({"x.md": turned})["source/src/crfield/errors.py.md"]
    assert stage.turned("```text\n[a](gone.md)\n```", "x.md", "docs/x.md") == "```text\n[a](gone.md)\n```"
    with pytest.raises(stage.SiteError, match=r"docs/guides/some\.md links to gone\.md, which is not there"):
        stage.turned("[a](gone.md)", "guides/some.md", "docs/guides/some.md")


def test_a_section_of_another_file_is_included(stage: Any) -> None:
    shown = stage.with_sections(
        "before\n\n<!-- include: README.md#speed -->\nlink\n<!-- end -->\n\nafter", "index.md"
    )
    assert "| command |" in shown
    assert "](../docs/design/benchmarks.md)" in shown
    assert "## " not in shown
    assert "link" not in shown
    with pytest.raises(stage.SiteError, match=r"includes README\.md#nowhere, but README\.md has no such"):
        stage.with_sections("<!-- include: README.md#nowhere -->\n<!-- end -->", "index.md")
