"""How far a file may grow in memory: what it expands to, and what it describes, against its own size.

A kilobyte of gzip can be a megabyte of text, and a list of 20,000 labels describes a table of 400 million pairs.
Honest files do neither by much: text packs to a tenth or a twentieth, and who has 20,000 labels has megabytes of
weights for them. So a file may take `FLOOR` bytes whatever its size, and beyond that at most so many times its own
size; a file that asks for more is refused before the memory is taken. Who knows the file lifts the limit with
`file_growth`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from crfield.errors import InputError

FLOOR = 256 << 20  # bytes
TIMES = 256.0  # gzip itself can reach 1,032
_times: ContextVar[float | None] = ContextVar("times", default=TIMES)


@contextmanager
def file_growth(times: float | None) -> Iterator[None]:
    r"""Within the block, a file may take up to ``times`` its size in memory; None lifts the limit.

    It holds for `load` and for all functions that read files: what gzip unfolds to, and tables that a model of
    few bytes describes. Below 256 MiB nothing is refused.

    >>> import gzip, io
    >>> import crfield
    >>> with crfield.file_growth(2000):
    ...     len(crfield.read_columns(io.BytesIO(gzip.compress(b"a b\n" * 1000))))
    1
    """
    if times is not None and not times >= 1:
        raise InputError(
            f"times must be a number ≥ 1 (how much larger than a file its contents may be), or None, got {times!r}."
        )
    before = _times.set(times)
    try:
        yield
    finally:
        _times.reset(before)


def allowed(size: int) -> float:
    """Bytes that a file of ``size`` bytes may take.

    >>> allowed(1000), allowed(2 << 20)
    (268435456, 536870912.0)
    """
    times = _times.get()
    return float("inf") if times is None else max(FLOOR, times * size)


def set_growth(times: float | None) -> None:
    """`file_growth` for the rest of the process, as the command line has it."""
    _times.set(times)


def free_memory() -> int | None:
    """Bytes of memory that processes of this machine could still take, where the system says so (Linux).

    Of a container it is what its limit leaves, if that is less.

    >>> free_memory() is None or free_memory() > 0
    True
    """
    told = [line.split() for line in _lines("/proc/meminfo")]
    free = next((int(words[1]) * 1024 for words in told if words and words[0] == "MemAvailable:"), None)
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit and used and limit[0].isdigit() and used[0].isdigit():
        left = max(int(limit[0]) - int(used[0]), 1)
        free = left if free is None else min(free, left)
    return free


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
