"""The process that serves: an address, time-outs, and an orderly end.

uvicorn speaks HTTP (by h11, which bounds the head of a request). Two things are added to it: a connection whose
request does not come in time, head and body, is closed, however slowly bytes drip in; and SIGTERM ends the server
with code 0 after the requests that are under way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from crfield.errors import InputError
from crfield.serve.app import Service
from crfield.serve.gate import is_local

HEAD_BYTES = 16 << 10
REQUEST_SECONDS = 30.0
IDLE_SECONDS = 60
GRACE_SECONDS = 10
CONNECTIONS = 512
_BACKLOG = 256
_OBJECTS = 20_000  # lists and dicts between looks for garbage; a request of many sentences has thousands


class TimedProtocol(H11Protocol):
    """A connection that is closed if a request has begun, or none has, and is not whole in time.

    A request that comes in one piece, as most do, costs no timer.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._late)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request, and wait for the rest if there is one to come."""
        super().data_received(data)
        if self._waits():
            if self._deadline is None:
                self._deadline = self.loop.call_later(REQUEST_SECONDS, self._late)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().connection_lost(exc)

    def _waits(self) -> bool:
        """Whether the rest of a request, its head or its body, is still to come."""
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and self.timeout_keep_alive_task is None)

    def _late(self) -> None:
        self._deadline = None
        if self._waits() and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order on SIGTERM and Ctrl-C, without dying of the signal afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sign: signal.signal(sign, self.handle_exit) for sign in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)


def bound(host: str, port: int, token: str | None) -> socket.socket:
    """A socket at an address; beyond this machine only with a token."""
    if not is_local(host) and not token:
        raise InputError(
            f"--host {host} can be reached by other machines, so a token is needed, which every request then must "
            "bring: --token-file FILE, or the environment variable CRFIELD_TOKEN. Without one the server is for this "
            "machine alone (127.0.0.1)."
        )
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable()):
        raise InputError("the token must have at least 16 plain characters; python -c 'import secrets; "
                         "print(secrets.token_urlsafe())' makes one.")  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # by that asyncio knows to send at once
    if os.name == "posix":  # Windows would let two servers have one port
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host.strip("[]"), port))
    except OSError as error:
        made.close()
        raise InputError(
            f"the server cannot listen at {host}, port {port}: {error.strerror}. Name another --port."
        ) from None
    return made


def run(service: Service, at: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until a signal ends it; ``ready`` is called with the address."""
    at.listen(_BACKLOG)  # before anybody hears of it
    gc.collect()
    gc.freeze()  # models and modules stay: they need not be looked through again and again
    gc.set_threshold(_OBJECTS, 20, 20)
    host, port = at.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        service.app(),
        http=TimedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=_BACKLOG,
    )
    service.begin.append(lambda: ready(f"http://{shown}:{port}/"))
    _Server(config).run(sockets=[at])
