"""Options of the verbs that read tables: which column is what, and how windows are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from crfield.cli import options
from crfield.cli.messages import one_of
from crfield.data.tables import UNITS

_LIST = "A,B,…"


def listed(text: str | None) -> list[str] | None:
    """Names with commas between them.

    >>> listed("x, y"), listed(None)
    (['x', 'y'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _unit(name: str) -> str:
    return one_of(name, list(UNITS))


def _numbers(kind: type) -> Any:
    def read(text: str | None) -> str | None:
        try:
            good = all(kind(part) > 0 for part in listed(text) or ())
        except ValueError:
            good = False
        if not good:
            what = "whole numbers" if kind is int else "numbers"
            raise typer.BadParameter(f"expected {what} above 0 with commas between them, got {text!r}.")
        return text

    return read


TimeOption = Annotated[
    str | None, options.data_option("Column of the times of a table, numbers or ISO dates.", metavar="NAME")
]
GroupOption = Annotated[
    str | None,
    options.data_option(
        "Column that tells recordings of a table apart.", metavar="NAME", show_default="a file is a recording"
    ),
]
OnlyOption = Annotated[
    str | None, options.data_option("Read only these recordings of the --group column.", metavar=_LIST)
]


@dataclass(frozen=True)
class Recorded:
    """What the options say of a table to train on, beside ``--columns``, ``--label`` and ``--features``."""

    time: TimeOption = None
    unit: Annotated[
        str,
        options.data_option(
            f"Unit of times that are numbers: {', '.join(UNITS)}.",
            metavar="NAME",
            callback=_unit,
        ),
    ] = "s"
    group: GroupOption = None
    only: OnlyOption = None
    agent: Annotated[
        str | None,
        options.data_option("Tracks, a row for each time and agent: the column of agents.", metavar="NAME"),
    ] = None
    position: Annotated[
        str | None, options.data_option("Columns of positions of tracks.", metavar=_LIST, show_default="x,y")
    ] = None
    team: Annotated[
        list[str] | None,
        options.data_option("A team that templates speak of, us=ann,bob; may be given again.", metavar="TEXT"),
    ] = None
    objects: Annotated[
        str | None, options.data_option("Agents of the tracks that are objects: ball, ….", metavar=_LIST)
    ] = None
    rate: Annotated[
        float | None,
        options.data_option("Steps, or samples, a second.", min=1e-9, metavar="HZ", show_default="that of the clock"),
    ] = None
    longest_gap: Annotated[
        float | None,
        options.data_option(
            "Seconds without a row that end a recording.",
            min=1e-9,
            metavar="S",
            show_default="1 for tracks and windows",
        ),
    ] = None
    window: Annotated[
        str | None,
        options.data_option(
            "With --features sensors: seconds of the windows.",
            metavar="X,Y,…",
            callback=_numbers(float),
            show_default="1",
        ),
    ] = None
    hop: Annotated[
        float | None,
        options.data_option("With --features sensors: seconds of a step.", min=1e-9, metavar="S", show_default="1"),
    ] = None
    measures: Annotated[
        str | None,
        options.data_option("With --features sensors: what is measured.", metavar=_LIST, show_default="all"),
    ] = None
    contexts: Annotated[
        str | None,
        options.data_option(
            "With --features sensors: steps over which mean and deviation are added.",
            metavar="X,Y,…",
            callback=_numbers(int),
        ),
    ] = None
    causal: Annotated[
        bool,
        typer.Option(
            "--causal", help="With --features sensors: look at nothing later.", rich_help_panel=options.DATA
        ),
    ] = False

    def __post_init__(self) -> None:
        for team in self.team or ():
            name, sign, members = team.partition("=")
            if not (name.strip() and sign and listed(members)):
                raise typer.BadParameter(f"--team must be a name and its members, us=ann,bob, got {team!r}.")

    @property
    def given(self) -> list[str]:
        """What was said, as options."""
        told = [name for name in _NAMES if getattr(self, name) not in (None, False, [], "s")]
        return [f"--{name.replace('_', '-')}" for name in told]

    @property
    def teams(self) -> dict[str, list[str]]:
        """The members of each team."""
        parts = (team.partition("=") for team in self.team or ())
        return {name.strip(): listed(members) or [] for name, _, members in parts}

    @property
    def windows(self) -> dict[str, Any]:
        """Parameters of `SensorFeatures`."""
        numbers = {"spans": (self.window, float), "contexts": (self.contexts, int)}
        out: dict[str, Any] = {
            name: tuple(map(kind, listed(text) or ())) for name, (text, kind) in numbers.items() if text is not None
        }
        if self.hop is not None:
            out["hop"] = self.hop
        if self.measures is not None:
            out["measures"] = listed(self.measures)
        return out | ({"causal": True} if self.causal else {})


_WINDOWS = ("window", "hop", "measures", "contexts", "causal")
_TRACKS = ("agent", "position", "team", "objects")
_NAMES = ("time", "unit", "group", "only", "rate", "longest_gap", *_TRACKS, *_WINDOWS)

Table = Annotated[Recorded, options.Group.of(Recorded)]


@dataclass(frozen=True)
class Asked:
    """What may be said of a table for a trained model, which knows the rest."""

    time: TimeOption = None
    group: GroupOption = None
    only: OnlyOption = None

    @property
    def given(self) -> list[str]:
        """What was said."""
        return [f"--{name}" for name in ("time", "group", "only") if getattr(self, name) is not None]


Again = Annotated[Asked, options.Group.of(Asked)]
