"""Pictures that verbs draw on request: ``--plot FILE``, of the kind that the name of the file says."""

from __future__ import annotations

import io
from typing import Annotated, Any

import typer

from crfield.cli.messages import note
from crfield.cli.options import RUN
from crfield.cli.paths import WRITES
from crfield.storage.files import write_bytes

KINDS = ("png", "svg", "pdf")
PlotOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=f"Also draw it: .{', .'.join(KINDS)} (needs matplotlib).", rich_help_panel=RUN),
    WRITES,
]


def check_picture(path: str | None) -> None:
    """A wrong command line unless the name, if there is one, ends as pictures do."""
    if path is not None and _kind(path) not in KINDS:
        raise typer.BadParameter(f"--plot draws .{', .'.join(KINDS)}; {path!r} ends in none of them.")


def draw(figure: Any, path: str, *, quiet: bool = False, **options: Any) -> None:
    """Write a figure of matplotlib to a file, and say so."""
    stream = io.BytesIO()
    figure.savefig(stream, format=_kind(path), **options)
    write_bytes(path, stream.getvalue())
    note(f"drawn: {path}", quiet=quiet)


def _kind(path: str) -> str:
    return path.rpartition(".")[2].lower()
