r"""Formats of annotation tools: doccano, Label Studio, BRAT; texts and marked spans in and out.

    doccano         one JSON object a line: {"text": …, "label": [[first, last, label], …]}, or "entities" with
                    objects of start_offset, end_offset and label
    label_studio    one JSON list of tasks: {"data": {"text": …}, "annotations": [{"result": [{"value": {"start": …,
                    "end": …, "labels": […]}}, …]}]}
    brat            a text, and beside it lines T1⇥label first last⇥words

Of a task that was annotated more than once the first annotation that was not cancelled counts, and predictions where
there is none. Spans of BRAT in several pieces become one from their first to their last character; its relations,
events and notes are not read. What a tool keeps besides comes along in ``meta`` (its id, for instance) and is written
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from crfield.data.texts.documents import Document, TextSpan
from crfield.errors import FormatError, InputError

FORMATS = ("doccano", "label_studio", "brat")
_DEEPEST = "too deeply nested"


def parse_doccano(text: str, *, file: str | None = None) -> list[Document]:
    r"""Documents of doccano's JSON lines.

    >>> parse_doccano('{"id": 7, "text": "Ana vive", "label": [[0, 3, "PER"]]}')[0].spans
    (TextSpan(first=0, last=3, label='PER'),)
    """
    out = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            value = _loaded(line, file, number)
            if not isinstance(value, dict):
                raise FormatError(f"expected a JSON object, got {line[:40]!r}.", file=file, line=number)
            words = value.get("text", value.get("data"))
            found: Any = next(
                (value[key] for key in ("label", "labels", "entities") if value.get(key) is not None), []
            )
            spans = [_doccano_span(item, file, number) for item in _list(found, "spans", file, number)]
            rest = {k: v for k, v in value.items() if k not in ("text", "data", "label", "labels", "entities")}
            out.append(_document(words, spans, str(value["id"]) if "id" in value else None, rest, file, number))
    return out


def format_doccano(documents: Iterable[Document]) -> str:
    r"""JSON lines that doccano imports.

    >>> format_doccano([Document("Ana vive", (TextSpan(0, 3, "PER"),))])
    '{"text": "Ana vive", "label": [[0, 3, "PER"]]}\n'
    """
    lines = []
    for document in documents:
        value = {**document.meta, "text": document.text, "label": [list(span) for span in document.spans]}
        lines.append(json.dumps(value, ensure_ascii=False) + "\n")
    return "".join(lines)


def parse_label_studio(text: str, *, file: str | None = None) -> list[Document]:
    """Documents of a JSON export of Label Studio.

    >>> task = {"data": {"text": "Ana vive"}, "annotations": [{"result": [
    ...     {"type": "labels", "value": {"start": 0, "end": 3, "labels": ["PER"]}}]}]}
    >>> parse_label_studio(json.dumps([task]))[0].words
    ['Ana']
    """
    tasks = _loaded(text, file, None)
    out = []
    for number, task in enumerate(_list(tasks, "tasks", file, None)):
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            raise FormatError(f"task {number} has no 'data'. Export as JSON, not as JSON-MIN.", file=file)
        words = data.get("text", next((value for value in data.values() if isinstance(value, str)), None))
        made = [*_list(task.get("annotations") or [], "annotations", file, None)]
        made = [each for each in made if isinstance(each, dict) and not each.get("was_cancelled")]
        made = made or _list(task.get("predictions") or [], "predictions", file, None)
        found = made[0].get("result", []) if made and isinstance(made[0], dict) else []
        spans = []
        for item in _list(found, "result", file, None):
            value = item.get("value") if isinstance(item, dict) else None
            if isinstance(value, dict) and "start" in value and "end" in value and value.get("labels"):
                spans.append(_span(value["start"], value["end"], value["labels"][0], file, None))
        meta = {"id": task["id"]} if "id" in task else {}
        out.append(_document(words, spans, str(task["id"]) if "id" in task else None, meta, file, None))
    return out


def format_label_studio(documents: Iterable[Document], *, predictions: bool = False) -> str:
    """Tasks that Label Studio imports, with annotations or, for people to correct, predictions.

    >>> json.loads(format_label_studio([Document("Ana", (TextSpan(0, 3, "PER"),))], predictions=True))[0]["data"]
    {'text': 'Ana'}
    """
    tasks = []
    for document in documents:
        result = [
            {
                "from_name": "label",
                "to_name": "text",
                "type": "labels",
                "value": {"start": first, "end": last, "text": document.text[first:last], "labels": [label]},
            }
            for first, last, label in document.spans
        ]
        kind = "predictions" if predictions else "annotations"
        tasks.append({**document.meta, "data": {"text": document.text}, kind: [{"result": result}]})
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def parse_brat(text: str, notes: str, *, name: str | None = None, file: str | None = None) -> Document:
    r"""A text and its stand-off annotation (the ``.ann`` file).

    >>> parse_brat("Ana vive en Lima", "T1\tPER 0 3\tAna\nR1\tlives Arg1:T1\nT2\tLOC 12 16\tLima\n").words
    ['Ana', 'Lima']
    """
    spans = []
    for number, line in enumerate(notes.split("\n"), start=1):
        if not line.startswith("T"):
            continue
        parts = line.rstrip("\r").split("\t")
        label, _, where = parts[1].partition(" ") if len(parts) > 1 else ("", "", "")
        ends = where.replace(";", " ").split()
        if not label or len(ends) < 2 or not all(end.isdecimal() for end in ends):
            raise FormatError(f"expected 'T1⇥label first last⇥words', got {line[:60]!r}.", file=file, line=number)
        spans.append(_span(int(ends[0]), int(ends[-1]), label, file, number))
    return _document(text, spans, name, {}, file, None)


def format_brat(document: Document) -> str:
    r"""The ``.ann`` file of a document.

    >>> format_brat(Document("Ana vive", (TextSpan(0, 3, "PER"),)))
    'T1\tPER 0 3\tAna\n'
    """
    lines = []
    for number, (first, last, label) in enumerate(document.spans, start=1):
        if not label or any(sign.isspace() for sign in label):
            raise InputError(f"BRAT knows no labels with white space, got {label!r}. Rename it.")
        words = " ".join(document.text[first:last].split())
        lines.append(f"T{number}\t{label} {first} {last}\t{words}\n")
    return "".join(lines)


def _loaded(text: str, file: str | None, line: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = _DEEPEST if isinstance(error, RecursionError) else error
        raise FormatError(f"this is not JSON: {reason}.", file=file, line=line) from None


def _list(found: Any, what: str, file: str | None, line: int | None) -> list[Any]:
    if not isinstance(found, list):
        raise FormatError(f"expected a list of {what}, got {type(found).__name__}.", file=file, line=line)
    return found


def _doccano_span(item: Any, file: str | None, line: int) -> TextSpan:
    if isinstance(item, dict):
        return _span(item.get("start_offset"), item.get("end_offset"), item.get("label"), file, line)
    if isinstance(item, list) and len(item) == 3:
        return _span(item[0], item[1], item[2], file, line)
    raise FormatError(f"expected a span [first, last, label], got {str(item)[:40]}.", file=file, line=line)


def _span(first: Any, last: Any, label: Any, file: str | None, line: int | None) -> TextSpan:
    if type(first) is not int or type(last) is not int or not isinstance(label, str):
        raise FormatError(
            f"a span needs two whole numbers and a label, got {str((first, last, label))[:60]}.", file=file, line=line
        )
    return TextSpan(first, last, label)


def _document(
    text: Any, spans: list[TextSpan], name: str | None, meta: dict[str, Any], file: str | None, line: int | None
) -> Document:
    if not isinstance(text, str):
        raise FormatError(f"a document needs a text, got {str(text)[:40]}.", file=file, line=line)
    try:
        return Document(text, tuple(spans), name, meta)
    except InputError as error:
        raise FormatError(str(error), file=file, line=line) from None
