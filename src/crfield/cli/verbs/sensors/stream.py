"""``crfield stream``: lines of numbers in, a label out for each, as they come.

A line holds the numbers of a step, with commas, semicolons, tabs or blanks between them: the model's columns in their
order, a sample for windows, or the positions of all agents (x, y of the first, x, y of the second, …). A first line
with names says which column is which; other columns are then not looked at. A blank line ends a sequence, in the
input and in the output. Tracks may leave cells empty: that agent is absent. A model of windows answers when a step is
full, with a label for each step and not for each line.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import crfield
from crfield.cli.messages import note
from crfield.cli.options import ModelArgument
from crfield.cli.sensors.lines import Answer, LineStream
from crfield.errors import FormatError, InputError
from crfield.report.alignment import printable
from crfield.storage.blocks import read_lines
from crfield.storage.files import name_of

_UNREAD = "?"


def stream(
    model: ModelArgument,
    *,
    lag: Annotated[
        int, typer.Option(min=0, metavar="N", help="Wait for N steps before a label is told: later is surer.")
    ] = 0,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of each label behind a tab.")
    ] = False,
    go_on: Annotated[
        bool,
        typer.Option("--go-on", help=f"Answer a line that cannot be read with {_UNREAD} and a warning, and go on."),
    ] = False,
) -> None:
    """Label standard input line by line, each line as it comes."""
    labels = LineStream.of(crfield.load(model), model, lag=lag)
    for number, line in read_lines("-"):
        try:
            if not line.strip():
                if labels.begun:
                    _write(labels.finish(), probabilities=probabilities)
                    _put("")
                continue
            _write(labels.push(line), probabilities=probabilities)
        except InputError as error:
            fault = FormatError(str(error), file=name_of("-"), line=number)
            if not go_on or not labels.named:
                raise fault from None
            note(f"warning: {fault}")
            _put(_UNREAD)
    if labels.begun:
        _write(labels.finish(), probabilities=probabilities)


def _write(answers: list[Answer], *, probabilities: bool) -> None:
    shown = sys.stdout.isatty()
    for label, chance in answers:
        text = str(label)
        text = printable(text) if shown or "\n" in text else text
        _put(f"{text}\t{chance:.6f}" if probabilities else text)


def _put(text: str) -> None:
    """A line, at once: whoever waits for it has nothing else to do."""
    print(text, flush=True)
