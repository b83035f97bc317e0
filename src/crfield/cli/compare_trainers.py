"""``crfield compare-trainers``: one data set, several trainers; which is how good how soon?

Files are read as ``crfield train`` reads them; without ``--dev`` one sequence in five is held out. ``--demo`` takes
generated ingredient phrases instead.
"""

from __future__ import annotations

import io
import os
from typing import Annotated, Any

import numpy as np
import typer

import crfield
from crfield.cli import reading
from crfield.cli.messages import emit, note, say
from crfield.cli.paths import READS, WRITES
from crfield.cli.reading import Format
from crfield.cli.scores import Scheme, judge
from crfield.cli.sources import Chosen, ColumnsOption, FeaturesOption, LabelOption, read_training
from crfield.estimators.base.sequences import taken
from crfield.estimators.chain.early_stopping import split_sequences
from crfield.estimators.tuning.compare_trainers import compare_trainers as compare
from crfield.report.displays.trainers import plot_trainers
from crfield.report.trainer_comparison import TrainerRow
from crfield.storage.files import write_bytes
from crfield.training.chain.plan import TRAINERS

_PICTURES = ("png", "svg", "pdf")
_HELD_OUT = 0.2


def compare_trainers(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="Labelled files, plain or gzip; - for standard input."),
        READS,
    ] = None,
    *,
    demo: Annotated[bool, typer.Option("--demo", help="Instead of files: generated ingredient phrases.")] = False,
    phrases: Annotated[int, typer.Option(min=20, metavar="N", help="How many of them.")] = 2_000,
    dev: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled file to score on.", show_default="one sequence in five"),
        READS,
    ] = None,
    trainers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help=f"Solvers, or solver:objective: {', '.join(TRAINERS)}.",
            show_default="all solvers",
        ),
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", "-t", metavar="FILE", help="CRF++ template for column files."), READS
    ] = None,
    format: Annotated[
        Format, typer.Option(metavar="FORMAT", help=f"What the files hold: {', '.join(Format)}.")
    ] = Format.auto,
    label_column: Annotated[
        int, typer.Option(metavar="N", help="Column of the labels, from 0; -1 is the last.")
    ] = -1,
    features: FeaturesOption = None,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    scheme: Annotated[
        Scheme, typer.Option(metavar="SCHEME", help=f"Tag scheme of the spans to score: {', '.join(Scheme)}.")
    ] = Scheme.auto,
    l1: Annotated[float, typer.Option(min=0, metavar="X", help="Strength of the l1 penalty.")] = 0.0,
    l2: Annotated[float, typer.Option(min=0, metavar="X", help="Strength of the l2 penalty.")] = 1.0,
    tol: Annotated[float, typer.Option(min=0, metavar="X", help="Stop this near the optimum (relative).")] = 1e-4,
    max_iter: Annotated[int, typer.Option(min=1, metavar="N", help="Most steps or epochs of each.")] = 500,
    time_limit: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="End a trainer after so much CPU time.")
    ] = 30.0,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also draw it: .png, .svg or .pdf (needs matplotlib)."), WRITES
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Times in the table as multiples of the first trainer's.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads.", metavar="N")] = 1,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the split, the phrases and the trainers.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the report, warnings and errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
) -> None:
    """Train by several solvers and compare objective and held-out score against CPU time.

    All are measured by the same penalised likelihood and the same held-out sequences, whatever they minimise.
    """
    if plot is not None and os.path.splitext(plot)[1].removeprefix(".").lower() not in _PICTURES:
        raise typer.BadParameter(f"--plot draws .{', .'.join(_PICTURES)}; {plot!r} ends in none of them.")
    if demo and (data or dev is not None or template is not None):
        raise typer.BadParameter("--demo stands alone: leave out the files.")
    if not demo and not data:
        raise typer.BadParameter("give labelled files, or --demo.")
    chosen = None if trainers is None else [name.strip() for name in trainers.split(",") if name.strip()]
    options: dict[str, Any] = {
        "l1": l1,
        "l2": l2,
        "tol": tol,
        "max_iter": max_iter,
        "n_jobs": threads,
        "random_state": seed,
    }
    chosen_files = Chosen(template, format, label_column, features, columns=columns, label=label)
    X, y, weight, X_test, y_test = _data(data or [], dev, chosen_files, phrases, seed, options, quiet)
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
        **options,
    )
    if plot is not None:
        stream = io.BytesIO()
        plot_trainers(comparison).savefig(stream, format=os.path.splitext(plot)[1].removeprefix(".").lower())
        write_bytes(plot, stream.getvalue())
        note(f"drawn: {plot}", quiet=quiet)
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
    options: dict[str, Any],
    quiet: bool,
) -> tuple[Any, Any, np.ndarray | None, Any, Any]:
    """X, y and weights to train on, X and y to judge on; the template of column files joins the options."""
    weight: np.ndarray | None = None
    if not files:
        made = crfield.make_phrases(phrases, random_state=seed)
        X: Any = [crfield.phrase_features(tokens) for tokens in made.tokens]
        y: Any = made.labels
    else:
        training = read_training(files, chosen)
        for line in training.notes:
            note(line, quiet=quiet)
        X, y, weight = training.examples.X, training.examples.y, training.examples.weights
        options |= training.options
        if dev is not None:
            front = crfield.ChainCRF(**training.options)
            front.source_ = training.source
            held = reading.read_for(front, [dev], asked=chosen.format, label_column=chosen.label_column)
            return X, y, weight, held.X, held.y
    train, test = split_sequences(len(y), _HELD_OUT, np.random.default_rng(seed))
    weight = None if weight is None else weight[np.asarray(train)]
    return taken(X, train), taken(y, train), weight, taken(X, test), taken(y, test)


def _progress(row: TrainerRow) -> str:
    if not row.ran:
        return f"{row.name}: {row.reason}"
    return f"{row.name}: {row.n_iter} steps, {row.seconds:.2f} s, held-out {row.score:.4f}"
