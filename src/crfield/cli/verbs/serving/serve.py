"""``crfield serve``: models behind an address of this machine, for programs and for people.

Every model file is served under its name without ending, and loaded again when it is replaced. The page at the
address shows labels with probabilities, what else they might be and why. ``--label`` adds one on which people label
the sequences that the model is least sure of, while it learns from them; their answers are kept in ``--store``, and
the same command goes on where it was ended.
"""

from __future__ import annotations

import logging
import os
from typing import Annotated, Any

import typer

from crfield.cli.messages import note, visible
from crfield.cli.options import DATA, OneThread, Quiet, data_option
from crfield.cli.paths import READS, WRITES
from crfield.cli.serving import labelled_data, manner_of, pool_of, score_of
from crfield.errors import InputError
from crfield.storage.files import read_text

_PACKAGES = ("starlette", "uvicorn", "anyio", "h11")


def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="Model files."), READS],
    *,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Where to listen; beyond this machine only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")] = 8765,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A file with the token that requests must bring.", show_default="CRFIELD_TOKEN"
        ),
        READS,
    ] = None,
    max_body: Annotated[
        float, typer.Option(help="The largest body of a request, in megabytes.", min=0.001, max=1024, metavar="MB")
    ] = 8.0,
    label: Annotated[
        str | None,
        data_option("Sequences to label on the page, as the model's own files are.", metavar="FILE"),
        READS,
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --label: where answers are kept (SQLite).", rich_help_panel=DATA),
        WRITES,
    ] = None,
    dev: Annotated[
        str | None,
        data_option("With --label: labelled data on which the learning model is scored.", metavar="FILE"),
        READS,
    ] = None,
    train: Annotated[
        str | None,
        data_option("With --label: the training data of the model, mixed into its lessons.", metavar="FILE"),
        READS,
    ] = None,
    learnt: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="With --label: the model that has learnt is kept here.", rich_help_panel=DATA
        ),
        WRITES,
    ] = None,
    threads: OneThread = 2,
    quiet: Quiet = False,
) -> None:
    """Serve models on this machine: an interface for programs, a page for people, labelling."""
    if (label is None) != (store is None):
        raise typer.BadParameter("--label names what to label and --store where answers are kept: name both.")
    if label is None and (dev, train, learnt) != (None, None, None):
        raise typer.BadParameter("--dev, --train and --learnt are about labelling: name --label and --store too.")
    try:
        from crfield.serve.app import Service
        from crfield.serve.gate import Rules, is_local
        from crfield.serve.models import Shelf
        from crfield.serve.server import bound, run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise InputError("serving needs starlette and uvicorn: pip install 'crfield[serve]'.") from None
    _log_to_stderr()
    token = read_text(token_file).strip() if token_file is not None else os.environ.get("CRFIELD_TOKEN") or None
    at = bound(host, port, token)
    shelf = Shelf(manner_of)
    for path in models:
        shelf.put(_name(path), path)
    rules = Rules(local=is_local(host), token=token, most_bytes=int(max_body * 1e6))
    service = Service(shelf, rules, threads=threads)
    page = ""
    if label is not None and store is not None:
        _add_labelling(service, label, store, dev=dev, train=train, learnt=learnt)
        page = "label"

    def ready(address: str) -> None:
        shown = f"{address}{page}" + ("#token=…" if token else "")
        note(f"serving {', '.join(shelf.places)} at {shown} (Ctrl-C ends it)", quiet=quiet)

    run(service, at, ready)


def _add_labelling(
    service: Any, label: str, store: str, *, dev: str | None, train: str | None, learnt: str | None
) -> None:
    """Labelling by the first of the models."""
    from crfield.serve.labelling.learner import Learner
    from crfield.serve.labelling.pool import HeldOut, Pool, digest_of
    from crfield.serve.labelling.routes import Labelling
    from crfield.storage.label_store import LabelStore

    place = service.shelf.first
    model, path = place.served.model, place.path
    X = pool_of(place.served, label)
    held_out, more = None, ()
    if dev is not None:
        found, gold = labelled_data(model, path, dev)
        known = set(place.served.labels)
        more = tuple(sorted({one for own in gold for one in own if one is not None and one not in known}, key=str))
        held_out = HeldOut(found, gold, *score_of(gold))
    training = None if train is None else labelled_data(model, path, train)
    pool = Pool(X, place, LabelStore(store, digest=digest_of(X)), more)
    learner = Learner(
        pool,
        held_out=held_out,
        training=training,
        learnt=None if learnt is None else lambda model: model.save(learnt),
    )
    Labelling(service, pool, learner).join()


def _name(path: str) -> str:
    return os.path.basename(path).partition(".")[0] or os.path.basename(path)


class _Notes(logging.Handler):
    def emit(self, record: Any) -> None:
        """Every line of the log as a note."""
        note(visible(self.format(record)))


def _log_to_stderr() -> None:
    log = logging.getLogger("crfield.serve")
    if not log.handlers:
        log.addHandler(_Notes())
    log.propagate = False
