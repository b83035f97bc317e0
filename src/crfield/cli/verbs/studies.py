"""``crfield experiment`` and ``crfield reproduce``: the studies beside ``src``, run from a checkout.

Both run the same studies. ``experiment`` prints a table of the documentation, with a line for every claim, and writes
it to a folder if one is named; its exit code is 1 when a claim does not hold, so that a script notices. ``reproduce``
keeps a record: the table and a sentence on which claims hold go to standard output, and with charts, intervals,
seeds, versions and every single outcome to a folder. A paper's claim that does not hold here is a finding, not an
error, and the exit code is 0. A run that was interrupted goes on where it stood.

The studies belong to the project and not to what is installed: in a checkout or an unpacked source archive they are
the package ``studies`` at the root; an installed wheel has none and says so. A folder ``studies`` anywhere else, such
as the current one, is somebody else's and is never run.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

import crfield
from crfield.cli.messages import as_json, emit, listing, note, offered, one_of, say
from crfield.cli.options import Json, OneThread
from crfield.cli.paths import FILLS, READS
from crfield.core.checks import resolve_jobs
from crfield.errors import CrfieldError
from crfield.report.findings import Findings
from crfield.storage.files import write_text

_FAILED = 1
_NOTE_EVERY = 15.0  # seconds between two notes on how far it is


def study_module(name: str) -> Any:
    """A module of the studies, such as ``catalogue``.

    >>> study_module("catalogue").__name__
    'studies.catalogue'
    """
    package = Path(crfield.__file__).resolve().parent
    root = package.parents[1]
    if package.parent.name != "src" or not (root / "studies" / "catalogue.py").is_file():
        raise CrfieldError(
            "the studies are no part of the installed package: they are the folder 'studies' of crfield's source "
            "archive and repository, from which this command runs after `pip install --editable .`"
        )
    if str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))  # first, and seen by other processes too
    module = import_module(f"studies.{name}")
    if Path(str(module.__file__)).resolve().parent != root / "studies":
        raise CrfieldError(f"another package is called studies: {module.__file__}.")
    return module


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Which; --list names them.",
        show_default=False,
        autocompletion=offered(lambda: study_module("catalogue").CATALOGUE),
    ),
]
List = Annotated[bool, typer.Option("--list", help="List the experiments and end.")]
Data = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Folder with the corpora.", show_default="the variable CRFIELD_DATA"),
    READS,
]


def experiment(
    name: Name = None,
    *,
    show_list: List = False,
    data: Data = None,
    folds: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Folds to test on, such as 0,1,2.", show_default="those of the experiment"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same rows on less data; claims may not hold.")] = False,
    threads: OneThread = 1,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for NAME.txt and NAME.json too.", show_default="none"),
        FILLS,
    ] = None,
    json_out: Json = False,
) -> None:
    """Compute one of the tables of the documentation again, and say whether what it claims is so."""
    study = _study(name, show_list, data)
    settings = study.settings(quick=quick, folds=None if folds is None else _numbers(folds))
    outcomes = study_module("framework").run_study(study, settings, n_jobs=threads)
    found: Findings = study.found(settings, outcomes)
    if out is not None:
        _write(found, os.path.join(out, f"{name}-quick" if quick else f"{name}"), _command("experiment", name, quick))
    if json_out:
        emit(found.to_dict())
    else:
        say(found)
    if not quick and not all(claim.holds for claim in found.claims):
        raise typer.Exit(_FAILED)


def reproduce(
    name: Name = None,
    *,
    show_list: List = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The same rows on less data, within minutes; claims may not hold.")
    ] = False,
    repetitions: Annotated[
        int | None, typer.Option(min=1, metavar="R", help="How many seeds.", show_default="of the experiment")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="The first seed.", show_default="of the experiment")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="J", help="Processes; -1 for all processors.")] = 1,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder for table, charts and JSON."), FILLS] = "results",
    data: Data = None,
    json_out: Json = False,
) -> None:
    """Run an experiment of a paper again: table, charts, intervals, and which claims hold."""
    study = _study(name, show_list, data)
    settings = study.settings(quick=quick, repetitions=repetitions, seed=seed)
    records = study_module("record")
    os.makedirs(out, exist_ok=True)
    record = records.Record(out, f"{name}-quick" if quick else name, settings)
    known = record.known()
    if known:
        note(f"going on from {record.path('partial.json')}: {len(known)} cases are done")
    clock, began = _Clock(len(known)), _cpu()
    with record.keeping(known) as keep:

        def after(case: str, outcome: dict[str, Any], done: int, total: int) -> None:
            keep(case, outcome)
            clock.tick(done, total)

        outcomes = study_module("framework").run_study(
            study, settings, n_jobs=resolve_jobs(jobs), known=known, after=after
        )
    found: Findings = study.found(settings, outcomes)
    command = _command("reproduce", name, quick, repetitions, seed)
    paths = record.write(found, outcomes, command=command, cpu_seconds=_cpu() - began)
    if found.charts:
        try:
            paths.append(record.draw(found))
        except CrfieldError as error:
            note(f"not drawn: {error}")
    if json_out:
        emit(found.to_dict())
    else:
        say(f"{found}\n\n{records.summary(found)}")
    for path in paths:
        note(f"written: {path}")


def _study(name: str | None, show_list: bool, data: str | None) -> Any:
    """The study of that name, ready to find its data; or all their names, and the end."""
    catalogue = study_module("catalogue")
    names = list(catalogue.CATALOGUE)
    if show_list:
        say(listing({known: entry.summary for known, entry in catalogue.CATALOGUE.items()}))
        raise typer.Exit
    if name is None:
        raise typer.BadParameter(f"name an experiment: {', '.join(names)}.", param_hint="NAME")
    study = catalogue.study_named(one_of(name, names, what="experiment"))
    if data is not None:
        # Seen by other processes too; no machine's path enters the settings.
        os.environ["CRFIELD_DATA"] = data
    return study


def _write(found: Findings, path: str, command: str) -> None:
    """Text and JSON of what was found; the folder is made if there is none."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_text(f"{path}.txt", f"{found}\n")
    write_text(f"{path}.json", as_json({"command": command, **found.to_dict()}) + "\n")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"folds are integers with commas between them, got {text!r}.") from None


def _command(
    verb: str, name: str | None, quick: bool, repetitions: int | None = None, seed: int | None = None
) -> str:
    """The command that gives the same numbers again; processes and folders do not change them."""
    words = ["crfield", verb, str(name)]
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
