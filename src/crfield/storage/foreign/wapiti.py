r"""Models of Wapiti, which are text.

    #mdl#2#3                kind (0 maximum entropy, 1 MEMM, 2 CRF; older files leave it out), number of weights
    #rdr#2/1/0              number of patterns, of token columns, and whether columns are observations by themselves
    12:u00:%x[ 0,0],        patterns: length in bytes, text, comma
    1:b,
    #qrk#2                  labels
    1:A,
    1:B,
    #qrk#2                  observations, each the string that a pattern became
    7:u00:dog,
    1:b,
    0=0x1.8p+0              the weights that are not 0: number, value

(Lavergne, Cappé & Yvon 2010.) An observation that begins with ``u`` has a weight for each label, one with ``b`` for
each pair, label before · L + label, one with ``*`` both, in this order; they are numbered as the observations come.
Files are read whole and every length checked; CRFs with patterns of ``%x`` alone become models here, of the rest an
error says why not.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from crfield.errors import ModelFileError
from crfield.storage.files import Source, name_of, read_bytes

MAGIC = b"#mdl#"
_KINDS = {0: "maximum entropy", 1: "MEMM"}
_CRF = 2
_MODEL = re.compile(rb"#mdl#(?:(\d{1,9})#)?(\d{1,18})\n")
_READER = re.compile(rb"#rdr#(\d{1,9})/(\d{1,9})(?:/(\d{1,9}))?\n")
_LIST = re.compile(rb"#qrk#(\d{1,18})\n")
_LENGTH = re.compile(rb"(\d{1,9}):")
_WEIGHT = re.compile(rb"(\d{1,18})=([^\n]{1,80})\n?")

Weights = tuple[np.ndarray, np.ndarray, np.ndarray]  # of which observation, for what, value


@dataclass(frozen=True, eq=False)
class WapitiModel:
    r"""What such a file says; weights by the part of the model they belong to.

    >>> data = b"#mdl#2#2\n#rdr#2/1/0\n11:u0:%x[ 0,0],\n1:b,\n#qrk#2\n1:A,\n1:B,\n#qrk#2\n4:u0:a,\n1:b,\n"
    >>> model = parse_wapiti_model(data + b"1=0x1.8p+0\n4=-0x1p-1\n")
    >>> model.labels, model.observations, [part.tolist() for part in model.state + model.pairs]
    (('A', 'B'), ('u0:a', 'b'), [[0], [1], [1.5], [1], [2], [-0.5]])
    """

    labels: tuple[str, ...]
    patterns: tuple[str, ...]
    observations: tuple[str, ...]
    state: Weights  # observations, labels
    pairs: Weights  # observations, label before · L + label


def read_wapiti_model(source: Source) -> WapitiModel:
    """The model in a file, checked; `ModelFileError` when it is damaged or of another kind."""
    try:
        return parse_wapiti_model(read_bytes(source))
    except ModelFileError as error:
        raise ModelFileError(f"{name_of(source)}: {error}") from None


def parse_wapiti_model(data: bytes) -> WapitiModel:
    """The model that the bytes of a file are."""
    data = data.replace(b"\r\n", b"\n") if data[:40].split(b"\n", 1)[0].endswith(b"\r") else data
    head, at = _match(_MODEL, data, 0, "its first line")
    kind, count = int(head[1] or _CRF), int(head[2])
    if kind != _CRF:
        raise ModelFileError(
            f"the model of Wapiti is one of kind {_KINDS.get(kind, kind)}; only CRFs (kind {_CRF}) can be read. "
            "Train crfield.MEMM or crfield.MaxentClassifier on the same data."
        )
    reader, at = _match(_READER, data, at, "the line of its reader")
    patterns, at = _strings(data, at, int(reader[1]))
    if not patterns:
        raise ModelFileError(
            "the model of Wapiti has no patterns: its data held observations as they are. Train again from them as "
            "lists of feature strings."
        )
    head, at = _match(_LIST, data, at, "the number of labels")
    labels, at = _strings(data, at, int(head[1]))
    head, at = _match(_LIST, data, at, "the number of observations")
    observations, at = _strings(data, at, int(head[1]))
    if not labels or len(set(labels)) < len(labels) or len(set(observations)) < len(observations):
        _refuse("it has no labels, or a label or an observation twice")
    numbers, values = _weights(data, at, count)
    return WapitiModel(
        tuple(labels), tuple(patterns), tuple(observations), *_parts(observations, len(labels), numbers, values)
    )


def _match(pattern: re.Pattern[bytes], data: bytes, at: int, what: str) -> tuple[re.Match[bytes], int]:
    found = pattern.match(data, at)
    if found is None:
        _refuse(f"{what} should stand at byte {at:,}, there is {data[at : at + 20]!r}")
    return found, found.end()


def _strings(data: bytes, at: int, count: int) -> tuple[list[str], int]:
    """So many strings with their lengths before them, and where the rest begins."""
    if count > len(data):
        _refuse(f"a list of {count:,} strings cannot stand in {len(data):,} bytes")
    out = []
    for _ in range(count):
        found, at = _match(_LENGTH, data, at, "the length of a string")
        end = at + int(found[1])
        if data[end : end + 2] != b",\n":
            _refuse(f"the string at byte {at:,} should end at {end:,}")
        try:
            out.append(data[at:end].decode())
        except UnicodeDecodeError:
            _refuse(f"the string at byte {at:,} is not UTF-8")
        at = end + 2
    return out, at


def _weights(data: bytes, at: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    if count > len(data):
        _refuse(f"{count:,} weights cannot stand in {len(data):,} bytes")
    numbers, values = np.zeros(count, np.int64), np.zeros(count)
    for k in range(count):
        found, at = _match(_WEIGHT, data, at, f"weight {k:,} of {count:,}")
        numbers[k], values[k] = int(found[1]), _number(found[2])
    if data[at:].strip():
        _refuse(f"there is more behind its {count:,} weights")
    if len(np.unique(numbers)) < count:
        _refuse("a weight is there twice")
    return numbers, values


def _number(text: bytes) -> float:
    """C's hexadecimal spelling, or a decimal one."""
    try:
        value = float.fromhex(text.decode()) if b"0x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        _refuse(f"the weight {text[:30]!r} is not a finite number")
    return value


def _parts(
    observations: list[str], n_labels: int, numbers: np.ndarray, values: np.ndarray
) -> tuple[Weights, Weights]:
    """Each weight with its observation, and the label or pair of labels it is for."""
    sizes = {"u": (n_labels, 0), "b": (0, n_labels**2), "*": (n_labels, n_labels**2)}
    for text in observations:
        if text[:1] not in sizes:
            _refuse(f"the observation {text[:40]!r} begins with none of u, b and *")
    starts = np.concatenate([[0], np.cumsum([sum(sizes[text[0]]) for text in observations], dtype=np.int64)])
    if len(numbers) and numbers.max() >= starts[-1]:
        _refuse(f"it has weight {numbers.max():,} of {starts[-1]:,}")
    owner = np.searchsorted(starts, numbers, side="right") - 1
    singles = np.array([sizes[text[0]][0] for text in observations], np.int64)[owner]
    place = numbers - starts[owner]
    of_state = place < singles
    state = (owner[of_state], place[of_state], values[of_state])
    return state, (owner[~of_state], (place - singles)[~of_state], values[~of_state])


def _refuse(problem: str) -> NoReturn:
    raise ModelFileError(f"the model of Wapiti is damaged or cut: {problem}. Copy the file again, or train again.")
