"""Labels as the user has them, and their numbers.

A label is any hashable value but a set: at any step ``y`` may say a label, ``None`` (nobody looked) or a set
of labels (one of these). Labels that are equal in Python's sense are one label, as for the keys of a dict,
and a NumPy scalar is the Python value it holds.

The work is done on all sequences laid end to end. Lists go through one ``map`` over a dict, which Python runs
without interpreting a line per token (under 0.1 µs each); arrays of numbers or strings go through one
``np.unique``. Only steps that hold a set cost a turn of a Python loop, and errors are located after the fact.

Classes are sorted when they are of one type that has an order; otherwise they stand by name of type, then by
``repr``. The order does not depend on the order of the data nor on the seed of Python's string hashes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, pairwise, repeat
from math import isnan
from typing import Any, NoReturn

import numpy as np

from crfield.core.target import UNKNOWN, Target, check_weights
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Weights
from crfield.data.label_json import label_from_json, label_to_json, shown
from crfield.errors import InputError, LabelError, ModelFileError, NotFittedError, ShapeError

_FOREIGN = -2
_SETS = (set, frozenset)
_EXAMPLE = "y must hold one list of labels per sequence, such as [['A', 'B'], ['B']]"


class LabelCoder:
    """Numbers for labels: learnt by ``fit``, then fixed.

    >>> coder = LabelCoder().fit([["B", "I", None], ["O", {"B", "O"}]])
    >>> coder.classes_
    array(['B', 'I', 'O'], dtype='<U1')
    >>> labels, allowed = coder.encode([["B", None], ["O", {"B", "O"}]], [2, 2])
    >>> labels.tolist()
    [0, -1, 2, -1]
    >>> allowed.astype(int).tolist()
    [[1, 0, 0], [1, 1, 1], [0, 0, 1], [1, 0, 1]]
    >>> coder.decode([0, 1, 2], [0, 2, 3])
    array([array(['B', 'I'], dtype='<U1'), array(['O'], dtype='<U1')], dtype=object)
    """

    classes_: np.ndarray  # (L,) natural dtype when all are str or all int, else object

    def __init__(self) -> None:
        self._labels: list[Hashable] = []
        self._codes: dict[Hashable, int] = {}

    @classmethod
    def from_classes(cls, labels: Iterable[Hashable]) -> LabelCoder:
        """A coder whose code k means the k-th of the given labels.

        >>> LabelCoder.from_classes(["O", "B"]).encode([["B", "O"]], [2])[0].tolist()
        [1, 0]
        """
        coder = cls()
        coder._labels = [plain(label) for label in labels]
        try:
            coder._codes = {label: code for code, label in enumerate(coder._labels)}
        except TypeError as error:
            raise LabelError(f"labels must be hashable: {error}. Use tuples instead of lists.") from None
        _refuse_unusable(coder._codes)
        if len(coder._codes) != len(coder._labels):
            raise LabelError(f"labels must differ, got {_listing(coder._labels)} with some of them equal.")
        coder.classes_ = _as_array(coder._labels)
        return coder

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self._labels)

    @property
    def labels(self) -> list[Hashable]:
        """The labels as plain Python values, in the order of their codes.

        >>> LabelCoder().fit([[2, 1]]).labels
        [1, 2]
        """
        return list(self._labels)

    def fit(self, y: Labels) -> LabelCoder:
        """Learn the classes: every label in ``y``, members of sets included."""
        sequences, lengths = _sequences(y)
        joined = _joined_arrays(sequences)
        if joined is not None:
            found = set(np.unique(joined).tolist())
        else:
            flat = list(chain.from_iterable(sequences))
            sets = _take_out_sets(flat, lengths)
            members = chain.from_iterable(_plain_members(allowed) for allowed in sets.values())
            found = _hashable_set(flat, lengths) | set(members)
        found.discard(None)
        _refuse_unusable(found)
        if not found:
            raise LabelError(
                f"y holds no label in {len(sequences)} sequences and {sum(lengths)} steps: every step is "
                "None, or there is none. Training needs at least one labelled step."
            )
        self._labels = _sorted(found)
        self._codes = {label: code for code, label in enumerate(self._labels)}
        self.classes_ = _as_array(self._labels)
        return self

    def encode(self, y: Labels, lengths: np.ndarray | Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
        """Codes of the labels of all sequences, laid end to end.

        ``lengths`` (B,) are the lengths that ``y`` must have, those of X. Returns the two arrays of a
        `Target`: ``labels`` (N,) int32, −1 where the step has not exactly one possible label, and ``allowed``
        (N, L) bool, which is None when there is no such step.
        """
        if not self._labels:
            raise NotFittedError("this LabelCoder knows no labels yet: call fit(y) first.")
        sequences, found = _sequences(y)
        _check_lengths(found, lengths)
        joined = _joined_arrays(sequences)
        if joined is not None:
            codes, sets = self._array_codes(joined), {}
        else:
            flat = list(chain.from_iterable(sequences))
            sets = _take_out_sets(flat, found)
            codes = self._list_codes(flat, found)
        if (codes == _FOREIGN).any():
            position = int(np.argmax(codes == _FOREIGN))
            value = joined[position].item() if joined is not None else flat[position]
            self._refuse_foreign(value, position, found)
        members = {}
        for position, choice in sets.items():
            members[position] = self._member_codes(choice, position, found)
            if len(members[position]) == 1:
                codes[position] = members[position][0]
        if not (codes == UNKNOWN).any():
            return codes, None
        allowed = np.zeros((len(codes), self.n_labels), dtype=bool)
        known = np.flatnonzero(codes >= 0)
        allowed[known, codes[known]] = True
        allowed[codes == UNKNOWN] = True
        for position, several in members.items():
            allowed[position] = False
            allowed[position, several] = True
        return codes, allowed

    def decode(self, codes: np.ndarray | Sequence[int], offsets: np.ndarray | Sequence[int]) -> np.ndarray:
        """Labels of the codes, (B,) an object array with one 1-D array per sequence.

        Sequence s owns ``codes[offsets[s]:offsets[s + 1]]``. The inner arrays have the dtype of ``classes_``:
        that of NumPy when all classes are str or all are int, else object. They share memory with each other.
        """
        if not self._labels:
            raise NotFittedError("this LabelCoder knows no labels yet: call fit(y) first.")
        codes = np.asarray(codes, dtype=np.int64)
        bounds = np.asarray(offsets, dtype=np.int64).tolist()
        if not bounds or bounds[0] != 0 or bounds[-1] != len(codes) or sorted(bounds) != bounds:
            raise ShapeError(f"offsets must rise from 0 to {len(codes)}, the number of codes, got {bounds[:5]} ….")
        if len(codes) and (codes.min() < 0 or codes.max() >= self.n_labels):
            raise LabelError(f"codes must lie in 0 … {self.n_labels - 1}, got {codes.min()} … {codes.max()}.")
        flat = self.classes_[codes]
        out = np.empty(len(bounds) - 1, dtype=object)
        for sequence, (start, stop) in enumerate(pairwise(bounds)):
            out[sequence] = flat[start:stop]
        return out

    def decode_one(self, codes: list[int]) -> np.ndarray:
        """What `decode` gives for the codes of a single sequence, which are known to be right.

        >>> LabelCoder().fit([["B", "A"]]).decode_one([0, 1, 0])[0].tolist()
        ['A', 'B', 'A']
        """
        out = np.empty(1, dtype=object)
        out[0] = self.classes_[np.array(codes, np.intp)]
        return out

    def to_json(self) -> list[Any]:
        """The classes as JSON values, for the header of a model file.

        >>> LabelCoder().fit([[("B", 1), ("I", 1)]]).to_json()
        [['B', 1], ['I', 1]]
        """
        return [label_to_json(label) for label in self._labels]

    @classmethod
    def from_json(cls, value: Any) -> LabelCoder:
        """The coder whose `to_json` this is.

        >>> LabelCoder.from_json([['B', 1], ['I', 1]]).labels
        [('B', 1), ('I', 1)]
        """
        if not isinstance(value, list) or not value:
            raise ModelFileError(f"expected the list of labels, got {type(value).__name__}: the file is damaged.")
        labels = [item if type(item) is str else label_from_json(item) for item in value]
        try:
            return cls.from_classes(labels)
        except LabelError as error:
            raise ModelFileError(f"the labels in the model file cannot be used: {error}") from None

    def _array_codes(self, joined: np.ndarray) -> np.ndarray:
        values, inverse = np.unique(joined, return_inverse=True)
        of_value = np.fromiter(
            map(self._codes.get, values.tolist(), repeat(_FOREIGN)), dtype=np.int32, count=len(values)
        )
        return of_value[inverse.reshape(-1)] if len(values) else np.zeros(0, np.int32)

    def _list_codes(self, flat: list[Any], lengths: list[int]) -> np.ndarray:
        table = {**self._codes, None: UNKNOWN}
        try:
            return np.fromiter(map(table.get, flat, repeat(_FOREIGN)), dtype=np.int32, count=len(flat))
        except TypeError:
            _refuse_unhashable(flat, lengths)

    def _member_codes(self, choice: Iterable[Any], position: int, lengths: list[int]) -> list[int]:
        codes = []
        for label in _plain_members(choice):
            if label not in self._codes:
                self._refuse_foreign(label, position, lengths, inside=choice)
            codes.append(self._codes[label])
        return sorted(codes)

    def _refuse_foreign(self, label: object, position: int, lengths: list[int], *, inside: object = None) -> NoReturn:
        within = "" if inside is None else f" in the set {shown(inside)}"
        raise LabelError(
            f"unknown label {shown(label)}{within} at {_where(position, lengths)}: the model knows "
            f"{_listing(self._labels)}. Write None where the label is unknown, or train with this label."
        )


def sequence_target(chains: Chains, labels: LabelCoder, y: Labels, sample_weight: Weights) -> Target:
    """The target of labels y on chains; InputError where X holds no steps at all.

    >>> target = sequence_target(Chains.from_lengths([2]), LabelCoder().fit([["a", "b"]]), [["b", None]], None)
    >>> target.labels.tolist()
    [1, -1]
    """
    codes, allowed = labels.encode(y, chains.lengths)
    if chains.n_nodes == 0:
        raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
    weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
    return Target(chains, labels.n_labels, codes, allowed, weight)


def _sequences(y: Any) -> tuple[list[Any], list[int]]:
    """The label sequences of y and their lengths; anything that is not a list of sized lists is refused."""
    if isinstance(y, str | bytes | dict | set | frozenset) or not hasattr(y, "__iter__"):
        raise LabelError(f"{_EXAMPLE}, got {type(y).__name__}.")
    if not hasattr(y, "__len__"):
        raise LabelError(f"{_EXAMPLE}; {type(y).__name__} can be read only once. Use list(…).")
    if isinstance(y, np.ndarray) and y.ndim == 0:
        raise LabelError(f"{_EXAMPLE}, got an array without dimensions.")
    sequences = list(y)
    for number, labels in enumerate(sequences):
        if isinstance(labels, list | tuple):
            continue
        if isinstance(labels, np.ndarray):
            if labels.ndim != 1:
                raise ShapeError(
                    f"y[{number}] must be 1-D, one label per step, got an array of shape {labels.shape}."
                )
            continue
        if isinstance(labels, str | bytes):
            raise LabelError(
                f"y[{number}] is a string, {shown(labels)}, not a list of labels; {_EXAMPLE}. If y is the "
                "labels of a single sequence, pass [y]; if each letter is a label, pass list(…) of each."
            )
        if isinstance(labels, set | frozenset | dict) or not hasattr(labels, "__len__"):
            flat = isinstance(labels, Hashable) and not hasattr(labels, "__iter__")
            advice = (
                "write [None] * length for a sequence without labels"
                if labels is None
                else "if y is the labels of a single sequence, pass [y]"
                if flat
                else "use a list, which has an order and a length"
            )
            raise LabelError(
                f"y[{number}] is {shown(labels)} of type {type(labels).__name__}, not a list of labels; "
                f"{_EXAMPLE}: {advice}."
            )
    return sequences, [len(labels) for labels in sequences]


def _check_lengths(found: list[int], expected: np.ndarray | Sequence[int]) -> None:
    wanted = np.asarray(expected, dtype=np.int64)
    if len(found) != len(wanted):
        raise ShapeError(f"X has {len(wanted)} sequences and y has {len(found)}: give both one entry per sequence.")
    wrong = np.flatnonzero(np.asarray(found, dtype=np.int64) != wanted)
    if len(wrong):
        first = int(wrong[0])
        more = f" ({len(wrong)} sequences differ)" if len(wrong) > 1 else ""
        raise ShapeError(
            f"sequence {first}: X[{first}] has {int(wanted[first])} steps and y[{first}] has {found[first]} "
            f"labels{more}. Give one label per step, None where it is unknown."
        )


def _joined_arrays(sequences: list[Any]) -> np.ndarray | None:
    """All sequences in one array when they are arrays of one plain kind of value, else None.

    One kind, because NumPy would turn a mixture of integers and strings into strings.
    """
    if not sequences or not all(isinstance(labels, np.ndarray) for labels in sequences):
        return None
    kinds = {labels.dtype.kind for labels in sequences if len(labels)}
    if len(kinds) != 1 or not kinds <= set("biufUS"):
        return None
    return np.concatenate([labels for labels in sequences if len(labels)])


def _take_out_sets(flat: list[Any], lengths: list[int]) -> dict[int, Iterable[Any]]:
    """Sets in ``flat`` by position; None takes their place there, and plain values that of NumPy scalars."""
    kinds = set(map(type, flat))
    if any(issubclass(kind, np.generic) for kind in kinds):
        flat[:] = map(plain, flat)
    if not any(issubclass(kind, _SETS) for kind in kinds):
        return {}
    sets: dict[int, Iterable[Any]] = {
        position: value for position, value in enumerate(flat) if isinstance(value, _SETS)
    }
    for position, choice in sets.items():
        members = _plain_members(choice)
        if not members or None in members:
            raise LabelError(
                f"{shown(choice)} at {_where(position, lengths)} is not a set of allowed labels. "
                + ("An empty set allows nothing" if not members else "None stands alone")
                + ": write None where every label is possible."
            )
        flat[position] = None
    return sets


def _plain_members(choice: Iterable[Any]) -> list[Any]:
    return [plain(label) for label in choice]


def plain(label: Any) -> Any:
    """A scalar of NumPy as Python's own; everything else as it is."""
    return label.item() if isinstance(label, np.generic) else label


def _hashable_set(flat: list[Any], lengths: list[int]) -> set[Any]:
    try:
        return set(flat)
    except TypeError:
        _refuse_unhashable(flat, lengths)


def _refuse_unhashable(flat: list[Any], lengths: list[int]) -> NoReturn:
    for position, label in enumerate(flat):
        try:
            hash(label)
        except TypeError:
            raise LabelError(
                f"the label {shown(label)} at {_where(position, lengths)} is a {type(label).__name__}, "
                "which cannot be a label because it is not hashable. Use a str, a number or a tuple."
            ) from None
    raise LabelError("some label is not hashable.")


def _refuse_unusable(labels: Iterable[Any]) -> None:
    for label in labels:
        if isinstance(label, float) and isnan(label):
            raise LabelError("NaN cannot be a label, for it does not equal itself. Write None for an unknown label.")
        if label is None or isinstance(label, _SETS):
            raise LabelError(
                f"{shown(label)} cannot be a label: None means unknown and a set means one of several. "
                "Use a tuple for a label made of parts."
            )


def _sorted(labels: Iterable[Any]) -> list[Any]:
    by_name = sorted(labels, key=lambda label: (type(label).__name__, _repr(label)))
    if len({type(label) for label in by_name}) > 1:
        return by_name
    try:
        return sorted(by_name)
    except TypeError:
        return by_name


def _repr(label: object) -> str:
    try:
        return repr(label)
    except ValueError:  # an integer too long for Python to print; its own order decides if all are integers
        return ""


def _as_array(labels: list[Any]) -> np.ndarray:
    kinds = {type(label) for label in labels}
    # NumPy's fixed-width strings drop trailing NULs, and its integers end at 64 bits.
    if kinds == {str} and not any(label.endswith("\0") for label in labels):
        return np.array(labels, dtype=np.str_)
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        return np.array(labels, dtype=np.int64)
    out = np.empty(len(labels), dtype=object)
    for code, label in enumerate(labels):
        out[code] = label  # one by one: as a whole, NumPy would read tuples of one length as rows
    return out


def _where(position: int, lengths: list[int]) -> str:
    ends = np.cumsum(lengths)
    sequence = int(np.searchsorted(ends, position, side="right"))
    return f"sequence {sequence}, step {position - int(ends[sequence]) + lengths[sequence]}"


def _listing(labels: Sequence[Any], *, most: int = 10) -> str:
    first = ", ".join(shown(label) for label in labels[:most])
    return f"{first}, … ({len(labels)} in all)" if len(labels) > most else first
