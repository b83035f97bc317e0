"""``crfield train``: labelled files in, a model file out.

Column files and CoNLL-U go through a CRF++ template or text features; CRFsuite's files bring their features along.
Ctrl-C ends training, not the command: the weights so far are saved, and the exit code says that it was cut short.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import crfield
from crfield.cli import reading
from crfield.cli.facts import model_facts, model_lines
from crfield.cli.messages import emit, listing, note, offered, on_terminal, one_of, say
from crfield.cli.paths import READS, WRITES
from crfield.cli.reading import Format
from crfield.cli.scores import Judgement, Scheme, judge
from crfield.cli.sources import (
    Chosen,
    ClustersOption,
    ColumnsOption,
    FeaturesOption,
    LabelOption,
    LexiconOption,
    Training,
    read_training,
)
from crfield.core.constraints import SCHEMES as RULES_OF
from crfield.features.detect import encoder_from_state
from crfield.features.templates.template import Template
from crfield.features.transformed import TransformedEncoder
from crfield.optimize.history import INTERRUPTED
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain.plan import OBJECTIVES, SOLVERS

_DATA, _MODEL, _SEARCH, _OUTPUT = "Data", "Model", "Training", "Output"


class FeaturePairs(StrEnum):
    """Which (feature, label) pairs have a weight."""

    observed = "observed"
    all = "all"


class TransitionPairs(StrEnum):
    """Which pairs of neighbouring labels have a weight."""

    observed = "observed"
    all = "all"
    none = "none"


class Decode(StrEnum):
    """What the model answers."""

    viterbi = "viterbi"
    marginal = "marginal"


def train(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA", help="Labelled files, plain or gzip; - for standard input."), READS
    ],
    *,
    model: Annotated[
        str,
        typer.Option("--model", "-m", metavar="FILE", help="The model file to write.", rich_help_panel=_DATA),
        WRITES,
    ],
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            "-t",
            metavar="FILE",
            help="CRF++ template for column files. Without one every column is read two steps either way.",
            rich_help_panel=_DATA,
        ),
        READS,
    ] = None,
    format: Annotated[
        Format,
        typer.Option(
            help=f"What the files hold: {', '.join(Format)} (looks at the first lines).",
            metavar="FORMAT",
            rich_help_panel=_DATA,
        ),
    ] = Format.auto,
    label_column: Annotated[
        int, typer.Option(metavar="N", help="Column of the labels, from 0; -1 is the last.", rich_help_panel=_DATA)
    ] = -1,
    features: FeaturesOption = None,
    lexicon: LexiconOption = None,
    clusters: ClustersOption = None,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    dev: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled file to score the model on.", rich_help_panel=_DATA),
        READS,
    ] = None,
    scheme: Annotated[
        Scheme,
        typer.Option(
            help=f"Tag scheme of the spans in the scores: {', '.join(Scheme)}.",
            metavar="SCHEME",
            rich_help_panel=_DATA,
        ),
    ] = Scheme.auto,
    l1: Annotated[
        float, typer.Option(min=0, metavar="X", help="Strength of the l1 penalty.", rich_help_panel=_MODEL)
    ] = 0.0,
    l2: Annotated[
        float,
        typer.Option(
            min=0, metavar="X", help="Strength of the l2 penalty (twice CRFsuite's c2).", rich_help_panel=_MODEL
        ),
    ] = 1.0,
    min_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Features seen less often are dropped.", rich_help_panel=_MODEL)
    ] = 1,
    feature_pairs: Annotated[
        FeaturePairs,
        typer.Option(
            help="Which (feature, label) pairs have a weight: observed or all.",
            metavar="PAIRS",
            rich_help_panel=_MODEL,
        ),
    ] = FeaturePairs.observed,
    transition_pairs: Annotated[
        TransitionPairs,
        typer.Option(
            help="Which label pairs have a weight: observed, all or none.",
            metavar="PAIRS",
            rich_help_panel=_MODEL,
        ),
    ] = TransitionPairs.observed,
    intercept: Annotated[bool, typer.Option(help="A score for each label.", rich_help_panel=_MODEL)] = True,
    boundaries: Annotated[
        bool, typer.Option(help="Scores for the first and the last label.", rich_help_panel=_MODEL)
    ] = True,
    decode: Annotated[
        Decode,
        typer.Option(
            help="Best labelling as a whole (viterbi), or best label of each step (marginal).",
            metavar="HOW",
            rich_help_panel=_MODEL,
        ),
    ] = Decode.viterbi,
    constraints: Annotated[
        str | None,
        typer.Option(
            help=f"Rules of a tag scheme that no labelling may break: {', '.join(RULES_OF)}.",
            autocompletion=offered(lambda: RULES_OF),
            metavar="SCHEME",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    order: Annotated[
        int, typer.Option(min=1, metavar="N", help="Labels that a label looks back at.", rich_help_panel=_MODEL)
    ] = 1,
    objective: Annotated[
        str,
        typer.Option(
            help=f"What is minimised: {', '.join(OBJECTIVES)}.",
            callback=lambda name: one_of(name, OBJECTIVES),
            autocompletion=offered(lambda: OBJECTIVES),
            metavar="NAME",
            rich_help_panel=_SEARCH,
        ),
    ] = "auto",
    solver: Annotated[
        str,
        typer.Option(
            help=f"Optimiser: {', '.join(SOLVERS)}.",
            callback=lambda name: one_of(name, SOLVERS),
            autocompletion=offered(lambda: SOLVERS),
            metavar="NAME",
            rich_help_panel=_SEARCH,
        ),
    ] = "auto",
    tol: Annotated[
        float,
        typer.Option(min=0, metavar="X", help="Stop this near the optimum (relative).", rich_help_panel=_SEARCH),
    ] = 1e-4,
    max_iter: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most steps of the optimiser.", rich_help_panel=_SEARCH)
    ] = 1000,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads.", show_default="all processors", metavar="N", rich_help_panel=_SEARCH),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the stochastic steps.", rich_help_panel=_SEARCH)
    ] = 0,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep the state of training here; the same command goes on from it. Removed at the end.",
            rich_help_panel=_SEARCH,
        ),
        WRITES,
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="End after N steps without a better likelihood of the --dev file, and keep the best weights.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    encoded: Annotated[
        bool,
        typer.Option("--encoded", help="DATA is a folder that crfield encode wrote.", rich_help_panel=_DATA),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only warnings and errors.", rich_help_panel=_OUTPUT)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Report as one JSON object.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Train a model on labelled sequences and write it to a file."""
    chosen = Chosen(template, format, label_column, features, lexicon or (), clusters, columns, label)
    if dev == "-" and "-" in data:
        raise typer.BadParameter("standard input ('-') can be read only once.")
    if patience is not None and dev is None:
        raise typer.BadParameter("--patience looks at the scores of a --dev file: name one.")
    if encoded and (len(data) != 1 or template is not None):
        raise typer.BadParameter(
            "--encoded takes one folder, with its template inside: leave out what else is named."
        )
    began = time.perf_counter()
    training: Training | None = None
    dataset: EncodedDataset | None = None
    reads: dict[str, Any] = {}
    if encoded:
        dataset = EncodedDataset(data[0])
        reads["template"] = None if dataset.template is None else Template(dataset.template)
        restored = encoder_from_state(*dataset.encoder_state)
        if isinstance(restored, TransformedEncoder):
            reads["features"] = restored.transformer
        source = chosen.source if columns or label or format is Format.conllu else {}
        counts = (len(dataset), dataset.n_steps)
    else:
        training = read_training(data, chosen)
        for line in training.notes:
            note(line, quiet=quiet)
        reads, source = training.options, training.source
        counts = (len(training.examples.y), training.examples.n_steps)
    read = time.perf_counter()
    crf = crfield.ChainCRF(
        l1=l1,
        l2=l2,
        **reads,
        min_count=min_count,
        feature_pairs=str(feature_pairs),
        transition_pairs=str(transition_pairs),
        intercept=intercept,
        boundaries=boundaries,
        constraints=constraints,
        order=order,
        objective=objective,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        decode=str(decode),
        n_jobs=-1 if threads is None else threads,
        random_state=seed,
        verbose=int(on_terminal() and not quiet),
        checkpoint=checkpoint,
        patience=5 if patience is None else patience,
    )
    # Read before the long part: a mistake in it should not wait until the end.
    crf.source_ = source
    check = None if dev is None else reading.read_for(crf, [dev], asked=Format.auto, label_column=label_column)
    held = None if check is None or patience is None else (check.X, check.y)
    if dataset is not None:
        crf.fit(dataset, validation=held)
    elif training is not None:
        examples = training.examples
        crf.fit(examples.X, examples.y, sample_weight=examples.weights, validation=held)
    trained = time.perf_counter()
    scores = None if check is None else judge(check.y, crf.predict(check.X), scheme=scheme)
    # Threads and progress belong to this run, not to the model.
    crf.set_params(n_jobs=None, verbose=0).save(model)
    if checkpoint is not None and crf.stop_reason_ != INTERRUPTED:
        Path(checkpoint).unlink(missing_ok=True)
    report = _Report(model, *counts, crf, scores, read - began, trained - read)
    if as_json:
        emit(report.to_dict())
    elif not quiet:
        say(report.text())
    if crf.stop_reason_ == INTERRUPTED:
        note(f"interrupted: the model so far was saved to {model}")
        raise typer.Exit(130)


@dataclass(frozen=True, eq=False)
class _Report:
    """What came of a training."""

    path: str
    n_sequences: int
    n_steps: int
    model: Any
    scores: Judgement | None
    reading: float  # seconds
    training: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.path,
            "sequences": self.n_sequences,
            "steps": self.n_steps,
            **model_facts(self.model),
            "seconds": {"reading": round(self.reading, 3), "training": round(self.training, 3)},
            "dev": None if self.scores is None else self.scores.to_dict(),
        }

    def text(self) -> str:
        """For people."""
        lines = {"data": f"{self.n_sequences:,} sequences, {self.n_steps:,} steps"}
        lines |= model_lines(self.model)
        lines["time"] = f"{self.reading:.1f} s reading, {self.training:.1f} s training"
        if self.scores is not None:
            lines["dev"] = self.scores.summary()
        lines["model"] = self.path
        return listing(lines)
