"""Packed shards, kept beside the encoded ones: what training makes of a shard, mapped instead of made again.

    dataset.crfield  shard-00000.crfield …            the data set (`storage.encoded`)
    packed/3f1c…/    shard-00000.crfield …            a folder for each layout of weights and form of packing

Packing sorts the columns of a shard for the kernels and takes longer than an evaluation. So it is done once: the
arrays are written to an archive (`storage.archive`) at first use, and mapped from then on. What the arrays are is
opaque here.

Nothing is believed because it is there. The name of the folder is a digest of everything that packing depends on
besides the data (``about``: body and version of the packing, layout); the header repeats it with the number and the
digest of the shard. A file that is of something else is passed over and written anew; one that is damaged too, with
a `DataWarning`. Checksums are computed when a file is first opened and again whenever it is another one (device,
inode, size, times); in between it is only mapped. Files appear whole or not at all, and a cache is not flushed to the
disk: after a loss of power its checksums find it out.

A folder that cannot be written to (read-only, no rights, full) gives one `DataWarning`, and shards are packed at each
use. The layouts used last are kept, ``KEPT`` of them; removing ``packed`` is always safe.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import DataWarning, ModelFileError
from crfield.storage.archive import Seal, read_archive, write_archive
from crfield.storage.digests import digest

FOLDER, KIND = "packed", "packed_shard"
KEPT = 2  # folders
TICK = 50_000_000  # nanoseconds: a file so young could change again without another time


@dataclass(frozen=True, eq=False)
class PackedShard:
    """The arrays of a packed shard; ``checked`` if this file has been looked through before."""

    arrays: dict[str, np.ndarray]
    checked: bool


class PackedShards:
    """The packed shards of one data set for one layout.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = PackedShards(folder, {"layout": "a"}, ["d0"])
    ...     before = kept.open(0)
    ...     kept.write(0, {"x": np.arange(3)})
    ...     after = kept.open(0)
    >>> before is None, after.arrays["x"].tolist(), after.checked
    (True, [0, 1, 2], False)
    """

    def __init__(self, path: str, about: Mapping[str, Any], digests: Sequence[str]) -> None:
        self.about, self._digests = dict(about), list(digests)
        self.folder = os.path.join(path, FOLDER, digest(self.about)[:16])
        self._seals: dict[int, Seal] = {}  # of files that were looked through
        self._writes = True
        with suppress(OSError):
            os.utime(self.folder)  # used last

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, f"shard-{number:05d}.crfield")

    def open(self, number: int) -> PackedShard | None:
        """Shard ``number``, or None where it is missing, stale or damaged."""
        known = self._seals.get(number)
        try:
            archive = read_archive(self._path(number), mmap=True, seal=known)
            if archive.header != self._header(number):
                return None
            arrays = dict(archive.arrays)
        except ModelFileError as error:
            self.discard(number, str(error))
            return None
        except OSError:
            return None
        assert archive.seal is not None
        if time.time_ns() - archive.seal.changed > TICK:
            self._seals[number] = archive.seal
        return PackedShard(arrays, archive.seal is known)

    def ahead(self, number: int) -> None:
        """Tell the system that shard ``number`` will be read next."""
        if not hasattr(os, "posix_fadvise") or number >= len(self._digests):
            return
        with suppress(OSError):
            descriptor = os.open(self._path(number), os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def write(self, number: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the arrays of shard ``number``; a warning, once, where the folder cannot be written to."""
        if not self._writes:
            return
        self._seals.pop(number, None)
        try:
            if not os.path.isdir(self.folder):
                self._make_room()
                os.makedirs(self.folder, exist_ok=True)
            write_archive(self._path(number), self._header(number), arrays, durable=False)
        except OSError as error:
            self._writes = False
            warnings.warn(
                f"packed shards cannot be kept in {self.folder} ({error.strerror or error}), so every evaluation "
                "packs every shard again, which takes two to three times as long. Make the folder writable, or free "
                "some space: packed shards take about as much as the data set.",
                DataWarning,
                stacklevel=2,
            )

    def discard(self, number: int, why: str) -> None:
        """Pass over a damaged shard, with a word; it will be written anew."""
        self._seals.pop(number, None)
        warnings.warn(f"a packed shard is damaged and will be made again: {why}", DataWarning, stacklevel=2)
        with suppress(OSError):
            os.unlink(self._path(number))

    def _header(self, number: int) -> dict[str, Any]:
        return {"kind": KIND, "about": self.about, "number": number, "shard": self._digests[number]}

    def _make_room(self) -> None:
        """Remove all but the folders used last."""
        above = os.path.dirname(self.folder)
        with suppress(OSError):
            others = sorted((entry for entry in os.scandir(above) if entry.is_dir(follow_symlinks=False)), key=_time)
            for entry in others[: max(len(others) + 1 - KEPT, 0)]:
                shutil.rmtree(entry.path, ignore_errors=True)


def _time(entry: os.DirEntry[str]) -> float:
    return entry.stat().st_mtime


def remove_packed(path: str) -> None:
    """Remove everything that is packed of the data set at ``path``."""
    shutil.rmtree(os.path.join(path, FOLDER), ignore_errors=True)
