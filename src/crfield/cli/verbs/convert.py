"""``crfield convert``: a model of one tool as a file of another."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

import crfield
from crfield.cli.messages import emit, listing, say, size_of
from crfield.cli.model import WrongVerb
from crfield.cli.options import Json
from crfield.cli.paths import READS, WRITES
from crfield.compat.convert import FORMS, form_of, write_model


class Form(StrEnum):
    """What to write."""

    crfield = "crfield"
    crfsuite = "crfsuite"
    json = "json"


def convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model of crfield, CRFsuite, CRF++ (text) or Wapiti."), READS
    ],
    output: Annotated[str, typer.Argument(metavar="OUT", help="The file to write."), WRITES],
    *,
    to: Annotated[
        Form | None,
        typer.Option(
            metavar="FORM",
            help=f"{', '.join(FORMS)}.",
            show_default="by the name of OUT: .crfsuite, .json, else crfield",
        ),
    ] = None,
    bias: Annotated[
        str | None,
        typer.Option("--bias", metavar="NAME", help="For crfsuite: an attribute on every step, to carry intercepts."),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="NAME", help="For crfsuite: an attribute on each first step.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="NAME", help="For crfsuite: an attribute on each last step.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a model file into another tool's.

    To crfsuite only what CRFsuite can hold: features of single steps and label pairs. The json form is for reading.
    """
    form = form_of(output) if to is None else str(to)
    crf = crfield.load(model)
    if not isinstance(crf, crfield.ChainCRF):
        raise WrongVerb(
            f"{model} holds a {type(crf).__name__}; only a ChainCRF is converted. crfield inspect --json shows what "
            "it has learnt."
        )
    write_model(crf, output, to=form, bias=bias, start=start, end=end)
    size = os.stat(output).st_size
    facts = {"model": model, "output": output, "form": form, "bytes": size, "kind": type(crf).__name__}
    if as_json:
        emit({**facts, "labels": len(crf.classes_), "weights": len(crf.coef_)})
        return
    say(
        listing(
            {
                "model": f"{facts['kind']}, {model}",
                "labels": f"{len(crf.classes_):,}",
                "weights": f"{len(crf.coef_):,}",
                "written": f"{output}, {form}, {size_of(size)}",
            }
        )
    )
