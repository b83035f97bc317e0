"""The pages: files of this package, each a route of its own, and replays that were made of tables.

No path of a request leads to the disk: the files are read once, when the server starts, and a request can name only
those in the table below.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.routing import Route

from crfield.serve.gate import PAGE, Door
from crfield.serve.wire import Receive, Scope, Send, respond

_FILES: dict[str, tuple[str, bytes]] = {}


def page_routes(service: Any) -> list[Route]:
    """A route for each file."""
    return [Route(path, Door("GET", _file(name, kind))) for path, (name, kind) in _FILES.items()]


def _file(name: str, kind: bytes) -> Any:
    body = files("crfield.serve.pages").joinpath(name).read_bytes()
    headers = [(b"content-type", kind), *PAGE]

    async def work(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, body, headers=headers)

    return work
