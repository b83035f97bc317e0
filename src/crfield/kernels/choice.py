"""Which body a kernel runs: compiled or NumPy.

Every group of kernels is written twice. ``<group>_numpy.py`` is the one to read; ``_<group>`` is the compiled
module of the same functions. ``CRFIELD_KERNELS=numpy`` (or ``native``) in the environment chooses; otherwise the
compiled body is used when it was built. The contract tests run every test on both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from crfield.errors import CrfieldError

# two groups of kernels share one compiled module
_COMPILED = {"linear": "_chain"}

_loaded: dict[tuple[str, str], Any] = {}
_chosen: str = ""


def _load(group: str, body: str) -> Any:
    key = (group, body)
    if key not in _loaded:
        file = _COMPILED.get(group, f"_{group}") if body == "native" else f"{group}_numpy"
        name = f"crfield.kernels.{file}"
        _loaded[key] = import_module(name)
    return _loaded[key]


def _default() -> str:
    wanted = os.environ.get("CRFIELD_KERNELS", "").strip().lower()
    if wanted not in ("", "native", "numpy"):
        raise CrfieldError(
            f"CRFIELD_KERNELS must be 'native' or 'numpy', got {wanted!r}. Unset it to let crfield choose."
        )
    if wanted:
        return wanted
    try:
        import_module("crfield.kernels._chain")
    except ImportError:
        return "numpy"
    return "native"


def chosen() -> str:
    """'native' or 'numpy': the body that kernels run now.

    >>> chosen() in ("native", "numpy")
    True
    """
    global _chosen  # noqa: PLW0603
    if not _chosen:
        _chosen = _default()
    return _chosen


def body(group: str) -> Any:
    """The module that holds the chosen body of a group of kernels ('chain', 'vectors', …)."""
    return _load(group, chosen())


@contextmanager
def use(name: str) -> Iterator[None]:
    """Run the block on the given body; for tests and benchmarks, not for several threads at once.

    >>> with use("numpy"):
    ...     chosen()
    'numpy'
    """
    global _chosen  # noqa: PLW0603
    before = chosen()
    _chosen = name
    try:
        yield
    finally:
        _chosen = before
