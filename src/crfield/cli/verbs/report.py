"""``crfield report``: a model judged on labelled data, written as one page to look at, or as a model card.

The page is a single HTML file that asks nothing of the network; a name that ends in ``.md`` gives the card in
Markdown, ``-`` writes to standard output. Text files are read as ``crfield evaluate`` reads them, tables as
recordings.
"""

from __future__ import annotations

from typing import Annotated

import typer

import crfield
from crfield.cli import options, reading
from crfield.cli.messages import emit, note, say, size_of
from crfield.cli.model import as_tagger, roles_of
from crfield.cli.output import data_output
from crfield.cli.paths import WRITES
from crfield.cli.reading import Format
from crfield.cli.sensors.answers import TableModel, refuse_table_options, refuse_text_options
from crfield.cli.sensors.options import Again
from crfield.cli.sensors.roles import TRACKS
from crfield.report.page.model_report import ModelReport


def report(
    model: options.ModelArgument,
    data: options.LabelledFiles,
    *,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Page to write; .md is a model card, - standard output."),
        WRITES,
    ] = "report.html",
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Title of the page.", show_default="the kind of model")
    ] = None,
    shown: Annotated[
        int, typer.Option(min=0, metavar="N", help="Sequences to take apart, drawn by kind of error.")
    ] = 48,
    format: options.FormatOption = Format.auto,
    label_column: options.LabelColumnOption = -1,
    strict_features: options.StrictFeatures = False,
    columns: options.ColumnsOption = None,
    label: options.LabelOption = None,
    table: Again,
    threads: options.AllThreads = None,
    as_json: options.Json = False,
) -> None:
    """Judge a model on labelled data and write what it does, where it errs and why as one page to look at."""
    found = crfield.load(model)
    roles = roles_of(found)
    if roles is not None:
        refuse_text_options(model, format, strict_features=strict_features)
        asked = TableModel.of(found, roles, data, table, columns=columns, label=label, labelled=True, threads=threads)
        names = None if roles.format == TRACKS else roles.columns
        named = {"names": asked.recordings.names, "signal_names": names}
        made = asked.model.report(asked.X, asked.y, title=title, n_shown=shown, **named)
    else:
        refuse_table_options(model, table)
        crf, reads = as_tagger(found, model, threads=threads)
        held = reading.read_for(reads, data, asked=format, label_column=label_column, columns=columns, label=label)
        made = crf.report(held.X, held.y, title=title, n_shown=shown)
    text = (made.to_markdown() if output.endswith(".md") else made.html()).encode()
    with data_output(output) as stream:
        stream.write(text)
    if as_json:
        emit({"model": model, "output": output, "bytes": len(text), **_facts(made)})
    elif output == "-":
        note(made.headline)
    else:
        say(f"{made.headline}\n{output}, {size_of(len(text))}")


def _facts(made: ModelReport) -> dict[str, object]:
    judged = made.judged
    return {
        "sequences": len(judged.items),
        "steps": judged.n_judged,
        "accuracy": judged.scores.accuracy,
        "span_f1": None if made.spans is None else made.spans.f1,
        "errors": judged.n_wrong,
        "shown": len(made.items),
    }
