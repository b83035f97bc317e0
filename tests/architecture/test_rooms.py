"""The table of rooms in docs/design: who may import whom, and which doors are open to whom."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "crfield"

BELOW_TRAINING = {
    "core",
    "kernels",
    "metrics",
    "optimize",
    "data",
    "inference",
    "features",
    "scoring",
    "objectives",
    "simulate",
    "storage",
}
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "kernels": set(),
    "metrics": {"core"},
    "optimize": {"kernels"},
    "data": {"core", "kernels"},
    "inference": {"core", "kernels"},
    "features": {"data", "core", "kernels"},
    "scoring": {"data", "core", "kernels"},
    "objectives": {"inference", "core", "kernels"},
    "simulate": {"data", "core", "inference", "kernels"},
    "storage": {"data", "core"},
    "training": BELOW_TRAINING,
    "boosting": BELOW_TRAINING | {"training"},
    "selection": BELOW_TRAINING | {"training"},
    "estimators": BELOW_TRAINING | {"training", "boosting", "selection", "report"},
    "compat": {
        "estimators",
        "storage",
        "metrics",
        "features",
        "scoring",
        "objectives",
        "inference",
        "data",
        "core",
        "kernels",
    },
    "torch": {"estimators", "training", "features", "scoring", "data", "inference", "optimize", "kernels", "core"},
    "report": {"metrics", "inference", "features", "scoring", "data", "core", "storage"},
    "serve": {"estimators", "report", "storage", "data", "metrics", "core"},
    "cli": BELOW_TRAINING | {"training", "boosting", "selection", "estimators", "compat", "report", "serve"},
    "studies": BELOW_TRAINING | {"training", "boosting", "selection", "estimators", "compat", "report"},
}
STUDIES = ROOT / "studies"
FILES = sorted([*SOURCE.rglob("*.py"), *STUDIES.rglob("*.py")])


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> set[str]:
    """Full names of all modules imported anywhere in the file."""
    names: set[str] = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            names |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, "imports are absolute"
            names.add(item.module or "")
            names |= {f"{item.module}.{alias.name}" for alias in item.names}
    return names


def called(tree: ast.AST) -> set[str]:
    return {item.func.id for item in ast.walk(tree) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)}


def room_of(path: Path) -> str:
    if path.is_relative_to(STUDIES):
        return "studies"
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_and_doors(path: Path) -> None:
    tree = parsed(path)
    room, names = room_of(path), imported(tree)
    if room:
        assert room in ROOMS, f"unknown room {room}: add it to docs/design and to this table"
        for name in names:
            parts = name.split(".")
            if parts[0] == "crfield" and len(parts) > 1 and parts[1] != "errors":
                assert parts[1] == room or parts[1] in ROOMS[room], f"{room} may not import {name}"
            assert parts[0] != "studies" or room == "studies", "only the command line looks studies up"
    if room not in ("storage",):
        assert "open" not in called(tree), "only storage opens files"
    if room != "cli" and path.name != "progress.py":
        assert "print" not in called(tree), "only cli and estimators/progress print"
        assert not any(name.split(".")[0] in ("typer", "rich") for name in names), "only cli and progress"
    if room != "report" or path.parent.name != "displays":
        assert not any(name.split(".")[0] == "matplotlib" for name in names), "only report/displays plots"
    if room != "torch":
        assert not any(name.split(".")[0] == "torch" for name in names), "only crfield.torch imports PyTorch"
    if room != "kernels":
        assert not any(name.startswith("crfield.kernels._") for name in names), "only kernels runs native code"
    assert not any(name.split(".")[0] in ("pickle", "marshal", "shelve") for name in names), "no pickle"
    if room != "training":
        assert not any(name.split(".")[0] in ("multiprocessing", "concurrent", "subprocess") for name in names)
    if room != "serve":
        servers = ("starlette", "uvicorn", "anyio", "h11")
        assert not any(name.split(".")[0] in servers for name in names), "only serve speaks HTTP"
    if path.name != "label_store.py":
        assert "sqlite3" not in names, "one file keeps labels in a database"
    if path.name != "on_ray.py":
        assert not any(name.split(".")[0] == "ray" for name in names), "one file imports ray"


def test_no_catch_all_names() -> None:
    for path in FILES:
        name = path.stem
        if room_of(path) == "compat":  # has the names of other packages
            continue
        assert name not in ("utils", "helpers", "common", "misc"), path
        assert not name.startswith("base_"), path


def test_every_module_has_an_essay() -> None:
    for path in FILES:
        if path.name == "__init__.py" and not path.read_text().strip():
            continue
        assert ast.get_docstring(parsed(path)), f"{path} has no docstring"
