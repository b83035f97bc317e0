"""``crfield choose``: tables of recordings in, one table of models, and the one that does best on held-out groups.

A file is a CSV table with a row for each step: a column of times, one of labels, perhaps one that says whose rows
they are, and numbers. Rows with one value of ``--group`` are one recording and one group; without it every file is.
The table goes to standard output; with ``--model`` what was chosen is trained on everything and written.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from crfield.cli import options
from crfield.cli.messages import emit, note, on_terminal, say
from crfield.cli.paths import READS, WRITES
from crfield.errors import InputError
from crfield.estimators.choice.best_chain import BestChain
from crfield.estimators.choice.sources import FAMILIES
from crfield.storage.datasets.recordings import read_recordings


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def choose(
    data: Annotated[
        list[str],
        typer.Argument(metavar="TABLE", help="CSV tables with a row for each step; - for standard input."),
        READS,
    ],
    *,
    label: Annotated[str, options.data_option("Column of labels; empty where nobody knows.", metavar="NAME")],
    group: Annotated[
        str | None,
        options.data_option("Column that says whose rows they are.", metavar="NAME", show_default="a file is one"),
    ] = None,
    time: Annotated[
        str | None, options.data_option("Column of times.", metavar="NAME", show_default="the first")
    ] = None,
    columns: Annotated[
        str | None, options.data_option("Columns of numbers.", metavar="A,B,…", show_default="all others")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="FILE",
            help="Write what was chosen.",
            show_default="none",
            rich_help_panel=options.DATA,
        ),
        WRITES,
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help=f"Families to try: {', '.join(FAMILIES)}.",
            show_default="all",
            rich_help_panel=options.TRAINING,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="CPU seconds, about; what would take longer is not run.",
            show_default="none",
            rich_help_panel=options.TRAINING,
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Folds, of whole groups.", rich_help_panel=options.TRAINING)
    ] = 3,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Try the reasonable models on held-out people, trials or places; print the table and write the best one."""
    named = _names(candidates)
    best = BestChain(
        candidates="all" if named is None else named,
        budget=budget,
        folds=folds,
        random_state=seed,
        verbose=int(on_terminal() and not quiet),
    )
    best.check()
    roles: dict[str, Any] = {"label": label, "recording": group, "columns": _names(columns)}
    frames = read_recordings(data, time=0 if time is None else time, **roles)
    if not frames:
        raise InputError("the tables hold no rows.")
    note(
        f"{len(frames)} recordings, {sum(map(len, frames)):,} steps of {len(frames[0].columns)} columns", quiet=quiet
    )
    best.fit(
        [frame.values for frame in frames],
        [[None] * len(frame) if frame.labels is None else frame.labels.tolist() for frame in frames],
        groups=[frame.name for frame in frames],
    )
    if model is not None:
        best.save(model)
        note(f"{best.table_.chosen} written to {model}", quiet=quiet)
    if as_json:
        emit({**best.table_.to_dict(), "model": model})
    else:
        say(best.table_)
