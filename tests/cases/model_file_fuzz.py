"""Model files edited at random, with every checksum made right again.

What a careless or hostile writer could make. Such a file may be refused with `ModelFileError`, or be a model that
works; anything else, of which a dead process is the worst, is a bug. Run in a process of its own.
"""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from crfield import load
from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.storage.archive import read_archive, write_archive
from tests.cases.estimators import Kind, kinds

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 2**31, 2**40, 2**63, 10**30, 1.5, 1e300, "", "x", "A", "all",
    "records", "matrix", "template", "functions", [], [0], [-1], ["A"], ["A", "A"], ["A", "B", "C", "D"], [None],
    [[]], {}, {"kind": "records"}, {"float": "0x1p+3"}, "U00:%x[0,0]", "U00:%x[0,5]\nB",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 3, 5, 100, 2**31 - 1, -(2**31), 2**40, -(2**62)]
TYPES = [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64, np.uint64]
FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to every value inside, at most six of a list."""
    if above:
        yield above
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*above, key))
    elif isinstance(value, list):
        for number in range(min(len(value), 6)):
            yield from places(value[number], (*above, number))


def edit_header(header: dict[str, Any], rng: random.Random) -> None:
    *way, last = rng.choice(list(places(header)))
    inner: Any = header
    for key in way:
        inner = inner[key]
    what = rng.random()
    if what < 0.2:
        del inner[last]
    elif what < 0.3 and isinstance(inner, list):
        inner.insert(last, copy.deepcopy(rng.choice(VALUES)))
    elif what < 0.4 and len(inner) > 1:  # swapped with a neighbour
        other = rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        inner[last], inner[other] = inner[other], inner[last]
    elif what < 0.55 and type(inner[last]) in (int, float):  # the right type, and a wrong size
        inner[last] = type(inner[last])(inner[last] * rng.choice([-1, 2, 1000, 10**9]) + rng.choice([-1, 0, 1]))
    else:
        inner[last] = copy.deepcopy(rng.choice(VALUES))


def edit_arrays(arrays: dict[str, np.ndarray], rng: random.Random) -> None:
    name = rng.choice(sorted(arrays))
    x, numbers, what = arrays[name].copy(), np.random.default_rng(rng.randrange(2**32)), rng.randrange(10)
    if what == 0:
        x = x[: rng.randrange(len(x) + 1)]
    elif what == 1:
        x = np.concatenate([x.ravel(), x.ravel()[: rng.randrange(4) + 1]])
    elif what == 2 and x.size:
        x.ravel()[rng.randrange(x.size)] = np.array(rng.choice(NUMBERS)).astype(x.dtype)
    elif what == 3:
        x = x.astype(rng.choice(TYPES))
    elif what == 4:
        x = x.reshape((1, *x.shape))
    elif what == 5:
        del arrays[name]
        return
    elif what == 6:
        name = rng.choice(sorted(arrays))
    elif what == 7:
        numbers.shuffle(x)
    elif what == 8 and x.dtype.kind == "f":  # each of them finite
        x = x * rng.choice([-1.0, 1e9, 1e150, 1e300])
    elif x.size and x.dtype.kind == "f":
        x.ravel()[rng.randrange(x.size)] = rng.choice(FLOATS)
    elif x.size and x.dtype.kind in "iu":
        low = max(np.iinfo(x.dtype).min, -5)
        x = numbers.integers(low, 50, size=x.shape).astype(x.dtype)
    arrays[name] = x


def edited(data: bytes, rng: random.Random) -> bytes | None:
    archive = read_archive(io.BytesIO(data))
    header = copy.deepcopy(archive.header)
    arrays = {name: array.copy() for name, array in archive.arrays.items()}
    with np.errstate(all="ignore"):
        for _ in range(rng.choice([1, 1, 2])):
            edit_header(header, rng) if rng.random() < 0.45 or not arrays else edit_arrays(arrays, rng)
    stream = io.BytesIO()
    try:
        write_archive(stream, header, arrays)
    except InputError:
        return None
    return stream.getvalue()


def use(model: Any, X: Any) -> None:
    """All that a loaded model may be asked."""
    model.predict(X)
    try:
        model.predict_proba(X)
    except InputError as error:
        if "scores must be finite" not in str(error):  # weights of 1e308, each finite, may well add up to more
            raise
    model.predict([])
    model.top_features(50)
    repr((model, model.transitions_, model.coef_))
    model.save(io.BytesIO())


def fuzz_kind(kind: Kind, seed: int, turns: int) -> tuple[int, int]:
    X, y = kind.data(5)
    stream = io.BytesIO()
    kind.model(tol=1e-3).fit(X, y).save(stream)
    rng = random.Random(f"{seed} {kind.name}")
    refused = used = 0
    for _ in range(turns):
        data = edited(stream.getvalue(), rng)
        if data is None:
            continue
        try:
            model = load(io.BytesIO(data), **kind.load_options())
        except ModelFileError:
            refused += 1
            continue
        except InputError as error:
            if "trained with" not in str(error):  # whose functions are right is not for us to say
                raise
            continue
        try:
            use(model, X)
        except ShapeError:  # a model for matrices of another width
            continue
        used += 1
    return refused, used


def fuzz(seed: int, turns: int) -> str:
    """How many of ``turns`` edited files of each kind were refused, and how many could be used."""
    counts = np.array([fuzz_kind(kind, seed, turns) for kind in kinds(saved=True)])
    refused, used = counts.sum(axis=0).tolist()
    return f"{refused} {used}"
