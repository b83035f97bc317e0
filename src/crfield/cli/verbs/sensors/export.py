"""``crfield export``: a model as one file for a robot, a C header or a Python module without dependencies."""

from __future__ import annotations

from typing import Annotated

import typer

import crfield
from crfield.cli.messages import WrongVerb, note
from crfield.cli.options import ModelArgument, Quiet
from crfield.cli.paths import WRITES
from crfield.errors import InputError

_ENDINGS = (".h", ".py")


def export(
    model: ModelArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="File to write: .h is C99, .py is Python."), WRITES],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="What names in the header begin with.", show_default="the name of the file"
        ),
    ] = None,
    max_lag: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Steps after which a label is final.", show_default="1000")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a model of numbers as a C header (.h) or a Python module (.py) that answers like crfield stream."""
    if not out.endswith(_ENDINGS):
        raise typer.BadParameter(f"expected a name that ends in .h (C) or .py (Python), got {out!r}.")
    found = crfield.load(model)
    if not hasattr(found, "export"):
        raise WrongVerb(
            f"{model} holds a {type(found).__name__}, which cannot be exported; a ChainCRF of numbers can."
        )
    try:
        found.export(out, name=name, **({} if max_lag is None else {"max_lag": max_lag}))
    except InputError as error:
        raise WrongVerb(str(error)) from None
    note(f"{out} written: it takes what crfield stream takes, and gives the label of each step", quiet=quiet)
