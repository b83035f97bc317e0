"""Where data go that a verb writes: files and pipes get every byte as it is, a terminal what is safe to show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from crfield.cli.messages import visible
from crfield.storage.blocks import writing


@contextmanager
def data_output(target: str) -> Iterator[Any]:
    """A stream of bytes to a file, or to standard output (``-``)."""
    with writing(target) as stream:
        yield _Shown(stream) if target == "-" and sys.stdout.isatty() else stream


class _Shown:
    """A stream to a terminal, on which control characters of the data are shown and not obeyed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.flush = stream.flush

    def write(self, data: bytes) -> None:
        """Write whole lines."""
        lines = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").split("\t")
        self._stream.write("\t".join(map(visible, lines)).encode("utf-8", "backslashreplace"))
