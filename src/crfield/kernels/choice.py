"""Which body a kernel runs: compiled or NumPy.

Every group of kernels is written twice. ``reference/<group>.py`` is the one to read; ``_<group>`` is the compiled
module of the same functions. ``CRFIELD_KERNELS=numpy`` (or ``native``) in the environment chooses; otherwise the
compiled body is used when it was built, and where it was not the NumPy one, with a warning at first use that says how
much slower that is. The contract tests run every test on both.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any

from crfield.errors import CrfieldError, SpeedWarning

# groups of kernels that share one compiled module
_COMPILED = {"linear": "_chain", "padded": "_chain", "dual": "_chain"}

SLOWER = "20 to 100"  # python -m benchmarks bodies: rows of training on text and on numbers

MANY = 10**7  # steps × labels from which on training by NumPy bodies is worth a word

_loaded: dict[tuple[str, str], Any] = {}
_chosen: str = ""
_within_use = False  # a body that was named for a block is not replaced
_told = False
_told_of_fit = False
_telling = Lock()


class _Bodies(dict[str, Any]):
    """The module of the chosen body of each group that was asked for; asked at every call of a kernel."""

    def __missing__(self, group: str) -> Any:
        self[group] = loaded = _load(group, chosen())
        return loaded


def _load(group: str, body: str) -> Any:
    key = (group, body)
    if key not in _loaded:
        _loaded[key] = _imported(group, body)
    return _loaded[key]


_bodies = _Bodies()
body = _bodies.__getitem__  # the module that holds the chosen body of a group of kernels ('chain', 'vectors', …)


def _imported(group: str, body: str) -> Any:
    if body == "numpy":
        return import_module(f"crfield.kernels.reference.{group}")
    try:
        return import_module(f"crfield.kernels.{_COMPILED.get(group, f'_{group}')}")
    except ImportError as error:
        if _within_use:
            raise
        if _asked() == "native":
            raise CrfieldError(
                f"CRFIELD_KERNELS=native asks for compiled kernels, but {group!r} cannot be loaded: {error}. "
                "Unset it, or install with a C++17 compiler."
            ) from error
        _tell(error)
        return import_module(f"crfield.kernels.reference.{group}")


def _asked() -> str:
    """What the environment asks for: 'native', 'numpy' or nothing."""
    wanted = os.environ.get("CRFIELD_KERNELS", "").strip().lower()
    if wanted not in ("", "native", "numpy"):
        raise CrfieldError(
            f"CRFIELD_KERNELS must be 'native' or 'numpy', got {wanted!r}. Unset it to let crfield choose."
        )
    return wanted


def _default() -> str:
    wanted = _asked()
    if wanted:
        return wanted
    try:
        import_module("crfield.kernels._chain")
    except ImportError as error:
        _tell(error)
        return "numpy"
    return "native"


def _tell(error: ImportError) -> None:
    """`SpeedWarning` that compiled modules are missing, once in a process, at the line that called crfield."""
    global _told
    with _telling:
        told, _told = _told, True
    if not told:
        warnings.warn(
            f"the compiled kernels of crfield cannot be loaded ({error}), so their NumPy bodies run: results are the "
            f"same, but training takes about {SLOWER} times as long and answers several times. Install with a "
            "C++17 compiler (g++ or clang++), for example 'pip install --force-reinstall --no-cache-dir crfield', or "
            "set CRFIELD_KERNELS=numpy to choose this without a warning.",
            SpeedWarning,
            stacklevel=outside(),
        )


def outside() -> int:
    """The stack level, as the function that calls this counts it, of the first caller that is not our own code."""
    own, level = os.path.dirname(os.path.dirname(__file__)), 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame, level = frame.f_back, level + 1
    return level


def chosen() -> str:
    """'native' or 'numpy': the body that kernels run now.

    >>> chosen() in ("native", "numpy")
    True
    """
    global _chosen  # noqa: PLW0603
    if not _chosen:
        _chosen = _default()
    return _chosen


def level() -> str:
    """The x86-64 level whose compiled kernels run here, 'numpy' where none do.

    >>> isinstance(level(), str)
    True
    """
    return str(body("chain").level()) if chosen() == "native" and hasattr(body("chain"), "level") else "numpy"


def tell_of_slow_fit(n_steps: int, n_labels: int) -> None:
    """`SpeedWarning`, once in a process, where NumPy bodies are to train on more than ``MANY`` steps × labels.

    Also where they were asked for: what is pleasant for a look into a kernel is no way to train.
    """
    global _told_of_fit  # noqa: PLW0603
    if n_steps * n_labels <= MANY or chosen() != "numpy" or _told_of_fit:
        return
    _told_of_fit = True
    warnings.warn(
        f"the NumPy bodies of the kernels train on {n_steps:,} steps of {n_labels:,} labels, which takes about "
        f"{SLOWER} times as long as the compiled ones. Unset CRFIELD_KERNELS, or install with a C++17 compiler.",
        SpeedWarning,
        stacklevel=outside(),
    )


@contextmanager
def use(name: str) -> Iterator[None]:
    """Run the block on the given body; for tests and benchmarks, not for several threads at once.

    >>> with use("numpy"):
    ...     chosen()
    'numpy'
    """
    global _chosen, _within_use
    before = chosen(), _within_use
    _chosen, _within_use = name, True
    _bodies.clear()
    try:
        yield
    finally:
        _chosen, _within_use = before
        _bodies.clear()
