"""``crfield evaluate``: how good a model's labels are on labelled data, or those of a file that was tagged already.

A tagged file has gold and predicted labels in its last two columns, as for conlleval; so the output of any tagger
can be judged.
"""

from __future__ import annotations

from typing import Annotated

import typer

from crfield.cli import reading
from crfield.cli.messages import emit, say
from crfield.cli.paths import READS
from crfield.cli.reading import Format, Text
from crfield.cli.scores import Judgement, Scheme, judge
from crfield.cli.sources import ColumnsOption, LabelOption
from crfield.errors import FormatError


def evaluate(
    data: Annotated[
        list[str] | None, typer.Argument(metavar="DATA", help="Labelled files; - for standard input."), READS
    ] = None,
    *,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="FILE", help="The model file."), READS] = None,
    predicted: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead of model and data: a file with gold and predicted label in its last two columns.",
        ),
        READS,
    ] = None,
    scheme: Annotated[
        Scheme,
        typer.Option(
            metavar="SCHEME",
            help=f"Tag scheme of the spans: {', '.join(Scheme)}; auto looks at the labels, none scores no spans.",
        ),
    ] = Scheme.auto,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Count only spans whose tags keep to the scheme, as seqeval's strict mode."),
    ] = False,
    format: Annotated[
        Format, typer.Option(metavar="FORMAT", help=f"What the files hold: {', '.join(Format)} (the model knows).")
    ] = Format.auto,
    label_column: Annotated[
        int, typer.Option(metavar="N", help="Column of the labels, from 0; -1 is the last.")
    ] = -1,
    strict_features: Annotated[
        bool,
        typer.Option("--strict-features", help="An error, not a warning, where most steps have no known feature."),
    ] = False,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads.", show_default="all processors", metavar="N")
    ] = None,
    with_confusion: Annotated[
        bool, typer.Option("--confusion", help="Also show which label is taken for which.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one JSON object.")] = False,
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
        crf = reading.load_tagger(model, threads=threads)
        examples = reading.read_for(crf, data, asked=format, label_column=label_column, columns=columns, label=label)
        judgement = judge(examples.y, crf.predict(examples.X), scheme=scheme, mode=mode)
    if as_json:
        emit(judgement.to_dict(with_confusion=with_confusion))
    else:
        say(judgement.text(with_confusion=with_confusion))


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
