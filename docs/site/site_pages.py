"""The site's own part of Sphinx: learnt attributes, "used in", links from names to the reference, a plain-text copy.

Hooks, all of them small; the pages themselves are laid out before (`stage`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import reference
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
MOST_USES = 12
FOLDERS = ("gallery", "tutorial", "models", "guides", "methods", "peers", "papers", "design")  # the order of uses


def gallery_order(folder: str) -> int:
    """The place of a folder of scripts in the gallery."""
    return ("text", "sensors", "graphs", "learning").index(Path(folder).name)


@cache
def texts(source: str) -> dict[str, tuple[str, str]]:
    """Document → (title, text) of the pages and scripts in which uses are looked for."""
    found = {}
    for script in sorted((ROOT / "examples" / "gallery").rglob("*.py")):
        text = script.read_text(encoding="utf-8")
        title = re.search(r'^r?"""\n?(.+?)\n', text)
        name = script.relative_to(ROOT / "examples").with_suffix("").as_posix()
        found[name] = (title.group(1) if title else script.stem, text)
    for page in sorted(Path(source).rglob("*.md")):
        name, text = page.relative_to(source).with_suffix("").as_posix(), page.read_text(encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        if name.split("/")[0] in FOLDERS and not name.endswith("/index") and title:
            found[name] = (title.group(1).replace("`", ""), text)
    return dict(sorted(found.items(), key=lambda item: place_of_use(item[0])))


def place_of_use(path: str) -> tuple[int, int]:
    """Where a page stands in the list of uses."""
    first, *rest = path.split("/")
    return FOLDERS.index(first), gallery_order(rest[0]) if first == "gallery" else 0


def add_attributes(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Learnt attributes join the section of the docstring, which is made if there is none."""
    if what != "class" or name not in reference.names():
        return
    missing = reference.attributes(name, "\n".join(lines))
    added = [line for key, (kind, told) in missing.items() for line in (f"{key} : {kind}", f"    {told}")]
    if added and "Attributes" in lines:
        at = lines.index("Attributes")
        end = next((k for k in range(at + 2, len(lines)) if lines[k].startswith("---")), len(lines) + 1) - 1
        while not lines[end - 1].strip():
            end -= 1
        lines[end:end] = added
    elif added:
        at = lines.index("Examples") if "Examples" in lines else len(lines)
        lines[at:at] = ["Attributes", "----------", *added, ""]


def add_uses(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The pages and scripts that use the name, behind its docstring."""
    if name not in reference.names():
        return
    known = texts(str(app.srcdir))
    for path in known:  # a page that begins or ends to use the name changes the list
        script = ROOT / "examples" / f"{path}.py"
        app.env.note_dependency(script if script.exists() else Path(app.srcdir) / f"{path}.md")
    uses = reference.used_in(name, {path: text for path, (_, text) in known.items()})
    if uses:
        shown = [f"* :doc:`{known[path][0]} </{path}>`" for path in uses[:MOST_USES]]
        more = [f"* and on {len(uses) - MOST_USES} more pages"] if len(uses) > MOST_USES else []
        lines += ["", ".. rubric:: Used in", "", *shown, *more, ""]


def plain_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, *shown: str | None
) -> tuple[str, None] | None:
    """The parameters of a class as Python tells them: estimators make their ``__init__`` from declarations."""
    if what != "class" or name not in reference.names():
        return None
    shown_here = signature(name).removeprefix(name)
    return (shown_here, None) if shown_here else None


def skip_foreign(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Members that other packages define are told of there."""
    home = getattr(getattr(obj, "fget", None) or obj, "__module__", None) or "crfield"
    return True if not home.startswith("crfield") else None


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """Names of the reference in the text of pages become links to it."""
    if app.env.docname.startswith("reference/crfield"):
        return
    last = {name.removeprefix("crfield."): name for name in reference.names() if name.count(".") == 1}
    full = {name: name for name in reference.names()} | {f"crfield.{short}": name for short, name in last.items()}
    for literal in list(doctree.findall(nodes.literal)):
        word = literal.astext().removesuffix("()")
        target = full.get(word) or (last.get(word) if re.search(r"[A-Z_]", word) else None)
        inside = (nodes.reference, addnodes.pending_xref, nodes.title)
        if target and not any(isinstance(up, inside) for up in above(literal)):
            link = addnodes.pending_xref("", refdomain="py", reftype="obj", reftarget=target, refexplicit=True)
            literal.replace_self(link)
            link += literal


def above(node: nodes.Node) -> Iterator[nodes.Node]:
    """The parents of a node, nearest first."""
    while node.parent is not None:
        node = node.parent
        yield node


def write_plain_text(app: Sphinx, error: Exception | None) -> None:
    """``llms.txt``, a list of all pages, and ``llms-full.txt``, their text: for programs and for ``grep``."""
    if error is not None or app.builder.name != "html":
        return
    source, known = Path(app.srcdir), sorted(app.env.found_docs)
    about = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[1].replace("\n", " ")
    titles = {name: app.env.titles[name].astext() for name in known}
    listed = [f"- [{titles[name]}]({app.builder.get_target_uri(name)})" for name in known if name in titles]
    texts = []
    for name in known:
        if name.startswith("reference/crfield"):
            full = name.removeprefix("reference/")
            texts.append(f"# {full}\n\n{signature(full)}\n\n{inspect.getdoc(reference.thing(full)) or ''}")
        elif name.startswith("gallery/") and (script := ROOT / "examples" / f"{name}.py").exists():
            texts.append(script.read_text(encoding="utf-8"))
        elif (page := source / f"{name}.md").exists() and not name.endswith("/index"):
            texts.append(page.read_text(encoding="utf-8"))
    head = f"# crfield {app.config.release}\n\n> {about}\n"
    (Path(app.outdir) / "llms.txt").write_text(f"{head}\n" + "\n".join(listed) + "\n", encoding="utf-8")
    rule = "\n\n" + "-" * 100 + "\n\n"
    (Path(app.outdir) / "llms-full.txt").write_text(head + rule + rule.join(texts) + "\n", encoding="utf-8")


def signature(name: str) -> str:
    """``name(parameters)`` in plain text, without types."""
    try:
        found = inspect.signature(reference.thing(name))
    except (TypeError, ValueError):
        return name
    untyped = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    return f"{name}{found.replace(parameters=untyped, return_annotation=found.empty)}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Join Sphinx's events; numpydoc reads docstrings in between the first two."""
    app.connect("autodoc-process-docstring", add_attributes, priority=100)
    app.connect("autodoc-process-docstring", add_uses, priority=900)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("doctree-read", link_names)
    app.connect("build-finished", write_plain_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
