"""CONTRIBUTING's "Add an estimator", followed to the letter: a toy that keeps the contract of the front door."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crfield.estimators.base import load as loading
from crfield.estimators.base import load as registry
from tests.cases import toy_estimator
from tests.cases.estimators import Front, some_chains
from tests.contracts import test_front_door as contract

TOY = Front(toy_estimator.LeastSquaresChain, some_chains, options=(("l2", 2.5), ("decode", "marginal")))
PROMISES = [
    test
    for name, test in vars(contract).items()
    if name.startswith("test_") and "front" in inspect.signature(test).parameters
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = toy_estimator.LeastSquaresChain.kind
    monkeypatch.setitem(registry.HOMES, kind, "tests.cases.toy_estimator:LeastSquaresChain")
    monkeypatch.setattr(loading, "KINDS", {*loading.KINDS, kind})


@pytest.mark.parametrize("promise", PROMISES, ids=lambda test: test.__name__)
@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
def test_the_toy_keeps_the_contract(promise: Callable[..., None], tmp_path: Path) -> None:
    given: dict[str, Any] = {"front": TOY, "tmp_path": tmp_path}
    promise(**{name: given[name] for name in inspect.signature(promise).parameters})


def test_the_page_shows_this_very_toy() -> None:
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for part in (toy_estimator.LeastSquares, toy_estimator.LeastSquaresChain):
        assert inspect.getsource(part) in page, f"{part.__name__} is shown otherwise in CONTRIBUTING.md"
