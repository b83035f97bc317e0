"""The pages: files of this package, each a route of its own, and replays that were made of tables.

No path of a request leads to the disk: the files are read once, when the server starts, and a request can name only
those in the table below. Replays are kept in memory under names that nobody can guess, a few at a time; their script
is inside the page, so their policy names the digests of what may run.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections import OrderedDict
from hashlib import sha256
from importlib.resources import files
from typing import Any

from starlette.routing import Route

from crfield.serve.asked import check_names, with_words
from crfield.serve.gate import PAGE, SAFE, Door, asked_json, text_of
from crfield.serve.wire import Headers, Receive, Refusal, Scope, Send, respond, written

_HTML, _JS, _CSS, _SVG = b"text/html; charset=utf-8", b"text/javascript; charset=utf-8", b"text/css", b"image/svg+xml"
_FILES: dict[str, tuple[str, bytes]] = {
    "/": ("explorer.html", _HTML),
    "/style.css": ("style.css", _CSS),
    "/icon.svg": ("icon.svg", _SVG),
    "/shared.js": ("shared.js", _JS),
    "/sequence.js": ("sequence.js", _JS),
    "/timeline.js": ("timeline.js", _JS),
    "/explorer.js": ("explorer.js", _JS),
    "/label": ("label.html", _HTML),
    "/label.js": ("label.js", _JS),
}
_REPLAYS = 8  # kept at a time


def page_routes(service: Any, *, labelling: bool) -> list[Route]:
    """A route for each file, and those of replays."""
    wanted = {path: told for path, told in _FILES.items() if labelling or not path.startswith("/label")}
    replays = Replays(service)
    return [
        *(Route(path, Door("GET", _file(name, kind))) for path, (name, kind) in wanted.items()),
        Route("/v1/replay", Door("POST", replays.make)),
        Route("/replay/{name}", Door("GET", replays.show)),
    ]


def _file(name: str, kind: bytes) -> Any:
    body = files("crfield.serve.pages").joinpath(name).read_bytes()
    headers = [(b"content-type", kind), *PAGE]

    async def work(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, body, headers=headers)

    return work


class Replays:
    """Pages of worlds to watch."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.pages: OrderedDict[str, tuple[bytes, Headers]] = OrderedDict()

    async def make(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A replay of tracks that are sent as text."""
        asked = await asked_json(scope, receive, self.service.rules)
        check_names(asked, ("model", "text"))
        served = self.service.served(asked)
        if served.manner.replay is None:
            raise Refusal(422, f"{served.name} does not read tracks, of which replays are made.")
        text = text_of(asked, "text", self.service.rules.most_bytes).encode("utf-8")

        def made() -> tuple[bytes, Headers]:
            page = with_words(lambda: served.manner.replay(text)).html()
            return page.encode("utf-8"), _headers(page)

        name = secrets.token_urlsafe(16)
        self.pages[name] = await self.service.in_thread(made)
        while len(self.pages) > _REPLAYS:
            self.pages.popitem(last=False)
        await respond(send, written({"page": f"/replay/{name}"}))

    async def show(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A replay that was made."""
        found = self.pages.get(scope["path_params"]["name"])
        if found is None:
            raise Refusal(404, "this replay is not kept any more.")
        await respond(send, found[0], headers=found[1])


def _headers(page: str) -> Headers:
    """The policy of a page whose script and style are inside it: what has these digests may run, and nothing else."""

    def digests(tag: str) -> str:
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in inside)

    policy = (
        f"default-src 'none'; script-src {digests('script')}; style-src {digests('style')}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    )
    return [(b"content-type", _HTML), (b"content-security-policy", policy.encode()), *SAFE]
