"""Warnings of the library are about the data of one request: they go into its answer, and into no other's.

Python's warnings are of the whole process. While a server runs, one hook takes all of them and looks up whose work
the present thread does, which a context variable tells.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from crfield.errors import CrfieldWarning

_MOST = 10  # warnings of a request

_log = logging.getLogger("crfield.serve")
_said: ContextVar[list[str] | None] = ContextVar("said", default=None)


def heard(work: Callable[..., Any], *given: Any) -> Any:
    """``work(*given, said)`` with the warnings that come meanwhile in ``said``."""
    said: list[str] = []
    token = _said.set(said)
    try:
        return work(*given, said)
    finally:
        _said.reset(token)


@contextmanager
def heard_warnings() -> Iterator[None]:
    """Let warnings of the library go to the work that they are about, and others to the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", CrfieldWarning)

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            said = _said.get()
            if said is not None and issubclass(category, CrfieldWarning):
                if str(message) not in said and len(said) < _MOST:
                    said.append(str(message))
            else:
                _log.warning("%s", message)

        warnings.showwarning = show
        yield
