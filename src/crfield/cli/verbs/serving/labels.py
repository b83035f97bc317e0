"""``crfield labels``: what people labelled, out of the store of ``crfield serve --label``."""

from __future__ import annotations

from typing import Annotated

import typer

from crfield.cli.messages import note
from crfield.cli.options import Quiet
from crfield.cli.output import data_output
from crfield.cli.paths import READS, WRITES
from crfield.storage.label_store import LabelStore, columns_text


def labels(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The file of the answers."), READS],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - for standard output."), WRITES
    ] = "-",
    open: Annotated[
        str, typer.Option("--open", metavar="TEXT", help="What stands where a step was left open.")
    ] = "_",
    complete: Annotated[bool, typer.Option("--complete", help="Only sequences without open steps.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the labels that people gave to crfield serve --label as columns (CoNLL)."""
    with LabelStore(store) as kept:
        found = kept.answers()
    wanted = [one for one in found if not (complete and None in one.labels)]
    with data_output(output) as stream:
        stream.write(columns_text(wanted, mark=open).encode("utf-8"))
    left = sum(None in one.labels for one in wanted)
    note(f"{len(wanted)} of {len(found)} answers written, {left} of them with open steps", quiet=quiet)
