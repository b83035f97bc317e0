r"""Text with blank lines between its sequences, read and written piece by piece.

A tagger needs one sequence at a time, so a file of any size can pass through a few megabytes. `read_blocks` cuts
its source where a blank line ends a sequence, so that every block can be parsed by itself, and says at which line
it begins, so that errors still name the line of the file. From standard input it takes what has come, without
waiting for more: a pipe that is fed slowly is answered as it is fed. `writing` is the other end.

Only a single sequence longer than a block makes a block grow, by doubling, so the time stays linear; one that gzip
unfolds from next to nothing is refused (`limits`).
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import IO, Any, BinaryIO, NamedTuple, cast

from crfield.errors import FormatError
from crfield.storage.files import Source, name_of, refuse_unfolded, replacing
from crfield.storage.limits import FLOOR, allowed

BLOCK = 1 << 20  # bytes
_BLANK = re.compile(rb"\n[ \t]*\r?\n")
_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"


class Block(NamedTuple):
    """A run of whole sequences and the number of its first line."""

    data: bytes
    line: int


def read_blocks(source: Source, *, size: int = BLOCK) -> Iterator[Block]:
    r"""The sequences of a text as blocks of about ``size`` bytes; gzip is undone and a byte order mark dropped.

    Put together the blocks are the whole text.

    >>> list(read_blocks(io.BytesIO(b"a\nb\n\nc\n\nd\n"), size=6))
    [Block(data=b'a\nb\n\n', line=1), Block(data=b'c\n\n', line=4), Block(data=b'd\n', line=6)]
    """
    waiting, line, enough = b"", 1, 0
    with _opened(source) as stream:
        for number, piece in enumerate(_pieces(stream, name_of(source), size)):
            waiting += piece if number else piece.removeprefix(_MARK)
            packed = getattr(stream, "packed", None)
            if packed is not None and len(waiting) > FLOOR and len(waiting) > (most := allowed(packed.count)):
                refuse_unfolded(most, name_of(source))
            if len(waiting) < enough:
                continue
            end = _last_break(waiting)
            if end:
                yield Block(waiting[:end], line)
                line += waiting.count(b"\n", 0, end)
                waiting = waiting[end:]
            enough = 2 * len(waiting) if len(waiting) > size else 0
    if waiting:
        yield Block(waiting, line)


def read_lines(source: Source) -> Iterator[tuple[int, str]]:
    r"""The lines of a text with their numbers from 1, each as soon as it has come; gzip is undone.

    >>> list(read_lines(io.BytesIO(b"1 2\r\n\n3")))
    [(1, '1 2'), (2, ''), (3, '3')]
    """
    name = name_of(source)
    with _opened(source) as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line if isinstance(line, str) else line.decode("utf-8")
            except UnicodeDecodeError:
                raise FormatError("the line is not valid UTF-8.", file=name, line=number) from None
            yield number, (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")


def _pieces(stream: Any, name: str, size: int) -> Iterator[bytes]:
    # read1 gives what there is; read would wait until a pipe has delivered the whole size.
    read = getattr(stream, "read1", stream.read)
    try:
        while piece := read(size):
            yield piece.encode("utf-8") if isinstance(piece, str) else piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"the gzip data is damaged or cut: {error}.", file=name) from None


class _Counted:
    """A stream that knows how many bytes were taken from it."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.count = stream, 0

    def read(self, size: int = -1) -> bytes:
        part: bytes = self.stream.read(size)
        self.count += len(part)
        return part


def _last_break(data: bytes) -> int:
    """Where the text behind the last blank line begins; 0 without one."""
    end = max(data.rfind(b"\n\n"), data.rfind(b"\n\r\n"))
    if end >= 0:
        return data.index(b"\n", end + 1) + 1
    last = 0
    for blank in _BLANK.finditer(data):
        last = blank.end()
    return last


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    if isinstance(source, str | os.PathLike):
        if source == "-":
            holder: Any = nullcontext(getattr(sys.stdin, "buffer", sys.stdin))
        elif os.path.isdir(source):
            raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", os.fspath(source))
        else:
            holder = open(source, "rb")  # noqa: SIM115
    else:
        holder = nullcontext(source)
    with holder as stream:
        if isinstance(stream, io.TextIOBase):
            yield stream
            return
        # Standard input under test is not always a stream that can be peeked into.
        peeking = stream if hasattr(stream, "peek") else io.BufferedReader(cast(Any, stream))
        try:
            if peeking.peek(2)[:2] == _GZIP:
                packed = _Counted(peeking)
                with gzip.GzipFile(fileobj=cast(Any, packed)) as inside:
                    inside.packed = packed  # type: ignore[attr-defined]
                    yield inside
            else:
                yield peeking
        finally:
            if peeking is not stream:
                peeking.detach()


@contextmanager
def writing(target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary stream to a path (atomically; gzip when the name ends in .gz) or, for ``-``, to standard output.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(os.path.join(folder, "out.gz")) as stream:
    ...         _ = stream.write(b"He PRP")
    ...     [block.data for block in read_blocks(os.path.join(folder, "out.gz"))]
    [b'He PRP']
    """
    if target == "-":
        sys.stdout.flush()
        yield cast(BinaryIO, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with replacing(target) as file:
        if os.fspath(target).endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield file
