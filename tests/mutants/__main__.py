"""A mutation run: change one operator or constant of a room, run the room's tests, and list what nobody noticed.

    python -m tests.mutants metrics objectives --count 20 --seed 1 --minutes 10

A mutant is one change in the syntax tree: another comparison or arithmetic operator, ``and`` for ``or``, a number
and one more, ``not`` or a minus left out. Mutants are drawn with a seed from all of a room. Each is written into a
copy of the package that shares everything else with the source tree, so that the tree itself is never touched, and
tests run on it until the first failure, which is listed beside it: the file's own examples and the tests of its name,
tests of the room that import it, all of the room, then whatever other test imports it (``--near`` ends after the
second of these, to be quick). A test that fails without the change too has noticed nothing, and ends the run. Time is
that of the processor, so that a busy machine notices no more than an idle one. A mutant that all tests pass
*survives*: a gap in the tests, or a change that makes no difference (a tolerance, a guard against rounding). Looking
at survivors is the purpose; the count is not.

Own code rather than a package: mutants of compiled and NumPy bodies, rooms whose tests lie elsewhere too, and a
sample within a time limit are a hundred lines here.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src" / "crfield"
TESTS = {  # the tests of a room, the quickest first
    "metrics": ["tests/metrics", "src/crfield/metrics"],
    "objectives": [
        "tests/objectives",
        "tests/contracts/test_objectives.py",
        "src/crfield/objectives",
        "tests/estimators/test_continuous.py",
        "tests/estimators/chain/test_m_estimated.py",
    ],
    "optimize": [
        "tests/optimize",
        "src/crfield/optimize",
        "tests/training/chain/test_batch_solvers.py",
        "tests/training/test_finishing.py",
        "tests/training/chain/test_fused.py",
    ],
    "inference": ["tests/inference", "tests/contracts/test_engines.py", "src/crfield/inference"],
}
SECONDS = 300  # of the processor, for the tests of one stage; an endless loop is noticed by whoever waits for it
INSTEAD = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
sys.path.insert(0, sys.argv.pop(1))
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""  # the copy, and not the source tree that an editable installation points to
OTHER: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def mutations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(number of the node, what is done to it) for all that can be changed; not annotations or strings."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inner in ast.walk(part)
    }
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER:
            yield number, f"{type(node.op).__name__} → {OTHER[type(node.op)].__name__}"
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
            yield number, f"{type(node.ops[0]).__name__} → {OTHER[type(node.ops[0])].__name__}"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield number, f"{node.value!r} → {node.value + 1!r}"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield number, f"without {type(node.op).__name__}"


def mutated(tree: ast.Module, number: int) -> tuple[str, int]:
    """The source with that node changed, and its line."""
    tree = copy.deepcopy(tree)
    node = list(ast.walk(tree))[number]
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = OTHER[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops[0] = OTHER[type(node.ops[0])]()
    elif isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float)
        node.value = node.value + 1
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        if isinstance(node.op, ast.Not):  # not not x
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    return ast.unparse(ast.fix_missing_locations(tree)), line


SLOW = "too long"


def importers(path: Path) -> list[str]:
    """Files of tests that name the module."""
    named = re.compile(re.escape("crfield." + ".".join(path.relative_to(SOURCES).with_suffix("").parts)) + r"\b")
    found = [each for each in (ROOT / "tests").rglob("test_*.py") if named.search(each.read_text(encoding="utf-8"))]
    places = sorted(str(each.relative_to(ROOT)) for each in found)
    return [place for place in places if not place.startswith("tests/real")]


def stages(path: Path, *, near: bool) -> Iterator[list[str]]:
    """Tests that may notice a change of the file, the nearest first."""
    room, named = TESTS[path.relative_to(SOURCES).parts[0]], importers(path)
    same = [str(each.relative_to(ROOT)) for each in (ROOT / "tests").rglob(f"test_{path.stem}.py")]
    yield [str(path.relative_to(ROOT)), *same]
    yield [place for place in named if place.startswith(tuple(room)) and place not in same]
    if not near:
        yield room
        yield [place for place in named if not place.startswith(tuple(room)) and place not in same]


def first_failure(package: Path, tests: list[str]) -> str | None:
    """The first of the tests that fails on the package, ``SLOW``, or None where all pass."""
    places = [part.replace("src/crfield", str(package / "crfield"), 1) for part in tests]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            INSTEAD,
            str(package),
            "-c",
            str(ROOT / "pyproject.toml"),
            "--rootdir",
            str(ROOT),
            "-q",
            "-x",
            "-rfE",
            "-p",
            "no:cacheprovider",
            "-o",
            "timeout=0",
            *places,
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    if done.returncode in (0, 5):  # 5: there was no test
        return None
    if done.returncode < 0:
        return SLOW
    told = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return _placed(told[1]) if told else "import"


def _placed(test: str) -> str:
    """A test with its file: examples of the copy, which lies elsewhere, are known by their names alone."""
    parts = test.rpartition("::")[2].split(".")
    for stop in range(len(parts), 0, -1):
        file = SOURCES.parent.joinpath(*parts[:stop]).with_suffix(".py")
        if not test.startswith("tests/") and file.exists():
            return f"{file.relative_to(ROOT)}::{'.'.join(parts)}"
    return test


def noticed_by(package: Path, path: Path, source: str, *, near: bool) -> str | None:
    """The test that notices the mutant; None where it survives."""
    place = package / "crfield" / path.relative_to(SOURCES)
    kept = place.read_text()
    place.write_text(source)
    try:
        asked = (first_failure(package, tests) for tests in stages(path, near=near) if tests)
        return next((found for found in asked if found), None)
    finally:
        place.write_text(kept)


def _compiled() -> list[Path]:
    found = find_spec("crfield.kernels._chain")
    return [] if found is None or found.origin is None else list(Path(found.origin).parent.glob("_*.so"))


def main(arguments: list[str]) -> int:
    """Draw, run, list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=list(TESTS), help=", ".join(TESTS))
    parser.add_argument("--count", type=int, default=25, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="no new mutant after so long")
    parser.add_argument("--near", action="store_true", help="only tests of the file's name, or of the room by import")
    given = parser.parse_args(arguments)
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        shutil.copytree(SOURCES, package / "crfield", ignore=shutil.ignore_patterns("__pycache__"))
        for compiled in _compiled():
            shutil.copy(compiled, package / "crfield" / "kernels")
        trusted: set[str] = set()  # tests that pass without a change
        for room in given.rooms:
            trees = {path: ast.parse(path.read_text()) for path in sorted((SOURCES / room).rglob("*.py"))}
            drawn = [(path, *change) for path, tree in trees.items() for change in mutations(tree)]
            random.Random(given.seed).shuffle(drawn)
            noticed = left = 0
            for path, number, what in drawn[: given.count]:
                if time.monotonic() > end:
                    break
                source, line = mutated(trees[path], number)
                found = noticed_by(package, path, source, near=given.near)
                if found and "::" in found and found not in trusted:
                    if first_failure(package, [found]):
                        print(f"{room}: {found} fails without any change")
                        return 1
                    trusted.add(found)
                noticed, left = noticed + bool(found), left + (not found)
                told = f"noticed by {found}" if found else "SURVIVES"
                print(f"  {path.relative_to(ROOT)}:{line}  {what}  {told}", flush=True)
            print(f"{room}: {noticed} noticed, {left} survive, of {len(drawn)} possible", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
