"""``crfield train``: labelled files in, a model file out.

Column files and CoNLL-U go through a CRF++ template or text features; CRFsuite's files bring their features along;
tables of numbers are columns as they are, windows of samples, or tracks by the feature language (`cli/sensors`).
Ctrl-C ends training, not the command: the weights so far are saved, and the exit code says that it was cut short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import crfield
from crfield.cli import options, reading
from crfield.cli.cluster import ClusterOption, WorkersOption, on_cluster
from crfield.cli.messages import emit, listing, note, on_terminal, say
from crfield.cli.paths import WRITES
from crfield.cli.reading import Format, Reads
from crfield.cli.scores import Scheme, judge
from crfield.cli.sensors.options import Table
from crfield.cli.sensors.training import Labelled, read_labelled, reads_table
from crfield.cli.sources import Chosen, Files, read_training
from crfield.estimators.base.facts import model_facts, model_lines
from crfield.features.detect import encoder_from_state
from crfield.features.templates.template import Template
from crfield.features.transformed import TransformedEncoder
from crfield.optimize.history import INTERRUPTED
from crfield.storage.encoded import EncodedDataset, is_dataset

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
    table: Table,
    dev: options.DevFile = None,
    scheme: options.SchemeOption = Scheme.auto,
    encoded: Annotated[
        bool,
        typer.Option(
            "--encoded",
            help="DATA is a folder that crfield encode wrote, which is also seen.",
            rich_help_panel=options.DATA,
        ),
    ] = False,
    no_packed: Annotated[
        bool,
        typer.Option(
            "--no-packed",
            help="With --encoded: keep no packed shards in the folder. Saves room, and takes longer.",
            rich_help_panel=options.DATA,
        ),
    ] = False,
    chain: Annotated[dict[str, Any], options.chain_parameters(*_MODEL, *_TRAINING, patience=None)],
    threads: options.AllThreads = None,
    cluster: ClusterOption = None,
    workers: WorkersOption = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model on labelled sequences and write it to a file."""
    if dev == "-" and "-" in data:
        raise typer.BadParameter("standard input ('-') can be read only once.")
    if "patience" in chain and dev is None:
        raise typer.BadParameter("--patience looks at the scores of a --dev file: name one.")
    encoded = encoded or (len(data) == 1 and is_dataset(data[0]))
    if encoded and (len(data) != 1 or files.template is not None):
        raise typer.BadParameter(
            "--encoded takes one folder, with its template inside: leave out what else is named."
        )
    if no_packed and not encoded:
        raise typer.BadParameter("--no-packed is for a folder that crfield encode wrote: name it with --encoded.")
    began = time.perf_counter()
    if reads_table(data, files, table):
        if encoded:
            raise typer.BadParameter("--encoded is for what crfield encode wrote: leave out what is about tables.")
        job = _of_table(read_labelled(data, files, table, quiet=quiet), chain)
    else:
        job = (
            _of_encoded(data[0], files, chain, not no_packed)
            if encoded
            else _of_text(data, files, chain, quiet=quiet)
        )
    read = time.perf_counter()
    crf = job.model.set_params(n_jobs=threads, random_state=seed, verbose=int(on_terminal() and not quiet))
    # Read before the long part: a mistake in it should not wait until the end.
    check = None if dev is None else job.held_out(dev)
    with on_cluster(cluster, workers, threads):
        crf.fit(**job.fitted, **({"validation": check} if "patience" in chain else {}))
    trained = time.perf_counter()
    scores = None if check is None else judge(check[1], crf.predict(check[0]), scheme=scheme)
    # Threads and progress belong to this run, not to the model.
    job.finished(crf.set_params(n_jobs=None, verbose=0)).save(model)
    if "checkpoint" in chain and crf.stop_reason_ != INTERRUPTED:
        Path(chain["checkpoint"]).unlink(missing_ok=True)
    if as_json:
        seconds = {"reading": round(read - began, 3), "training": round(trained - read, 3)}
        sizes = {"sequences": job.counts[0], "steps": job.counts[1]}
        facts = {"model": model, **sizes, **model_facts(crf), "seconds": seconds}
        emit({**facts, "dev": None if scores is None else scores.to_dict()})
    elif not quiet:
        lines = {"data": f"{job.counts[0]:,} sequences, {job.counts[1]:,} steps", **model_lines(crf)}
        lines["time"] = f"{read - began:.1f} s reading, {trained - read:.1f} s training"
        say(listing({**lines, **({} if scores is None else {"dev": scores.summary()}), "model": model}))
    if crf.stop_reason_ == INTERRUPTED:
        note(f"interrupted: the model so far was saved to {model}")
        raise typer.Exit(130)


@dataclass(frozen=True, eq=False)
class _Job:
    """What is to be done: the data of ``fit``, the model, and what makes it ready to be saved."""

    fitted: dict[str, Any]
    counts: tuple[int, int]  # sequences, steps
    model: Any
    held_out: Callable[[str], tuple[Any, Any]]  # X and y of another file
    finished: Callable[[Any], Any] = lambda model: model


def _of_table(labelled: Labelled, chain: dict[str, Any]) -> _Job:
    model = crfield.ChainCRF(standardize=True, **chain) if labelled.catalogue is None else _of_tracks(labelled, chain)
    counts = (len(labelled.y), sum(map(len, labelled.y)))
    return _Job({"X": labelled.X, "y": labelled.y}, counts, model, labelled.read, labelled.finished)


def _of_tracks(labelled: Labelled, chain: dict[str, Any]) -> Any:
    """A model of every feature that the templates stand for; which are worth having is asked of ``select``."""
    declared = crfield.ChainCRF().get_params()
    other = [name for name, value in chain.items() if name not in ("l2", "decode") and value != declared[name]]
    if other:
        raise typer.BadParameter(f"--{other[0].replace('_', '-')} is for columns: tracks have --l2 and --decode.")
    return crfield.SelectedCRF(
        features=labelled.catalogue, method="all", validation=None, refit_l2=chain["l2"], decode=chain["decode"]
    )


def _of_text(data: Sequence[str], files: Chosen, chain: dict[str, Any], *, quiet: bool) -> _Job:
    training = read_training(data, files, quiet=quiet)
    found = training.examples
    fitted = {"X": found.X, "y": found.y, "sample_weight": found.weights}
    held_out = _reader(training.reads, files)
    return _Job(fitted, (len(found.y), found.n_steps), _chain(training.options, training.source, chain), held_out)


def _of_encoded(folder: str, files: Chosen, chain: dict[str, Any], packed: bool) -> _Job:
    dataset = EncodedDataset(folder, packed=None if packed else False)
    options = _options_of(dataset)
    source = files.source if files.columns or files.label or files.format is Format.conllu else {}
    held_out = _reader(Reads.by(options, source), files)
    return _Job({"X": dataset}, (len(dataset), dataset.n_steps), _chain(options, source, chain), held_out)


def _chain(options: dict[str, Any], source: dict[str, str], chain: dict[str, Any]) -> Any:
    crf = crfield.ChainCRF(**options, **chain)
    crf.source_ = source
    return crf


def _reader(reads: Reads, files: Chosen) -> Callable[[str], tuple[Any, Any]]:
    def held_out(source: str) -> tuple[Any, Any]:
        found = reading.read_for(reads, [source], asked=Format.auto, label_column=files.label_column)
        return found.X, found.y

    return held_out


def _options_of(dataset: EncodedDataset) -> dict[str, Any]:
    """Parameters of a model that reads what the data set was encoded from."""
    parameters: dict[str, Any] = {"template": None if dataset.template is None else Template(dataset.template)}
    encoder = encoder_from_state(*dataset.encoder_state)
    return parameters | {"features": encoder.transformer} if isinstance(encoder, TransformedEncoder) else parameters
