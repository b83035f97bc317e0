"""``crfield select``: a labelled table in, a model of the few features that matter out, and what these are.

Candidates are the columns of the table, measures of its windows (``--features sensors``), or what the templates of a
specification stand for on tracks. Held-out recordings say how many are taken (`SelectedCRF`).
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from crfield.cli import options
from crfield.cli.messages import emit, listing, offered, on_terminal, one_of, say
from crfield.cli.paths import WRITES
from crfield.cli.scores import Scheme, judge
from crfield.cli.sensors.options import Table
from crfield.cli.sensors.training import read_labelled, reads_table
from crfield.cli.sources import Files


def _methods() -> list[str]:
    from crfield.selection.choice import METHODS  # costs more than --help may

    return ["auto", *METHODS]


def select(
    data: options.LabelledFiles,
    *,
    model: Annotated[
        str,
        typer.Option("--model", "-m", metavar="FILE", help="The model file to write.", rich_help_panel=options.DATA),
        WRITES,
    ],
    files: Files,
    table: Table,
    dev: options.DevFile = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How features are chosen: auto, grafting, relaxed, l1-path, gain, stability, wrapper, ….",
            callback=lambda name: one_of(name, _methods()),
            autocompletion=offered(_methods),
            rich_help_panel=options.MODEL,
        ),
    ] = "auto",
    max_features: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="At most so many.", show_default="by the method", rich_help_panel=options.MODEL
        ),
    ] = None,
    l2: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="X",
            help="Ridge of the last training.",
            show_default="by held-out data",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the chosen features to show.")] = 20,
    threads: options.AllThreads = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model that chooses its features out of many, and show which they are."""
    if not reads_table(data, files, table):
        raise typer.BadParameter("select reads tables: CSV or Parquet, --format table or tracks.")
    from crfield.estimators.selected.crf import SelectedCRF

    began = time.perf_counter()
    labelled = read_labelled(data, files, table, quiet=quiet)
    check = None if dev is None else labelled.read(dev)
    read = time.perf_counter()
    names: dict[str, Any] = {"feature_names": labelled.names} if labelled.catalogue is None else {}
    crf = SelectedCRF(
        features=labelled.catalogue,
        method=method,
        options=None if max_features is None else {"max_features": max_features},
        refit_l2="auto" if l2 is None else l2,
        **names,
        n_jobs=threads,
        random_state=seed,
        verbose=int(on_terminal() and not quiet),
    ).fit(labelled.X, labelled.y)
    trained = time.perf_counter()
    scores = None if check is None else judge(check[1], crf.predict(check[0]), scheme=Scheme.none)
    labelled.finished(crf.set_params(n_jobs=None, verbose=0)).save(model)
    steps = sum(map(len, labelled.y))
    if as_json:
        facts = {
            "model": model,
            "sequences": len(labelled.y),
            "steps": steps,
            "labels": crf.classes_.tolist(),
            "candidates": crf.n_candidates_,
            "choice": crf.choice_,
            "features": crf.features_.to_dicts(),
            "seconds": {"reading": round(read - began, 3), "training": round(trained - read, 3)},
            "dev": None if scores is None else scores.to_dict(),
        }
        emit(facts)
    elif not quiet:
        lines = {
            "data": f"{len(labelled.y):,} recordings, {steps:,} steps",
            "labels": f"{len(crf.classes_):,}: {' '.join(map(str, crf.classes_.tolist()))}",
            "of": labelled.words,
            "chosen": crf.choice_,
            "time": f"{read - began:.1f} s reading, {trained - read:.1f} s choosing and training",
        }
        say(listing({**lines, **({} if scores is None else {"dev": scores.summary()}), "model": model}))
        if top:
            say(f"\nstrongest of {len(crf.features_):,} features\n{crf.features_[:top]}")
