"""Texts with marked spans of characters, as annotation tools have them.

Formats of the tools are in `data.texts.annotations`; `compat.documents` makes tokens and tags of them, and goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crfield.errors import InputError


class TextSpan(NamedTuple):
    """Characters ``first`` … ``last`` − 1 of a text, and what they are.

    >>> TextSpan(0, 3, "PER").label
    'PER'
    """

    first: int
    last: int
    label: str


@dataclass(frozen=True)
class Document:
    """A text with its marked spans; ``name`` and ``meta`` are whatever the tool keeps beside it.

    >>> Document("Ana vive en Lima", (TextSpan(0, 3, "PER"), TextSpan(12, 16, "LOC"))).words
    ['Ana', 'Lima']
    """

    text: str
    spans: tuple[TextSpan, ...] = ()
    name: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for first, last, label in self.spans:
            if not 0 <= first < last <= len(self.text):
                raise InputError(
                    f"the span ({first}, {last}, {label!r}) must satisfy 0 ≤ first < last ≤ {len(self.text)}, the "
                    f"number of characters of {self.text[:40]!r}."
                )

    @property
    def words(self) -> list[str]:
        """The text of every span."""
        return [self.text[first:last] for first, last, _ in self.spans]
