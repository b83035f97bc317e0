"""Strings to codes, text files to codes, and templates on codes: the body to read.

The contract is written in `crfield.kernels.columns`; the compiled body `_columns` has the same names and
signatures and numbers everything in the same order, so a model trained on one body is the same on the other.
Parsers here make a Python string of every field (the compiled ones do not) and templates are evaluated one
pattern at a time on whole arrays, with sorted keys in place of hash tables.

Errors about data are ``ValueError(kind, …)`` with a few bare facts; the wrapper turns them into sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.kernels.reference.linear import Tagger, best_labels

_FIELD = re.compile(r"[^ \t]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LIMIT = 2**63 - 1
_IDS = 2**31  # more than any table can hold


class Interner:
    """Strings <-> codes in order of first appearance."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}
        self._text: list[str] = []

    def __len__(self) -> int:
        return len(self._text)

    def _one(self, text: str, add: bool) -> int:
        code = self._code.get(text, -1)
        if code < 0 and add:
            code = len(self._text)
            text = str(text)
            self._code[text] = code
            self._text.append(text)
        return code

    def codes(self, strings: Iterable[str], add: bool) -> np.ndarray:
        out = []
        for i, text in enumerate(strings):
            if not isinstance(text, str):
                raise ValueError("string", i, type(text).__name__)
            out.append(self._one(text, add))
        return np.array(out, dtype=np.int32)

    def pool_codes(self, pool: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return np.array([self._code.get(text, -1) for text in _pool_texts(pool, offsets)], dtype=np.int32)

    def rows(self, sequences: Iterable[Any], add: bool) -> tuple[np.ndarray, np.ndarray, int]:
        offsets, codes, width = [0], [], 0
        for s, sequence in enumerate(_items(sequences, "sequences", 0, 0)):
            steps = 0
            for t, token in enumerate(_items(sequence, "sequence", s, 0)):
                if isinstance(token, str):
                    raise ValueError("word", s, t, token)
                fields = _items(token, "token", s, t)
                width = width or len(fields)
                if len(fields) != width or not width:
                    raise ValueError("width", s, t, width, len(fields))
                for c, field in enumerate(fields):
                    if not isinstance(field, str):
                        raise ValueError("field", s, t, c, type(field).__name__)
                    codes.append(self._one(field, add))
                steps += 1
            offsets.append(offsets[-1] + steps)
        return np.array(offsets, dtype=np.int64), np.array(codes, dtype=np.int32), width

    def texts(self, codes: np.ndarray) -> list[str]:
        if len(codes) and (codes.min() < 0 or codes.max() >= len(self._text)):
            raise IndexError(f"codes lie in 0 … {len(self._text) - 1}")
        return [self._text[code] for code in codes.tolist()]

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        parts = [text.encode("utf-8", "surrogatepass") for text in self._text]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return np.frombuffer(b"".join(parts), dtype=np.uint8).copy(), offsets

    @staticmethod
    def from_arrays(pool: np.ndarray, offsets: np.ndarray) -> Interner:
        made = Interner()
        for i, text in enumerate(_pool_texts(pool, offsets)):
            if made._one(text, True) != i:
                raise ValueError("twice", i)
        return made


def _pool_texts(pool: np.ndarray, offsets: np.ndarray) -> list[str]:
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(pool) or (np.diff(offsets) < 0).any():
        raise ValueError("offsets")
    data, ends = pool.tobytes(), offsets.tolist()
    texts = []
    for i in range(len(ends) - 1):
        try:
            texts.append(data[ends[i] : ends[i + 1]].decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise ValueError("utf8", i) from None
    return texts


def _items(value: Any, kind: str, s: int, t: int) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise ValueError(kind, s, t, type(value).__name__)
    return list(value)


def _decode(data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("utf8", data.count(b"\n", 0, error.start) + 1, "") from None
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


def parse_columns(data: bytes, comment: str) -> tuple[Interner, np.ndarray, np.ndarray, int]:
    interner, offsets, codes, width, nodes = Interner(), [0], [], 0, 0
    for number, line in enumerate(_decode(data), 1):
        if comment and line.startswith(comment):
            continue
        fields = _FIELD.findall(line)
        if fields:
            width = width or len(fields)
            if len(fields) != width:
                raise ValueError("width", number, f"{width} {len(fields)}")
            codes += [interner._one(field, True) for field in fields]
            nodes += 1
        elif nodes > offsets[-1]:
            offsets.append(nodes)
    if nodes > offsets[-1]:
        offsets.append(nodes)
    return interner, np.array(offsets, dtype=np.int64), np.array(codes, dtype=np.int32), width


def _number(text: str, line: int, kind: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else np.nan
    if not np.isfinite(value):
        raise ValueError(kind, line, text)
    return value


def _split(field: str) -> tuple[str, str | None]:
    r"""Name and value of ``name[:value]``, with ``\:`` and ``\\`` undone in the name."""
    name: list[str] = []
    i = 0
    while i < len(field):
        if field[i] == "\\" and field[i + 1 : i + 2] in ("\\", ":"):
            i += 1
        elif field[i] == ":":
            return "".join(name), field[i + 1 :]
        name.append(field[i])
        i += 1
    return "".join(name), None


def parse_crfsuite(
    data: bytes,
) -> tuple[Interner, Interner, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    attributes, labels = Interner(), Interner()
    offsets, indptr = [0], [0]
    gold: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    weights: list[float] = []
    weight = 1.0
    for number, line in enumerate([*_decode(data), ""], 1):
        if not line:
            if len(gold) > offsets[-1]:
                offsets.append(len(gold))
                weights.append(weight)
            weight = 1.0
            continue
        if line.startswith("\t"):
            raise ValueError("label", number, "")
        labelled = False
        for field in line.split("\t"):
            if not field:
                continue
            name, value = _split(field)
            if labelled:
                indices.append(attributes._one(name, True))
                values.append(_number(value, number, "number") if value else 1.0)
            elif name.startswith("@"):
                if name != "@weight":
                    raise ValueError("directive", number, name)
                weight = _number(value or "", number, "weight")
                if weight < 0:
                    raise ValueError("weight", number, value)
            else:
                if value is not None:
                    raise ValueError("colon", number, field)
                gold.append(labels._one(name, True))
                labelled = True
        if labelled:
            indptr.append(len(indices))
    return (
        attributes,
        labels,
        np.array(offsets, dtype=np.int64),
        np.array(gold, dtype=np.int32),
        np.array(indptr, dtype=np.int64),
        np.array(indices, dtype=np.int32),
        np.array(values, dtype=np.float64),
        np.array(weights, dtype=np.float64),
    )


class _Keys:
    """Integer keys <-> ids in order of first appearance, kept sorted for the search."""

    def __init__(self) -> None:
        self.by_id = np.zeros(0, dtype=np.int64)
        self._order = np.zeros(0, dtype=np.int64)

    def find(self, keys: np.ndarray) -> np.ndarray:
        if not len(self.by_id):
            return np.full(keys.shape, -1, dtype=np.int64)
        place = np.searchsorted(self.by_id, keys, sorter=self._order)
        ids = self._order[np.minimum(place, len(self._order) - 1)]
        return np.where((self.by_id[ids] == keys) & (keys >= 0), ids, -1)

    def add(self, keys: np.ndarray) -> None:
        fresh = keys[(self.find(keys) < 0) & (keys >= 0)]
        fresh, first = np.unique(fresh, return_index=True)
        self.by_id = np.concatenate([self.by_id, fresh[np.argsort(first)]])
        self._order = np.argsort(self.by_id)


class Templates:
    """Patterns over codes, and the columns they have met."""

    def __init__(
        self, radix: int, skeleton: np.ndarray, holes: np.ndarray, macros: np.ndarray, marks: np.ndarray
    ) -> None:
        self._radix, self._marks = radix, marks
        self._skeleton = skeleton.tolist()
        self._macros = [macros[a:b].tolist() for a, b in pairwise(holes.tolist())]
        self._skeletons = max(self._skeleton, default=0) + 1
        self._n_holes = np.full(self._skeletons, -1, dtype=np.int64)
        self._n_holes[self._skeleton] = [len(macros) for macros in self._macros]
        self._columns = _Keys()
        self._partial: dict[tuple[int, int], _Keys] = {}

    def size(self) -> int:
        return len(self._columns.by_id)

    def _plan(self, skeleton: int) -> list[tuple[bool, bool]]:
        """Whether the key so far is replaced by its number before and after each hole is filled."""
        limit, size, plan = _LIMIT // self._skeletons, 1, []
        for _ in range(self._n_holes[skeleton]):
            before = size * self._radix > limit and size > _IDS
            size = (_IDS if before else size) * self._radix
            after = size > limit
            size = _IDS if after else size
            plan.append((before, after))
        return plan

    def _key(self, skeleton: int, values: list[np.ndarray], count: int, grow: bool) -> np.ndarray:
        """Exact 63-bit key of each tuple; −1 where a value is unknown."""
        key = np.zeros(count, dtype=np.int64)
        for hole, ((before, after), value) in enumerate(zip(self._plan(skeleton), values)):
            if before:
                key = self._number(skeleton, 2 * hole, key, grow)
            key = np.where((key >= 0) & (value >= 0), key * self._radix + value, -1)
            if after:
                key = self._number(skeleton, 2 * hole + 1, key, grow)
        return np.where(key >= 0, key * self._skeletons + skeleton, -1)

    def _number(self, skeleton: int, stage: int, keys: np.ndarray, grow: bool) -> np.ndarray:
        table = self._partial.setdefault((skeleton, stage), _Keys())
        if grow:
            table.add(keys)
        return table.find(keys)

    def apply(
        self, codes: np.ndarray, offsets: np.ndarray, edges: bool, grow: bool, n_jobs: int
    ) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.diff(offsets)
        width = 1 + max((col for macros in self._macros for _, col in macros), default=-1)
        if len(codes) and codes.shape[1] < width:
            raise ValueError("width", width)
        if codes.size and codes.max() >= self._radix:
            raise ValueError("code", self._radix)
        first = np.repeat(offsets[:-1], lengths)  # of the node's sequence
        last = np.repeat(offsets[1:], lengths) - 1
        nodes = np.arange(len(first))
        if edges:
            first, last, nodes = (a[nodes > first] for a in (first, last, nodes))
        keys = np.empty((len(nodes), len(self._macros)), dtype=np.int64)
        for p, (skeleton, macros) in enumerate(zip(self._skeleton, self._macros)):
            values = [self._window(codes, nodes + row, col, first, last) for row, col in macros]
            keys[:, p] = self._key(skeleton, values, len(nodes), grow)
        if grow:
            self._columns.add(keys.ravel())
        found = self._columns.find(keys)
        indptr = np.concatenate([[0], np.cumsum((found >= 0).sum(axis=1))]).astype(np.int64)
        return indptr, found[found >= 0].astype(np.int32)

    def _window(self, codes: np.ndarray, at: np.ndarray, col: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        out = np.empty(len(at), dtype=np.int64)
        before, after = at < first, at > last
        inside = ~(before | after)
        if inside.any():
            out[inside] = codes[at[inside], col]
        out[before] = self._marks[0, first[before] - at[before] - 1]
        out[after] = self._marks[1, at[after] - last[after] - 1]
        return out

    def tuples(self) -> tuple[np.ndarray, np.ndarray]:
        keys, skeleton = np.divmod(self._columns.by_id, self._skeletons)
        starts = np.concatenate([[0], np.cumsum(self._n_holes[skeleton])]).astype(np.int64)
        codes = np.empty(starts[-1], dtype=np.int32)
        for s in np.unique(skeleton).tolist():
            at = np.flatnonzero(skeleton == s)
            rest = keys[at]
            for hole, (before, after) in reversed(list(enumerate(self._plan(s)))):
                if after:
                    rest = self._partial[s, 2 * hole + 1].by_id[rest]
                rest, codes[starts[at] + hole] = np.divmod(rest, self._radix)
                if before:
                    rest = self._partial[s, 2 * hole].by_id[rest]
        return skeleton.astype(np.int32), codes

    def extend(self, skeleton: np.ndarray, codes: np.ndarray) -> None:
        if len(skeleton) and not 0 <= skeleton.min() <= skeleton.max() < self._skeletons:
            raise ValueError("skeleton")
        if (self._n_holes[skeleton] < 0).any():
            raise ValueError("skeleton")
        if len(codes) and not 0 <= codes.min() <= codes.max() < self._radix:
            raise ValueError("code")
        starts = np.concatenate([[0], np.cumsum(self._n_holes[skeleton])]).astype(np.int64)
        if starts[-1] != len(codes):
            raise ValueError("length")
        keys = np.empty(len(skeleton), dtype=np.int64)
        for s in np.unique(skeleton).tolist():
            at = np.flatnonzero(skeleton == s)
            values = [codes[starts[at] + hole].astype(np.int64) for hole in range(self._n_holes[s])]
            keys[at] = self._key(s, values, len(at), True)
        before = self.size()
        self._columns.add(keys)
        if self.size() != before + len(keys):
            raise ValueError("twice")


class SequenceTagger:
    """Code, fill the patterns, decode and name the labels of one sequence; the contract is in `tagging`."""

    def __init__(
        self,
        alphabet: Interner,
        node: Templates,
        edge: Templates | None,
        tagger: Tagger,
        labels: tuple[Any, ...],
        width: int,
        telling: np.ndarray,
        many: int,
    ) -> None:
        sizes = (node.size(), 0 if edge is None else edge.size())
        if sizes != (tagger.model.columns, tagger.model.edge_columns) or len(telling) != sizes[0]:
            raise ValueError("alphabet, templates and weights do not fit together")
        self._alphabet, self._node, self._edge, self._tagger, self._labels = alphabet, node, edge, tagger, labels
        self._width, self._telling, self._many = width, telling, many

    def tag(self, steps: Any) -> list[Any] | None:
        """The labels, or None where the sequence is not a usual one."""
        if not isinstance(steps, list | tuple) or not all(isinstance(row, list | tuple) for row in steps):
            return None
        try:
            offsets, codes, width = self._alphabet.rows([steps], False)
        except ValueError:
            return None
        if len(codes) and width < self._width:
            return None
        codes = codes.reshape(len(steps), width)
        indptr, indices = self._node.apply(codes, offsets, False, False, 1)
        known = np.concatenate([[0], np.cumsum(self._telling[indices])])
        empty = int(np.count_nonzero(known[indptr[1:]] == known[indptr[:-1]]))
        if empty >= self._many and 2 * empty > len(steps):
            return None
        edges = (None, None) if self._edge is None else self._edge.apply(codes, offsets, True, False, 1)
        return best_labels(self._tagger, self._labels, (indptr, indices, None), None, (*edges, None))
