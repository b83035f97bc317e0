"""Types as a user meets them: checkers and editors know every public name, its parameters and what it has learnt.

Both checkers read a user's script; each line that must be refused is marked in it. mypy runs with the settings of the
project, so that it finds what it has checked before. pyright is run as basedpyright, which comes with its own node.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import crfield
from tests.cases.estimators import FRONT_DOOR

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

SCRIPT = """
from typing import assert_type

import numpy as np

import crfield
from crfield import ChainCRF, GraphCRF, HMM, LogitBoost, SemiMarkovCRF, StumpEncoder, TextFeatures
from crfield.compat.sklearn_crfsuite import CRF

X = [[{"word": "the"}, {"word": "dog"}]]
y = [["DET", "NOUN"]]
model = ChainCRF(l1=0.1, max_iter=10)
assert_type(model.fit(X, y), ChainCRF)
assert_type(crfield.GridCRF().fit(X, y), crfield.GridCRF)
assert_type(HMM().fit(X, y), HMM)
assert_type(model.score(X, y), float)
assert_type(model.set_params(l1=1.0), ChainCRF)
table: np.ndarray = model.predict(X)
steps: int = model.n_iter_
names: dict[str, object] = model.get_params()
CRF(c1=1.0).fit(X, y).predict(X)

ChainCRF(l3=1)  # wrong
ChainCRF(l1="much")  # wrong
GraphCRF(l3=1)  # wrong
crfield.GridCRF(l3=1)  # wrong
crfield.FactorialCRF(l2="much")  # wrong
SemiMarkovCRF(lenght=3)  # wrong
LogitBoost(n_round=3)  # wrong
StumpEncoder(bins=3)  # wrong
TextFeatures(widnow=3)  # wrong
CRF(c3=1.0)  # wrong
model.fitt()  # wrong
model.predict(X).fitt()  # wrong
HMM().fitt(X, y)  # wrong
StumpEncoder().transfrom(X)  # wrong
crfield.ChainCFR  # wrong
crfield.metrics_of_mine(3)  # wrong
"""


def lazy_table() -> dict[str, str]:
    return crfield._HOME  # type: ignore[attr-defined]


def learnt() -> str:
    """A line for every public attribute of every fitted estimator; a checker must know them all."""
    lines = ["import crfield"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for front in FRONT_DOOR:
            model = front.estimator().fit(*front.data(4, 0))
            names = [name for name in dir(model) if not name.startswith("_")]
            lines += [f"crfield.{front.estimator.__name__}().{name}" for name in names]
    return "\n".join(lines)


def complaints(checker: str, folder: Path, text: str) -> dict[int, str]:
    """Line and words of every error that the checker has with the script."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed; pip install 'crfield[dev]' has it")
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    if checker == "mypy":
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    else:
        settings = {"typeCheckingMode": "standard", "extraPaths": [str(SOURCE)], "include": ["script.py"]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable]
        command += ["--project", str(folder)]
    environment = {**os.environ, "MYPYPATH": str(SOURCE), "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    found = re.findall(r"script\.py:(\d+)(?::\d+)?:? (?:- )?error: (.*)", done.stdout)
    assert done.returncode == (1 if found else 0), done.stdout + done.stderr
    return {int(line): words for line, words in found}


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_users_script_is_checked(checker: str, tmp_path: Path) -> None:
    marked = {k for k, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# wrong")}
    found = complaints(checker, tmp_path, SCRIPT)
    assert len(marked) == 16
    assert set(found) == marked, found


def test_children_of_graphs_take_the_same_options() -> None:
    options = set(inspect.signature(crfield.GraphCRF).parameters)
    for child in (crfield.GridCRF, crfield.FactorialCRF):
        assert options < set(inspect.signature(child).parameters)


def test_what_was_learnt_is_known_to_checkers(tmp_path: Path) -> None:
    assert complaints("mypy", tmp_path, learnt()) == {}


def test_checkers_see_the_names_that_are_loaded() -> None:
    """The imports for checkers and the table for the interpreter say the same."""
    tree = ast.parse((SOURCE / "crfield" / "__init__.py").read_text(encoding="utf-8"))
    shown = {}
    for part in ast.walk(tree):
        if isinstance(part, ast.If) and isinstance(part.test, ast.Name) and part.test.id == "TYPE_CHECKING":
            for line in part.body:
                assert isinstance(line, ast.ImportFrom)
                for alias in line.names:
                    assert alias.asname == alias.name, "only `import name as name` is seen from outside"
                    shown[alias.name] = line.module
    assert shown == lazy_table()


ESTIMATORS = SOURCE / "crfield" / "estimators"
VAGUE = ("crf", "model", "estimator")


def vague_parameters(path: Path) -> list[str]:
    """Functions that take ``crf``, ``model`` or ``estimator`` and do not say what they ask of it."""
    found = []
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.FunctionDef):
            for argument in [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]:
                told = argument.annotation
                if argument.arg in VAGUE and (told is None or (isinstance(told, ast.Name) and told.id == "Any")):
                    found.append(f"{item.name}({argument.arg})")
    return found


def test_helpers_say_what_they_ask_of_an_estimator() -> None:
    """A class or a protocol, never Any: else a helper may reach for whatever an estimator happens to have."""
    vague = {str(path.relative_to(ESTIMATORS)): vague_parameters(path) for path in ESTIMATORS.rglob("*.py")}
    allowed = {"__init_subclass__(model)", "holding(model)"}  # whatever class or value a family has
    left = {name: [f for f in found if f not in allowed] for name, found in vague.items()}
    assert {name: found for name, found in left.items() if found} == {}
