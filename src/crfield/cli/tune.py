"""``crfield tune``: labelled files in, the penalties that do best on held-out folds, and a model with them.

Files are read as ``crfield train`` reads them. Folds are of whole sequences. The table goes to standard output; with
``--model`` the best penalties train on everything, and the model is written.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from crfield.cli.messages import emit, note, on_terminal, one_of, say
from crfield.cli.paths import READS, WRITES
from crfield.cli.reading import Format
from crfield.cli.sources import (
    Chosen,
    ClustersOption,
    ColumnsOption,
    FeaturesOption,
    LabelOption,
    LexiconOption,
    read_training,
)
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.training import SCORES
from crfield.estimators.tuning.chain_cv import L2S, ChainCRFCV

_L2 = ",".join(map("{:g}".format, L2S))


def _penalties(text: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or any(not 0 <= value < float("inf") for value in values):
        raise typer.BadParameter(f"expected numbers of at least 0 with commas between them, got {text!r}.")
    return values


def tune(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA", help="Labelled files, plain or gzip; - for standard input."), READS
    ],
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="FILE", help="Train with the best and write it.", show_default="none"),
        WRITES,
    ] = None,
    l1: Annotated[str, typer.Option(metavar="X,Y,…", help="Strengths of the l1 penalty to try.")] = "0",
    l2: Annotated[str, typer.Option(metavar="X,Y,…", help="Strengths of the l2 penalty to try.")] = _L2,
    folds: Annotated[int, typer.Option(min=2, metavar="N", help="Folds, of whole sequences.")] = 5,
    score: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"What decides: {', '.join(SCORES)}.", callback=lambda name: one_of(name, SCORES)
        ),
    ] = "f1",
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            "-t",
            metavar="FILE",
            help="CRF++ template for column files. Without one every column is read two steps either way.",
        ),
        READS,
    ] = None,
    format: Annotated[
        Format, typer.Option(metavar="FORMAT", help=f"What the files hold: {', '.join(Format)}.")
    ] = Format.auto,
    label_column: Annotated[
        int, typer.Option(metavar="N", help="Column of the labels, from 0; -1 is the last.")
    ] = -1,
    features: FeaturesOption = None,
    lexicon: LexiconOption = None,
    clusters: ClustersOption = None,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    constraints: Annotated[
        str | None, typer.Option(metavar="SCHEME", help="Tag scheme to keep: bio, iob1, bioes, bilou.")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, metavar="N", help="Features seen less often are dropped.")] = 1,
    tol: Annotated[float, typer.Option(min=0, metavar="X", help="Stop this near the optimum (relative).")] = 1e-4,
    max_iter: Annotated[int, typer.Option(min=1, metavar="N", help="Most steps of each training.")] = 1000,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Folds at a time.", show_default="all processors", metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the folds and of the stochastic steps.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the report, warnings and errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
) -> None:
    """Choose l1 and l2 by cross-validation over sequences; print the scores and write the best model."""
    chosen = Chosen(template, format, label_column, features, lexicon or (), clusters, columns, label)
    l1s, l2s = _penalties(l1), _penalties(l2)
    training = read_training(data, chosen)
    for line in training.notes:
        note(line, quiet=quiet)
    examples = training.examples
    chain = ChainCRF(
        **training.options,
        constraints=constraints,
        min_count=min_count,
        tol=tol,
        max_iter=max_iter,
        random_state=seed,
    )
    search = ChainCRFCV(
        chain,
        l1s=l1s,
        l2s=l2s,
        cv=folds,
        scoring=score,
        refit=model is not None,
        n_jobs=-1 if threads is None else threads,
        random_state=seed,
        verbose=int(on_terminal() and not quiet),
    ).fit(examples.X, examples.y, examples.weights)
    if model is not None:
        search._chain.source_ = training.source
        search.save(model)
        note(f"model of l1 {search.l1_:g}, l2 {search.l2_:g} written to {model}", quiet=quiet)
    if as_json:
        emit(_report(search, model, score))
    else:
        say(search.table())


def _report(search: ChainCRFCV, model: str | None, score: str) -> dict[str, Any]:
    return {
        "l1": search.l1_,
        "l2": search.l2_,
        "score": score,
        "best_score": search.best_score_,
        "folds": search.scores_.shape[-1],
        "rows": search.rows(),
        "model": model,
    }
