"""Every name that the page of asks gives as an answer is there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import crfield
import crfield.metrics
from crfield.cli.main import app
from crfield.training.chain.plan import OBJECTIVES, SOLVERS

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"
NAME = re.compile(r"`([^`]+)`")
CALL = re.compile(r"([\w.]+)\((\w+)=(.*)\)")
OWN = {"None", "clone", "history_"}  # Python's, scikit-learn's, and what only a fitted model has


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def known(name: str) -> Any:
    """The thing of that name: public, of a public class, a metric, or a module."""
    first, _, rest = name.partition(".")
    if first == "crfield":
        return importlib.import_module(name)
    thing = getattr(crfield, first) if hasattr(crfield, first) else getattr(crfield.metrics, first)
    for part in rest.split(".") if rest else ():
        thing = getattr(thing, part)
    return thing


def check(name: str) -> None:
    if name in OWN:
        return
    if name.startswith("make "):
        makefile = (PAGE.parents[1] / "Makefile").read_text(encoding="utf-8")
        assert f"\n{name.removeprefix('make ')}:" in makefile
        return
    if name.startswith("crfield "):
        _, verb, *options = name.split()
        command = typer.main.get_command(app).get_command(None, verb)  # type: ignore[attr-defined]
        assert set(options) <= {flag for option in command.params for flag in option.opts}
        return
    called = CALL.fullmatch(name)
    if called is None:
        known(name)
        return
    owner, parameter, value = called.groups()
    assert parameter in inspect.signature(known(owner)).parameters, f"{owner} has no {parameter}"
    if value.startswith('"') and parameter in ("solver", "objective"):
        assert value.strip('"') in (*SOLVERS, *OBJECTIVES)


def test_all_asks_are_there_and_answered() -> None:
    assert [row[0] for row in rows()] == [str(k) for k in range(1, 26)]
    for number, ask, answer in rows():
        assert ask
        assert NAME.search(answer) or "](" in answer or "not here, because" in answer or number == "3", answer


@pytest.mark.parametrize("name", sorted(set(NAME.findall(PAGE.read_text(encoding="utf-8")))))
def test_a_name_of_the_page_exists(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", ["ChainCRF.fly", "ChainCRF(wings=2)", "crfield fly", "crfield tag --wings", "fly"])
def test_a_name_that_is_not_there_is_noticed(name: str) -> None:
    with pytest.raises((AttributeError, AssertionError, KeyError)):
        check(name)
