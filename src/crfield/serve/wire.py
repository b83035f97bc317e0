"""JSON in and out: what comes is read strictly, what goes is written once, and a refusal says where and why.

A request is refused with a `Refusal`: a status, a sentence in the words of the library, and the place in the request
that it is about. Strict means: UTF-8 without damage, no NaN and no infinity (JSON has neither), no half of a
surrogate pair (no text holds one), no nesting deeper than the reader's stack, no number of thousands of digits.

Answers leave as plain ASGI messages. A framework's response objects cost more than a short sentence's labels.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON: Headers = [
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class Refusal(Exception):
    """A request that gets no answer: its status, why, and what of the request it is about.

    >>> Refusal(400, "expected a list, got a number.", "sequences[2]").body
    b'{"error":{"status":400,"message":"expected a list, got a number.","where":"sequences[2]"}}'
    """

    def __init__(self, status: int, message: str, where: str | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.where, self.more = status, message, where, more

    @property
    def body(self) -> bytes:
        """The answer that says so."""
        told = {"status": self.status, "message": self.message}
        return written({"error": told | ({} if self.where is None else {"where": self.where}) | self.more})


def _no_such_number(text: str) -> Any:
    raise Refusal(400, f"the body holds {text}, which is no number of JSON. Write null where nothing is known.")


_DECODER = json.JSONDecoder(parse_constant=_no_such_number)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read(body: bytes) -> dict[str, Any]:
    """The JSON object that a body holds; a Refusal where it holds none.

    >>> read(b'{"sequence": [["He"]]}')
    {'sequence': [['He']]}
    >>> read(b'{"sequence": [')
    Traceback (most recent call last):
    crfield.serve.wire.Refusal: the body is no JSON: Expecting value, line 1, column 15.
    """
    try:
        text = body.decode("utf-8")
        found = _DECODER.decode(text)
        if "\\u" in text:
            _ENCODER.encode(found).encode("utf-8")  # halves of surrogate pairs have no code
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8: byte {error.start} cannot be read.") from None
    except UnicodeEncodeError:
        raise Refusal(400, "a text of the body holds half of a surrogate pair (\\ud800 … \\udfff).") from None
    except json.JSONDecodeError as error:
        words = f"the body is no JSON: {error.msg}, line {error.lineno}, column {error.colno}."
        raise Refusal(400, words) from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply.") from None
    except ValueError:  # of a number of more digits than Python reads, or one that is no float
        raise Refusal(400, "the body holds a number that is too large.") from None
    if type(found) is not dict:
        raise Refusal(400, f"the body must be a JSON object, got {kind_of(found)}.")
    return found


def written(value: Any) -> bytes:
    r"""A value as JSON.

    >>> written({"labels": ["é"]})
    b'{"labels":["\xc3\xa9"]}'
    """
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def kind_of(value: Any) -> str:
    """What JSON calls a value.

    >>> kind_of([]), kind_of(None), kind_of(True)
    ('a list', 'null', 'true or false')
    """
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


async def respond(send: Send, body: bytes, status: int = 200, headers: Headers = JSON) -> None:
    """Send a whole answer."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
