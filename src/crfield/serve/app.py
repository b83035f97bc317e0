"""The application: routes, and where the work of each is done.

Labelling a short sequence is one compiled call of some microseconds, less than handing it to a thread and back; it is
done at once on the event loop. Everything larger goes to a pool of threads, which the kernels use side by side since
they give the interpreter's lock back. Small requests are not collected into batches: two hundred sentences one by
one by the tagger take no longer than in one call (`python -m benchmarks serve` shows both), and what else a request
costs, its HTTP and its JSON, a batch does not share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.routing import Route

from crfield.serve import answers
from crfield.serve.asked import EXPLAIN, NOTHING, PREDICT, check_names, data_of, questions_of
from crfield.serve.counters import Counters
from crfield.serve.description import description
from crfield.serve.gate import Door, Gate, Rules, asked_json
from crfield.serve.models import Served, Shelf
from crfield.serve.pages import page_routes
from crfield.serve.warned import heard, heard_warnings
from crfield.serve.wire import JSON, Headers, Receive, Refusal, Scope, Send, kind_of, respond, written

SMALL = 256  # steps that are labelled at once, on the event loop
_EVERY = 1.0  # seconds between looks at the model files
_PLAIN: Headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8"), *JSON[1:]]
_OPEN: Headers = [(b"content-type", b"application/json"), *JSON[1:]]
_LIVE = written({"status": "ok"})
_FIELDS = frozenset({"model", "sequence", "sequences"})  # of requests that ask for labels alone

_log = logging.getLogger("crfield.serve")


class Service:
    """Everything that answers: the models, the rules, the threads."""

    def __init__(self, shelf: Shelf, rules: Rules, *, threads: int | None = None) -> None:
        self.shelf, self.rules = shelf, rules
        self.threads = threads or os.cpu_count() or 1
        self.limiter: anyio.CapacityLimiter | None = None
        self.at_work = 0
        self.extra: list[Route] = []  # of labelling
        self.begin: list[Callable[[], Any]] = []  # what starts with the server
        self.end: list[Callable[[], Any]] = []

    # ------------------------------------------------------------------ the whole

    def app(self) -> Gate:
        """The ASGI application."""
        routes = [
            Route("/v1/predict", Door("POST", self.predict)),
            Route("/healthz", Door("GET", self.healthz)),
            Route("/v1/explain", Door("POST", self.explain)),
            Route("/v1/models", Door("GET", self.models)),
            Route("/metrics", Door("GET", self.metrics)),
            Route("/openapi.json", Door("GET", self.openapi)),
            *self.extra,
            *page_routes(self, labelling=bool(self.extra)),
        ]
        self.counters = Counters([route.path for route in routes])
        inner = Starlette(routes=[*routes, Route("/{rest:path}", Door("GET", _nothing))], lifespan=self._life)
        return Gate(inner, self.rules, self.counters)

    @contextlib.asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        self.limiter = anyio.CapacityLimiter(self.threads)
        watch = asyncio.create_task(self._watch())
        with heard_warnings():
            for start in self.begin:
                start()
            try:
                yield
            finally:
                watch.cancel()
                for stop in self.end:
                    await to_thread.run_sync(stop)

    async def _watch(self) -> None:
        """Look at the model files from time to time."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                for line in await to_thread.run_sync(self.shelf.refresh):
                    _log.warning("%s", line)
            except Exception:
                _log.exception("the model files cannot be looked at")

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """The outcome of work that takes longer than a moment; a Refusal where too much is waiting already."""
        if self.at_work >= 64 * self.threads:
            raise Refusal(503, "the server is busy. Ask again later.")
        self.at_work += 1
        try:
            return await to_thread.run_sync(lambda: heard(lambda said: work()), limiter=self.limiter)
        finally:
            self.at_work -= 1

    def served(self, asked: dict[str, Any]) -> Served:
        """The model that a request means."""
        name = asked.get("model")
        if name is None:
            if len(self.shelf.places) > 1 and "model" not in asked:
                raise Refusal(400, f"name the model: {', '.join(self.shelf.places)}.", "model")
            return self.shelf.first.served
        if type(name) is not str:
            raise Refusal(400, f"model must be a text, got {kind_of(name)}.", "model")
        place = self.shelf.places.get(name)
        if place is None:
            raise Refusal(404, f"there is no model {name!r:.60}; there are {', '.join(self.shelf.places)}.", "model")
        return place.served

    # ------------------------------------------------------------------ routes

    async def predict(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Labels, and what else is asked for."""
        asked = await asked_json(scope, receive, self.rules)
        plain = asked.keys() <= _FIELDS
        if not plain:
            check_names(asked, PREDICT)
        served = self.served(asked)
        if "text" in asked:
            await respond(send, await self.in_thread(lambda: self._text_answer(asked, served)))
            return
        data = data_of(asked, served)
        questions = NOTHING if plain else questions_of(asked, data, served)
        self.counters.steps += data.steps
        if questions is NOTHING and served.quick and data.steps <= SMALL:
            body = heard(answers.answer, served, data, questions)
        else:
            body = await self.in_thread(lambda: heard(answers.answer, served, data, questions))
        await respond(send, body)

    def _text_answer(self, asked: dict[str, Any], served: Served) -> bytes:
        def whole(served: Served, said: list[str]) -> bytes:
            data = data_of(asked, served)
            self.counters.steps += data.steps
            return answers.answer(served, data, questions_of(asked, data, served), said)

        body: bytes = heard(whole, served)
        return body

    async def explain(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Why a step has its label."""
        asked = await asked_json(scope, receive, self.rules)
        check_names(asked, EXPLAIN)
        served = self.served(asked)
        await respond(send, await self.in_thread(lambda: answers.explanation(served, data_of(asked, served), asked)))

    async def healthz(self, scope: Scope, receive: Receive, send: Send) -> None:
        """That the server is there."""
        await respond(send, _LIVE)

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Which models there are, what they read and which labels they have."""
        await respond(send, written({"models": self.shelf.about()}))

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts for Prometheus."""
        versions = {name: place.served.version for name, place in self.shelf.places.items()}
        await respond(send, self.counters.text(versions).encode(), headers=_PLAIN)

    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A description of all this for programs."""
        await respond(send, written(description(list(self.shelf.places), labelling=bool(self.extra))), headers=_OPEN)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refusal(404, "there is nothing here; /openapi.json lists what there is.")
