r"""``crfield tag``: unlabelled (or labelled) data in, the same with predicted labels out.

Columns come back as they are with the label behind the last column, in the manner of CRF++, so a file with gold
labels becomes one that ``crfield evaluate --predicted`` and conlleval read. Of CRFsuite's lines only the label they
began with is kept, ``gold<TAB>predicted``, as ``crfsuite tag -r`` does. With ``--marginals`` the probability of the
predicted label at its step follows in a column of its own.

With ``--n-best N`` every sequence is written N times, the best labelling first, each below a line
``# number probability`` as CRF++ writes it; with ``--spans`` there is one JSON line for each sequence instead, with
its spans and their probabilities.

With ``--output-folder`` each input becomes a file of its name there, and a file that is there already is left as it
is: the same command goes on where it was broken off. A file that cannot be read or labelled does not keep others from
being done, and is named at the end. ``--cluster`` labels many files at the same time.

A table comes back as CSV with a column ``predicted`` (and ``probability``) more; each row has the label of its step.

What goes to a file or a pipe is data, and stays as it is byte for byte; on a terminal control characters are shown as
text. Data passes through in blocks of whole sequences, so memory does not grow with the input.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Annotated, Any

import numpy as np
import typer

import crfield
from crfield.cli.cluster import ClusterOption, WorkersOption, on_cluster
from crfield.cli.messages import json_text, note
from crfield.cli.model import Tagger, as_tagger, roles_of
from crfield.cli.options import AllThreads, ColumnsOption, FormatOption, LabelOption, ModelFile, StrictOption
from crfield.cli.output import data_output
from crfield.cli.paths import FILLS, READS, WRITES
from crfield.cli.reading import (
    Format,
    Reads,
    check_names,
    check_template,
    format_for,
    names_for,
    of_its_form,
    placed,
)
from crfield.cli.sensors.answers import TableModel, refuse_table_options, refuse_text_options
from crfield.cli.sensors.options import Again
from crfield.data.texts.conll import parse_columns
from crfield.data.texts.conllu import ColumnSpec, fill_conllu, parse_conllu
from crfield.data.texts.crfsuite import parse_crfsuite
from crfield.errors import CrfieldError, FormatError, InputError
from crfield.features.known import strict
from crfield.storage.blocks import Block, read_blocks
from crfield.storage.files import name_of, peek
from crfield.training.cluster.session import Cluster

_MARK = b"\xef\xbb\xbf"


def tag(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files, plain or gzip; standard input if there is none."),
        READS,
    ] = None,
    *,
    model: ModelFile,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - for standard output."), WRITES
    ] = "-",
    marginals: Annotated[
        bool, typer.Option("--marginals", help="Add the probability of each predicted label.")
    ] = False,
    n_best: Annotated[
        int, typer.Option("--n-best", min=1, metavar="N", help="Write the N most probable labellings of a sequence.")
    ] = 1,
    spans: Annotated[bool, typer.Option("--spans", help="Write spans with probabilities, as JSON lines.")] = False,
    format: FormatOption = Format.auto,
    strict_features: StrictOption = False,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    table: Again,
    output_folder: Annotated[
        str | None,
        typer.Option(
            "--output-folder", metavar="FOLDER", help="Write a file for each input here; those there are left out."
        ),
        FILLS,
    ] = None,
    threads: AllThreads = None,
    cluster: ClusterOption = None,
    workers: WorkersOption = None,
) -> None:
    """Label data with a model.

    Each line of a column file, and each row of a table, is written with the predicted label behind its last column;
    a gold label stays.
    """
    if (n_best > 1) + spans + marginals > 1:
        raise typer.BadParameter("--n-best, --spans and --marginals are three kinds of output; choose one.")
    asked = ["predict_n_best"] * (n_best > 1) + ["predict_spans"] * spans + ["predict_proba"] * marginals
    if output_folder is not None or cluster is not None or workers is not None:
        job = Job(model, marginals, n_best, spans, format, strict_features, columns, label, threads)
        targets = check_targets(data, output, output_folder)
        with on_cluster(cluster, workers, threads) as block:
            tag_files(targets, job, block)
        return
    found = crfield.load(model)
    roles = roles_of(found)
    if roles is not None:
        refuse_text_options(model, format, n_best=n_best > 1, spans=spans, strict_features=strict_features)
        told = TableModel.of(
            found, roles, data or ["-"], table, columns=columns, label=label, labelled=False, threads=threads
        )
        with data_output(output) as stream:
            stream.write(told.tagged(marginals=marginals))
        return
    refuse_table_options(model, table)
    crf, reads = as_tagger(found, model, *asked, threads=threads)
    kinds = {source: format_for(reads, format, source, peek(source, 1 << 14)) for source in data or ["-"]}
    words = Words(*names_for(reads, columns, label)) if Format.conllu in kinds.values() else None
    with data_output(output) as stream:
        for number, source in enumerate(data or ["-"]):
            own = words if kinds[source] is Format.conllu else None
            if number and not (n_best > 1 or spans):
                stream.write(b"\n")
            _tag_source(
                crf, reads, source, kinds[source], own, stream, marginals=marginals, n_best=n_best, spans=spans
            )


def _tag_source(
    crf: Tagger,
    reads: Reads,
    source: str,
    kind: Format,
    own: Words | None,
    stream: IO[bytes],
    *,
    marginals: bool,
    n_best: int,
    spans: bool,
) -> None:
    """One file, in the form that was asked for."""
    if n_best > 1 or spans:
        for lines, X in _sequences(reads, source, kind, own):
            spec = None if own is None else own.spec
            stream.write(_span_lines(crf, X) if spans else _n_best_lines(crf, X, lines, n_best, spec))
            stream.flush()
    elif own is not None:
        _tag_words(crf, reads, source, stream, own, marginals=marginals)
    elif kind is Format.columns:
        _tag_columns(crf, reads, source, stream, marginals=marginals)
    else:
        _tag_attributes(crf, reads, source, stream, marginals=marginals)


# ---------------------------------------------------------------------------------------------------- many files


@dataclass(frozen=True)
class Job:
    """What is asked for of every file; it goes to whoever labels one."""

    model: str
    marginals: bool
    n_best: int
    spans: bool
    format: Format
    strict_features: bool
    columns: str | None
    label: str | None
    threads: int | None


def check_targets(data: list[str] | None, output: str, folder: str | None) -> list[tuple[str, str]]:
    """Each input and the file it is written to; a wrong command line where they cannot be told apart."""
    if folder is None or output != "-":
        raise typer.BadParameter("a cluster writes a file for each input: name --output-folder, and no --output.")
    if not data or "-" in data:
        raise typer.BadParameter("--output-folder is for files: name them.")
    names = [os.path.basename(source) for source in data]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"two inputs are called {twice}: their results would have one name in {folder}.")
    return [(source, os.path.join(folder, name)) for source, name in zip(data, names)]


def tag_files(targets: list[tuple[str, str]], job: Job, block: Cluster | None) -> None:
    """Label every file that has no result yet; one that fails does not keep the others from being done."""
    os.makedirs(os.path.dirname(targets[0][1]), exist_ok=True)
    left = [pair for pair in targets if not os.path.exists(pair[1])]
    if len(left) < len(targets):
        note(f"{len(targets) - len(left)} of {len(targets)} files have a result already and are left as they are")
    names = [source for source, _ in left]
    if block is not None:
        for _ in block.each(tag_file, left, job, names=names):
            pass
        return
    failed = []
    for source, target in left:
        try:
            tag_file(source, target, job)
        except (CrfieldError, OSError) as error:
            failed.append(f"{source}: {error}")
    if failed:
        raise InputError(f"{len(failed)} of {len(left)} files failed. " + " ".join(failed[:10]))


_taggers: dict[Job, tuple[Tagger, Reads]] = {}  # of this process: one model


def tag_file(source: str, target: str, job: Job) -> None:
    """Label one file and write the result, whole or not at all; the model is loaded once in a process."""
    if job not in _taggers:
        asked = (
            ["predict_n_best"] * (job.n_best > 1) + ["predict_spans"] * job.spans + ["predict_proba"] * job.marginals
        )
        found = crfield.load(job.model)
        if roles_of(found) is not None:
            raise InputError(f"{job.model} labels tables, which are written to one --output, not to a folder.")
        _taggers.clear()
        _taggers[job] = as_tagger(found, job.model, *asked, threads=job.threads)
    crf, reads = _taggers[job]
    kind = format_for(reads, job.format, source, peek(source, 1 << 14))
    words = Words(*names_for(reads, job.columns, job.label)) if kind is Format.conllu else None
    with strict(job.strict_features), data_output(target) as stream:
        _tag_source(
            crf, reads, source, kind, words, stream, marginals=job.marginals, n_best=job.n_best, spans=job.spans
        )


@dataclass(frozen=True)
class Words:
    """Which columns of CoNLL-U are read, and which is written."""

    columns: str
    label: str

    @property
    def spec(self) -> ColumnSpec:
        """The column that labels are written to."""
        spec = ColumnSpec(self.label)
        spec.check_writable()
        return spec

    def parse(self, data: bytes) -> Any:
        """The tokens of a text."""
        return parse_conllu(data, columns=check_names(self.columns, None)).X


def _tag_words(crf: Tagger, reads: Reads, source: str, stream: IO[bytes], words: Words, *, marginals: bool) -> None:
    """CoNLL-U with the label in its column; with marginals, its probability as an entry of MISC."""
    name, spec = name_of(source), words.spec
    for block in read_blocks(source):
        with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
            X = words.parse(block.data)
        if not len(X):
            stream.write(block.data)
            continue
        check_template(reads.columns, X, None, (name, _first_line(block)))
        answers = chain.from_iterable(_answers(crf, X, b"\t", marginals=marginals))
        given = (answer.decode().split("\t")[1:] for answer in answers)
        data = fill_conllu(block.data, given, spec)
        stream.write(data if data.endswith(b"\n") else data + b"\n")
        stream.flush()


def _sequences(
    reads: Reads, source: str, kind: Format, words: Words | None
) -> Iterator[tuple[list[list[bytes]], Any]]:
    """Block by block: the lines of every sequence (of CRFsuite's the labels they begin with), and what to label."""
    name, checked = name_of(source), False
    for block in read_blocks(source):
        if words is not None:
            with placed(lambda line, first=block.line: (name, first + line - 1)):  # type: ignore[misc]
                X = words.parse(block.data)
            check_template(reads.columns, X, None, (name, _first_line(block)))
            rows = [own for own in _paragraphs(block.data) if not all(line.startswith(b"#") for line in own)]
            yield rows, X
            continue
        X, gold = _parsed(reads, name, block, kind, known=checked)
        if kind is Format.columns:
            if len(X) and not checked:
                check_template(reads.columns, X, None, (name, _first_line(block)))
            yield _paragraphs(block.data), X
        else:
            yield [[str(label).encode() for label in row] for row in gold], X
        checked = checked or len(X) > 0


def _parsed(reads: Reads, name: str, block: Block, kind: Format, *, known: bool) -> tuple[Any, Any]:
    """What a block holds, and the labels that CRFsuite's lines begin with; the first must be of the model's form."""

    def place(line: int) -> tuple[str, int]:
        return name, block.line + line - 1

    X: Any
    gold: Any = None
    with of_its_form(reads, b"" if known else block.data, place) as check:
        with placed(place):
            # The mark of the file is gone already; the parser must not take one off the first word of a block.
            if kind is Format.columns:
                X = parse_columns(_MARK + block.data)
            else:
                X, gold, _ = parse_crfsuite(_MARK + block.data)
        check(X)
    return X, gold


def _paragraphs(data: bytes) -> list[list[bytes]]:
    """Lines that are not blank, in groups between blank ones."""
    groups: list[list[bytes]] = [[]]
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            groups[-1].append(line.rstrip(b" \t\r"))
        elif groups[-1]:
            groups.append([])
    return groups if groups[-1] else groups[:-1]


def _n_best_lines(crf: Tagger, X: Any, lines: list[list[bytes]], n: int, spec: ColumnSpec | None = None) -> bytes:
    out = []
    for rows, found in zip(lines, crf.predict_n_best(X, n) if len(X) else ()):
        separator = b"\t" if any(b"\t" in row for row in rows) or not any(b" " in row for row in rows) else b" "
        for number, labelling in enumerate(found):
            if spec is not None:
                out.append(b"# n_best = %d\n# probability = %.6f" % (number, labelling.probability))
                out += [fill_conllu(b"\n".join(rows), ([str(one)] for one in labelling.labels), spec), b""]
                continue
            out.append(b"# %d %.6f" % (number, labelling.probability))
            out += [row + separator + str(label).encode() for row, label in zip(rows, labelling.labels)]
            out.append(b"")
    return b"\n".join([*out, b""]) if out else b""


def _span_lines(crf: Tagger, X: Any) -> bytes:
    told = [
        {"spans": [{"start": s.start, "stop": s.stop, "label": s.label, "probability": s.probability} for s in own]}
        for own in (crf.predict_spans(X) if len(X) else ())
    ]
    return b"".join(json_text(own).encode() + b"\n" for own in told)


def _tag_columns(crf: Tagger, reads: Reads, source: str, stream: IO[bytes], *, marginals: bool) -> None:
    name, width, separator = name_of(source), 0, b" "
    for block in read_blocks(source):
        tokens, _ = _parsed(reads, name, block, Format.columns, known=width > 0)
        if not len(tokens):
            stream.write(block.data)
            continue
        if not width:
            width, separator = tokens.width, b"\t" if b"\t" in block.data else b" "
            check_template(reads.columns, tokens, None, (name, _first_line(block)))
        elif tokens.width != width:
            message = f"expected {width} columns as in the lines before, got {tokens.width}. Is a field empty?"
            raise FormatError(message, file=name, line=_first_line(block))
        answers = chain.from_iterable(_answers(crf, tokens, separator, marginals=marginals))
        stream.write(_appended(block.data, answers))
        stream.flush()


def _appended(data: bytes, answers: Iterator[bytes]) -> bytes:
    """The lines of the text, each that is not blank with the next answer at its end."""
    lines = data.split(b"\n")
    for k, line in enumerate(lines):
        body = line.removesuffix(b"\r")
        if body.strip(b" \t"):
            lines[k] = body.rstrip(b" \t") + next(answers) + line[len(body) :]
    if lines[-1]:
        lines.append(b"")
    return b"\n".join(lines)


def _first_line(block: Block) -> int:
    blank = len(block.data) - len(block.data.lstrip(b" \t\r\n"))
    return block.line + block.data.count(b"\n", 0, blank)


def _tag_attributes(crf: Tagger, reads: Reads, source: str, stream: IO[bytes], *, marginals: bool) -> None:
    name, begun = name_of(source), False
    for block in read_blocks(source):
        X, gold = _parsed(reads, name, block, Format.crfsuite, known=begun)
        for labels, answers in zip(gold, _answers(crf, X, b"\t", marginals=marginals) if len(X) else ()):
            lines = [label.encode() + answer for label, answer in zip(labels, answers)]
            stream.write((b"\n" if begun else b"") + b"\n".join(lines) + b"\n")
            begun = True
        stream.flush()


def _answers(crf: Tagger, X: Any, separator: bytes, *, marginals: bool) -> Iterator[list[bytes]]:
    """What is added to each line, sequence by sequence."""
    predicted = crf.predict(X)
    added = {label: separator + str(label).encode() for label in crf.classes_.tolist()}
    if not marginals:
        for labels in predicted:
            yield [added[label] for label in labels.tolist()]
        return
    code = {label: k for k, label in enumerate(crf.classes_.tolist())}
    for labels, table in zip(predicted, crf.predict_proba(X)):
        names = labels.tolist()
        chances = table[np.arange(len(names)), [code[label] for label in names]].tolist()
        yield [added[label] + separator + b"%.6f" % chance for label, chance in zip(names, chances)]
