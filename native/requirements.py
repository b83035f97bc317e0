"""What an installed crfield needs, by what was built: the list that pyproject.toml leaves to be found out.

Modules of the stable ABI (one wheel for all Pythons with a GIL) leave nanobind to the package ``nanobind-backend``,
which must then be there when they run. Wheels of NumPy bodies alone (``CRFIELD_PURE=1``) and those of free-threaded
and other Pythons, which have nanobind linked in, must not ask for it: it may not exist where they are used. No marker
of a requirement can tell these wheels from each other, so the build asks here (``[[tool.dynamic-metadata]]``).

``python native/requirements.py`` prints the list for the Python that runs it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def pure() -> bool:
    """Whether the environment asks for no compiled modules, read as scikit-build-core reads it."""
    wish = os.environ.get("CRFIELD_PURE", "").lower()
    return bool(int(wish)) if wish.isdigit() else wish not in ("", "n", "no", "off", "false", "f")


def shared() -> bool:
    """Whether modules for this Python have the stable ABI, and nanobind in a package of its own."""
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, list[str]]:
    """What scikit-build-core writes into the wheel: the libraries, and the backend where modules are to find it."""
    return {"dependencies": [*settings["libraries"], *([] if pure() or not shared() else settings["backend"])]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """The source archive does not know the list: each wheel that is built of it has its own."""
    return {"dependencies": True}


def main() -> None:
    """One requirement a line."""
    given = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["dynamic-metadata"]
    settings = next(one for one in given if "libraries" in one)
    print(*dynamic_metadata(settings, {})["dependencies"], sep="\n")


if __name__ == "__main__":
    main()
