r"""CRFsuite's attribute files: ``label<TAB>attribute[:value]<TAB>…``, a blank line between sequences.

``\:`` and ``\\`` stand for a colon and a backslash in a name, a missing value is one, and a line
``@weight:2.0`` gives the sequence it stands in a weight. Where CRFsuite guesses, this asks: a value that is
no finite number (CRFsuite takes 0), a colon in a label (CRFsuite cuts the label there) and unknown ``@``
directives are errors with their line. Reference: N. Okazaki, *CRFsuite: a fast implementation of
Conditional Random Fields*, manual, section "Data format".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.attributes import AttributeSequences
from crfield.errors import FormatError
from crfield.kernels import columns as kernel

_UNWRITABLE = re.compile(r"[\t\r\n\ud800-\udfff]")


def parse_crfsuite(
    data: bytes, *, file: str | None = None
) -> tuple[AttributeSequences, list[np.ndarray], np.ndarray]:
    r"""Attributes, one object array of labels per sequence, and the weights (B,).

    >>> X, y, weights = parse_crfsuite(b"N\tw=a\tlong:2\nV\tw=b\n\nN\tw=a\n")
    >>> X[0], [labels.tolist() for labels in y], weights.tolist()
    ([{'w=a': 1.0, 'long': 2.0}, {'w=b': 1.0}], [['N', 'V'], ['N']], [1.0, 1.0])
    """
    attributes, labels, offsets, gold, indptr, indices, values, weights = kernel.parse_crfsuite(data, file=file)
    names = np.array(Alphabet(interner=labels).texts(np.arange(len(labels))), dtype=object)[gold]
    ends = offsets.tolist()
    X = AttributeSequences(Chains(offsets), indptr, indices, values, Alphabet(interner=attributes))
    return X, [names[a:b] for a, b in pairwise(ends)], weights


def format_crfsuite(
    X: Iterable[Iterable[Any]], y: Iterable[Sequence[str]], *, weights: Iterable[float] | None = None
) -> str:
    r"""The file's text; steps are dicts name → number or iterables of names.

    >>> format_crfsuite([[{"w=a:b": 1, "long": 0.5}], [["w=c"]]], [["N"], ["V"]], weights=[1, 2])
    'N\tw=a\\:b\tlong:0.5\n\n@weight:2.0\nV\tw=c\n'
    """
    X, y = list(X), list(y)
    given = [1.0] * len(X) if weights is None else [float(weight) for weight in weights]
    if not len(X) == len(y) == len(given):
        raise FormatError(f"X, y and weights must have one entry per sequence, got {len(X)}, {len(y)}, {len(given)}.")
    parts = []
    for s, (sequence, labels, weight) in enumerate(zip(X, y, given)):
        steps = list(sequence)
        if len(steps) != len(labels) or not steps:
            raise FormatError(
                f"sequence {s} has {len(steps)} steps and {len(labels)} labels. Both must agree, and a file "
                "cannot hold an empty sequence."
            )
        if not np.isfinite(weight) or weight < 0:
            raise FormatError(f"the weight of sequence {s} must be finite and not negative, got {weight}.")
        lines = [] if weight == 1.0 else [f"@weight:{weight!r}"]
        lines += ["\t".join([_label(label, s), *_attributes(step, s)]) for step, label in zip(steps, labels)]
        parts.append("\n".join(lines) + "\n")
    text = "\n".join(parts)
    # A reader takes one byte order mark away: a first label that begins with one needs another before it.
    return "\ufeff" + text if text.startswith("\ufeff") else text


def _attributes(step: Any, s: int) -> list[str]:
    if isinstance(step, str):
        raise FormatError(f"a step must be a dict or a list of attribute names, got {step!r} (sequence {s}).")
    if not isinstance(step, dict):
        return [_escaped(name, s) for name in step]
    fields = []
    for name, value in step.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            raise FormatError(f"the value of {name!r} must be a finite number, got {value!r} (sequence {s}).")
        fields.append(_escaped(name, s) + ("" if number == 1.0 else f":{number!r}"))
    return fields


def _label(label: Any, s: int) -> str:
    if isinstance(label, str) and label.startswith("@"):
        raise FormatError(f"the label {label!r} begins with '@', which CRFsuite reads as a directive (sequence {s}).")
    return _escaped(label, s)


def _escaped(name: Any, s: int) -> str:
    if not isinstance(name, str) or not name or _UNWRITABLE.search(name):
        raise FormatError(
            f"the name {name!r} cannot be written: names are strings of one or more characters without tabs, "
            f"line ends or lone surrogates (sequence {s})."
        )
    return name.replace("\\", "\\\\").replace(":", "\\:")
