"""Which files a verb reads and which it writes, and that no file is both.

Every option and argument that names a file says so beside its other facts, as `READS`, `WRITES` or one of their
kin in its annotation. Before a verb begins, `keep_apart` compares all of them *as files*: by what the system says is
one (other spellings, links of both sorts), by the resolved name where nothing exists yet, and with whatever standard
input and output were redirected to. A verb never writes what it reads, nor two results to one file; to find that out
afterwards would be to find out that the data are gone.
"""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from crfield.features.known import strict
from crfield.storage.files import same_file


class Use(Enum):
    """What a verb does with the path that an option or argument names."""

    READS = "reads"  # a file or a folder
    WRITES = "writes"  # a file
    FILLS = "fills"  # a folder, into which files are written
    READS_THEN_FILLS = "reads, but the last"  # files, and behind them the folder to write


READS, WRITES, FILLS, READS_THEN_FILLS = Use

_STREAMS = {0: ("-", "/dev/stdin", "/dev/fd/0"), 1: ("-", "/dev/stdout", "/dev/fd/1")}
_Parts = tuple[str, int | str, Use]  # what it is called, path or number of a stream, use


class Verb(TyperCommand):
    """A verb whose files are compared before it is called, and which may be strict about features."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        keep_apart(self, ctx.params)
        with strict(ctx.params.get("strict_features", False)):
            return super().invoke(ctx)


def uses(verb: Any) -> dict[str, Use]:
    """The parameters of a verb that name files, and what is done with these.

    >>> from typing import Annotated
    >>> def copy(a: Annotated[str, typer.Argument(), READS], b: Annotated[str, typer.Argument(), WRITES]) -> None: ...
    >>> uses(copy)
    {'a': <Use.READS: 'reads'>, 'b': <Use.WRITES: 'writes'>}
    """
    hints = get_type_hints(inspect.unwrap(verb), include_extras=True)
    found = {name: [part for part in get_args(hint)[1:] if isinstance(part, Use)] for name, hint in hints.items()}
    return {name: parts[0] for name, parts in found.items() if parts}


def keep_apart(command: Any, values: Mapping[str, Any]) -> None:
    """A wrong command line, unless every file that would be written is neither read nor written otherwise."""
    places = list(_places(command, values))
    for at, written in enumerate(places):
        if written.use is READS:
            continue
        for number, other in enumerate(places):
            if other.use is not READS and number <= at:
                continue
            if _same(written, other):
                what = "would be replaced while it is read" if other.use is READS else "would be written twice"
                raise typer.BadParameter(
                    f"{written.called} and {other.called} are the same file, which {what}. Name another."
                )
            if written.use is WRITES and other.use is READS and _inside(written, other):
                raise typer.BadParameter(
                    f"{written.called} is a file of {other.called}, a folder that is read. Name another place."
                )


@dataclass(frozen=True)
class _Place:
    """A file that a verb uses: its name on the command line, and what the system knows of it."""

    called: str
    path: str | None  # None for a stream
    state: os.stat_result | None
    use: Use


def _places(command: Any, values: Mapping[str, Any]) -> Iterator[_Place]:
    for called, path, use in _named(command, values):
        if isinstance(path, int):
            state = _state(path)
            if state is not None and not stat.S_ISREG(state.st_mode):
                continue  # a terminal, a pipe
            name = None
        else:
            name, state = path, _state(path)
            if state is not None and stat.S_ISCHR(state.st_mode):
                continue  # /dev/null may be named as often as one likes
        if name is not None or state is not None:
            yield _Place(called, name, state, use)


def _named(command: Any, values: Mapping[str, Any]) -> Iterator[_Parts]:
    """Every path on the command line, then the two streams."""
    known = uses(command.callback)
    for parameter in command.params:
        use, value = known.get(parameter.name), values.get(parameter.name)
        if use is None or value is None:
            continue
        paths = [] if isinstance(value, Enum) else [value] if isinstance(value, str) else list(value)  # or a word
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name.upper()
        for number, path in enumerate(paths):
            own = use
            if use is READS_THEN_FILLS:
                own = FILLS if number == len(paths) - 1 else READS
            if path not in _STREAMS[0 if own is READS else 1]:
                yield f"{option} {path!r}", path, own
    yield "standard input", 0, READS
    yield "standard output", 1, WRITES


def _state(path: str | int) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _same(one: _Place, other: _Place) -> bool:
    if one.path is not None and other.path is not None:
        return same_file(one.path, other.path)
    return one.state is not None and other.state is not None and os.path.samestat(one.state, other.state)


def _inside(file: _Place, folder: _Place) -> bool:
    """Whether a file that is there lies in a folder or below it."""
    if file.path is None or file.state is None or folder.state is None or not stat.S_ISDIR(folder.state.st_mode):
        return False
    above = os.path.dirname(os.path.realpath(file.path))
    while True:
        state = _state(above)
        if state is not None and os.path.samestat(state, folder.state):
            return True
        above, below = os.path.dirname(above), above
        if above == below:
            return False
