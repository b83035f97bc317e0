"""The page from the papers to the code: names, pages, commands and verdicts are real, and studies say the same."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import crfield
from crfield.errors import InputError
from studies.catalogue import CATALOGUE
from tests.cases.command_line import works

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
VERDICTS = ("works", "reproduces", "differs", "partly", "missing")
CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    paper: str
    item: str
    what: str
    names: list[str]
    page: str
    commands: list[str]
    verdict: str


def rows() -> list[Row]:
    """The rows of all tables that have six columns."""
    found, paper = [], ""
    for line in PAGE.read_text(encoding="utf-8").split("\n"):
        if line.startswith("## "):
            paper = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 6 and cells[0] != "item":
            item, what, names, page, commands, verdict = cells
            found.append(Row(paper, item, what, CODE.findall(names), page, CODE.findall(commands), verdict))
    return found


ROWS = rows()
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}-{row.item}")


def named(text: str) -> Any:
    """What a name of the page stands for: a module, or a public name with an attribute or with parameters."""
    if text.startswith("crfield."):
        return import_module(text)
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        first, *rest = text.split(".")
        thing = getattr(crfield, first)
        for part in rest:
            thing = getattr(thing, part)
        return thing
    assert isinstance(tree.func, ast.Name)
    thing = getattr(crfield, tree.func.id)
    given = {str(word.arg): ast.literal_eval(word.value) for word in tree.keywords}
    model = thing(**given)
    if hasattr(model, "check"):
        model.check(*(given if inspect.signature(model.check).parameters else ()))
    return model


def test_every_text_is_there() -> None:
    assert len({(row.paper, row.item) for row in ROWS}) == len(ROWS) > 115
    assert len({row.paper for row in ROWS}) == 5


@each_row
def test_names_pages_and_verdicts_are_real(row: Row) -> None:
    verdict, _, reason = row.verdict.partition(": ")
    assert verdict in VERDICTS
    assert verdict not in ("differs", "partly") or reason, f"{verdict} needs a reason"
    assert verdict == "missing" or row.names, "what is there has a name"
    assert verdict == "missing" or row.page.startswith("["), "and a page"
    assert verdict not in ("reproduces",) or row.commands, "and a command that computes it"
    for text in row.names:
        assert named(text) is not None


@each_row
def test_commands_are_studies_that_say_the_same(row: Row) -> None:
    for command in row.commands:
        words = command.split()
        assert words[0] == "crfield"
        if words[1] in ("reproduce", "experiment"):
            assert row.item in CATALOGUE[words[2]].covers.get(row.paper, ()), "the catalogue covers the item too"
        else:
            works(words[1], "--help")


def test_what_studies_cover_stands_on_the_page() -> None:
    papers = {row.paper for row in ROWS}
    shown = works("reproduce", "--list").stdout
    for name, entry in CATALOGUE.items():
        for paper, items in entry.covers.items():
            assert f"{paper}: {', '.join(items)}" in shown
            for item in items if paper in papers else ():
                (row,) = (row for row in ROWS if (row.paper, row.item) == (paper, item))
                assert any(command.split()[2:] == [name] for command in row.commands), (name, item)


def test_a_wrong_name_is_noticed() -> None:
    with pytest.raises(AttributeError):
        named("ChainCRF.predict_everything")
    with pytest.raises(ModuleNotFoundError):
        named("crfield.inference.nowhere")
    with pytest.raises(InputError):
        named('LogitBoost(evidence_form="beliefs")')
