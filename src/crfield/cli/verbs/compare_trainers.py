"""``crfield compare-trainers``: one data set, several trainers; which is how good how soon?

Files are read as ``crfield train`` reads them; without ``--dev`` one sequence in five is held out. ``--demo`` takes
generated ingredient phrases instead.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

import crfield
from crfield.cli import options, reading
from crfield.cli.messages import emit, note, say
from crfield.cli.paths import READS
from crfield.cli.pictures import PlotOption, check_picture, draw
from crfield.cli.scores import Scheme, judge
from crfield.cli.sources import Chosen, Files, read_training
from crfield.estimators.base.sequences import taken
from crfield.estimators.chain.early_stopping import split_sequences
from crfield.estimators.tuning.compare_trainers import compare_trainers as compare
from crfield.report.comparisons.trainers import TrainerRow
from crfield.report.displays.trainers import plot_trainers
from crfield.training.chain.plan import TRAINERS

_HELD_OUT = 0.2


def compare_trainers(
    data: options.LabelledFilesOrNone = None,
    *,
    demo: Annotated[bool, typer.Option("--demo", help="Instead of files: generated ingredient phrases.")] = False,
    phrases: Annotated[int, typer.Option(min=20, metavar="N", help="How many of them.")] = 2_000,
    trainers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help=f"Solvers, or solver:objective: {', '.join(TRAINERS)}.",
            show_default="all solvers",
        ),
    ] = None,
    files: Files,
    dev: Annotated[
        str | None,
        options.data_option("Labelled file to score on.", metavar="FILE", show_default="one sequence in five"),
        READS,
    ] = None,
    scheme: options.SchemeOption = Scheme.auto,
    chain: Annotated[dict[str, Any], options.chain_parameters("l1", "l2", "tol", max_iter=500)],
    time_limit: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="End a trainer after so much CPU time.")
    ] = 30.0,
    plot: PlotOption = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Times in the table as multiples of the first trainer's.")
    ] = False,
    threads: options.OneThread = 1,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train by several solvers and compare objective and held-out score against CPU time.

    All are measured by the same penalised likelihood and the same held-out sequences, whatever they minimise.
    """
    check_picture(plot)
    if demo and (data or dev is not None or files.template is not None):
        raise typer.BadParameter("--demo stands alone: leave out the files.")
    if not demo and not data:
        raise typer.BadParameter("give labelled files, or --demo.")
    chosen = None if trainers is None else [name.strip() for name in trainers.split(",") if name.strip()]
    parameters = {**chain, "n_jobs": threads, "random_state": seed}
    X, y, weight, X_test, y_test = _data(data or [], dev, files, phrases, seed, parameters, quiet)
    named = judge(y_test, y_test, scheme=scheme).scheme
    comparison = compare(
        X,
        y,
        X_test=X_test,
        y_test=y_test,
        trainers=chosen,
        scheme=named,
        time_limit=time_limit,
        sample_weight=weight,
        told=lambda row: note(_progress(row), quiet=quiet),
        **parameters,
    )
    if plot is not None:
        draw(plot_trainers(comparison), plot, quiet=quiet)
    if as_json:
        emit(comparison.to_dict())
    else:
        say(comparison.text(relative=relative))


def _data(
    files: list[str],
    dev: str | None,
    chosen: Chosen,
    phrases: int,
    seed: int,
    parameters: dict[str, Any],
    quiet: bool,
) -> tuple[Any, Any, np.ndarray | None, Any, Any]:
    """X, y and weights to train on, X and y to judge on; the template of column files joins the parameters."""
    weight: np.ndarray | None = None
    if not files:
        made = crfield.make_phrases(phrases, random_state=seed)
        X: Any = [crfield.phrase_features(tokens) for tokens in made.tokens]
        y: Any = made.labels
    else:
        training = read_training(files, chosen, quiet=quiet)
        X, y, weight = training.examples.X, training.examples.y, training.examples.weights
        parameters |= training.options
        if dev is not None:
            held = reading.read_for(training.reads, [dev], asked=chosen.format, label_column=chosen.label_column)
            return X, y, weight, held.X, held.y
    train, test = split_sequences(len(y), _HELD_OUT, np.random.default_rng(seed))
    weight = None if weight is None else weight[np.asarray(train)]
    return taken(X, train), taken(y, train), weight, taken(X, test), taken(y, test)


def _progress(row: TrainerRow) -> str:
    if not row.ran:
        return f"{row.name}: {row.reason}"
    return f"{row.name}: {row.n_iter} steps, {row.seconds:.2f} s, held-out {row.score:.4f}"
