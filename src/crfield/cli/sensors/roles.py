"""Which column of a table is what: said once, to the verb that trains, and kept with the model (``source_``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crfield.errors import InputError

TABLE, TRACKS = FORMATS = "table", "tracks"


@dataclass(frozen=True)
class Roles:
    """Which column of a table is what.

    >>> Roles.of_source(Roles("table", ("x", "y"), time="t").source)
    Roles(format='table', columns=('x', 'y'), time='t', group=None, label=None, agent=None, unit='s', ...)
    """

    format: str
    columns: tuple[str, ...]  # readings, or positions of tracks
    time: str | None = None
    group: str | None = None
    label: str | None = None
    agent: str | None = None
    unit: str = "s"
    rate: float | None = None  # where it was given
    longest_gap: float | None = None

    @property
    def source(self) -> dict[str, str]:
        """What a model keeps."""
        told = {name: getattr(self, name) for name in ("time", "group", "label", "agent", "unit")}
        told |= {name: repr(float(value)) for name in ("rate", "longest_gap") if (value := getattr(self, name))}
        kept = {name: value for name, value in told.items() if value is not None}
        return {"format": self.format, "columns": json.dumps(self.columns), **kept}

    @classmethod
    def of_source(cls, source: Mapping[str, str]) -> Roles | None:
        """What a model has kept; None for a model that reads no tables."""
        if source.get("format") not in FORMATS:
            return None
        try:
            told: dict[str, Any] = {**source, "columns": tuple(map(str, json.loads(source["columns"])))}
            told |= {name: float(source[name]) for name in ("rate", "longest_gap") if name in source}
            return cls(**told)
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(f"the model's words on the table of its training cannot be read: {error}.") from None

    @property
    def words(self) -> str:
        """The same for people."""
        what = "tracks, positions " if self.format == TRACKS else "a table, columns "
        listed = ", ".join(self.columns[:12]) + (", …" if len(self.columns) > 12 else "")
        others = [(name, getattr(self, name)) for name in ("agent", "time", "group", "label")]
        told = [f"{name} {value}" if name != value else name for name, value in others if value is not None]
        return what + "; ".join([listed, *told])
