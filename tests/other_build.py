"""Compiled modules of another build, for tests, the fuzzer and benchmarks: a sanitizer's, another compiler's.

    CRFIELD_NATIVE=build/sanitize-address python -m pytest -p tests.other_build …
    CRFIELD_NATIVE=build/sanitize-address python -m tests.other_build --count 500

The modules of the folder take the places of those beside the sources before anything imports them, so the package
itself stays as it is installed. A sanitizer's own library must be loaded first: ``LD_PRELOAD``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def use_modules(folder: str) -> list[str]:
    """Load every compiled module of the folder under its name in the package; their names."""
    import crfield.kernels  # noqa: F401

    names = []
    for path in sorted(Path(folder).glob("_*.so")):
        name = f"crfield.kernels.{path.name.partition('.')[0]}"
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
        names.append(name)
    if not names:
        raise SystemExit(f"{folder} holds no compiled modules: see the Makefile")
    return names


FOLDER = os.environ.get("CRFIELD_NATIVE")
LOADED = use_modules(FOLDER) if FOLDER else []


if __name__ == "__main__":
    from tests.fuzz.__main__ import main

    sys.exit(main([*sys.argv[1:], "--unlimited"]))
