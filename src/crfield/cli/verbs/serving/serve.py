"""``crfield serve``: models behind an address of this machine, for programs and for people.

Every model file is served under its name without ending, and loaded again when it is replaced. The page at the address
shows labels with probabilities, what else they might be and why; ``--label`` adds one on which people label the
sequences that the model is least sure of, while it learns from them.
"""

from __future__ import annotations

import logging
import os
from typing import Annotated, Any

import typer

from crfield.cli.messages import note, visible
from crfield.cli.options import OneThread, Quiet, data_option
from crfield.cli.paths import READS
from crfield.cli.serving import manner_of
from crfield.errors import InputError
from crfield.storage.files import read_text

_EXTRA = "serving needs starlette and uvicorn: pip install 'crfield[serve]'."


def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="Model files."), READS],
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; elsewhere needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")] = 8765,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A file with the token that requests must bring.", show_default="CRFIELD_TOKEN"
        ),
        READS,
    ] = None,
    max_body: Annotated[
        float, data_option("The largest body of a request, in megabytes.", min=0.001, max=1024, metavar="MB")
    ] = 8.0,
    threads: OneThread = 2,
    quiet: Quiet = False,
) -> None:
    """Serve models on this machine: an interface for programs, a page for people, labelling."""
    try:
        from crfield.serve.app import Service
        from crfield.serve.gate import Rules, is_local
        from crfield.serve.models import Shelf
        from crfield.serve.server import bound, run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise InputError(_EXTRA) from None
    _log_to_stderr()
    token = _token(token_file)
    at = bound(host, port, token)
    shelf = Shelf(manner_of)
    for path in models:
        shelf.put(_name(path), path)
    rules = Rules(local=is_local(host), token=token, most_bytes=int(max_body * 1e6))
    service = Service(shelf, rules, threads=threads)

    def ready(address: str) -> None:
        shown = f"{address}#token=…" if token else address
        note(f"serving {', '.join(shelf.places)} at {shown} (Ctrl-C ends it)", quiet=quiet)

    run(service, at, ready)


def _name(path: str) -> str:
    return os.path.basename(path).partition(".")[0] or os.path.basename(path)


def _token(path: str | None) -> str | None:
    if path is not None:
        return read_text(path).strip()
    return os.environ.get("CRFIELD_TOKEN") or None


class _Notes(logging.Handler):
    def emit(self, record: Any) -> None:
        """Every line of the log as a note."""
        note(visible(self.format(record)))


def _log_to_stderr() -> None:
    log = logging.getLogger("crfield.serve")
    if not log.handlers:
        log.addHandler(_Notes())
    log.propagate = False
