r"""CoNLL-U, the format of Universal Dependencies: ten columns, comments, tokens that are several words.

    # sent_id = 1
    # text = I don't.
    1     I      I    PRON   PRP  Number=Sing  3  nsubj  _  _
    2-3   don't  _    _      _    _            _  _      _  _
    2     do     do   AUX    VBP  _            3  aux    _  _
    3     n't    not  PART   RB   _            0  root   _  _

Fields are separated by single tabs and may hold spaces; sentences end at blank lines. A line ``2-3`` is a token of
the surface, whose words follow, and ``8.1`` a node that the surface lacks. Steps of a sequence are the words (1, 2,
3, …); tokens of the surface can be taken in place of theirs, and empty nodes can be kept.

A column is named as in the format: id, form, lemma, upos, xpos, feats, head, deprel, deps, misc. ``feats.Number`` is
one entry of a field such as ``Number=Sing|Person=3``, and ``upos+feats`` are two fields joined by ``|``:
"NOUN|Number=Sing". Reference: the format's page at universaldependencies.org; Nivre et al. (2020), *Universal
Dependencies v2: An evergrowing multilingual treebank collection*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.tokens import TokenColumns
from crfield.errors import FormatError, InputError

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NOTHING, JOINT = "_", "|"
_WORD = re.compile(r"[1-9][0-9]{0,8}")
_RANGE, _EMPTY = re.compile(r"([0-9]{1,9})-([0-9]{1,9})"), re.compile(r"([0-9]{1,9})\.[0-9]{1,9}")
_PROBABILITY = "Probability="
_ENTRIES = ("feats", "deps", "misc")

Fields = list[str]


class Conllu(NamedTuple):
    """What a CoNLL-U file holds: tokens, their labels (None where none were asked for), comments by sentence.

    >>> Conllu(TokenColumns.from_sequences([[("I",)]]), None, [{"sent_id": "1"}]).metadata
    [{'sent_id': '1'}]
    """

    X: TokenColumns
    y: list[np.ndarray] | None
    metadata: list[dict[str, str]]  # "key = value" of the comments; of others the whole with an empty value


class ColumnSpec:
    """Which fields of a line a column is made of: ``upos``, ``upos+feats``, ``feats.Number``.

    >>> ColumnSpec("UPOS+feats.Number").value("2 dogs dog NOUN NNS Number=Plur|X=y 3 obj _ _".split())
    'NOUN|Plur'
    >>> ColumnSpec("pos")
    Traceback (most recent call last):
    crfield.errors.InputError: CoNLL-U has no column 'pos'; it has id, form, lemma, upos, xpos, feats, head, ...
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InputError(f"a column is named by a word such as 'form' or 'upos', got {name!r:.40}.")
        self.name = name
        self.parts: list[tuple[int, str | None]] = []
        for part in name.split("+"):
            column, _, key = part.strip().partition(".")
            column = column.lower()
            if column not in COLUMNS or (key and column not in _ENTRIES) or part.strip().endswith("."):
                hint = f" Only {', '.join(_ENTRIES)} have entries, as in feats.Number." if column in COLUMNS else ""
                raise InputError(f"CoNLL-U has no column {part!r}; it has {', '.join(COLUMNS)}.{hint}")
            self.parts.append((COLUMNS.index(column), key or None))

    def value(self, fields: Sequence[str]) -> str:
        """The column of one line."""
        return JOINT.join([_entry(fields[number], key) for number, key in self.parts])

    @property
    def empty(self) -> str:
        """The value of a line that says nothing."""
        return JOINT.join([NOTHING] * len(self.parts))

    def fill(self, fields: Fields, value: str) -> None:
        """Put a value where the column is read from; only columns that are whole fields can be written."""
        values = value.split(JOINT, len(self.parts) - 1)
        for (number, _), own in zip(self.parts, values):
            fields[number] = own or NOTHING

    def check_writable(self) -> None:
        """InputError unless the values can be written back."""
        if any(key is not None or number == 0 for number, key in self.parts):
            raise InputError(f"the column {self.name!r} is no field of its own and cannot be written to CoNLL-U.")


def parse_conllu(
    data: bytes,
    *,
    columns: Sequence[str] = ("form",),
    label: str | None = None,
    surface: bool = False,
    empty_nodes: bool = False,
    file: str | None = None,
) -> Conllu:
    r"""Tokens with the chosen columns, labels and comments of a CoNLL-U file's bytes.

    >>> text = b"# sent_id = 1\n1\tHi\thi\tINTJ\tUH\t_\t0\troot\t_\t_\n\n"
    >>> X, y, metadata = parse_conllu(text, columns=("form", "lemma"), label="upos")
    >>> X[0], y[0].tolist(), metadata
    ([('Hi', 'hi')], ['INTJ'], [{'sent_id': '1'}])
    >>> parse_conllu(b"1 Hi hi INTJ\n", file="a.conllu")
    Traceback (most recent call last):
    crfield.errors.FormatError: a.conllu, line 1: expected 10 fields separated by tabs, got 1. ...
    """
    if isinstance(columns, str):
        columns = columns.split(",")
    specs = [ColumnSpec(name) for name in columns]
    if not specs:
        raise InputError("columns must name at least one column, such as 'form'.")
    wanted = None if label is None else ColumnSpec(label)
    rows: list[str] = []
    gold: list[str] = []
    lengths: list[int] = []
    metadata: list[dict[str, str]] = []
    for comments, words in _sentences(data, file, surface=surface, empty_nodes=empty_nodes):
        lengths.append(len(words))
        metadata.append(comments)
        for fields in words:
            rows += [spec.value(fields) for spec in specs]
            if wanted is not None:
                gold.append(wanted.value(fields))
    topology = Chains.from_lengths(lengths)
    alphabet = Alphabet()
    codes = alphabet.encode(rows, add=True).reshape(-1, len(specs))
    X = TokenColumns(codes, topology, alphabet)
    if wanted is None:
        return Conllu(X, None, metadata)
    if gold and all(value == wanted.empty for value in gold):
        raise FormatError(
            f"the column {label!r} is empty ({wanted.empty}) on every word: there are no labels.", file=file
        )
    labels = np.array([*gold, None], dtype=object)[:-1]
    return Conllu(X, [labels[a:b] for a, b in pairwise(topology.offsets.tolist())], metadata)


def fill_conllu(data: bytes, answers: Iterator[Sequence[str]], spec: ColumnSpec) -> bytes:
    r"""The same text with the next answer written on each of its words; comments and other lines stay as they are.

    An answer is a label, and perhaps its probability, which becomes an entry of MISC.

    >>> line = b"# text = Hi\n1\tHi\thi\t_\t_\t_\t0\troot\t_\t_\n"
    >>> fill_conllu(line, iter([["INTJ", "0.9"]]), ColumnSpec("upos"))
    b'# text = Hi\n1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\tProbability=0.9\n'
    """
    spec.check_writable()
    lines = data.split(b"\n")
    for k, line in enumerate(lines):
        body = line.removesuffix(b"\r")
        fields = body.decode("utf-8").split("\t")
        if len(fields) == len(COLUMNS) and _WORD.fullmatch(fields[0].removeprefix("\ufeff")):
            label, *more = next(answers)
            spec.fill(fields, label)
            if more:
                others = [
                    item for item in fields[-1].split("|") if item != NOTHING and not item.startswith(_PROBABILITY)
                ]
                fields[-1] = "|".join([*others, _PROBABILITY + more[0]])
            lines[k] = "\t".join(fields).encode() + line[len(body) :]
    return b"\n".join(lines)


def looks_like_conllu(data: bytes) -> bool:
    r"""Whether the first lines of a text are those of a CoNLL-U file.

    >>> looks_like_conllu(b"# text = Hi\n1\tHi\thi\tINTJ\tUH\t_\t0\troot\t_\t_\n"), looks_like_conllu(b"Hi UH O\n")
    (True, False)
    """
    lines = [line for line in data[: 1 << 14].split(b"\n")[:50] if line.strip() and not line.startswith(b"#")]
    if len(data) > 1 << 14 and len(lines) > 1:
        lines = lines[:-1]  # the last may be cut
    rows = [line.split(b"\t") for line in lines]
    return bool(rows) and all(len(row) == len(COLUMNS) and row[0][:1].isdigit() for row in rows)


def _sentences(
    data: bytes, file: str | None, *, surface: bool, empty_nodes: bool
) -> Iterator[tuple[dict[str, str], list[Fields]]]:
    """Comments and steps of each sentence."""
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise FormatError("the line is not valid UTF-8.", file=file, line=at) from None
    comments: dict[str, str] = {}
    steps: list[Fields] = []
    wrong = _wrong_at(file)
    count, until, first = 0, 0, 0  # words so far; last word and place of the surface token that is being read
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        line = raw.removesuffix("\r")
        if not line.strip():
            if count < until:
                raise wrong(
                    number, f"expected word {count + 1} of a token that ends at {until}, got the sentence's end."
                )
            if steps:
                yield comments, steps
            comments, steps, count, until = {}, [], 0, 0
            continue
        if line.startswith("#"):
            name, sign, value = line[1:].partition("=")
            comments[name.strip()] = value.strip() if sign else ""
            continue
        fields = line.split("\t")
        if len(fields) != len(COLUMNS):
            raise wrong(
                number,
                f"expected {len(COLUMNS)} fields separated by tabs, got {len(fields)}. CoNLL-U has the columns "
                f"{', '.join(COLUMNS)}; other column files are read by read_columns.",
            )
        if "" in fields:
            raise wrong(number, f"the field {COLUMNS[fields.index('')]} is empty; what is not known is written '_'.")
        name = fields[0]
        if _WORD.fullmatch(name):
            count += 1
            if int(name) != count:
                raise wrong(
                    number, f"expected word {count}, got {name}. Is a blank line missing between two sentences?"
                )
            if surface and count <= until:
                steps[first] = _merged(steps[first], fields)
            else:
                steps.append(fields)
        elif found := _RANGE.fullmatch(name):
            begin, end = int(found[1]), int(found[2])
            if begin != count + 1 or end < begin or count < until:
                raise wrong(number, f"expected a token that begins at word {max(count, until) + 1}, got {name}.")
            until = end
            if surface:
                first = len(steps)
                steps.append(fields)
        elif found := _EMPTY.fullmatch(name):
            if int(found[1]) != count:
                raise wrong(number, f"expected an empty node {count}.1 behind word {count}, got {name}.")
            if empty_nodes:
                steps.append(fields)
        else:
            raise wrong(
                number, f"expected the number of a word (3), a token (3-4) or an empty node (3.1), got {name!r:.40}."
            )


def _wrong_at(file: str | None) -> Callable[[int, str], FormatError]:
    """Errors of a file, by line and message."""
    return lambda line, message: FormatError(message, file=file, line=line)


def _merged(token: Fields, word: Fields) -> Fields:
    """A token of the surface with what its words say, joined by +; what it says itself stays: its form."""
    joined = [f"{own}+{one}" if own != NOTHING else one for own, one in zip(token[2:], word[2:])]
    return [*token[:2], *joined]


def _entry(field: str, key: str | None) -> str:
    if key is None:
        return field
    for item in field.split("|"):
        name, _, value = item.partition("=")
        if name == key:
            return value
    return NOTHING
