"""A file that appears complete or not at all.

The bytes go to a new file in the same folder, are forced to disk, and then take the name over in one step
(`os.replace`). Whoever reads the name sees the old file or the new one; after an error, a full disk or a
killed process the old one is untouched. Readers that have the old file open or mapped keep it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary stream for the block to write; it becomes the file at ``path`` when the block ends well.

    A symbolic link is followed, and the permissions of a file that was there are kept. Devices and pipes,
    which cannot be replaced, are written directly.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_file(os.path.join(folder, "m.crf")) as stream:
    ...         _ = stream.write(b"model")
    ...     os.listdir(folder)
    ['m.crf']
    """
    final = os.path.realpath(os.fspath(path))
    old = os.stat(final) if os.path.exists(final) else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(final, "wb") as stream:
            yield stream
        return
    folder, name = os.path.split(final)
    temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(4)}.tmp")
    stream = open(temporary, "xb")  # noqa: SIM115 - closed below, before the name is taken over
    try:
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        finally:
            stream.close()
        if old is not None:
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
        os.replace(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Force the new name to disk too, where the system knows how."""
    with contextlib.suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
