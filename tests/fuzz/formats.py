"""The formats that crfield reads, each with a corpus, a way to damage it, and what a user would do with the file.

Two kinds of damage. *Bytes* are changed as disks and mail do; formats under a checksum must then be refused or give
the same content, anything else is silent damage. *Values* are edited and every checksum is made right again, as a
careless or hostile writer would; then the file must be refused or be a model that answers, without NaN.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

import crfield
from crfield.errors import CrfieldError, InputError, ModelFileError
from crfield.storage.archive import Archive, read_archive
from crfield.storage.datasets.rfid import read_rfid_trials
from crfield.storage.encoded import FRONT
from crfield.storage.files import read_bytes
from tests.cases.estimators import TEMPLATE, as_dicts, as_rows, as_strings, world
from tests.cases.model_file_fuzz import edited
from tests.fuzz.damage import damaged
from tests.fuzz.models import Damage, ask, saved_models
from tests.fuzz.runner import Format
from tests.storage.foreign.test_crfpp_and_wapiti import CRFPP, OBSERVATIONS, PATTERNS, WEIGHTS, wapiti

_NUMBER = 4  # bytes that say which file of a corpus was damaged


def _content(archive: Archive) -> Any:
    rows = [(name, a.dtype.str, a.shape, a.tobytes()) for name, a in archive.arrays.items()]
    return json.dumps(archive.header, sort_keys=True), sorted(rows)


def _numbered(number: int, data: bytes) -> bytes:
    return number.to_bytes(_NUMBER, "little") + data


def _cut(data: bytes) -> tuple[int, bytes]:
    return int.from_bytes(data[:_NUMBER], "little"), data[_NUMBER:]


_models = cache(saved_models)


# ------------------------------------------------------------------------------------------------- model archives


def _archive_bytes(rng: random.Random) -> bytes:
    number = rng.randrange(len(_models()))
    return _numbered(number, damaged(_models()[number].data, rng))


def _read_archive(data: bytes) -> None:
    number, data = _cut(data)
    found = _content(read_archive(io.BytesIO(data)))
    if found != _content(read_archive(io.BytesIO(_models()[number].data))):
        raise Damage("another content under right checksums")


def _model_values(rng: random.Random) -> bytes:
    number = rng.randrange(len(_models()))
    return _numbered(number, _edited(_models()[number].data, rng))


def _edited(data: bytes, rng: random.Random) -> bytes:
    return next(made for made in iter(lambda: edited(data, rng), b"") if made is not None)


def _load_and_ask(data: bytes) -> None:
    number, data = _cut(data)
    saved = _models()[number]
    try:
        model = crfield.load(io.BytesIO(data), **dict(saved.options))
    except InputError as error:
        if not saved.options:
            raise
        raise ModelFileError(str(error)) from None  # whose functions are right is not for us to say
    ask(model, saved.X)


# ---------------------------------------------------------------------------------------------------- checkpoints

TRAININGS: list[dict[str, Any]] = [
    {"solver": "lbfgs"},
    {"solver": "lbfgs", "l1": 0.5},
    {"solver": "warm"},
    {"solver": "warm", "l1": 0.3, "validation_fraction": 0.3, "patience": 3},
]


def _train(path: str, options: dict[str, Any], callback: Any = None) -> Any:
    X, y = world(12)
    model = crfield.ChainCRF(checkpoint=path, checkpoint_every=0, max_iter=8, callback=callback, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(as_strings(X), y)


@cache
def _checkpoints() -> list[tuple[bytes, bytes]]:
    """A checkpoint within each training (two of those with phases), and the weights at its end."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c")
        for options in TRAININGS:
            seen: list[bytes] = []

            def look(step: Any, weights: Any, seen: list[bytes] = seen) -> None:
                with suppress(OSError), open(path, "rb") as file:
                    seen.append(file.read())

            end = _train(path, options, look).coef_.tobytes()
            made += [(seen[k], end) for k in sorted({len(seen) // 3, len(seen) - 1})]
            os.unlink(path)
    return made


def _checkpoint_bytes(rng: random.Random) -> bytes:
    number = rng.randrange(len(_checkpoints()))
    return _numbered(number, damaged(_checkpoints()[number][0], rng))


def _checkpoint_values(rng: random.Random) -> bytes:
    number = rng.randrange(len(_checkpoints()))
    return _numbered(number, _edited(_checkpoints()[number][0], rng))


def _go_on(data: bytes) -> None:
    _resume(data, same=False)


def _go_on_the_same(data: bytes) -> None:
    _resume(data, same=True)


def _resume(data: bytes, *, same: bool) -> None:
    number, data = _cut(data)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c")
        with open(path, "wb") as file:
            file.write(data)
        model = _train(path, TRAININGS[number // 2])
        weights = model.coef_
        if np.isnan(weights).any() or (same and weights.tobytes() != _checkpoints()[number][1]):
            raise Damage("other weights at the end of training")
        if not same:
            ask(model, as_strings(world(3)[0]))


# ----------------------------------------------------------------------------------------------- encoded data sets


@cache
def _dataset() -> dict[str, bytes]:
    X, y = world(10)
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "data")
        parts = [(as_dicts(X[k : k + 5]), y[k : k + 5]) for k in (0, 5)]
        crfield.encode_dataset(parts, place, shard_bytes=1500)
        names = sorted(os.listdir(place))
        files = {}
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                files[name] = file.read()
    return files


def _dataset_input(change: Callable[[bytes, random.Random], bytes]) -> Callable[[random.Random], bytes]:
    def make(rng: random.Random) -> bytes:
        names = sorted(_dataset())
        number = rng.randrange(len(names)) if rng.random() < 0.5 else names.index(FRONT)
        return _numbered(number, change(_dataset()[names[number]], rng))

    return make


def _train_on_dataset(data: bytes) -> None:
    number, data = _cut(data)
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "data")
        os.mkdir(place)
        for k, (name, whole) in enumerate(sorted(_dataset().items())):
            with open(os.path.join(place, name), "wb") as file:
                file.write(data if k == number else whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = crfield.ChainCRF(max_iter=3).fit(crfield.EncodedDataset(place))
        ask(model, as_dicts(world(2)[0]))
        shutil.rmtree(place)


@cache
def _packed_dataset() -> tuple[dict[str, bytes], bytes]:
    """The files of a data set with its packed shards, and the weights that are trained on it."""
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, whole in _dataset().items():
            files[name] = whole
            with open(os.path.join(folder, name), "wb") as file:
                file.write(whole)
        weights = _weights_from_disk(folder)
        for above, _, names in os.walk(os.path.join(folder, "packed")):
            for name in names:
                with open(os.path.join(above, name), "rb") as file:
                    files[os.path.relpath(os.path.join(above, name), folder)] = file.read()
    return files, weights


def _weights_from_disk(place: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = crfield.ChainCRF(max_iter=3).fit(crfield.EncodedDataset(place, packed=True))
    return bytes(model.coef_.tobytes())


def _packed_input(change: Callable[[bytes, random.Random], bytes]) -> Callable[[random.Random], bytes]:
    def make(rng: random.Random) -> bytes:
        files = _packed_dataset()[0]
        names = sorted(name for name in files if name.startswith("packed"))
        number = rng.randrange(len(names))
        return _numbered(number, change(files[names[number]], rng))

    return make


def _train_on_packed(data: bytes, *, same: bool = False) -> None:
    number, data = _cut(data)
    files, weights = _packed_dataset()
    names = sorted(name for name in files if name.startswith("packed"))
    with tempfile.TemporaryDirectory() as folder:
        for name, whole in files.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data if name == names[number] else whole)
        if _weights_from_disk(folder) != weights and same:
            raise Damage("other weights from a damaged cache")


def _train_on_packed_the_same(data: bytes) -> None:
    _train_on_packed(data, same=True)


# -------------------------------------------------------------------------------------------- models of other tools


@cache
def _crfsuite() -> bytes:
    X, y = world(8)
    model = crfield.ChainCRF(intercept=False, boundaries=False, max_iter=20, tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(as_strings(X), y)
    stream = io.BytesIO()
    crfield.write_crfsuite_model(model, stream)
    return stream.getvalue()


def _tool(good: Callable[[], bytes], X: Any) -> tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]:
    def make(rng: random.Random) -> bytes:
        return damaged(good(), rng)

    def use(data: bytes) -> None:
        ask(crfield.load(io.BytesIO(data)), X)

    return make, use


# ------------------------------------------------------------------------------------------------------------ texts

COLUMN_TEXT = "".join("".join(f"{w} {s} A\n" for w, s in x) + "\n" for x in as_rows(world(6)[0])).encode()
ATTRIBUTE_TEXT = b"A\tword=a\tspeed:1.5\nB\tword=b:2\tx\\:y\n\n@weight:2.5\nB\tword=a\tmass:-3e2\n\n"
GRAPH_TEXT = (
    b'{"nodes": [["a"], ["b"]], "edges": {"next": [[0, 1]]}, "labels": ["X", null]}\n'
    b'{"nodes": [["b"], ["c"]], "edges": {"next": [[0, 1]]}, "labels": ["Y", "X"]}\n'
)
KIND_TEXT = (
    b'{"nodes": {"room": [[1.5, 2], [3, 4]], "person": [{"age": 3}]}, "edges": {"near": {"pairs": [[0, 1]], '
    b'"features": [[2.5]], "symmetric": true, "between": ["room", "room"]}}, "labels": {"room": ["A", "B"], '
    b'"person": [{"any": ["C", "D"]}]}}\n'
)
RFID_LINE = b"0,0.3,1.0,-0.1,1,-63.5,2.4,924.25,1\n"


def _train_columns(data: bytes) -> None:
    columns = crfield.read_columns(io.BytesIO(data))
    X, y = columns.split_column(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(X) and sum(len(set(labels)) for labels in y) < 60:
            model = crfield.ChainCRF(template="U00:%x[0,0]\nB\n", max_iter=2).fit(X, y)
            ask(model, X)


def _train_attributes(data: bytes) -> None:
    X, y, weights = crfield.read_crfsuite(io.BytesIO(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = crfield.ChainCRF(max_iter=2).fit(X, y, sample_weight=weights)
    ask(model, X)


def _use_template(data: bytes) -> None:
    template = crfield.read_template(io.BytesIO(data))
    X, y = world(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crfield.ChainCRF(template=template, max_iter=2).fit(as_rows(X), y).predict(as_rows(X))


def _use_graphs(data: bytes) -> None:
    graphs, labels = crfield.read_graphs(io.BytesIO(data))
    if labels is not None and sum(graph.n_nodes for graph in graphs) < 100:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask(crfield.GraphCRF(max_iter=2, objective="pseudo_likelihood").fit(graphs, labels), graphs)


def _gzip_input(rng: random.Random) -> bytes:
    if rng.random() < 0.005:
        return _bomb()
    return damaged(gzip.compress(COLUMN_TEXT, mtime=0), rng)


@cache
def _bomb() -> bytes:
    """Half a gigabyte of nothing in half a megabyte: eight members of sixty-four."""
    return 8 * gzip.compress(bytes(64 << 20), 9, mtime=0)


def _read_gzip(data: bytes) -> None:
    found = read_bytes(io.BytesIO(data))
    # What stands behind the first member, and bytes of its head, are under no checksum.
    if data[:2] == b"\x1f\x8b" and len(found) < 1 << 20 and not found.startswith(COLUMN_TEXT):
        raise Damage("another text under a right checksum")


@cache
def _rfid() -> bytes:
    import tarfile

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("set/d1p01M")
        entry.size = 4 * len(RFID_LINE)
        archive.addfile(entry, io.BytesIO(4 * RFID_LINE))
    return stream.getvalue()


def _text(*good: bytes) -> Callable[[random.Random], bytes]:
    return lambda rng: damaged(rng.choice(good), rng)


def formats() -> list[Format]:
    """All of them; the corpora are made here, once, so that every process that is forked has them."""
    _models(), _checkpoints(), _dataset(), _packed_dataset(), _crfsuite(), _rfid(), _bomb()
    words = as_strings(world(3)[0])
    rows = [[("a", "x"), ("b", "x/y"), ("c", "x")]]
    tools = {
        "CRFsuite model": _tool(_crfsuite, words),
        "CRF++ model": _tool(CRFPP.encode, rows),
        "Wapiti model": _tool(lambda: wapiti(PATTERNS, OBSERVATIONS, WEIGHTS), [[("a",), ("b",)]]),
    }
    files = (ModelFileError, InputError)
    return [
        Format("model file, bytes", _archive_bytes, _read_archive, (ModelFileError,), 20),
        Format("model file, values", _model_values, _load_and_ask, (ModelFileError,), 8),
        Format("checkpoint, bytes", _checkpoint_bytes, _go_on_the_same, files, 8),
        Format("checkpoint, values", _checkpoint_values, _go_on, files, 3),
        Format("encoded data, bytes", _dataset_input(damaged), _train_on_dataset, files, 5),
        Format("encoded data, values", _dataset_input(_edited), _train_on_dataset, files, 3),
        Format("packed shards, bytes", _packed_input(damaged), _train_on_packed_the_same, (), 4),
        Format("packed shards, values", _packed_input(_edited), _train_on_packed, files, 4),
        *(Format(name, make, use, (ModelFileError,), 8) for name, (make, use) in tools.items()),
        Format("column file", _text(COLUMN_TEXT), _train_columns, (CrfieldError,), 6),
        Format("CRFsuite attributes", _text(ATTRIBUTE_TEXT), _train_attributes, (CrfieldError,), 6),
        Format("template", _text(TEMPLATE.encode()), _use_template, (CrfieldError,), 4),
        Format("graphs as JSON", _text(GRAPH_TEXT, KIND_TEXT), _use_graphs, (CrfieldError,), 5),
        Format("gzip", _gzip_input, _read_gzip, (CrfieldError,), 5),
        Format("RFID archive", lambda rng: damaged(_rfid(), rng), _rfid_read, (CrfieldError,), 3),
    ]


def _rfid_read(data: bytes) -> None:
    read_rfid_trials(io.BytesIO(data))
