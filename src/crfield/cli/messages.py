r"""What the verbs say, and on which stream.

Results go to standard output, everything about the run (notes, warnings, errors, progress) to standard error, so
that ``crfield tag … | next`` and ``crfield evaluate --json`` hold nothing but the answer. With ``--json`` the
answer is one JSON object.

Labels, tokens, names of features and of files come from data and may hold what a terminal obeys: colours, a new
title, a cursor that goes back. Whatever is said here is `visible`: such characters come as text, ``\x1b[31m``, and in
JSON as its own escapes, which a program reads back as they were. Nothing is taken for markup.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import typer

from crfield.errors import CrfieldWarning, InputError, did_you_mean
from crfield.report.alignment import printable

_CHOICE = re.compile(r"'(?P<got>[^']*)' is not one of (?P<known>.+)$")
_VERB = re.compile(r"No such command '(?P<got>[^']*)'")


class WrongVerb(InputError):
    """A verb that this kind of model has no answer for."""


def say(text: object) -> None:
    """A result for people, on standard output."""
    print(visible(str(text)))


def visible(text: str) -> str:
    r"""The text line by line, with what is no sign (escapes, other controls) written out.

    >>> visible("a\x1b[31m [red]\nb")
    'a\\x1b[31m [red]\nb'
    """
    return "\n".join(map(printable, text.split("\n")))


def note(text: str, *, quiet: bool = False) -> None:
    """A remark about the run, on standard error."""
    if not quiet:
        _to_stderr(text)


def complain(text: str) -> None:
    """An error, on standard error."""
    _to_stderr(f"error: {text}")


def _to_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed standard error must not cost the result
        print(visible(text), file=sys.stderr, flush=True)


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
    return json_text(facts, indent=2)


def json_text(facts: Any, *, indent: int | None = None) -> str:
    r"""Facts as JSON in readable letters; what is no sign is escaped, so that the text is safe to show.

    >>> print(json_text({"label": "é\x9b31m\x1b"}))
    {"label": "é\u009b31m\u001b"}
    """
    text = json.dumps(facts, indent=indent, ensure_ascii=False, default=_plain)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


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
    """Show crfield's warnings as ``warning: …`` lines on standard error, each text once; others as Python does."""
    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CrfieldWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, CrfieldWarning):
                if str(message) not in said:
                    _to_stderr(f"warning: {message}")
                said.add(str(message))
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


@contextmanager
def helped(verbs: Sequence[str]) -> Iterator[None]:
    """Give a wrong command line the name that was probably meant, of an option, a verb or a choice.

    What typer raises has moved between its versions, so it is known by its fields and not by its class.
    """
    try:
        yield
    except Exception as caught:
        error: Any = caught
        if hasattr(error, "format_message") and isinstance(getattr(error, "message", None), str):
            error.message = visible(_clearer(error, error.message, verbs))
        raise


def _clearer(error: Any, message: str, verbs: Sequence[str]) -> str:
    if getattr(error, "option_name", None) and hasattr(error, "possibilities"):
        near, error.possibilities = error.possibilities or (), None
        return f"No such option: {error.option_name}.{did_you_mean(error.option_name, near)}"
    verb, choice = _VERB.match(message), _CHOICE.search(message)
    if verb is not None:
        return f"No such command {verb['got']!r}.{did_you_mean(verb['got'], verbs)}"
    if choice is None or "Did you mean" in message:
        return message
    return message + did_you_mean(choice["got"], re.findall(r"'([^']*)'", choice["known"]))


def one_of(name: str, known: Sequence[str], *, what: str = "") -> str:
    """The name, if it is among the known ones; a wrong command line otherwise.

    >>> one_of("sgd", ["lbfgs", "sgd"])
    'sgd'
    """
    if name not in known:
        there = f"there is no {what} {name!r}" if what else f"got {name!r}"
        raise typer.BadParameter(f"{there}; expected one of {', '.join(known)}.{did_you_mean(name, known)}")
    return name


def offered(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What a shell offers to complete an argument that is one of the known names."""

    def beginning(incomplete: str) -> list[str]:
        return [name for name in known() if name.startswith(incomplete)]

    return beginning
