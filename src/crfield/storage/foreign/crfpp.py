r"""Text models of CRF++, as ``crf_learn -t`` writes them beside its binary ones.

    version: 100            four facts: version, a factor of all weights, number of weights, number of token columns
    cost-factor: 1
    maxid: 12
    xsize: 2
                            (a blank line before each of the following)
    B-NP                    labels, in the order of their numbers
    U00:%x[0,0]             template lines
    0 U00:He                features: number of its first weight, and name
    0.5                     weights, one a line

(Kudo, *CRF++*.) A feature of a ``U`` line has a weight for each label, one of a ``B`` line for each pair of labels,
label before · L + label. Reading checks the sections, that every feature lies within the weights and none in another,
and that all numbers are finite. Binary models are another format, whose features are a double array: convert them
where they were made, by training again with ``-t``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from crfield.errors import ModelFileError
from crfield.storage.files import Source, name_of, read_text

MAGIC = b"version: "
_FACTS = ("version", "cost-factor", "maxid", "xsize")


@dataclass(frozen=True, eq=False)
class CrfppModel:
    r"""What such a file says.

    >>> text = "version: 100\ncost-factor: 1\nmaxid: 6\nxsize: 1\n\nA\nB\n\nU0:%x[0,0]\nB\n\n0 B\n4 U0:a\n\n"
    >>> model = parse_crfpp_model(text + "1\n2\n3\n4\n5\n6\n")
    >>> model.labels, model.names, model.starts.tolist(), model.weights.tolist()
    (('A', 'B'), ('B', 'U0:a'), [0, 4], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    """

    labels: tuple[str, ...]
    template: str
    n_columns: int
    names: tuple[str, ...]
    starts: np.ndarray  # (F,) int64: the first weight of each feature
    weights: np.ndarray  # (W,) float64, the factor applied


def read_crfpp_model(source: Source) -> CrfppModel:
    """The model in a file, checked; `ModelFileError` when it is damaged."""
    try:
        return parse_crfpp_model(read_text(source))
    except ValueError as error:  # the text may not be UTF-8 either
        raise ModelFileError(f"{name_of(source)}: {error}") from None


def parse_crfpp_model(text: str) -> CrfppModel:
    """The model that the text of a file is."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    head, at = _section(lines, 0)
    labels, at = _section(lines, at)
    template, at = _section(lines, at)
    listed, at = _section(lines, at)
    facts = _facts(head)
    n_labels = len(labels)
    if not labels or len(set(labels)) < n_labels:
        _refuse(f"it lists {n_labels} labels, {len(set(labels))} of them different")
    for line in template:
        if line[:1] not in ("U", "B"):
            _refuse(f"the template line {line[:40]!r} begins neither with U nor with B")
    names, starts = [], []
    for number, line in enumerate(listed):
        start, _, name = line.replace("\t", " ").partition(" ")
        if not start.isascii() or not start.isdigit() or len(start) > 15 or name[:1] not in ("U", "B"):
            _refuse(f"the feature {line[:60]!r} (number {number}) is not a number and a name with U or B")
        names.append(name)
        starts.append(int(start))
    if len(set(names)) < len(names):
        _refuse("two features have one name")
    tail = lines[at:]
    while tail and not tail[-1].strip():
        tail.pop()
    weights = _weights(tail, first_line=at + 1)
    if len(weights) != facts["maxid"]:
        _refuse(f"it should have {facts['maxid']:.0f} weights and has {len(weights)}")
    first = np.array(starts, np.int64)
    width = np.array([n_labels if name[0] == "U" else n_labels**2 for name in names], np.int64)
    order = np.argsort(first, kind="stable")
    ends = (first + width)[order]
    if (ends > len(weights)).any() or (first[order][1:] < ends[:-1]).any():
        _refuse("the weights of two features overlap, or end behind the last")
    return CrfppModel(
        tuple(labels), "\n".join(template), int(facts["xsize"]), tuple(names), first, weights * facts["cost-factor"]
    )


def _section(lines: list[str], at: int) -> tuple[list[str], int]:
    """The lines up to the next blank one, and where those behind it begin."""
    try:
        end = lines.index("", at)
    except ValueError:
        _refuse("it ends before its weights")
    return lines[at:end], end + 1


def _facts(head: list[str]) -> dict[str, float]:
    facts: dict[str, float] = {}
    for line in head:
        name, _, value = line.partition(":")
        try:
            facts[name] = float(value)
        except ValueError:
            _refuse(f"the line {line[:40]!r} has no number")
    for name in _FACTS:
        if not math.isfinite(facts.get(name, math.nan)):
            _refuse(f"it does not say its {name}")
    if facts["version"] // 100 != 1:
        _refuse(f"it has version {facts['version']:.0f}; known is version 100")
    if facts["xsize"] < 0 or facts["xsize"] > 1e6 or facts["maxid"] < 0:
        _refuse(f"it claims {facts['xsize']:.0f} columns and {facts['maxid']:.0f} weights")
    return facts


def _weights(lines: list[str], *, first_line: int) -> np.ndarray:
    try:
        weights = np.array(lines, dtype=np.float64) if lines else np.zeros(0)
    except ValueError:
        weights = np.full(1, np.nan)
    if np.isfinite(weights).all():
        return weights
    for number, line in enumerate(lines):
        try:
            good = math.isfinite(float(line))
        except ValueError:
            good = False
        if not good:
            _refuse(f"line {first_line + number} should be a weight and is {line[:40]!r}")
    _refuse("its weights cannot be read")


def _refuse(problem: str) -> NoReturn:
    raise ModelFileError(
        f"the text model of CRF++ is damaged or cut: {problem}. Copy the file again, or train again."
    )
