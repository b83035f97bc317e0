"""``crfield stream``: lines of numbers in, a label out for each, as they come.

A line holds the numbers of a step, with commas, semicolons, tabs or blanks between them: the model's columns in their
order, a sample for windows, or the positions of all agents (x, y of the first, x, y of the second, …). A first line
with names says which column is which; other columns are then not looked at. A blank line ends a sequence, in the
input and in the output. Tracks may leave cells empty: that agent is absent. A model of windows answers when a step is
full, with a label for each step and not for each line.
"""

from __future__ import annotations

from typing import Annotated

import typer

import crfield
from crfield.cli.messages import note
from crfield.cli.options import ModelArgument
from crfield.cli.output import data_output
from crfield.cli.sensors.lines import Answer, LineStream
from crfield.errors import FormatError, InputError
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
    with data_output("-") as out:

        def write(answers: list[Answer]) -> None:
            for label, chance in answers:
                text = str(label).replace("\n", "\\n")  # a line is a line
                out.write(f"{text}\t{chance:.6f}\n".encode() if probabilities else f"{text}\n".encode())
            out.flush()  # whoever waits for it has nothing else to do

        for number, line in read_lines("-"):
            try:
                if line.strip():
                    write(labels.push(line))
                elif labels.begun:
                    write(labels.finish())
                    out.write(b"\n")
                    out.flush()
            except InputError as error:
                fault = FormatError(str(error), file=name_of("-"), line=number)
                if not go_on or not labels.named:
                    raise fault from None
                note(f"warning: {fault}")
                out.write(f"{_UNREAD}\n".encode())
                out.flush()
        if labels.begun:
            write(labels.finish())
