"""``crfield simulate``: a game of robots, written as a table, and a page on which it can be watched.

Four formats, chosen by the ending of the file's name or by ``--format``:

- ``csv``: a line for each frame: time in seconds, label, x and y of every agent in millimetres; of soccer also the
  carrier and every robot's role;
- ``jsonl``: the same as one JSON object a line, positions as a list of pairs;
- ``npz``: NumPy arrays ``positions`` (T, R, 2), ``labels`` (T,), ``time`` (T,), ``agents``, ``field``, ``rate``, and
  ``carrier`` and ``roles`` of soccer;
- ``tracks``: CSV with a line for each frame and agent: game, time, agent, x, y, label, as ``crfield select`` reads
  it; there may be several games (``--games``). Of tag the label is the name of the seeker.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer

from crfield.cli.messages import note
from crfield.cli.options import Quiet, Seed
from crfield.cli.paths import WRITES
from crfield.report.replay import Replay
from crfield.simulate.soccer import SoccerGames, make_soccer
from crfield.simulate.tag import SCHEMES, TagGames, make_tag
from crfield.simulate.tag_vision import robot_vision
from crfield.storage.files import write_bytes, write_text

_SMOOTH = 30  # frames of a second that a replay of the command line shows


class World(StrEnum):
    """Worlds that can be played."""

    tag = "tag"
    soccer = "soccer"


class Table(StrEnum):
    """How a game is written."""

    csv = "csv"
    jsonl = "jsonl"
    npz = "npz"
    tracks = "tracks"


def simulate(
    world: Annotated[World, typer.Argument(metavar="WORLD", help=f"Which game: {', '.join(World)}.")],
    *,
    minutes: Annotated[float, typer.Option(min=0, metavar="M", help="How long.")] = 1.0,
    games: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="How many games of so many minutes; --format tracks holds several."),
    ] = 1,
    robots: Annotated[
        int | None,
        typer.Option(metavar="N", help="Robots; of soccer those of a team.", show_default="tag 3, soccer 5"),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(metavar="SCHEME", help=f"Targets in tag: {', '.join(SCHEMES)}.", show_default=SCHEMES[0]),
    ] = None,
    vision: Annotated[
        bool, typer.Option("--vision", help="Tag as cameras see it: noise, tracker, dropout, late labels.")
    ] = False,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Where to write; - is standard output."), WRITES
    ] = "-",
    format: Annotated[
        Table | None,
        typer.Option(
            metavar="FORMAT", help=f"One of {', '.join(Table)}.", show_default="by the name of the file, or csv"
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also write a page (HTML) on which the game can be watched."),
        WRITES,
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Let robots play tag or soccer, and write where they were and what was going on."""
    kind = format or _by_name(out)
    if world is not World.tag and (scheme is not None or vision):
        raise typer.BadParameter(f"{'--vision' if scheme is None else '--scheme'} belongs to the world tag.")
    if games > 1 and kind is not Table.tracks:
        raise typer.BadParameter(f"a {kind} file holds one game: leave out --games, or write --format tracks.")
    played: list[TagGames | SoccerGames] = []
    for own in range(seed, seed + games):
        if world is World.tag:
            game = make_tag(minutes, scheme=scheme or SCHEMES[0], n_robots=robots or 3, random_state=own)
            played.append(robot_vision(game, random_state=own) if vision else game)
        else:
            played.append(make_soccer(minutes, n_players=robots or 5, random_state=own))
    write_bytes(out, _tracks(played) if kind is Table.tracks else _written(played[0], kind))
    if replay is not None:
        every = max(round(played[0].rate / _SMOOTH), 1)
        write_text(replay, Replay.of(played[0], every=every, title=f"{world}, seed {seed}").html())
    for game_number, shown in enumerate(played):
        watch = f"; to watch: {replay}" if replay is not None and not game_number else ""
        note(f"{repr(shown)[1:-1]}{watch}", quiet=quiet)


def _by_name(path: str) -> Table:
    """The format that the ending of a name stands for; csv if it stands for none."""
    ending = path.lower().removesuffix(".gz").rpartition(".")[2]
    return Table(ending) if ending in tuple(Table) else Table.csv


def _written(game: TagGames | SoccerGames, kind: Table) -> bytes:
    if kind is Table.npz:
        stream = io.BytesIO()
        more: dict[str, Any] = {}
        if isinstance(game, SoccerGames):
            more = {"carrier": game.carrier, "roles": game.roles}
        np.savez_compressed(
            stream,
            positions=game.positions,
            labels=game.labels,
            time=np.arange(len(game)) / game.rate,
            agents=np.array(_agents(game)),
            field=np.array(game.field),
            rate=np.array(game.rate),
            **more,
        )
        return stream.getvalue()
    lines = _objects(game) if kind is Table.jsonl else _rows(game)
    return "".join(f"{line}\n" for line in lines).encode()


def _agents(game: TagGames | SoccerGames) -> list[str]:
    return game.agents if isinstance(game, SoccerGames) else [f"robot{r}" for r in range(game.n_robots)]


def _tracks(games: Sequence[TagGames | SoccerGames]) -> bytes:
    """A row for each frame and agent of each game."""
    lines = ["game,time,agent,x,y,label"]
    for number, game in enumerate(games):
        agents = _agents(game)
        for t, (label, places) in enumerate(zip(game.labels.tolist(), game.positions.tolist())):
            said = agents[label] if isinstance(game, TagGames) else label
            lines += [
                f"{number},{t / game.rate:.4f},{agent},{x:.3f},{y:.3f},{said}"
                for agent, (x, y) in zip(agents, places)
            ]
    return "".join(f"{line}\n" for line in lines).encode()


def _rows(game: TagGames | SoccerGames) -> Iterator[str]:
    """Lines of a CSV file."""
    agents = _agents(game)
    extra = ["carrier", *(f"{name}.role" for name in agents[:-1])] if isinstance(game, SoccerGames) else []
    yield ",".join(["time", "label", *extra, *(f"{name}.{axis}" for name in agents for axis in "xy")])
    for t, (label, places) in enumerate(
        zip(game.labels.tolist(), game.positions.reshape(len(game), 2 * game.positions.shape[1]).tolist())
    ):
        more = [str(game.carrier[t]), *game.roles[t].tolist()] if isinstance(game, SoccerGames) else []
        yield ",".join([f"{t / game.rate:.4f}", str(label), *more, *(f"{place:.3f}" for place in places)])


def _objects(game: TagGames | SoccerGames) -> Iterator[str]:
    """Lines of JSON."""
    places = np.round(game.positions, 3).tolist()
    for t, label in enumerate(game.labels.tolist()):
        told: dict[str, object] = {"time": round(t / game.rate, 4), "label": label, "positions": places[t]}
        if isinstance(game, SoccerGames):
            told |= {"carrier": int(game.carrier[t]), "roles": game.roles[t].tolist()}
        yield json.dumps(told)
