"""``crfield train``: labelled files in, a model file out.

Column files and CoNLL-U go through a CRF++ template or text features; CRFsuite's files bring their features along.
Ctrl-C ends training, not the command: the weights so far are saved, and the exit code says that it was cut short.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

import crfield
from crfield.cli import options, reading
from crfield.cli.messages import emit, listing, note, on_terminal, say
from crfield.cli.model import model_facts, model_lines
from crfield.cli.paths import READS, WRITES
from crfield.cli.reading import Examples, Format, Reads
from crfield.cli.scores import Scheme, judge
from crfield.cli.sources import Files, read_training
from crfield.features.detect import encoder_from_state
from crfield.features.templates.template import Template
from crfield.features.transformed import TransformedEncoder
from crfield.optimize.history import INTERRUPTED
from crfield.storage.encoded import EncodedDataset

_MODEL = ("l1", "l2", "min_count", "feature_pairs", "transition_pairs", "intercept", "boundaries", "decode")
_TRAINING = ("constraints", "order", "objective", "solver", "tol", "max_iter", "checkpoint")


def train(
    data: options.LabelledFiles,
    *,
    model: Annotated[
        str,
        typer.Option("--model", "-m", metavar="FILE", help="The model file to write.", rich_help_panel=options.DATA),
        WRITES,
    ],
    files: Files,
    dev: Annotated[
        str | None, options.data_option("Labelled file to score the model on.", metavar="FILE"), READS
    ] = None,
    scheme: options.SchemeOption = Scheme.auto,
    encoded: Annotated[
        bool,
        typer.Option("--encoded", help="DATA is a folder that crfield encode wrote.", rich_help_panel=options.DATA),
    ] = False,
    chain: Annotated[dict[str, Any], options.chain_parameters(*_MODEL, *_TRAINING, patience=None)],
    threads: options.AllThreads = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model on labelled sequences and write it to a file."""
    if dev == "-" and "-" in data:
        raise typer.BadParameter("standard input ('-') can be read only once.")
    if "patience" in chain and dev is None:
        raise typer.BadParameter("--patience looks at the scores of a --dev file: name one.")
    if encoded and (len(data) != 1 or files.template is not None):
        raise typer.BadParameter(
            "--encoded takes one folder, with its template inside: leave out what else is named."
        )
    began = time.perf_counter()
    fitted: dict[str, Any]
    if encoded:
        dataset = EncodedDataset(data[0])
        parameters = _options_of(dataset)
        source = files.source if files.columns or files.label or files.format is Format.conllu else {}
        reads, fitted, counts = Reads.by(parameters, source), {"X": dataset}, (len(dataset), dataset.n_steps)
    else:
        training = read_training(data, files, quiet=quiet)
        parameters, source, reads, found = training.options, training.source, training.reads, training.examples
        fitted = {"X": found.X, "y": found.y, "sample_weight": found.weights}
        counts = (len(found.y), found.n_steps)
    read = time.perf_counter()
    crf = crfield.ChainCRF(
        **parameters, **chain, n_jobs=threads, random_state=seed, verbose=int(on_terminal() and not quiet)
    )
    crf.source_ = source
    # Read before the long part: a mistake in it should not wait until the end.
    check: Examples | None = None
    if dev is not None:
        check = reading.read_for(reads, [dev], asked=Format.auto, label_column=files.label_column)
    held = None if check is None or "patience" not in chain else (check.X, check.y)
    crf.fit(**fitted, validation=held)
    trained = time.perf_counter()
    scores = None if check is None else judge(check.y, crf.predict(check.X), scheme=scheme)
    # Threads and progress belong to this run, not to the model.
    crf.set_params(n_jobs=None, verbose=0).save(model)
    if "checkpoint" in chain and crf.stop_reason_ != INTERRUPTED:
        Path(chain["checkpoint"]).unlink(missing_ok=True)
    if as_json:
        seconds = {"reading": round(read - began, 3), "training": round(trained - read, 3)}
        facts = {"model": model, "sequences": counts[0], "steps": counts[1], **model_facts(crf), "seconds": seconds}
        emit({**facts, "dev": None if scores is None else scores.to_dict()})
    elif not quiet:
        lines = {"data": f"{counts[0]:,} sequences, {counts[1]:,} steps", **model_lines(crf)}
        lines["time"] = f"{read - began:.1f} s reading, {trained - read:.1f} s training"
        say(listing({**lines, **({} if scores is None else {"dev": scores.summary()}), "model": model}))
    if crf.stop_reason_ == INTERRUPTED:
        note(f"interrupted: the model so far was saved to {model}")
        raise typer.Exit(130)


def _options_of(dataset: EncodedDataset) -> dict[str, Any]:
    """Parameters of a model that reads what the data set was encoded from."""
    parameters: dict[str, Any] = {"template": None if dataset.template is None else Template(dataset.template)}
    encoder = encoder_from_state(*dataset.encoder_state)
    return parameters | {"features": encoder.transformer} if isinstance(encoder, TransformedEncoder) else parameters
