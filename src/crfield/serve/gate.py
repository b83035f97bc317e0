"""Who may ask, and how much: every request passes here before anything reads it.

- **Host.** A page elsewhere may give its own name the address 127.0.0.1 (DNS rebinding) and would then talk to this
  server as to its own. Its requests still carry that name, so on the loopback address only the names of this machine
  are answered.
- **Origin.** What changes something, or costs something, is a POST of JSON. A browser that sends one for another page
  says so (Origin, Sec-Fetch-Site) and is refused; no answer allows other origins to read it.
- **Token.** Beyond the loopback address every question needs it; it is compared in constant time. The files of the
  pages hold nothing secret and need none, so that a browser can come to ask for it.
- **Size.** A body is counted as it comes and ends at a limit. (How long it may take is the connection's matter:
  `crfield.serve.server`.)

The policy for pages (`PAGE`) lets them load their own script and style, and nothing from elsewhere.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from crfield.serve.counters import Counters
from crfield.serve.wire import JSON, Headers, Message, Receive, Refusal, Scope, Send, kind_of, read, respond

LOCAL = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_WANTED = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"content-type", b"content-length", b"authorization", b"content-encoding"}
)
_JSON = b"application/json"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
SAFE: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]
PAGE: Headers = [(b"content-security-policy", _POLICY.encode()), *SAFE]

_log = logging.getLogger("crfield.serve")


@dataclass(frozen=True)
class Rules:
    """What the gate lets through."""

    local: bool = True  # whether only this machine can reach the server
    token: str | None = None
    most_bytes: int = 8 << 20


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine alone.

    >>> is_local("127.0.0.1"), is_local("0.0.0.0")
    (True, False)
    """
    return host in LOCAL or host.startswith("127.")


class Gate:
    """The outermost layer: checks, then the application, then a count."""

    def __init__(self, app: Any, rules: Rules, counters: Counters) -> None:
        self.app, self.rules, self.counters = app, rules, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began = perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        found = {name: value for name, value in scope["headers"] if name in _WANTED}
        scope["crfield"] = found
        try:
            self._check(scope, found)
        except Refusal as refusal:
            await respond(noted, refusal.body, refusal.status)
        else:
            await self.app(scope, receive, noted)
        self.counters.count(scope["path"], status, perf_counter() - began)

    def _check(self, scope: Scope, found: dict[bytes, bytes]) -> None:
        rules, host = self.rules, found.get(b"host", b"")
        if rules.local and not _of_this_machine(host):
            raise Refusal(
                421,
                "this server answers to the names of this machine alone (127.0.0.1, localhost), not to another's.",
            )
        if scope["method"] not in ("GET", "HEAD"):
            site, origin = found.get(b"sec-fetch-site"), found.get(b"origin")
            if site not in (None, b"same-origin", b"none") or (origin is not None and not _same(origin, host)):
                raise Refusal(403, "the request comes from a page of another origin, which may not ask this server.")
        if rules.token is not None and scope["path"].startswith(("/v1/", "/metrics")):
            given = found.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + rules.token.encode()):
                raise Refusal(401, "this needs the token that the server was started with: Authorization: Bearer …")


def _of_this_machine(host: bytes) -> bool:
    name = host.decode("latin-1").lower()
    bare = name.rpartition(":")[0] if not name.endswith("]") and ":" in name else name
    return bare in LOCAL


def _same(origin: bytes, host: bytes) -> bool:
    try:
        return urlsplit(origin.decode("ascii")).netloc.lower() == host.decode("ascii").lower() != ""
    except ValueError:
        return False


Work = Callable[[Scope, Receive, Send], Awaitable[None]]


class Door:
    """A route: an ASGI application of one method, whose refusals and failures become answers."""

    def __init__(self, method: str, work: Work) -> None:
        self.method, self.work = method, work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != self.method and not (self.method == "GET" and scope["method"] == "HEAD"):
                raise Refusal(405, f"{scope['path'][:80]} is for {self.method}.")
            await self.work(scope, receive, send)
        except Refusal as refusal:
            await respond(send, refusal.body, refusal.status)
        except Exception:
            _log.exception("a request failed")
            await respond(send, Refusal(500, "the server failed on this request; its log says why.").body, 500)


async def asked_json(scope: Scope, receive: Receive, rules: Rules) -> dict[str, Any]:
    """The JSON object of a POST."""
    found = scope["crfield"]
    kind = found.get(b"content-type", b"")
    if kind != _JSON and kind.partition(b";")[0].strip().lower() != _JSON:
        raise Refusal(415, "expected a body of JSON: content-type: application/json.", "content-type")
    if b"content-encoding" in found and found[b"content-encoding"] != b"identity":
        raise Refusal(415, "expected a body that is not compressed.", "content-encoding")
    return read(await body_of(found, receive, rules))


async def body_of(found: dict[bytes, bytes], receive: Receive, rules: Rules) -> bytes:
    """The whole body; a Refusal where it is too large or does not come."""
    length = found.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length[:20]) > rules.most_bytes):
        raise _too_large(rules)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "the request was broken off.")
        part = message.get("body", b"")
        size += len(part)
        if size > rules.most_bytes:
            raise _too_large(rules)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(rules: Rules) -> Refusal:
    return Refusal(413, f"a body may have {rules.most_bytes:,} bytes. Send the sequences in parts.")


def text_of(asked: dict[str, Any], name: str, most: int) -> str:
    """A text of a request."""
    value = asked.get(name)
    if type(value) is not str or not 0 < len(value) <= most:
        got = f"{len(value)} characters" if type(value) is str else kind_of(value)
        raise Refusal(400, f"{name} must be a text of 1 to {most} characters, got {got}.", name)
    return value


__all__ = ["JSON", "LOCAL", "PAGE", "SAFE", "Door", "Gate", "Rules", "asked_json", "body_of", "is_local", "text_of"]
