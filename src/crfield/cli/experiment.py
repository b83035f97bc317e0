"""``crfield experiment``: a table of the documentation, computed again.

What is found goes to standard output, with a line for every claim, and, if a folder is named, to it as text and as
JSON; a claim that does not hold is no error of the program, but the exit code is then 1, so that a script notices.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from crfield.cli.checkout import study_module
from crfield.cli.messages import as_json, emit, listing, offered, one_of, say
from crfield.cli.paths import FILLS, READS
from crfield.report.findings import Findings
from crfield.storage.files import write_text

_FAILED = 1


def _names() -> list[str]:
    return list(study_module("catalogue").EXPERIMENTS)


def experiment(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Which; --list names them.", show_default=False, autocompletion=offered(_names)
        ),
    ] = None,
    *,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and end.")] = False,
    data: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder with the corpora.", show_default="the variable CRFIELD_DATA"),
        READS,
    ] = None,
    folds: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Folds to test on, such as 0,1,2.", show_default="those of the experiment"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same rows on less data; claims may not hold.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads.", metavar="N")] = 1,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for NAME.txt and NAME.json too.", show_default="none"),
        FILLS,
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
) -> None:
    """Compute one of the tables of the documentation again, and say whether what it claims is so."""
    catalogue = study_module("catalogue")
    if show_list:
        say(listing({known: entry.summary for known, entry in catalogue.EXPERIMENTS.items()}))
        return
    if name is None:
        raise typer.BadParameter(f"name an experiment: {', '.join(_names())}.", param_hint="NAME")
    found: Findings = catalogue.experiment_named(one_of(name, _names(), what="experiment")).run(
        quick=quick,
        data=data or os.environ.get("CRFIELD_DATA") or None,
        n_jobs=threads,
        folds=None if folds is None else _numbers(folds),
    )
    if out is not None:
        _write(found, os.path.join(out, name + "-quick" * quick), f"crfield experiment {name}" + " --quick" * quick)
    if json_out:
        emit(found.to_dict())
    else:
        say(found)
    if not quick and not all(claim.holds for claim in found.claims):
        raise typer.Exit(_FAILED)


def _write(found: Findings, path: str, command: str) -> None:
    """Text and JSON of what was found; the folder is made if there is none."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_text(f"{path}.txt", f"{found}\n")
    write_text(f"{path}.json", as_json({"command": command, **found.to_dict()}) + "\n")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"folds are whole numbers with commas between them, got {text!r}.") from None
