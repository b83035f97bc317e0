"""``crfield explain``: why a model labels as it does.

Without further options the features that matter most on the data are listed. With ``--sequence`` and ``--step`` (both
counted from 0) one label is taken apart: what spoke for it and what for the runner-up, and without which features it
would fall; with ``--sequence`` alone every step gets a line. ``--errors`` compares with the labels in the data and
groups what is wrong. Only that last one needs labels in the files.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

import crfield
from crfield.cli import options
from crfield.cli.messages import emit, say
from crfield.cli.model import WrongVerb, label_of, load_tagger
from crfield.cli.paths import READS
from crfield.cli.reading import Format, read_for, read_unlabelled
from crfield.errors import InputError
from crfield.report.alignment import pad, printable, shorten, width
from crfield.report.errors import ErrorReport, error_groups, step_text
from crfield.report.explain import Explanation, contribution_lines

_WIDEST = 24


def explain(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA", help="Files, plain or gzip; - for standard input."), READS
    ],
    *,
    model: options.ModelFile,
    sequence: Annotated[
        int | None, typer.Option(min=0, metavar="K", help="Explain the labels of this sequence, counted from 0.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, metavar="T", help="Only this step of it, in full.")] = None,
    label: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Ask about this label instead of the predicted one.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Compare with this label instead of the runner-up.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Group the errors on labelled data.")] = False,
    by_field: Annotated[
        bool, typer.Option("--by-field", help="Add up features whose names agree up to = or :.")
    ] = False,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many features, or groups of errors.")] = 20,
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="Examples of each group of errors.")] = 3,
    label_column: options.LabelColumnOption = -1,
    format: options.FormatOption = Format.auto,
    strict_features: options.StrictOption = False,
    columns: options.ColumnsOption = None,
    label_name: Annotated[
        str | None,
        options.data_option("Label column of CoNLL-U, for --errors.", metavar="NAME", show_default="the model's"),
    ] = None,
    threads: options.AllThreads = None,
    as_json: options.Json = False,
) -> None:
    """Tell why a model labels as it does: one step, a sequence, the errors, or the features that matter."""
    if errors and sequence is not None:
        raise typer.BadParameter("--errors and --sequence are two questions; ask one of them.")
    if sequence is None and (step, label, against) != (None, None, None):
        raise typer.BadParameter("--step, --label and --against need --sequence.")
    if step is None and (label, against) != (None, None):
        raise typer.BadParameter("--label and --against need --step.")
    crf, reads = load_tagger(model, "explain", threads=threads)
    if isinstance(crf, crfield.MEMM) and not errors:
        raise WrongVerb(f"{model} holds a MEMM, whose scores are normalised step by step: only --errors are for it.")
    if errors:
        labelled = read_for(reads, data, asked=format, label_column=label_column, columns=columns, label=label_name)
        report = error_groups(crf, labelled.X, labelled.y, n_examples=examples, n_groups=top)
        if as_json:
            emit({"steps": report.n_steps, "errors": report.n_errors, "groups": _groups(report)})
        else:
            say(report)
        return
    X = read_unlabelled(reads, data, asked=format, columns=columns)
    if sequence is None:
        found = crf.feature_importance(X, top, by="field" if by_field else "feature")
        if as_json:
            emit({"measure": found.measure, "features": found.rows()})
        else:
            say(found)
        return
    if sequence >= len(X):
        raise InputError(f"the data holds sequences 0 … {len(X) - 1}, got --sequence {sequence}.")
    x = X[sequence]
    if step is not None:
        told = crf.explain(x, step, label=label_of(crf, label), against=label_of(crf, against))
        emit({"sequence": sequence, **told.to_dict()}) if as_json else say(told)
        return
    each = [crf.explain(x, t, removals=0) for t in range(len(x))]
    if as_json:
        emit({"sequence": sequence, "steps": [one.to_dict() for one in each]})
    else:
        say(_lines(x, each))


def _groups(report: ErrorReport) -> list[dict[str, Any]]:
    shown = report.example_rows()
    return [
        {**row, "examples": [e for e in shown if (e["gold"], e["predicted"]) == (row["gold"], row["predicted"])]}
        for row in report.rows()
    ]


def _lines(x: Any, each: list[Explanation]) -> str:
    """A line for each step: its text, label and runner-up, the margin, and what spoke most for it."""
    rows = []
    for one in each:
        text, label = step_text(x, one.step), shorten(printable(one.label), _WIDEST)
        best = next((c for c in one.contributions if c.amount > 0), None)
        rows.append(
            (
                str(one.step),
                shorten(printable(text), _WIDEST),
                label,
                "" if one.other is None else f"not {shorten(printable(one.other), _WIDEST)}",
                f"{one.margin:.2f}",
                "" if best is None else contribution_lines([best])[0],
            )
        )
    wide = [max(width(row[k]) for row in rows) for k in range(5)]
    right = (True, False, False, False, True)
    return "\n".join(
        "  ".join([*(pad(row[k], wide[k], right=right[k]) for k in range(5)), row[5]]).rstrip() for row in rows
    )
