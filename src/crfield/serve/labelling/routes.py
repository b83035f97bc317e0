"""The interface of labelling: what comes next, answers, answers to look at again, and all of them as columns."""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from crfield.serve.app import Service
from crfield.serve.asked import check_names
from crfield.serve.gate import Door, asked_json, text_of
from crfield.serve.labelling.learner import Learner
from crfield.serve.labelling.pool import Pool
from crfield.serve.wire import JSON, Headers, Receive, Scope, Send, respond, written
from crfield.storage.label_store import Answer, columns_text

_PERSON = 64  # characters
_SHOWN = 100  # answers in a list
_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8"), *JSON[1:]]


class Labelling:
    """The routes of labelling over a pool and a learner."""

    def __init__(self, service: Service, pool: Pool, learner: Learner) -> None:
        self.service, self.pool, self.learner = service, pool, learner

    def join(self) -> None:
        """Add the routes to the service, and let the learner begin and end with it."""
        doors = {
            "/v1/labelling": Door("GET", self.about),
            "/v1/labelling/next": Door("POST", self.next),
            "/v1/labelling/open": Door("POST", self.open),
            "/v1/labelling/answer": Door("POST", self.answer),
            "/v1/labelling/skip": Door("POST", self.skip),
            "/v1/labelling/answers": Door("GET", self.answers),
            "/v1/labelling/export": Door("GET", self.export),
        }
        self.service.extra += [Route(path, door) for path, door in doors.items()]
        self.service.begin.append(self.learner.start)
        self.service.end += [self.learner.stop, self.pool.store.close]

    async def _asked(self, scope: Scope, receive: Receive, *names: str) -> tuple[dict[str, Any], str]:
        asked = await asked_json(scope, receive, self.service.rules)
        check_names(asked, ("person", *names))
        return asked, text_of(asked, "person", _PERSON)

    async def about(self, scope: Scope, receive: Receive, send: Send) -> None:
        """How far the labelling has come."""
        await respond(send, await self.service.in_thread(lambda: written(self._about())))

    def _about(self) -> dict[str, Any]:
        pool, learner = self.pool, self.learner
        answers = pool.store.answers()
        people: dict[str, int] = {}
        for answer in answers:
            people[answer.person] = people.get(answer.person, 0) + 1
        return {
            "model": pool.place.name,
            "model_version": pool.place.served.version,
            "form": pool.place.served.manner.form,
            "columns": list(pool.place.served.manner.columns),
            "labels": pool.labels,
            "sequences": len(pool.X),
            "answered": len(answers),
            "people": people,
            "learns": learner.able,
            "learning": learner.busy,
            "taught": learner.taught,
            "failed": learner.failed,
            "score_name": None if learner.held_out is None else learner.held_out.name,
            "scores": pool.store.scores(),
            "agreement": [answer.agreement for answer in answers],
        }

    async def next(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The sequence that the model is least sure of, leased to the person."""
        _, person = await self._asked(scope, receive)
        item = await self.service.in_thread(lambda: self.pool.next(person))
        await respond(send, written({"item": item}))

    async def open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A sequence by its number."""
        asked, person = await self._asked(scope, receive, "sequence")
        item = await self.service.in_thread(lambda: self.pool.open(asked.get("sequence"), person))
        await respond(send, written({"item": item}))

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep an answer: it is on the disk when this says so."""
        asked, person = await self._asked(scope, receive, "sequence", "version", "labels")
        made: Answer = await self.service.in_thread(lambda: self.pool.answer(person, asked))
        self.learner.tell()
        told = {"stored": True, "sequence": made.sequence, "version": made.version, "agreement": made.agreement}
        await respond(send, written(told))

    async def skip(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a sequence back."""
        asked, person = await self._asked(scope, receive, "sequence")
        self.pool.skip(person, asked.get("sequence"))
        await respond(send, written({"skipped": True}))

    async def answers(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The answers that hold, the newest first."""

        def listed() -> bytes:
            found = self.pool.store.answers()[::-1][:_SHOWN]
            told = [
                {
                    "sequence": one.sequence,
                    "version": one.version,
                    "person": one.person,
                    "at": round(one.at, 3),
                    "text": " ".join(row[0] for row in one.steps[:30]),
                    "labels": one.labels,
                    "open": sum(label is None for label in one.labels),
                }
                for one in found
            ]
            return written({"answers": told})

        await respond(send, await self.service.in_thread(listed))

    async def export(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All answers as columns."""
        text = await self.service.in_thread(lambda: columns_text(self.pool.store.answers()))
        await respond(send, text.encode("utf-8"), headers=_TEXT)
