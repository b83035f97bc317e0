"""``crfield evaluate``: how good a model's labels are on labelled data, or those of a file that was tagged already.

A tagged file has gold and predicted labels in its last two columns, as for conlleval; so the output of any tagger
can be judged. Of tables segments are scored too, and each recording for itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

import crfield
from crfield.cli import options, reading
from crfield.cli.messages import emit, say
from crfield.cli.model import as_tagger, roles_of
from crfield.cli.paths import READS
from crfield.cli.reading import Format, Text
from crfield.cli.scores import Judgement, Scheme, judge
from crfield.cli.sensors.answers import TableModel, recordings_text, refuse_table_options, refuse_text_options
from crfield.cli.sensors.options import Again
from crfield.errors import FormatError
from crfield.metrics.segment_scores import segment_report


def evaluate(
    data: options.LabelledFilesOrNone = None,
    *,
    model: options.ModelFileOrNone = None,
    predicted: Annotated[
        str | None,
        options.data_option(
            "Instead of model and data: a file with gold and predicted label in its last two columns.",
            metavar="FILE",
        ),
        READS,
    ] = None,
    scheme: options.SchemeOption = Scheme.auto,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Count only spans whose tags keep to the scheme, as seqeval's strict mode."),
    ] = False,
    format: options.FormatOption = Format.auto,
    label_column: options.LabelColumnOption = -1,
    strict_features: options.StrictFeatures = False,
    columns: options.ColumnsOption = None,
    label: options.LabelOption = None,
    table: Again,
    threads: options.AllThreads = None,
    with_confusion: Annotated[
        bool, typer.Option("--confusion", help="Also show which label is taken for which.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Score a model on labelled data, or a file that was tagged already.

    Where the labels are tags such as B-NP, spans are scored too, as conlleval counts them.
    """
    mode = "strict" if strict else "conlleval"
    if predicted is not None:
        if model is not None or data:
            raise typer.BadParameter("--predicted stands alone: leave out --model and the data files.")
        judgement = _judge_tagged(predicted, scheme, mode)
    elif model is None or not data:
        raise typer.BadParameter("give --model and labelled data, or --predicted and a tagged file.")
    else:
        found = crfield.load(model)
        roles = roles_of(found)
        if roles is not None:
            refuse_text_options(model, format, strict_features=strict_features)
            asked = TableModel.of(
                found, roles, data, table, columns=columns, label=label, labelled=True, threads=threads
            )
            _judge_table(asked, scheme, mode, with_confusion=with_confusion, as_json=as_json)
            return
        refuse_table_options(model, table)
        crf, reads = as_tagger(found, model, threads=threads)
        held = reading.read_for(reads, data, asked=format, label_column=label_column, columns=columns, label=label)
        judgement = judge(held.y, crf.predict(held.X), scheme=scheme, mode=mode)
    if as_json:
        emit(judgement.to_dict(with_confusion=with_confusion))
    else:
        say(judgement.text(with_confusion=with_confusion))


def _judge_table(asked: TableModel, scheme: Scheme, mode: str, *, with_confusion: bool, as_json: bool) -> None:
    predicted, gold = asked.model.predict(asked.X), asked.y
    judgement, segments = judge(gold, predicted, scheme=scheme, mode=mode), segment_report(gold, predicted)
    rows = asked.by_recording(predicted)
    if as_json:
        facts = judgement.to_dict(with_confusion=with_confusion)
        emit({**facts, "segments": segments.to_dict(), "recordings": rows})
    else:
        say("\n\n".join([judgement.text(with_confusion=with_confusion), str(segments), recordings_text(rows)]))


def _judge_tagged(source: str, scheme: Scheme, mode: str) -> Judgement:
    text = Text([source])
    tokens, _ = reading.read_tokens(text, label_column=-1)
    if tokens.width < 2:
        file, line = text.first_line()
        raise FormatError(
            "expected two columns or more, gold and predicted label last, got 1.",
            file=file,
            line=line,
        )
    return judge(tokens.column(-2), tokens.column(-1), scheme=scheme, mode=mode)
