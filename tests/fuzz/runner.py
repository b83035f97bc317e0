"""Runs inputs in a process of its own, and says what became of each.

Input ``k`` of a format depends on the seed, the name of the format and ``k`` alone, so that any one can be made
again. The process may die: it has a limit of processor time for each input (a timer whose signal ends it, also
inside of compiled code), one of waiting, and one of memory; the next process goes on behind the input that ended it.
How much memory an input took is read from the system's own high-water mark, which is set back before each.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from crfield.errors import CrfieldError
from tests.fuzz.models import Damage

SECONDS = 10.0  # of processor time that an input may take
WAITING = 120.0  # seconds of the clock, for what waits without working
MEMORY = 1 << 30  # bytes that an input may take: beyond it is a MemoryError
LARGE = 320 << 20  # bytes that count as too much: more than the 256 MiB that any file may take (`limits`)
_NAMES = ("at", "refused", "answered", "wrong", "silent", "large", "peak")
_TABLE = struct.Struct(f"<{len(_NAMES)}q")


@dataclass(frozen=True)
class Format:
    """A kind of input: how one is made from random numbers, and what is done with it."""

    name: str
    make: Callable[[random.Random], bytes]
    use: Callable[[bytes], None]
    errors: tuple[type[BaseException], ...] = (CrfieldError,)
    share: int = 5  # of the inputs of a run, beside those of the others: less where one costs a training


@dataclass
class Outcome:
    """Counts of what became of the inputs of one format; ``trouble`` has the first of each kind in words."""

    name: str
    inputs: int = 0
    refused: int = 0
    answered: int = 0
    wrong: int = 0  # an error that is none of crfield's
    crashes: int = 0
    hangs: int = 0
    large: int = 0  # took more memory than LARGE
    silent: int = 0  # an answer that the damage changed without a word
    peak: int = 0  # bytes, the most that one input took
    trouble: dict[str, str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not (self.wrong or self.crashes or self.hangs or self.large or self.silent)


def input_of(form: Format, seed: int, number: int) -> bytes:
    """Input ``number``."""
    return form.make(random.Random(f"{seed} {form.name} {number}"))


def run_format(form: Format, *, seed: int, count: int, limited: bool = True) -> Outcome:
    """What became of ``count`` inputs; ``limited=False`` sets no limit of memory (sanitizers reserve terabytes)."""
    out = Outcome(form.name, inputs=count)
    shared = mmap.mmap(-1, _TABLE.size)
    first = 0
    with tempfile.NamedTemporaryFile() as notes:
        while first < count:
            shared[:] = _TABLE.pack(first, *[0] * (len(_NAMES) - 1))
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                _work(form, seed, first, count, shared, notes.name, limited)
            _, status = os.waitpid(child, 0)
            at, refused, answered, wrong, silent, large, peak = _TABLE.unpack(shared[:])
            out.refused, out.answered, out.wrong = out.refused + refused, out.answered + answered, out.wrong + wrong
            out.silent, out.large, out.peak = out.silent + silent, out.large + large, max(out.peak, peak)
            if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                hang = number in (signal.SIGPROF, signal.SIGALRM)
                out.hangs, out.crashes = out.hangs + hang, out.crashes + (not hang)
                what = signal.Signals(number).name if number else f"exit {os.WEXITSTATUS(status)}"
                out.trouble.setdefault(what, f"input {at} ended its process with {what}")
            first = at + 1
        for line in notes.read().decode().splitlines():
            key, _, text = line.partition("\t")
            out.trouble.setdefault(key, text)
    return out


def _work(
    form: Format, seed: int, first: int, count: int, shared: mmap.mmap, notes: str, limited: bool
) -> None:  # never returns
    status = 1
    try:
        counts = dict.fromkeys(_NAMES, 0)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        if limited:
            base = _memory("VmSize")
            resource.setrlimit(resource.RLIMIT_AS, (base + MEMORY, resource.RLIM_INFINITY))
        for at in range(first, count):
            counts["at"] = at
            shared[:] = _TABLE.pack(*counts.values())
            data = input_of(form, seed, at)
            before = _mark()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.setitimer(signal.ITIMER_REAL, WAITING)
            said = ""
            try:
                form.use(data)
                counts["answered"] += 1
            except form.errors:
                counts["refused"] += 1
            except MemoryError:
                counts["large"] += 1
                said = "MemoryError"
            except Damage as error:
                counts["silent"] += 1
                said = f"{error}"
            except Exception as error:
                counts["wrong"] += 1
                place = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__} in {os.path.basename(place.filename)}:{place.lineno}"
                said += f"\tinput {at}: {type(error).__name__}: {str(error)[:200]!r} " + _where(error)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            taken = max(0, _memory("VmHWM") - before)
            counts["peak"] = max(counts["peak"], taken)
            if limited and taken > LARGE and said != "MemoryError":  # sanitizers keep what was freed
                counts["large"] += 1
                said = said or f"memory\tinput {at} took {taken / 1e6:.0f} MB"
            if said:
                with open(notes, "a", encoding="utf-8", errors="replace") as file:
                    file.write((said if "\t" in said else f"{said}\tinput {at}: {said}").replace("\n", " ") + "\n")
        counts["at"] = count
        shared[:] = _TABLE.pack(*counts.values())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(frames))


def _mark() -> int:
    """Set the high-water mark of memory back, and what it is then."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return _memory("VmHWM")


def _memory(name: str) -> int:
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0
