"""The door to the disk: whole files in, whole files out.

Reading accepts a path, ``-`` for standard input, or an open stream, and undoes gzip wherever the bytes
begin as gzip does, whatever the name, as far as `limits` allows. Writing goes to a temporary file in the same
folder, is flushed to the disk and then takes the target's place in one step, so a reader sees the old file or the
new one and never a half; the folder is flushed too, so that the new name survives a loss of power.

A process that is killed leaves its temporary file behind. The next one that writes to the same target removes it:
the name holds the writer's process, and the writer holds a lock on it, which the system takes away when it dies. So a
file is removed only if its process is gone (or is this one, and does not know it) and nobody holds it.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, BinaryIO, NoReturn

from crfield.errors import FormatError
from crfield.storage.limits import allowed

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

Source = str | os.PathLike[str] | IO[Any]
_GZIP = b"\x1f\x8b"
_PART = 1 << 20
_writing: set[str] = set()  # temporary files of this process


def name_of(source: Source) -> str:
    """What to call the source in a message.

    >>> name_of("-"), name_of("data/train.txt"), name_of(io.BytesIO())
    ('<stdin>', 'data/train.txt', '<stream>')
    """
    if isinstance(source, str | os.PathLike):
        return "<stdin>" if source == "-" else os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "<stream>"


def read_bytes(source: Source) -> bytes:
    """Everything in a path, a stream of bytes or of text, or standard input (``-``); gzip is undone.

    >>> read_bytes(io.BytesIO(gzip.compress(b"He PRP"))), read_bytes(io.StringIO("é")).decode()
    (b'He PRP', 'é')
    """
    if isinstance(source, str | os.PathLike):
        if source == "-":
            data: Any = getattr(sys.stdin, "buffer", sys.stdin).read()
        else:
            if os.path.isdir(source):
                raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", os.fspath(source))
            with open(source, "rb") as file:
                data = file.read()
    elif hasattr(source, "read"):
        data = source.read()
    else:
        raise FormatError(f"expected a path, '-' or an open stream, got {type(source).__name__}.")
    if isinstance(data, str):
        try:
            return data.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FormatError(f"the text cannot be coded as UTF-8: {error}.", file=name_of(source)) from None
    if not isinstance(data, bytes | bytearray | memoryview):
        raise FormatError(f"the stream gave {type(data).__name__} where bytes were expected.", file=name_of(source))
    data = bytes(data)
    if data[:2] != _GZIP:
        return data
    return unfolded(data, name_of(source))


def unfolded(data: bytes, name: str) -> bytes:
    """The data decompressed by gzip, unless it is far more than so few bytes should hold."""
    most, parts, found = allowed(len(data)), [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read(_PART):
                found += len(part)
                if found > most:
                    refuse_unfolded(most, name)
                parts.append(part)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"the gzip data is damaged or cut: {error}.", file=name) from None
    return b"".join(parts)


def refuse_unfolded(most: float, name: str) -> NoReturn:
    """The error for gzip data that expand too far."""
    raise FormatError(
        f"the gzip data expand to more than {most:,.0f} bytes, far more than their size suggests. If you trust the "
        "file, lift the limit: with crfield.file_growth(None), or crfield --max-growth 0 on the command line.",
        file=name,
    )


def peek(source: Any, count: int) -> bytes:
    """The first bytes of a file or of a stream that can go back; nothing of any other.

    >>> stream = io.BytesIO(b"lCRF and more")
    >>> peek(stream, 4), stream.tell()
    (b'lCRF', 0)
    """
    if isinstance(source, str | os.PathLike):
        if source == "-" or not os.path.isfile(source):
            return b""
        with open(source, "rb") as file:
            return file.read(count)
    if not hasattr(source, "seekable") or not source.seekable() or isinstance(source, io.TextIOBase):
        return b""
    at = source.tell()
    start = source.read(count)
    source.seek(at)
    return start if isinstance(start, bytes) else b""


def read_text(source: Source) -> str:
    r"""`read_bytes` as text (UTF-8, a byte order mark is dropped).

    >>> read_text(io.BytesIO(b"\xef\xbb\xbfU00:%x[0,0]"))
    'U00:%x[0,0]'
    """
    data = read_bytes(source)
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError("the line is not valid UTF-8.", file=name_of(source), line=line) from None


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends well, and vanishes when it does not.

    Until then nobody else may read it, if there is a file at ``path`` already; at the end it has that file's rights.
    A link is followed, and devices and pipes (``/dev/stdout``, a FIFO) are written to directly. What is not
    ``durable`` is not flushed to the disk.
    """
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "expected the name of a file to write, got a folder", os.fspath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as file:
            yield file
        return
    remove_leftovers(target)
    temporary = temporary_name(target)
    try:
        rights = 0o600 if os.path.exists(target) else 0o666
        try:
            file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, rights), "wb")
        except OSError as error:
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
        try:
            with file:
                hold(file.fileno())
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            if os.path.exists(target):
                os.chmod(temporary, os.stat(target).st_mode & 0o7777)
            os.replace(temporary, target)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        if durable:
            sync_folder(os.path.dirname(target))
    finally:
        forget(temporary)


_BINARY = getattr(os, "O_BINARY", 0)


def temporary_name(target: str) -> str:
    """A name beside ``target`` under which this process writes it, until it is told to `forget` it."""
    folder, name = os.path.split(target)
    made = os.path.join(folder, f".{name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    _writing.add(made)
    return made


def forget(temporary: str) -> None:
    """The name is not written to any more."""
    _writing.discard(temporary)


def sync_folder(folder: str) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def hold(descriptor: int) -> bool:
    """Lock an open file or folder for as long as it is open; False if another process holds it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove what processes left behind that died while they wrote ``path``, a file or a folder."""
    folder, name = os.path.split(os.path.realpath(path))
    form = re.compile(rf"\.{re.escape(name[:100])}\.(\d{{1,10}})\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):
        for other in os.listdir(folder or "."):
            made, place = form.fullmatch(other), os.path.join(folder, other)
            if made and place not in _writing and not _alive(int(made[1])) and not _held(place):
                with suppress(OSError):
                    shutil.rmtree(place) if os.path.isdir(place) else os.unlink(place)


def _alive(process: int) -> bool:
    """Whether another process has this number; one's own says nothing, since numbers come again.

    Windows cannot be asked by a signal, for signal 0 is Ctrl-C there: what others left stays.
    """
    if process == os.getpid():
        return False
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _held(place: str) -> bool:
    try:
        descriptor = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return True  # not ours to judge
    try:
        return not hold(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(target: Source, data: bytes) -> None:
    """Write bytes to a path (atomically; gzip when the name ends in .gz), a stream, or ``-`` (stdout).

    >>> stream = io.BytesIO()
    >>> write_bytes(stream, b"He PRP")
    >>> stream.getvalue()
    b'He PRP'
    """
    if isinstance(target, str | os.PathLike):
        if target == "-":
            sys.stdout.flush()
            write_bytes(getattr(sys.stdout, "buffer", sys.stdout), data)
            sys.stdout.flush()
            return
        if os.fspath(target).endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        with replacing(target) as file:
            file.write(data)
    elif isinstance(target, io.TextIOBase):
        target.write(data.decode("utf-8"))
    elif hasattr(target, "write"):
        target.write(data)
    else:
        raise FormatError(f"expected a path, '-' or an open stream, got {type(target).__name__}.")


def write_text(target: Source, text: str) -> None:
    """`write_bytes` of UTF-8 text.

    >>> stream = io.StringIO()
    >>> write_text(stream, "é")
    >>> stream.getvalue()
    'é'
    """
    write_bytes(target, text.encode("utf-8"))


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to one file or folder: links of both sorts are followed, names compared where there is
    nothing yet.

    >>> same_file("model.crfield", "./notes/../model.crfield"), same_file("model.crfield", "model.checkpoint")
    (True, False)
    """
    states: list[os.stat_result | None] = []
    for path in (one, other):
        try:
            states.append(os.stat(path))
        except (OSError, ValueError):
            states.append(None)
    if states[0] is not None and states[1] is not None:
        return os.path.samestat(states[0], states[1])
    if states != [None, None]:
        return False
    (folder, name), (folder_of_other, name_of_other) = (
        os.path.split(os.path.realpath(path)) for path in (one, other)
    )
    if os.path.normcase(name) != os.path.normcase(name_of_other):
        return False
    try:
        return os.path.samefile(folder, folder_of_other)
    except OSError:
        return os.path.normcase(folder) == os.path.normcase(folder_of_other)
