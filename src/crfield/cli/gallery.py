"""``crfield gallery``: the models of `docs/gallery.md` trained and asked, tables printed, pictures drawn."""

from __future__ import annotations

import io
import os
from typing import Annotated

import typer

from crfield.cli.messages import emit, note, offered, one_of, say
from crfield.cli.paths import FILLS
from crfield.experiments.gallery import GALLERY
from crfield.storage.files import write_bytes


def gallery(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Which: {', '.join(GALLERY)}.",
            show_default="all",
            autocompletion=offered(lambda: GALLERY),
        ),
    ] = None,
    *,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder to draw the pictures into as well (needs matplotlib)."),
        FILLS,
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
) -> None:
    """Small models of graphs: an image, a skip-chain, two layers of labels, a tree of tags."""
    for name in names or ():
        one_of(name, list(GALLERY), what="picture")
    if out is not None:
        os.makedirs(out, exist_ok=True)
    told = {}
    for name in names or GALLERY:
        found, figures = GALLERY[name](random_state=seed)
        told[name] = found.to_dict()
        if not as_json:
            say(f"{found}\n")
        for title, draw in figures.items() if out is not None else ():
            stream = io.BytesIO()
            draw().savefig(stream, format="png", dpi=75)
            path = os.path.join(out or "", f"{title}.png")
            write_bytes(path, stream.getvalue())
            note(f"drawn: {path}")
    if as_json:
        emit(told)
