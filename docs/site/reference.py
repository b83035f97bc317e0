"""The reference: which names are public, how they are grouped, what their pages show, and where each is used.

Names of ``crfield`` are grouped by the room of their module (`ROOMS`), so that a new one finds its place by itself;
other modules (`MODULES`) give their ``__all__``, or all that they define. Each name has a page with its signature,
docstring and members, all of which Sphinx reads from the code. `used_in` finds the pages and scripts that use a
name, and `attributes` the meaning of what ``fit`` sets, from the table of ``docs/guides/fitted-models.md``.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.ext.autodoc.mock import mock

import crfield

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = ["aeon", "spacy"]  # packages that documented modules import and the site does without
ROOMS = {  # of crfield's modules → heading, and what is there
    "models": ("Models", "Estimators with `fit` and `predict`."),
    "estimators": ("Around models", "Loading and saving, choosing and comparing, data for training."),
    "features": ("Features", "From raw data to columns: words, sensors, readings, agents."),
    "data": ("Data", "The forms that data come in: graphs, frames, documents, recordings."),
    "storage": ("Files", "Reading and writing data."),
    "core": ("Rules", "Which labels may follow which."),
    "report": ("Reports", "What was learnt and where it errs, to be read or looked at."),
    "simulate": ("Made data", "Worlds that make labelled data, to try things out."),
    "training": ("Clusters", "Training on several processes or machines."),
    "compat": ("Other tools", "Models and data of other packages."),
}
MODULES = {  # other modules whose names are public → heading
    "crfield.metrics": "Metrics",
    "crfield.errors": "Errors and warnings",
    "crfield.torch": "Layers for PyTorch",
    "crfield.compat.sklearn_crfsuite": "In place of sklearn-crfsuite",
    "crfield.compat.sklearn_crfsuite.metrics": "",  # goes on under the heading before
    "crfield.compat.sklearn_crfsuite.utils": "",
    "crfield.compat.hmmlearn": "In place of hmmlearn",
    "crfield.compat.pydensecrf.densecrf": "In place of pydensecrf",
    "crfield.compat.pydensecrf.utils": "",
    "crfield.compat.aeon": "Data of aeon",
    "crfield.compat.spacy": "A component for spaCy",
}
MEANINGS = "guides/fitted-models.md"


@cache
def groups() -> dict[str, tuple[str, list[str]]]:
    """Heading → (what is there, full names)."""
    found: dict[str, tuple[str, list[str]]] = {title: (told, []) for title, told in ROOMS.values()}
    for name in sorted(crfield.__all__, key=str.lower):
        thing = getattr(crfield, name)
        if not name.startswith("_"):
            room = "models" if hasattr(thing, "predict") else thing.__module__.split(".")[1]
            if room not in ROOMS:
                raise ValueError(
                    f"crfield.{name} is of the room {room}: give that a heading in docs/site/reference.py"
                )
            found[ROOMS[room][0]][1].append(f"crfield.{name}")
    title = ""
    with mock(OPTIONAL):
        for place, heading in MODULES.items():
            title = heading or title
            module = importlib.import_module(place)
            told = (inspect.getdoc(module) or "").split("\n")[0]
            found.setdefault(title, (f"`{place}`: {told}", []))[1].extend(f"{place}.{n}" for n in public(module))
    return found


def public(module: Any) -> list[str]:
    """Its ``__all__`` without modules and constants, or else the classes and functions that it defines."""
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    names = [name for name in getattr(module, "__all__", own) if not name.startswith("_")]
    things = {name: getattr(module, name) for name in names}
    return sorted((name for name, thing in things.items() if callable(thing)), key=str.lower)


def names() -> list[str]:
    """All public names, in full."""
    return [name for _, listed in groups().values() for name in listed]


@cache
def thing(name: str) -> Any:
    """What a full name stands for."""
    module, _, last = name.rpartition(".")
    with mock(OPTIONAL):
        return getattr(importlib.import_module(module), last)


def pages() -> dict[str, str]:
    """The pages of the reference by path: an index, and one for each name."""
    found, trees = {}, []
    index = ["# Reference", "", "Every public name, with its parameters, an example, and where it is used.", ""]
    for title, (told, listed) in groups().items():
        index += [f"## {title}", "", told, "", "| name | what it is |", "|---|---|"]
        index += [f"| [`{name.rpartition('.')[2]}`]({name}.rst) | {summary(name)} |" for name in listed]
        index.append("")
        trees += ["```{toctree}", ":hidden:", f":caption: {title}", "", *listed, "```", ""]
        found |= {f"reference/{name}.rst": page(name) for name in listed}
    found["reference/index.md"] = "\n".join([*index, *trees])
    return found


def summary(name: str) -> str:
    """The first sentence of the docstring, for a cell of a table."""
    text = " ".join((inspect.getdoc(thing(name)) or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[.:;]) ", text)[0].rstrip(":;.")
    return first.replace("``", "`").replace("|", "\\|") + "."


def page(name: str) -> str:
    """The source of one page."""
    last = name.rpartition(".")[2]
    title = last + "\n" + "=" * len(last)
    if inspect.isclass(thing(name)):
        options = ":members:\n   :inherited-members: BaseEstimator, Module, Exception, Warning, dict, tuple, int"
        return f"{title}\n\n.. autoclass:: {name}\n   {options}\n"
    how = "autofunction" if inspect.isroutine(thing(name)) else "autodata"
    return f"{title}\n\n.. {how}:: {name}\n"


@cache
def meanings() -> dict[str, str]:
    """What the attributes that ``fit`` sets mean, by name."""
    text = (ROOT / "docs" / MEANINGS).read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+_)` \| (.+?) \|", text, re.MULTILINE))


def attributes(name: str, docstring: str) -> dict[str, tuple[str, str]]:
    """Learnt attributes that the docstring does not tell of → (type, meaning)."""
    cls = thing(name)
    if not inspect.isclass(cls) or not is_dataclass(cls):
        return {}
    said = docstring.partition("Attributes\n---")[2]
    declared = [f for f in fields(cls) if not f.init and f.name.endswith("_") and not f.name.startswith("_")]
    missing = [f for f in declared if not re.search(rf"\b{f.name}\b", said)]
    return {f.name: (str(f.type), meanings().get(f.name, "")) for f in missing}


def used_in(name: str, texts: Mapping[str, str]) -> list[str]:
    """Those of the texts, pages or scripts by path, that use the name."""
    module, _, last = name.rpartition(".")
    room = module.rpartition(".")[2]
    uses = [rf"\b{room}\.{last}\b", rf"`(?:crfield\.)?{last}[`(]", rf"from crfield[\w.]* import [^\n]*\b{last}\b"]
    if module != "crfield":  # such a name may be one of another module too
        uses = [rf"\b{room}\.{last}\b", rf"from {module.replace('.', chr(92) + '.')}[\w.]* import [^\n]*\b{last}\b"]
    pattern = re.compile("|".join(uses))
    return [path for path, text in texts.items() if pattern.search(text)]
