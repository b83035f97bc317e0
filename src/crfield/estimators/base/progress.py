"""The progress of training on the terminal; the only place among the estimators that prints.

On a terminal one line is redrawn (with `rich`, imported only then). Elsewhere, in a log file or a notebook,
plain lines come a few seconds apart, and the last step is always among them. All of it goes to the standard
error, so that the output of a program stays its own; and if the standard error is closed or broken, training
goes on in silence, for a display must not cost a model. A line never takes more than 80 columns, or those of a
narrower terminal: digits go first, then what matters least.

    verbose   0, False   nothing
              1, True    the line
              2 or more  a plain line for every step
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

INTERVAL = 5.0  # seconds between plain lines
COLUMNS = 80  # of a line that is not redrawn
_BAR = 10


class Step(Protocol):
    """What is known after a step of the optimiser."""

    @property
    def n_iter(self) -> int:
        """Steps so far."""
        ...

    @property
    def value(self) -> float:
        """The objective."""
        ...

    @property
    def gradient_norm(self) -> float:
        """Size of the gradient in the measure of the stopping rule."""
        ...

    @property
    def n_active(self) -> int:
        """Weights that are not zero."""
        ...

    @property
    def seconds(self) -> float:
        """Time since the start."""
        ...


class Progress:
    """Shows the steps of one training while its block runs.

    >>> from types import SimpleNamespace
    >>> step = SimpleNamespace(n_iter=7, value=123.456, gradient_norm=0.25, n_active=1500, seconds=1.5)
    >>> with Progress(2, description="training", stream=sys.stdout) as progress:
    ...     progress.update(step)
    training: step 7  objective 123.4560  gradient 2.50e-01  weights 1,500  1.5 s
    >>> with Progress(False) as progress:
    ...     progress.update(step)
    """

    def __init__(
        self,
        verbose: bool | int,
        total: int | None = None,
        description: str = "training",
        *,
        stream: TextIO | None = None,
    ) -> None:
        self._level = int(verbose)
        self._total = total
        self._description = description
        self._stream = stream
        self._live: Any = None
        self._task: Any = None
        self._open = False
        self._last: Step | None = None
        self._shown: Step | None = None
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        if self._stream is None:
            self._stream = sys.stderr  # None itself when the program has no standard error
        self._open = self._level > 0 and self._stream is not None
        self._shown_at = time.monotonic()
        if self._open and self._level == 1 and _redraws(self._stream):
            self._start_line()
        return self

    def update(self, step: Step) -> None:
        """Show a step, or keep it until it is time to."""
        if not self._open:
            return
        self._last = step
        if self._live is not None:
            self._live.update(self._task, completed=step.n_iter, text=_text(step, self._room()))
        elif self._level > 1 or time.monotonic() - self._shown_at >= INTERVAL:
            self._say(step)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        if self._live is not None:
            live, self._live = self._live, None
            with suppress(OSError, ValueError):
                live.stop()
        elif self._last is not None and self._last is not self._shown:
            self._say(self._last)

    def _start_line(self) -> None:
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
        if self._total is not None:
            columns.append(BarColumn(bar_width=_BAR))
        columns.append(TextColumn("{task.fields[text]}", markup=False))
        live = RichProgress(*columns, console=Console(file=self._stream), refresh_per_second=5)
        try:
            self._task = live.add_task(self._description, total=self._total, text="")
            live.start()
        except (LiveError, OSError, ValueError):  # another live display has the terminal: plain lines then
            return
        self._live = live

    def _room(self) -> int:
        """Columns that the spinner, the description and the bar leave, with a blank between each two."""
        taken = 2 + len(self._description) + 1 + (0 if self._total is None else _BAR + 1)
        return int(self._live.console.width) - taken

    def _say(self, step: Step) -> None:
        self._shown, self._shown_at = step, time.monotonic()
        try:
            text = _text(step, COLUMNS - len(self._description) - 2)
            print(f"{self._description}: {text}", file=self._stream, flush=True)
        except (OSError, ValueError):
            self._open = False


def _redraws(stream: TextIO | None) -> bool:
    """Whether a line on the stream can be drawn again."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    except (AttributeError, ValueError):
        return False


def _text(step: Step, room: int) -> str:
    """The fullest account of a step that takes no more than ``room`` columns."""
    value = f"{step.value:,.2f}" if abs(step.value) < 1e9 else f"{step.value:.6g}"
    begin, end = f"step {step.n_iter}  objective {value}", f"{step.seconds:.{1 if step.seconds < 100 else 0}f} s"
    gradient = f"gradient {step.gradient_norm:.1e}"
    workers = getattr(step, "n_workers", 0)
    if workers:  # on a cluster: who works, and what goes over the wire
        counts = f"evaluations {getattr(step, 'n_evaluations', 0)}"
        moved = f"{workers} workers  {_rounded(getattr(step, 'n_bytes', 0))}B"
        accounts = [f"{begin}  {gradient}  {counts}  {moved}  {end}", f"{begin}  {counts}  {moved}  {end}"]
        shown = next((text for text in accounts if len(text) <= room), None)
        if shown is not None:
            return shown
    accounts = [
        f"step {step.n_iter}  objective {step.value:,.4f}  gradient {step.gradient_norm:.2e}  "
        f"weights {step.n_active:,}  {step.seconds:.1f} s",
        f"{begin}  {gradient}  weights {_rounded(step.n_active)}  {end}",
        f"{begin}  {gradient}  {end}",
        f"{begin}  {end}",
        begin,
        f"step {step.n_iter}",
    ]
    return next((text for text in accounts if len(text) <= room), accounts[-1][: max(room, 0)])


def _rounded(number: int) -> str:
    """A count in four signs.

    >>> _rounded(950), _rounded(1500), _rounded(23_456_789)
    ('950', '1.5k', '23M')
    """
    size, unit = float(number), ""
    for unit in ("", "k", "M", "G"):
        if size < 999.5 or unit == "G":
            break
        size /= 1000
    return f"{size:.1f}{unit}" if unit and size < 9.95 else f"{size:.0f}{unit}"
