"""``crfield reproduce``: an experiment of a paper, run again with all its repetitions.

Table and claims go to standard output, with a sentence on which of them hold; the same, the charts and a JSON with
intervals, seeds, versions and every single outcome go to a folder. A paper's claim that does not hold here is a
finding, not an error: the exit code is 0. A run that was interrupted goes on where it stood.
"""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from crfield.cli.checkout import study_module
from crfield.cli.messages import emit, listing, note, offered, one_of, say
from crfield.cli.paths import FILLS, READS
from crfield.core.checks import resolve_jobs
from crfield.errors import CrfieldError

_NOTE_EVERY = 15.0  # seconds between two notes on how far it is


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Which; --list names them.",
            show_default=False,
            autocompletion=offered(lambda: study_module("record").study_names()),
        ),
    ] = None,
    *,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and end.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The same rows on less data, within two minutes; claims may not hold.")
    ] = False,
    repetitions: Annotated[
        int | None, typer.Option(min=1, metavar="R", help="How many seeds.", show_default="of the experiment")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="The first seed.", show_default="of the experiment")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="J", help="Processes; -1 for all processors.")] = 1,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder for table, charts and JSON."), FILLS] = "results",
    data: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder with the corpora.", show_default="the variable CRFIELD_DATA"),
        READS,
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
) -> None:
    """Run an experiment of a paper again: table, charts, intervals, and which claims hold."""
    framework, records = study_module("framework"), study_module("record")
    study_named, study_names, summary = records.study_named, records.study_names, records.summary
    if show_list:
        say(listing({known: study_named(known).summary for known in study_names()}))
        return
    if name is None:
        raise typer.BadParameter(f"name an experiment: {', '.join(study_names())}.", param_hint="NAME")
    study = study_named(one_of(name, list(study_names()), what="experiment"))
    settings = framework.settings_of(study, quick=quick, repetitions=repetitions, seed=seed)
    folder = data or os.environ.get("CRFIELD_DATA") or None
    if study.needs_data and folder is None:
        raise CrfieldError(
            f"{name} reads files: name the folder that holds them with --data FOLDER, or in the environment as "
            "CRFIELD_DATA."
        )
    os.makedirs(out, exist_ok=True)
    record = records.Record(out, f"{name}-quick" if quick else name, settings)
    known = record.known()
    if known:
        note(f"going on from {record.path('partial.json')}: {len(known)} cases are done")
    clock, began = _Clock(len(known)), _cpu()
    if folder is not None:
        # Seen by other processes too; no machine's path enters the settings.
        os.environ["CRFIELD_DATA"] = str(folder)
    with record.keeping(known) as keep:

        def after(case: str, outcome: dict[str, Any], done: int, total: int) -> None:
            keep(case, outcome)
            clock.tick(done, total)

        outcomes = framework.run_study(study, settings, n_jobs=resolve_jobs(jobs), known=known, after=after)
    found = study.report(settings, outcomes)
    command = _command(name, quick, repetitions, seed)
    paths = record.write(found, outcomes, command=command, cpu_seconds=_cpu() - began)
    if found.charts:
        try:
            paths.append(record.draw(found))
        except CrfieldError as error:
            note(f"not drawn: {error}")
    if as_json:
        emit(found.findings.to_dict())
    else:
        say(f"{found.findings}\n\n{summary(found.findings)}")
    for path in paths:
        note(f"written: {path}")


def _command(name: str, quick: bool, repetitions: int | None, seed: int | None) -> str:
    """The command that gives the same numbers again; processes and folders do not change them."""
    words = ["crfield", "reproduce", name]
    words += ["--quick"] if quick else []
    words += ["--repetitions", str(repetitions)] if repetitions is not None else []
    words += ["--seed", str(seed)] if seed is not None else []
    return " ".join(words)


def _cpu() -> float:
    """CPU seconds of this process and of those that it has started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class _Clock:
    """Notes now and then how far a run is and how long the rest may take."""

    def __init__(self, known: int) -> None:
        self._known = known
        self._began = self._noted = time.monotonic()

    def tick(self, done: int, total: int) -> None:
        """One more case is done."""
        now = time.monotonic()
        if now - self._noted < _NOTE_EVERY:
            return
        self._noted = now
        left = (now - self._began) / (done - self._known) * (total - done)
        note(f"{done} of {total} cases, about {_span(left)} left")


def _span(seconds: float) -> str:
    """A span of time for people.

    >>> _span(40), _span(200), _span(5000)
    ('40 s', '3 min', '1 h 23 min')
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
