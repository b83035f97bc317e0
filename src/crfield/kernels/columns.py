"""Strings to codes, text files to codes, and templates on codes: the contract.

Text is looked at once. `Interner` gives every string a number (its *code*); a column file or a list of token
rows becomes an integer table; templates are evaluated on the integers, and no feature ever becomes a string.

**Keys without collisions.** A template with holes filled by the codes v₁ … v_k of an alphabet of A strings
has the mixed-radix key ``((v₁·A + v₂)·A + … + v_k)·S + skeleton`` among S skeletons, and tables compare
whole keys, so two different features never share a column, whatever their hashes. Where the product would
pass 63 bits, what stands before a hole is numbered in a table of its own (less than 2³¹ numbers) and the
number takes its place. Cost: one table look-up for a pattern and a node, about 19 × 10 ns for the usual
template.

Bodies raise ``ValueError(kind, facts…)``; the functions here turn these into the sentences of `errors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, Protocol

import numpy as np

from crfield.errors import FeatureError, FormatError, InputError, ShapeError
from crfield.kernels import choice


class Interner(Protocol):
    """Strings <-> codes 0, 1, 2 … in order of first appearance; made by `interner`."""

    def __len__(self) -> int:
        """A, the number of strings."""
        ...

    def codes(self, strings: Iterable[str], add: bool) -> np.ndarray:
        """(n,) int32 codes of the strings; −1 for an unknown one unless ``add``."""
        ...

    def pool_codes(self, pool: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """(n,) int32 codes here of the strings of another interner's ``to_arrays``; −1 for unknown ones."""
        ...

    def rows(self, sequences: Any, add: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """See `rows`."""
        ...

    def texts(self, codes: np.ndarray) -> list[str]:
        """The strings of (n,) int32 codes."""
        ...

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All strings as UTF-8 (lone surrogates included) end to end, uint8, and A + 1 offsets, int64."""
        ...


class Templates(Protocol):
    """Patterns over codes, and the columns they have met; made by `templates`."""

    def size(self) -> int:
        """K, the number of columns."""
        ...

    def apply(
        self, codes: np.ndarray, offsets: np.ndarray, edges: bool, grow: bool, n_jobs: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `apply`."""
        ...

    def tuples(self) -> tuple[np.ndarray, np.ndarray]:
        """Skeleton of each column, (K,) int32, and the codes in its holes, end to end, int32."""
        ...

    def extend(self, skeleton: np.ndarray, codes: np.ndarray) -> None:
        """See `extend`."""
        ...


def interner() -> Interner:
    """An empty interner.

    >>> words = interner()
    >>> words.codes(["a", "b", "a"], True).tolist(), words.codes(["c"], False).tolist()
    ([0, 1, 0], [-1])
    """
    return choice.body("columns").Interner()


def interner_from_arrays(pool: np.ndarray, offsets: np.ndarray) -> Interner:
    """The interner whose ``to_arrays`` this is; every byte and offset is checked.

    >>> table = interner_from_arrays(np.frombuffer(b"ab", np.uint8), np.array([0, 1, 2]))
    >>> table.texts(np.array([1, 0], np.int32))
    ['b', 'a']
    """
    pool = np.ascontiguousarray(pool, dtype=np.uint8)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if pool.ndim != 1 or offsets.ndim != 1:
        raise ShapeError(f"pool and offsets must be 1-D, got {pool.shape} and {offsets.shape}.")
    try:
        return choice.body("columns").Interner.from_arrays(pool, offsets)
    except ValueError as error:
        reason = {
            "offsets": "the offsets must start at 0, never fall and end at the pool's size",
            "utf8": "string {} is not UTF-8",
            "twice": "string {} is there twice",
        }[error.args[0]].format(*error.args[1:])
        raise InputError(f"the arrays do not hold an alphabet: {reason}.") from None


def codes(strings: Iterable[str], table: Interner, *, add: bool) -> np.ndarray:
    """(n,) int32 codes of the strings in ``table``; −1 for an unknown one unless ``add``."""
    try:
        return table.codes(strings, add)
    except ValueError as error:
        _, index, got = error.args
        raise FeatureError(f"strings are expected, got {got} at position {index}.") from None


def rows(sequences: Any, table: Interner, *, add: bool) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (B + 1,) int64 and codes (N, C) int32 of B sequences of tokens, each a row of C strings.

    >>> [a.tolist() for a in rows([[("He", "PRP"), ("runs", "VBZ")], []], interner(), add=True)]
    [[0, 2, 2], [[0, 1], [2, 3]]]
    """
    try:
        offsets, flat, width = table.rows(sequences, add)
    except ValueError as error:
        _refuse_rows(*error.args)
    return offsets, flat.reshape(-1, width) if width else flat.reshape(0, 0)


def _refuse_rows(kind: str, s: int, t: int, *facts: Any) -> NoReturn:
    where = f"sequence {s}, step {t}"
    if kind == "word":
        raise FeatureError(
            f"a token must be a row of columns such as ('He', 'PRP'), got the bare string {facts[0][:40]!r} "
            f"({where}). Write (word,) if there is one column only; if X is one sequence, pass [X]."
        )
    if kind == "width":
        expected = f"{facts[0]} columns as in the tokens before" if facts[0] else "at least one column"
        raise ShapeError(f"every token must have {expected}, got {facts[1]} ({where}).")
    if kind == "field":
        raise FeatureError(
            f"the columns of a token must be strings, got {facts[1]} in column {facts[0]} ({where}). "
            "Convert numbers with str(), or use feature dicts for numeric values."
        )
    if kind == "token":
        raise FeatureError(f"a token must be a row (list or tuple) of strings, got {facts[0]} ({where}).")
    if kind == "sequence":
        raise FeatureError(f"a sequence must be a list of token rows, got {facts[0]} (sequence {s}).")
    raise FeatureError(f"X must be a list of sequences of token rows, got {facts[0]}.")


def parse_columns(
    data: bytes, *, comment: str | None = None, file: str | None = None
) -> tuple[Interner, np.ndarray, np.ndarray]:
    r"""A whole column file: its strings, offsets (B + 1,) int64 and codes (N, C) int32.

    Fields are separated by runs of spaces and tabs; a blank line ends a sequence.

    >>> table, offsets, codes = parse_columns(b"He PRP\nruns VBZ\n\nHe PRP\n")
    >>> offsets.tolist(), codes.tolist(), len(table)
    ([0, 2, 3], [[0, 1], [2, 3], [0, 1]], 4)
    """
    try:
        table, offsets, flat, width = choice.body("columns").parse_columns(data, comment or "")
    except ValueError as error:
        _refuse_text(*error.args, file=file)
    return table, offsets, flat.reshape(-1, width) if width else flat.reshape(0, 0)


def parse_crfsuite(
    data: bytes, *, file: str | None = None
) -> tuple[Interner, Interner, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    r"""A whole CRFsuite attribute file.

    Returns attribute names, label names, offsets (B + 1,), label codes (N,), and the attributes of the nodes
    as CSR: indptr (N + 1,), indices (nnz,), values (nnz,) or None when all are one; last, weights (B,).

    >>> attributes, labels, offsets, gold, indptr, indices, values, weights = parse_crfsuite(
    ...     b"@weight:2\nN\tw=a\\:b\tlong:0.5\nV\tw=c\n")
    >>> attributes.texts(indices), values.tolist(), indptr.tolist(), weights.tolist()
    (['w=a:b', 'long', 'w=c'], [1.0, 0.5, 1.0], [0, 2, 3], [2.0])
    """
    try:
        *parts, values, weights = choice.body("columns").parse_crfsuite(data)
    except ValueError as error:
        _refuse_text(*error.args, file=file)
    return (*parts, values if (values != 1.0).any() else None, weights)


def _refuse_text(kind: str, line: int, got: str, *, file: str | None) -> NoReturn:
    shown = repr(got[:60])
    if kind == "width":
        expected, found = got.split()
        message = f"expected {expected} columns as in the lines before, got {found}. Is a field empty?"
    else:
        message = {
            "utf8": "the line is not valid UTF-8. Convert the file (for example: iconv -t UTF-8).",
            "label": "the line begins with a tab: expected a label before the attributes.",
            "colon": f"the label {shown} has a bare ':'. Write '\\:' for a colon that belongs to the label.",
            "directive": f"unknown directive {shown}. Only '@weight:number' is known.",
            "number": f"the value of an attribute must be a finite number, got {shown}. "
            "Write '\\:' for a colon that belongs to the name.",
            "weight": f"@weight must be a finite number that is not negative, got {shown}.",
        }[kind]
    raise FormatError(message, file=file, line=line)


def templates(
    *, radix: int, skeleton: np.ndarray, holes: np.ndarray, macros: np.ndarray, marks: np.ndarray
) -> Templates:
    """P patterns without columns yet.

    Pattern p reads the codes at ``(node + row, col)`` for (row, col) in ``macros[holes[p]:holes[p+1]]`` and
    belongs to ``skeleton[p]``; patterns of one skeleton have as many holes and share their columns. All codes
    are below ``radix``. A row d steps before the first node of its sequence reads ``marks[0, d-1]``, one d
    steps after the last reads ``marks[1, d-1]``.

    >>> table = templates(radix=3, skeleton=np.array([0]), holes=np.array([0, 1]), macros=np.array([[-1, 0]]),
    ...                   marks=np.array([[2], [2]]))
    >>> indptr, indices = apply(table, np.array([[0], [1]]), np.array([0, 2]), grow=True)
    >>> indices.tolist(), table.tuples()[1].tolist()
    ([0, 1], [2, 0])
    """
    skeleton = np.ascontiguousarray(skeleton, dtype=np.int32)
    holes = np.ascontiguousarray(holes, dtype=np.int64)
    macros = np.ascontiguousarray(macros, dtype=np.int32)
    marks = np.ascontiguousarray(marks, dtype=np.int32)
    patterns = len(skeleton)
    if not 0 < radix < 2**31 or patterns >= 2**16:
        raise ShapeError(f"there can be 65,535 patterns over 2³¹ codes at most, got {patterns} over {radix}.")
    if len(holes) != patterns + 1 or holes[0] != 0 or (np.diff(holes) < 0).any():
        raise ShapeError(f"holes must hold {patterns + 1} rising offsets, got {holes[:8].tolist()}.")
    if macros.shape != (holes[-1], 2) or (macros[:, 1] < 0).any():
        raise ShapeError(f"macros must be ({holes[-1]}, 2), columns not negative, got {macros.shape}.")
    reach = int(np.abs(macros[:, 0]).max(initial=0))
    if marks.ndim != 2 or len(marks) != 2 or marks.shape[1] < reach:
        raise ShapeError(f"marks must be (2, {reach}) for templates that reach {reach} rows, got {marks.shape}.")
    if marks.size and not 0 <= marks.min() <= marks.max() < radix:
        raise ShapeError(f"marks must lie in 0 … {radix - 1}, got {marks.min()} … {marks.max()}.")
    if patterns and not 0 <= skeleton.min() <= skeleton.max() < patterns:
        raise ShapeError(f"skeletons must lie in 0 … {patterns - 1}.")
    counts: dict[int, int] = {}
    for s, n in zip(skeleton.tolist(), np.diff(holes).tolist()):
        if counts.setdefault(s, n) != n:
            raise ShapeError(f"the patterns of skeleton {s} differ in their holes: {counts[s]} and {n}.")
    return choice.body("columns").Templates(radix, skeleton, holes, macros, marks)


def apply(
    table: Templates,
    codes: np.ndarray,
    offsets: np.ndarray,
    *,
    edges: bool = False,
    grow: bool = False,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """CSR (indptr int64, indices int32) of the columns active at every node, or at every edge's later end.

    ``codes`` is (N, C) int32 and wide enough for the patterns, −1 for an unknown string: a pattern that reads
    one is dropped, and so is one never met before unless ``grow``. Columns are numbered by first appearance,
    node by node and pattern by pattern. A locked table (``grow=False``) may be read by many threads.
    """
    codes = np.ascontiguousarray(codes, dtype=np.int32)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if codes.ndim != 2 or offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(codes):
        raise ShapeError(f"codes must be (N, C) with offsets from 0 to N, got {codes.shape}.")
    if (offsets[1:] < offsets[:-1]).any():
        raise ShapeError("offsets must never fall.")
    try:
        return table.apply(codes, offsets, edges, grow, n_jobs)
    except ValueError as error:
        kind, bound = error.args
        if kind == "width":
            raise ShapeError(f"the patterns need {bound} columns, got {codes.shape[1]}.") from None
        raise ShapeError(f"codes must lie below {bound}, got {codes.max()}.") from None


def extend(table: Templates, skeleton: np.ndarray, codes: np.ndarray) -> None:
    """Add columns as ``table.tuples()`` gave them; each must be new and every code in range."""
    skeleton = np.ascontiguousarray(skeleton, dtype=np.int32)
    codes = np.ascontiguousarray(codes, dtype=np.int32)
    if skeleton.ndim != 1 or codes.ndim != 1:
        raise ShapeError(f"columns must come as 1-D arrays, got {skeleton.shape} and {codes.shape}.")
    try:
        table.extend(skeleton, codes)
    except ValueError as error:
        reason = {
            "skeleton": "a skeleton that the template does not have",
            "code": "a code outside the alphabet",
            "length": "too few or too many codes for the holes",
            "twice": "the same column twice",
        }[error.args[0]]
        raise InputError(f"the arrays do not hold template columns: {reason}.") from None
