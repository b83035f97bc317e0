"""``crfield tune``: labelled files in, the penalties that do best on held-out folds, and a model with them.

Files are read as ``crfield train`` reads them. Folds are of whole sequences. The table goes to standard output; with
``--model`` the best penalties train on everything, and the model is written.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from crfield.cli import options
from crfield.cli.messages import emit, note, on_terminal, one_of, say
from crfield.cli.paths import WRITES
from crfield.cli.sources import Files, read_training
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.options import SCORES
from crfield.estimators.tuning.chain_cv import L2S, ChainCRFCV

_L2 = ",".join(map("{:g}".format, L2S))


def _penalties(text: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or any(not 0 <= value < float("inf") for value in values):
        raise typer.BadParameter(f"expected non-negative numbers with commas between them, got {text!r}.")
    return values


def _penalty(name: str) -> Any:
    return typer.Option(
        metavar="X,Y,…", help=f"Strengths of the {name} penalty to try.", rich_help_panel=options.MODEL
    )


def tune(
    data: options.LabelledFiles,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="FILE",
            help="Train with the best and write it.",
            show_default="none",
            rich_help_panel=options.DATA,
        ),
        WRITES,
    ] = None,
    files: Files,
    l1: Annotated[str, _penalty("l1")] = "0",
    l2: Annotated[str, _penalty("l2")] = _L2,
    chain: Annotated[dict[str, Any], options.chain_parameters("constraints", "min_count", "tol", "max_iter")],
    folds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Folds, of whole sequences.", rich_help_panel=options.TRAINING)
    ] = 5,
    score: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"What decides: {', '.join(SCORES)}.",
            callback=lambda name: one_of(name, SCORES),
            rich_help_panel=options.TRAINING,
        ),
    ] = "f1",
    threads: options.AllThreads = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Choose l1 and l2 by cross-validation over sequences; print the scores and write the best model."""
    l1s, l2s = _penalties(l1), _penalties(l2)
    training = read_training(data, files, quiet=quiet)
    examples = training.examples
    search = ChainCRFCV(
        ChainCRF(**training.options, **chain, random_state=seed),
        l1s=l1s,
        l2s=l2s,
        cv=folds,
        scoring=score,
        refit=model is not None,
        n_jobs=threads,
        random_state=seed,
        verbose=int(on_terminal() and not quiet),
    ).fit(examples.X, examples.y, examples.weights)
    if model is not None:
        search.best_estimator_.source_ = training.source
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
