"""What the verbs say, and on which stream.

Results go to standard output, everything about the run (notes, warnings, errors, progress) to standard error, so
that ``crfield tag … | next`` and ``crfield evaluate --json`` hold nothing but the answer. With ``--json`` the
answer is one JSON object.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from crfield.errors import CrfieldWarning


def note(text: str, *, quiet: bool = False) -> None:
    """A remark about the run, on standard error."""
    if not quiet:
        _to_stderr(text)


def complain(text: str) -> None:
    """An error, on standard error."""
    _to_stderr(f"error: {text}")


def _to_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed standard error must not cost the result
        print(text, file=sys.stderr, flush=True)


def emit(facts: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(as_json(facts))


def as_json(facts: dict[str, Any]) -> str:
    """One JSON object as text.

    >>> print(as_json({"labels": 2}))
    {
      "labels": 2
    }
    """
    return json.dumps(facts, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """A label or number that JSON does not know: NumPy's numbers as numbers, the rest as text."""
    return value.item() if hasattr(value, "item") else str(value)


def listing(facts: dict[str, str]) -> str:
    """Facts one below the other, their names in a column of equal width.

    >>> print(listing({"labels": "8", "objective": "12.5"}))
    labels     8
    objective  12.5
    """
    wide = max(map(len, facts), default=0)
    return "\n".join(f"{name:<{wide}}  {value}" for name, value in facts.items())


def size_of(n_bytes: int) -> str:
    """A number of bytes for people.

    >>> size_of(812), size_of(1_234_567)
    ('812 B', '1.2 MB')
    """
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def on_terminal() -> bool:
    """Whether somebody watches standard error."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show crfield's warnings as ``warning: …`` lines on standard error; others as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", CrfieldWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, CrfieldWarning):
                _to_stderr(f"warning: {message}")
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield
