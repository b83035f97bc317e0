"""The front door: every public name can be imported, shows an example, and is listed where one looks."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator

import crfield
import crfield.errors
import crfield.estimators
import crfield.metrics
from tests.cases.estimators import ESTIMATORS

NAMES = [name for name in crfield.__all__ if not name.startswith("_")]


def documented(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def estimators() -> dict[str, type[Any]]:
    """Every public class with fit and predict in the room of estimators."""
    found = {}
    for module in pkgutil.walk_packages(crfield.estimators.__path__, "crfield.estimators."):
        for name, thing in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(thing) and issubclass(thing, BaseEstimator) and thing.__module__ == module.name:
                if not hasattr(thing, "fit") or getattr(thing, "kind", None) == "":  # a base class of estimators
                    continue
                found[name] = thing
    return {name: thing for name, thing in found.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    thing = getattr(crfield, name)
    assert thing.__module__.startswith("crfield.")
    assert ">>>" in documented(thing), f"crfield.{name} has no example in its docstring"


@pytest.mark.parametrize("name", crfield.metrics.__all__)
def test_every_metric_explains_itself(name: str) -> None:
    thing = getattr(crfield.metrics, name)
    assert documented(thing)
    if inspect.isfunction(thing):
        assert ">>>" in documented(thing), f"crfield.metrics.{name} has no example in its docstring"


@pytest.mark.parametrize("name", sorted(estimators()))
def test_every_estimator_stands_at_the_front_door(name: str) -> None:
    estimator = estimators()[name]
    assert name in crfield.__all__
    assert getattr(crfield, name) is estimator
    assert estimator in ESTIMATORS, f"{name} must join the fit contract (tests/cases/estimators.py)"
    answers = ("predict", "score") if hasattr(estimator, "predict") else ("transform",)
    for method in ("fit", *answers, "save"):
        assert documented(getattr(estimator, method)), f"{name}.{method} has no docstring"


def test_public_methods_are_documented_and_typed() -> None:
    for estimator in estimators().values():
        for name, method in vars(estimator).items():
            if name.startswith("_") or not (inspect.isfunction(method) or isinstance(method, property)):
                continue
            function = method.fget if isinstance(method, property) else method
            assert documented(method), f"{estimator.__name__}.{name} has no docstring"
            assert "return" in function.__annotations__, f"{estimator.__name__}.{name} has no types"


def test_names_are_listed_once_and_found_by_dir() -> None:
    assert len(set(crfield.__all__)) == len(crfield.__all__)
    assert set(crfield.__all__) <= set(dir(crfield))
    with pytest.raises(AttributeError, match="'crfield' has no attribute 'Crf'"):
        crfield.Crf


def test_a_star_import_gives_the_same_names() -> None:
    code = "from crfield import *; import crfield; print(all(name in globals() for name in crfield.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert crfield.__version__ == version("crfield")
    root = Path(__file__).parents[2]
    assert f"\nversion: {crfield.__version__}\n" in (root / "CITATION.cff").read_text("utf-8")
    assert f"## [{crfield.__version__}]" in (root / "CHANGELOG.md").read_text("utf-8")


def test_errors_and_warnings_are_one_tree() -> None:
    for name, thing in vars(crfield.errors).items():
        if inspect.isclass(thing):
            assert issubclass(thing, crfield.errors.CrfieldError | crfield.errors.CrfieldWarning)
            assert documented(thing)
            assert name in documented(crfield.errors), f"{name} is not drawn in the tree of errors.py"
