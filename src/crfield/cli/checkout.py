"""Where the studies are: beside the ``src`` that crfield is imported from, and nowhere else.

Experiments and reproductions of papers belong to the project and not to what is installed. In a checkout or an
unpacked source archive they are the package ``studies`` at the root; an installed wheel has none and says so. A
folder ``studies`` anywhere else, such as the current one, is somebody else's and is never run.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import crfield
from crfield.errors import CrfieldError


def study_module(name: str) -> Any:
    """A module of the studies, such as ``catalogue``.

    >>> study_module("catalogue").__name__
    'studies.catalogue'
    """
    package = Path(crfield.__file__).resolve().parent
    root = package.parents[1]
    if package.parent.name != "src" or not (root / "studies" / "catalogue.py").is_file():
        raise CrfieldError(
            "the studies are no part of the installed package: they are the folder 'studies' of crfield's source "
            "archive and repository, from which this command runs after `pip install --editable .`"
        )
    if str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))  # first, and seen by other processes too
    module = import_module(f"studies.{name}")
    if Path(str(module.__file__)).resolve().parent != root / "studies":
        raise CrfieldError(f"another package is called studies: {module.__file__}.")
    return module
