"""Where files may lie and how they may lean on each other: small folders, no prefix for a folder, no import cycles.

A folder is what a reader sees first, so it shows at most fifteen files, and files that begin with the same word stand
in a folder of that word. Two files that import each other are one file in two pieces: whoever reads one must read the
other. Imports inside functions count, since they hide a cycle and do not undo it; those for type checkers alone do
not, since nothing runs through them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.test_rooms import ROOT, SOURCE, imported, parsed

TREES = [ROOT / name for name in ("src", "studies", "tests")]
FOLDERS = sorted({path.parent for tree in TREES for path in tree.rglob("*.py")})
MOST = 15  # files of a folder, beside __init__.py
MANY = 3  # files with one first word, which then is a folder

# One file for each compiled module, its contract in the first and its readable body in the second.
LARGE = {"src/crfield/kernels", "src/crfield/kernels/reference"}


def names_in(folder: Path) -> list[str]:
    """Names of the files that a folder shows; of tests, what they test."""
    return sorted(path.stem.removeprefix("test_") for path in folder.glob("*.py") if path.name != "__init__.py")


def too_many(names: list[str]) -> bool:
    return len(names) > MOST


def unmade_folders(names: Iterable[str]) -> list[str]:
    """First words that stand for a folder: ``graph_`` of graph_data, graph_file and graph_model."""
    first = Counter(name.split("_")[0] for name in names if "_" in name)
    return sorted(word for word, count in first.items() if count >= MANY)


def run_imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports of a file, wherever they stand, but for those that only type checkers read."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.expr):
            waiting += ast.iter_child_nodes(node)


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def edges_of(sources: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Which modules each of them imports, of those given; of ``from p import a`` p.a if that is one, else p."""
    edges = {}
    for name, tree in sources.items():
        wanted = set()
        for node in run_imports(tree):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            else:
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted |= {module if module in sources else node.module or "" for module in full}
        edges[name] = wanted & sources.keys() - {name}
    return edges


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that reach each other (Tarjan 1972), largest first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in edges[module]:
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            at = stack.index(module)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for module in edges:
        if module not in number:
            visit(module)
    return sorted(found, key=len, reverse=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_folder_shows_few_files(folder: Path) -> None:
    names, place = names_in(folder), str(folder.relative_to(ROOT))
    told = f"{place} shows {len(names)} files, more than {MOST}: make folders of those that belong together"
    assert not too_many(names) or place in LARGE, told


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_prefix_stands_for_a_folder(folder: Path) -> None:
    place = str(folder.relative_to(ROOT))
    words = unmade_folders(names_in(folder))
    assert not words, f"{place} has {MANY} or more files of {words}: make them folders"


def test_no_file_imports_itself_through_others() -> None:
    for tree, root in ((SOURCE, SOURCE.parent), (ROOT / "studies", ROOT)):
        edges = edges_of({module_name(path, root): parsed(path) for path in sorted(tree.rglob("*.py"))})
        found = cycles(edges)
        assert not found, "these files import each other; move what both need to a third:\n" + "\n".join(
            " ".join(part) for part in found
        )


def test_no_body_is_called_past_its_contract() -> None:
    """`crfield.kernels.reference` is one of two bodies; who imports it gets it whatever body was chosen."""
    for tree in (SOURCE, ROOT / "studies", ROOT / "benchmarks"):
        for path in tree.rglob("*.py"):
            if "reference" in path.read_text(encoding="utf-8") and not path.is_relative_to(SOURCE / "kernels"):
                assert not [n for n in imported(parsed(path)) if n.startswith("crfield.kernels.reference")], path


def test_what_the_rules_see() -> None:
    """Each rule, on a small tree that breaks it."""
    assert too_many([f"n{k}" for k in range(16)])
    assert not too_many([f"n{k}" for k in range(15)])
    assert unmade_folders(["graph_a", "graph_b", "graph_c", "chain_a", "chain_b", "graph"]) == ["graph"]
    hidden = {"p": "", "p.a": "def f():\n    from p.b import g", "p.b": "from p import c", "p.c": "import p.a"}
    assert cycles_of(hidden) == [["p.a", "p.b", "p.c"]]
    assert cycles_of(hidden | {"p.c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a"}) == []
    assert cycles_of({"p": "from p.a import x", "p.a": "from p import y"}) == [["p", "p.a"]]
    assert cycles_of({"p": "from p.a import x", "p.a": "from p.b import y", "p.b": ""}) == []


def cycles_of(texts: dict[str, str]) -> list[list[str]]:
    return cycles(edges_of({name: ast.parse(text) for name, text in texts.items()}))
