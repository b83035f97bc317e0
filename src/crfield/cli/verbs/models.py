"""``crfield models``: which model when, and one of them with its example."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import Annotated

import typer

import crfield
from crfield.cli.messages import emit, listing, offered, say
from crfield.cli.options import Json
from crfield.errors import InputError
from crfield.report.model_catalogue import MODELS, as_text, example_of, model_named

_WIDEST = 118


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One model, such as ChainCRF.",
            show_default="all",
            autocompletion=offered(lambda: (model.name for model in MODELS)),
        ),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Which model when: what each labels, what it assumes, and when to use it."""
    if name is None:
        if as_json:
            emit({"models": [model.to_dict() for model in MODELS]})
            return
        say(as_text(columns=min(get_terminal_size((100, 24)).columns, _WIDEST)))
        say(
            "\ncrfield models NAME shows one with an example; crfield experiment one-data-set runs them on one world."
        )
        return
    try:
        model = model_named(name)
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    example = example_of(getattr(crfield, model.name))
    if as_json:
        emit({**model.to_dict(), "example": example})
        return
    facts = {"estimator": f"crfield.{model.name}", "labels": model.labels, "assumes": model.assumes}
    say(listing({**facts, "use it for": model.take, "page": f"docs/{model.page}"}))
    say(f"\n{example}")
