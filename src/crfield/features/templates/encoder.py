"""Token columns through a CRF++ template to a `Batch`.

``fit`` codes the strings of the columns that the template reads, evaluates every pattern on the codes and
keeps a column for every different result; ``encode`` does the same with the alphabet and the columns
locked, so that what training never saw is dropped. No feature becomes a string on the way: a column is
(skeleton, codes in its holes), and its name is put together when somebody asks. Two small arrays of such
tuples, with the alphabet, are all that a model file holds of it.

Tokens read from a file have an alphabet of their own; their codes are changed into ours by one table over
that alphabet, not token by token.

What stands beyond the ends of a sequence is called ``_B-1``, ``_B-2``, … and ``_B+1``, … as in CRF++; models of
Wapiti call it ``_x-1`` … ``_x-4`` and from there on ``_x-#``.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.core.topology import Chains
from crfield.data.alphabet import UNKNOWN, Alphabet
from crfield.data.batch import Batch, Columns
from crfield.data.tokens import TokenColumns
from crfield.errors import DataWarning, FeatureError, InputError, ModelFileError, NotFittedError
from crfield.features.encoder import Widths
from crfield.features.known import MANY, tell
from crfield.features.templates.template import Pattern, Template, compile_patterns
from crfield.kernels import columns as kernel
from crfield.kernels.linear import Tagger
from crfield.kernels.tagging import SequenceTagger, template_tagger

MARKS = {"crfpp": ("_B", 1 << 30), "wapiti": ("_x", 5)}  # how marks begin, and from which row on they are one


@dataclass(frozen=True, eq=False)
class _Side:
    """The columns of the nodes (U lines) or of the edges (B lines)."""

    patterns: tuple[Pattern, ...]
    table: kernel.Templates
    samples: list[Pattern]  # one for each skeleton
    skeleton: np.ndarray  # (K,) int32
    codes: np.ndarray  # what fills the holes, end to end, int32
    starts: np.ndarray  # (K + 1,) int64, where each column's codes begin
    telling: np.ndarray | None = None  # (K,) bool, columns of more than marks; found when it is asked for

    @property
    def width(self) -> int:
        """K."""
        return len(self.skeleton)

    @cached_property
    def usual(self) -> tuple[int, int]:
        """Twice the features of a row of which half are known and the constant ones too; rows that may see an end."""
        constant = sum(not pattern.macros for pattern in self.patterns)
        reach = max((abs(row) for pattern in self.patterns for row, _ in pattern.macros), default=0)
        return len(self.patterns) + constant, 2 * reach


class TemplateEncoder:
    r"""Encode token columns by a template.

    >>> encoder = TemplateEncoder("U00:%x[0,0]/%x[0,1]\nU01:%x[-1,0]\nB")
    >>> batch = encoder.fit([[("He", "PRP"), ("runs", "VBZ")]])
    >>> [encoder.node_name(k) for k in batch.node.indices]
    ['U00:He/PRP', 'U01:_B-1', 'U00:runs/VBZ', 'U01:He']
    >>> encoder.encode([[("She", "PRP"), ("runs", "VBZ")]]).node.indices.tolist()
    [1, 2]
    """

    kind = "template"

    def __init__(self, template: Template | str, *, marks: str = "crfpp") -> None:
        self.template = template if isinstance(template, Template) else Template(template)
        one_of(*MARKS)("marks", marks)
        self.marks = marks
        self._alphabet: Alphabet | None = None
        self._node: _Side | None = None
        self._edge: _Side | None = None

    def fit(self, X: Any, *, min_count: int = 1) -> Batch:
        """Learn the columns of X and encode it; columns that occur under ``min_count`` times are dropped."""
        tokens = TokenColumns.from_sequences(X)
        alphabet, codes = self._own_codes(tokens)
        marks = self._marks(alphabet, add=True)
        alphabet.lock()
        made = []
        for edges, patterns in enumerate((self.template.unigrams, self.template.bigrams)):
            table, samples = compile_patterns(patterns, radix=len(alphabet), marks=marks)
            indptr, indices = kernel.apply(table, codes, tokens.topology.offsets, edges=bool(edges), grow=True)
            skeleton, filling = table.tuples()
            starts = _starts(samples, skeleton)
            side = _Side(patterns, table, samples, skeleton, filling, starts)
            if min_count > 1:
                kept = np.bincount(indices, minlength=side.width) >= min_count
                side = self._restored(patterns, alphabet, *_selected(side, kept))
                number = np.where(kept, np.cumsum(kept) - 1, UNKNOWN).astype(np.int32)
                indptr, indices = _without_dropped(indptr, number[indices])
            made.append((side, Columns(indptr, indices, side.width)))
        (node, node_columns), (edge, edge_columns) = made
        self._alphabet, self._node, self._edge = alphabet, node, edge
        return Batch(tokens.topology, node_columns, edge_columns if self.template.bigrams else None)

    def _own_codes(self, tokens: TokenColumns) -> tuple[Alphabet, np.ndarray]:
        """An alphabet of only what the template reads of these tokens, and their codes in it."""
        if len(tokens.codes):
            self.template.check_width(tokens.width)
        used = np.zeros(len(tokens.alphabet), dtype=bool)
        for col in self.template.columns if len(tokens.codes) else ():
            used[tokens.codes[:, col]] = True
        number = np.where(used, np.cumsum(used) - 1, UNKNOWN).astype(np.int32)
        return tokens.alphabet.subset(np.flatnonzero(used)), number[tokens.codes]

    def _marks(self, alphabet: Alphabet, *, add: bool) -> np.ndarray:
        return alphabet.encode(mark_names(self.marks, self.template.reach), add).reshape(2, -1)

    def encode(self, X: Any, *, n_jobs: int = 1) -> Batch:
        """Encode X with the columns learnt in ``fit``; on ``n_jobs`` threads."""
        alphabet, node, edge = self._fitted()
        if isinstance(X, TokenColumns):
            topology, codes = X.topology, self._translated(X, alphabet)
        else:
            offsets, codes = alphabet.encode_rows(X)
            topology = Chains(offsets)
        if len(codes):
            self.template.check_width(codes.shape[1])
        columns = []
        for edges, side in enumerate((node, edge)):
            indptr, indices = kernel.apply(side.table, codes, topology.offsets, edges=bool(edges), n_jobs=n_jobs)
            columns.append(Columns(indptr, indices, side.width))
        if len(codes) >= MANY:
            self._check_known(X, topology, columns[0])
        return Batch(topology, columns[0], columns[1] if self.template.bigrams else None)

    def _check_known(self, X: Any, topology: Chains, columns: Columns) -> None:
        """Tell when most rows, and many of them, have nothing known but the marks beyond the ends."""
        alphabet, node, _ = self._fitted()
        rows, (usual, ends) = columns.n_rows, node.usual
        if 2 * len(columns.indices) >= rows * usual and ends * topology.n_sequences < rows:
            return  # the usual case: more than half of all features are known, and sequences are not all ends
        telling = self._telling()
        empty = np.flatnonzero(~_filled(columns, telling))
        if len(empty) < MANY or 2 * len(empty) <= rows or not telling.any():
            return
        sequence = int(topology.sequence_of_node[empty[0]])
        came = X[sequence][int(empty[0] - topology.offsets[sequence])]
        known = [repr(_name(node, int(k), alphabet)) for k in np.flatnonzero(telling)[:3]]
        tell(len(empty), rows, "step", [repr(tuple(came))], known, " Are the columns as in fit?")

    def known_rows(self, X: Any) -> np.ndarray:
        """(N,) bool: steps of X with a feature that training knew, the marks beyond the ends left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            return _filled(self.encode(X).node, self._telling())

    def _telling(self) -> np.ndarray:
        """(K,) bool: columns of more than marks; found when first asked for."""
        alphabet, node, _ = self._fitted()
        if node.telling is None:
            marks = np.unique(self._marks(alphabet, add=False))
            words = np.concatenate([np.zeros(1, np.int64), np.cumsum(~np.isin(node.codes, marks))])
            object.__setattr__(node, "telling", words[node.starts[1:]] > words[node.starts[:-1]])
        return node.telling  # type: ignore[return-value]

    def sequence_tagger(
        self, weights: Tagger, labels: Sequence[Hashable], *, largest: float
    ) -> SequenceTagger | None:
        """One call from the rows of a sequence to its labels; all columns are one, so no cell is too large."""
        alphabet, node, edge = self._fitted()
        return template_tagger(
            alphabet.interner,
            node.table,
            edge.table if self.template.bigrams else None,
            weights,
            labels,
            width=self.template.n_columns_needed,
            telling=self._telling(),
            many=MANY,
        )

    def _translated(self, tokens: TokenColumns, alphabet: Alphabet) -> np.ndarray:
        if tokens.codes.size * 4 > len(tokens.alphabet):
            return alphabet.translate(tokens.alphabet)[tokens.codes]
        # A few tokens cut from large data: their strings are fewer than the alphabet's.
        used, inverse = np.unique(tokens.codes, return_inverse=True)
        return alphabet.encode(tokens.alphabet.texts(used))[inverse].reshape(tokens.codes.shape)

    def _fitted(self) -> tuple[Alphabet, _Side, _Side]:
        if self._alphabet is None or self._node is None or self._edge is None:
            raise NotFittedError("this TemplateEncoder has no columns yet. Call fit(X) first.")
        return self._alphabet, self._node, self._edge

    @property
    def widths(self) -> Widths:
        """How many columns it makes."""
        _, node, edge = self._fitted()
        return Widths(node.width, edge=edge.width if self.template.bigrams else 0)

    def node_name(self, column: int) -> str:
        """Name of a node column as CRF++ writes it, such as ``U05:He/PRP``."""
        alphabet, node, _ = self._fitted()
        return _name(node, column, alphabet)

    def edge_name(self, column: int) -> str:
        """Name of an edge column, such as ``B01:PRP``."""
        alphabet, _, edge = self._fitted()
        return _name(edge, column, alphabet)

    def dense_name(self, column: int) -> str:
        """A template makes no dense columns."""
        raise FeatureError(f"dense column {column} was asked of a template, which makes none.")

    def edge_dense_name(self, column: int) -> str:
        """A template makes no dense columns."""
        raise FeatureError(f"dense edge column {column} was asked of a template, which makes none.")

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The template's text, and the arrays of alphabet and columns."""
        alphabet, node, edge = self._fitted()
        pool, offsets = alphabet.to_arrays()
        return self._header(), {
            "alphabet_pool": pool,
            "alphabet_offsets": offsets,
            "node_skeleton": node.skeleton,
            "node_codes": node.codes,
            "edge_skeleton": edge.skeleton,
            "edge_codes": edge.codes,
        }

    def _header(self) -> dict[str, Any]:
        header = {"kind": self.kind, "template": self.template.text}
        return header if self.marks == "crfpp" else {**header, "marks": self.marks}

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> TemplateEncoder:
        """The encoder whose ``state`` this is; `ModelFileError` when anything does not fit.

        >>> encoder = TemplateEncoder("U00:%x[0,0]")
        >>> batch = encoder.fit([[("a",), ("b",)]])
        >>> TemplateEncoder.from_state(*encoder.state()).node_name(1)
        'U00:b'
        """
        if not isinstance(header, dict) or not isinstance(header.get("template"), str):
            raise ModelFileError("the encoder's header has no template text.")
        pool = _array(arrays, "alphabet_pool", np.uint8)
        try:
            made = cls(header["template"], marks=str(header.get("marks", "crfpp")))
            alphabet = Alphabet.from_arrays(pool, _array(arrays, "alphabet_offsets", np.int64)).lock()
            sides = []
            for name, patterns in (("node", made.template.unigrams), ("edge", made.template.bigrams)):
                skeleton = _array(arrays, f"{name}_skeleton", np.int32)
                sides.append(made._restored(patterns, alphabet, skeleton, _array(arrays, f"{name}_codes", np.int32)))
        except InputError as error:
            raise ModelFileError(f"the template encoder in the file is damaged: {error}") from None
        made._alphabet, (made._node, made._edge) = alphabet, sides
        return made

    def _restored(
        self, patterns: tuple[Pattern, ...], alphabet: Alphabet, skeleton: np.ndarray, codes: np.ndarray
    ) -> _Side:
        marks = self._marks(alphabet, add=False)
        table, samples = compile_patterns(patterns, radix=len(alphabet), marks=marks)
        kernel.extend(table, skeleton, codes)
        return _Side(patterns, table, samples, skeleton, codes, _starts(samples, skeleton))

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, np.ndarray] | None]:
        return self._header(), None if self._alphabet is None else self.state()[1]

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, np.ndarray] | None]) -> None:
        header, arrays = state
        if arrays is None:
            self.__init__(header["template"], marks=header.get("marks", "crfpp"))  # type: ignore[misc]
        else:
            self.__dict__.update(TemplateEncoder.from_state(header, arrays).__dict__)

    def __repr__(self) -> str:
        columns = "" if self._node is None else f", {self._node.width} columns"
        return f"TemplateEncoder({self.template!r}{columns})"


def mark_names(marks: str, reach: int) -> list[str]:
    """What stands 1 … reach rows before a sequence, and after it.

    >>> mark_names("crfpp", 2), mark_names("wapiti", 5)[3:5]
    (['_B-1', '_B-2', '_B+1', '_B+2'], ['_x-4', '_x-#'])
    """
    prefix, far = MARKS[marks]
    return [f"{prefix}{side}{d if d < far else '#'}" for side in "-+" for d in range(1, reach + 1)]


def _starts(samples: list[Pattern], skeleton: np.ndarray) -> np.ndarray:
    holes = np.array([len(pattern.macros) for pattern in samples], dtype=np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(holes[skeleton])])


def _selected(side: _Side, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return side.skeleton[kept], side.codes[np.repeat(kept, np.diff(side.starts))]


def _filled(columns: Columns, chosen: np.ndarray) -> np.ndarray:
    """(R,) bool: rows with an entry in one of the chosen columns."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen[columns.indices])])
    return before[columns.indptr[1:]] > before[columns.indptr[:-1]]


def _without_dropped(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """CSR without the entries that are −1."""
    kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(indices >= 0)])
    return kept[indptr], indices[indices >= 0]


def _name(side: _Side, column: int, alphabet: Alphabet) -> str:
    if not 0 <= column < side.width:
        raise FeatureError(f"columns lie in 0 … {side.width - 1}, got {column}.")
    codes = side.codes[side.starts[column] : side.starts[column + 1]]
    return side.samples[side.skeleton[column]].fill(alphabet.texts(codes))


def _array(arrays: dict[str, np.ndarray], name: str, dtype: Any) -> np.ndarray:
    array = arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        got = "nothing" if array is None else f"{getattr(array, 'dtype', type(array))} {getattr(array, 'shape', '')}"
        raise ModelFileError(f"array {name!r} must be 1-D of {np.dtype(dtype).name}, got {got}.")
    return array
