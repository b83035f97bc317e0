"""From a table to a model: what is read, which features are made of it, and what is kept with the model.

- ``--features`` left out: the columns themselves are the features of a step.
- ``--features sensors``: rows are samples, and windows of them are measured (`SensorFeatures`); the model is a
  pipeline of these and a chain.
- ``--features FILE`` or the name of a specification: tracks, and the templates of the feature language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import typer

from crfield.cli.messages import note
from crfield.cli.options import SPECIFICATIONS, Features
from crfield.cli.reading import Format
from crfield.cli.sensors.options import Recorded, listed
from crfield.cli.sensors.recordings import Reader, Recordings, read_tables, readable_columns
from crfield.cli.sensors.roles import TABLE, TRACKS, Roles
from crfield.cli.sources import Chosen
from crfield.errors import InputError, TemplateError
from crfield.storage.files import name_of, read_text

ENDINGS = (".csv", ".parquet")


def reads_table(data: Sequence[str], files: Chosen, table: Recorded) -> bool:
    """Whether the files are tables, by the options or by the name of the first; BadParameter where they disagree."""
    about_tables = [*table.given, *(["--features"] if _makes_features(files.features) else [])]
    if files.format in (Format.table, Format.tracks):
        found = True
    elif files.format is not Format.auto:
        found = False
    else:
        named = bool(data) and data[0].lower().removesuffix(".gz").endswith(ENDINGS)
        found = bool(about_tables) or (named and files.template is None and files.features is None)
    if not found and about_tables:
        raise typer.BadParameter(f"{about_tables[0]} is for tables: leave out --format {files.format}.")
    if found and (files.template is not None or files.features in (Features.template, Features.text)):
        raise typer.BadParameter("a table of numbers has no words: leave out --template and --features of words.")
    return found


def _makes_features(features: str | None) -> bool:
    return features is not None and features not in (Features.template, Features.text)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled recordings, and what makes features of them."""

    recordings: Recordings
    roles: Roles
    windows: Any = None  # SensorFeatures, fitted
    catalogue: Any = None  # of the feature language

    @cached_property
    def X(self) -> Any:
        """What a chain is fitted to: columns of steps, or tracks."""
        return self.recordings.X if self.windows is None else self.windows.transform(self.recordings.X)

    @cached_property
    def y(self) -> list[np.ndarray]:
        """A label, or None, for each step."""
        y = self.recordings.y
        assert y is not None  # the reader has seen to it
        return y if self.windows is None else self.windows.labels(y)

    @property
    def names(self) -> list[str]:
        """Names of the columns of a step."""
        return list(self.roles.columns if self.windows is None else self.windows.get_feature_names_out())

    @property
    def words(self) -> str:
        """What the features are, for people."""
        if self.windows is not None:
            return f"{len(self.names):,} measures of windows of {', '.join(self.roles.columns)}"
        if self.catalogue is not None:
            words = self.catalogue.words
            return f"{self.catalogue.n_candidates:,} features of {', '.join(words.agents)}"
        return f"columns {', '.join(self.names[:12])}{', …' if len(self.names) > 12 else ''}"

    def finished(self, model: Any) -> Any:
        """The trained model with what reads its tables, ready to be saved."""
        from crfield.estimators.base.fitted import fitted_of
        from crfield.estimators.base.pipeline import Pipeline

        model.source_ = self.roles.source
        encoder: Any = getattr(fitted_of(model), "encoder", None)
        if getattr(encoder, "kind", "") == "matrix" and encoder.feature_names is None:
            encoder.feature_names = self.names  # for whoever asks what was learnt
        return model if self.windows is None else Pipeline([("windows", self.windows), ("model", model)])

    def read(self, source: str) -> tuple[Any, list[np.ndarray]]:
        """X and y of another file, read as those of training."""
        agents = None if self.catalogue is None else self.catalogue.words.agents
        reader = Reader(
            self.roles,
            sampled=self.windows is not None,
            rate=None if self.windows is None else self.windows.rate,
            agents=agents,
            lenient=True,
        )
        other = replace(self, recordings=reader.read(read_tables([source])))
        return other.X, other.y


def read_labelled(data: Sequence[str], files: Chosen, table: Recorded, *, quiet: bool) -> Labelled:
    """The labelled recordings of some tables, with the features that were asked for; a note says what is what."""
    spec = files.features if _makes_features(files.features) and files.features is not Features.sensors else None
    tracks = spec is not None or files.format is Format.tracks or table.agent is not None
    _refuse_idle(table, tracks=tracks, windows=files.features is Features.sensors)
    if tracks and spec is None:
        raise typer.BadParameter(
            f"tracks need features: --features {', '.join(SPECIFICATIONS)}, or a file of the feature language."
        )
    specification = None if spec is None else _specification(spec)
    roles = Roles(
        TRACKS if tracks else TABLE,
        (),
        time=table.time or ("time" if tracks else None),
        group=table.group,
        label=files.label or "label",
        agent=(table.agent or "agent") if tracks else None,
        unit=table.unit,
        rate=table.rate,
        longest_gap=table.longest_gap,
    )
    tables = read_tables(data)
    if tracks:
        chosen = tuple(tables[0].column(name) for name in listed(table.position) or ("x", "y"))
        roles = replace(roles, columns=chosen)
    else:
        roles = readable_columns(tables[0], roles, listed(files.columns))
    sampled = files.features is Features.sensors
    reader = Reader(roles, only=_names(table.only), sampled=sampled, rate=table.rate)
    if specification is not None:
        reader = replace(reader, agents=_agents(tables, roles, table))
    recordings = reader.read(tables)
    labels = sorted({str(label) for own in recordings.y or () for label in own.tolist() if label is not None})
    if not labels:
        raise tables[0].fault(f"the column {roles.label!r} holds no label.")
    found = Labelled(recordings, roles)
    if sampled:
        found = replace(found, windows=_windows(recordings, roles, table))
    elif specification is not None:
        found = replace(found, catalogue=_expanded(specification, recordings, labels, table))
    note(f"reading {', '.join(str(own.file) for own in tables)} as {roles.words}", quiet=quiet)
    return found


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(listed(text) or ())


def _refuse_idle(table: Recorded, *, tracks: bool, windows: bool) -> None:
    """BadParameter for options that would be of no use."""
    of_tracks = [name for name in ("--agent", "--position", "--team", "--objects") if name in table.given]
    of_windows = [f"--{name}" for name in ("window", "hop", "measures", "contexts", "causal")]
    idle = [name for name in of_windows if name in table.given]
    if of_tracks and not tracks:
        raise typer.BadParameter(f"{of_tracks[0]} is for tracks: name the column of agents, --agent.")
    if idle and not windows:
        raise typer.BadParameter(f"{idle[0]} goes with --features sensors.")
    if tracks and windows:
        raise typer.BadParameter("--features sensors measures columns, and tracks have positions: leave one out.")
    if "--rate" in table.given and not (tracks or windows):
        raise typer.BadParameter("--rate is for tracks and for --features sensors: a row of a plain table is a step.")
    if "--longest-gap" in table.given and not tracks and table.time is None:
        raise typer.BadParameter("--longest-gap needs times: name their column, --time.")


def _specification(name: str) -> Any:
    """The specification of a file, or one that has a name."""
    from crfield.features.relational import Specification, examples

    if isinstance(name, Features):
        return Specification.parse(getattr(examples, name.name.upper()))
    try:
        return Specification.parse(read_text(name))
    except TemplateError as error:
        raise TemplateError(f"{name_of(name)}: {error}") from None


def _agents(tables: Sequence[Any], roles: Roles, table: Recorded) -> tuple[str, ...]:
    """Everybody in the tables: agents in the order in which they come, objects behind them."""
    column = str(roles.agent)
    everybody = dict.fromkeys(str(own) for each in tables for own in each.owners(each.column(column)))
    things = listed(table.objects) or []
    strange = [name for name in [*things, *(m for own in table.teams.values() for m in own)] if name not in everybody]
    if strange:
        raise InputError(
            f"--team and --objects must name agents of the column {column!r}, {', '.join(everybody)}; got "
            f"{strange[0]!r}."
        )
    return (*(name for name in everybody if name not in things), *things)


def _expanded(specification: Any, recordings: Recordings, labels: Sequence[str], table: Recorded) -> Any:
    tracks, things = recordings.X, listed(table.objects) or []
    agents = [name for name in tracks.agents if name not in things]
    return specification.expand(
        labels=labels, agents=agents, teams=table.teams, objects=things, axes=["x", "y", "z"][: len(tracks.axes)]
    )


def _windows(recordings: Recordings, roles: Roles, table: Recorded) -> Any:
    from crfield.features.sensors.transformer import SensorFeatures

    features = SensorFeatures(rate=recordings.rate or 1.0, axes=roles.columns, **table.windows).fit(recordings.X)
    if not any(len(own) for own in features.labels(recordings.y)):
        longest = max(len(own) for own in recordings.X) / features.rate
        raise InputError(
            f"the recordings are shorter than a step of {features.hop:g} s (the longest has {longest:.4g} s at "
            f"{features.rate:.6g} samples a second). Say --hop, or --rate if the clock is wrong."
        )
    return features
