"""Saved models: the same answers after a round trip, and an error instead of a crash from every bad file."""

from __future__ import annotations

import copy
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, load
from crfield.errors import FeatureError, InputError, LabelError, ModelFileError
from crfield.storage import archive as archives
from crfield.storage.archive import read_archive, write_archive
from tests.cases.estimators import (
    Kind,
    as_arrays,
    as_strings,
    exact,
    kinds,
    plain_params,
    same,
    same_word,
    word,
    world,
)
from tests.storage.test_archive_damage import damage

each_kind = pytest.mark.parametrize("kind", list(kinds(saved=True)), ids=lambda k: k.name)


def saved(model: ChainCRF) -> bytes:
    stream = io.BytesIO()
    model.save(stream)
    return stream.getvalue()


def loaded(data: bytes, **options: Any) -> ChainCRF:
    return load(io.BytesIO(data), **options)


def small(kind: Kind) -> tuple[ChainCRF, Any]:
    X, y = kind.data(5)
    return kind.model(tol=1e-4).fit(X, y), X


# -------------------------------------------------------------------------- round trips


@each_kind
@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_model_answers_as_the_saved_one(kind: Kind, mmap: bool, tmp_path: Path) -> None:
    X, y = kind.data()
    new, gold = kind.data(6, seed=1)
    model = kind.model().fit(X, y)
    model.save(tmp_path / "model.crfield")
    again = load(tmp_path / "model.crfield", mmap=mmap, **kind.load_options())
    assert isinstance(again, ChainCRF)
    assert same(again.predict(new), model.predict(new))
    for one, other in zip(again.predict_proba(new), model.predict_proba(new), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(again.log_prob(new, gold), model.log_prob(new, gold))
    assert again.score(new, gold) == model.score(new, gold)
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist()
    assert np.array_equal(again.coef_, model.coef_)
    assert list(again.top_features(100)) == list(model.top_features(100))
    assert np.array_equal(again.transitions_.weights, model.transitions_.weights, equal_nan=True)
    for name in ("objective_", "n_iter_", "n_evaluations_", "converged_", "stop_reason_"):
        assert getattr(again, name) == getattr(model, name)
    assert again.history_ == []
    for name, value in plain_params(model).items():
        found = again.get_params()[name]
        assert (tuple(found) if isinstance(value, tuple) else found) == value
    assert saved(again) == saved(model)


@each_kind
def test_a_loaded_model_can_be_trained_on(kind: Kind, tmp_path: Path) -> None:
    """Again from the start, or on from its weights; and neither disturbs the file it came from."""
    X, y = kind.data()
    model = kind.model().fit(X, y)
    path = tmp_path / "model.crfield"
    model.save(path)
    before = path.read_bytes()
    for mmap in (False, True):
        again = load(path, mmap=mmap, **kind.load_options())
        again.set_params(**dict(kind.options)).set_params(warm_start=True)
        assert again.fit(X, y).n_iter_ <= 3 < model.n_iter_
        again.set_params(warm_start=False)
        assert again.fit(X, y).objective_ == model.objective_
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "names",
    [
        ("Ünïcode ✓", "", "\x00\ud800"),
        (0, -1, 2**70),
        (("B", 1), ("I", ("x", 2.5)), ()),
        (1.5, float("inf"), -0.0),
        ("x", 3, ("y", True)),
        (True, "True", 2.0),
    ],
    ids=repr,
)
def test_odd_labels_survive(names: tuple[Any, ...]) -> None:
    raw, y = world()
    X = as_strings(raw)
    model = exact().fit(X, [[names["ABC".index(label)] for label in labels] for labels in y])
    again = loaded(saved(model))
    assert [(type(a), a) for a in again._coder.labels] == [(type(a), a) for a in model._coder.labels]
    assert same(again.predict(X), model.predict(X))


def test_odd_feature_names_survive() -> None:
    names = ["", " ", "ü=ß", "a=b=c", "\x00", "日本語", "x" * 10_000, "[0]", "tab\there", "new\nline"]
    X = [[[name], [name, "common"]] for name in names]
    model = exact().fit(X, [["A", "B"]] * len(X))
    again = loaded(saved(model))
    assert [item.name for item in again.top_features(100)] == [item.name for item in model.top_features(100)]
    assert same(again.predict(X), model.predict(X))
    dicts = [[{name: name, "v": np.ones(2)}, {name: 1.5}] for name in names]
    model = exact().fit(dicts, [["A", "B"]] * len(X))
    assert same(loaded(saved(model)).predict(dicts), model.predict(dicts))


def test_labels_and_models_that_cannot_be_saved() -> None:
    raw, y = world()
    model = exact().fit(as_strings(raw), [[1j for _ in labels] for labels in y])
    with pytest.raises(LabelError, match=r"type complex.*cannot be written to a model file.*str\(label\)"):
        model.save(io.BytesIO())
    functions = exact(label_functions=[lambda before, label, x, t: before == label]).fit(raw, y)
    with pytest.raises(InputError, match=r"functions are code.*f\(x, t\), which can be saved"):
        functions.save(io.BytesIO())


def test_parameters_that_are_no_json() -> None:
    """Generators and callbacks stay behind; sets and arrays come back as lists."""
    raw, y = world()
    options = {
        "random_state": np.random.default_rng(0),
        "callback": lambda step, weights: None,
        "l2": np.float32(0.5),
        "max_iter": np.int64(1000),
        "transition_features": {"word", "shape"},
    }
    dicts = [[{"word": w, "shape": s} for w, s, _ in x] for x in raw]
    model = exact(**options).fit(dicts, y)
    again = loaded(saved(model))
    assert (again.random_state, again.callback) == (None, None)
    assert (again.l2, again.max_iter) == (0.5, 1000)
    assert sorted(again.transition_features) == ["shape", "word"]
    assert same(again.predict(dicts), model.predict(dicts))


def test_streams_paths_and_names(tmp_path: Path) -> None:
    raw, y = world()
    X = as_strings(raw)
    model = exact().fit(X, y)
    model.save(str(tmp_path / "a.crfield"))
    model.save(tmp_path / "b.crfield")
    assert (tmp_path / "a.crfield").read_bytes() == (tmp_path / "b.crfield").read_bytes() == saved(model)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.crfield")
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)
    with pytest.raises(InputError, match="path or a binary stream"):
        model.save(3)


# ---------------------------------------------------------------------------- functions


def test_functions_are_given_again() -> None:
    raw, y = world()
    model = exact(functions=[word], transition_functions=[same_word]).fit(raw, y)
    data = saved(model)
    bare = loaded(data)
    assert bare.classes_.tolist() == ["A", "B", "C"]
    assert [item.name for item in bare.top_features(3)] == [item.name for item in model.top_features(3)]
    with pytest.raises(FeatureError, match=r"holds no code.*\['word'\] and \['same_word'\].*functions=\[…\]"):
        bare.predict(raw)
    again = loaded(data, functions=[word], transition_functions=[same_word])
    assert same(again.predict(raw), model.predict(raw))
    assert again.functions == [word]
    with pytest.raises(InputError, match=r"those the model was trained with, \['word'\], got \['same_word'\]"):
        loaded(data, functions=[same_word], transition_functions=[same_word])
    with pytest.raises(InputError, match=r"transition_functions must be those.*\['same_word'\], got \[\]"):
        loaded(data, functions=[word])
    strings = saved(exact().fit(as_strings(raw), y))
    with pytest.raises(InputError, match="functions were given, but the model was trained on data of kind 'records'"):
        loaded(strings, functions=[word])


# ------------------------------------------------------------------------ atomic saving


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, y = world()
    path = tmp_path / "model.crfield"
    first = exact().fit(as_strings(raw), y)
    first.save(path)
    before = path.read_bytes()
    second = exact(l2=9.0).fit(as_strings(raw), y)

    def full(stream: Any, front: bytes, arrays: Any) -> None:
        stream.write(front[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        second.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.crfield"]
    monkeypatch.undo()
    second.save(path)
    assert load(path).l2 == 9.0
    unsaveable = exact().fit(as_strings(raw), [[1j for _ in labels] for labels in y])
    with pytest.raises(LabelError):
        unsaveable.save(path)
    assert load(path).l2 == 9.0


# ------------------------------------------------------------------------------ damage


@each_kind
def test_damaged_bytes_are_refused_or_harmless(kind: Kind) -> None:
    model, X = small(kind)
    data, rng, refused = saved(model), random.Random(0), 0
    wanted = model.predict_proba(X)
    for _ in range(80):
        try:
            again = loaded(damage(data, rng), **kind.load_options())
        except ModelFileError:
            refused += 1
            continue
        assert all(np.array_equal(a, b) for a, b in zip(again.predict_proba(X), wanted, strict=True))
    assert refused > 50


def test_a_damaged_array_of_a_mapped_file_is_met_when_used(tmp_path: Path) -> None:
    raw, y = world()
    path = tmp_path / "model.crfield"
    exact().fit(as_strings(raw), y).save(path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum"):
        load(path)
    model = load(path, mmap=True)
    assert model.classes_.tolist() == ["A", "B", "C"]
    with pytest.raises(ModelFileError, match="checksum"):
        model.predict(as_strings(raw))


def edited(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """The archive after a change of its header and arrays, with all checksums right."""
    archive = read_archive(io.BytesIO(data))
    header, arrays = copy.deepcopy(archive.header), {name: array.copy() for name, array in archive.arrays.items()}
    change(header, arrays)
    stream = io.BytesIO()
    write_archive(stream, header, arrays)
    return stream.getvalue()


def put(*keys: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = value

    return change


def swap(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda header, arrays: arrays.update({name: edit(arrays[name])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap("weights", lambda w: w[:-1]), "'weights' must be of shape"),
        (swap("weights", lambda w: np.append(w, 0.0)), "'weights' must be of shape"),
        (swap("weights", lambda w: w.astype(np.float32)), "'weights' must be of shape"),
        (swap("weights", lambda w: w[None, :]), "'weights' must be of shape"),
        (
            swap("weights", lambda w: np.where(np.arange(len(w)) == 2, np.nan, w)),
            "'weights' holds numbers that are not finite",
        ),
        (lambda header, arrays: arrays.pop("weights"), "lacks its weights"),
        (put("labels", value=["A", "B", "C", "D"]), "4 labels but a layout for 3"),
        (put("labels", value=["A", "B"]), "2 labels but a layout for 3"),
        (put("labels", value=["A", "B", "A"]), "labels must differ"),
        (put("labels", value=["A", "B", None]), "cannot be a label"),
        (put("labels", value=["A", "B", {"code": "x"}]), "not the spelling of a label"),
        (put("labels", value=[]), "list of labels"),
        (put("labels", value="ABC"), "list of labels"),
        (swap("layout/feature_label", lambda x: x + 3), "out of order or out of range"),
        (swap("layout/feature_label", lambda x: x - 9), "out of order or out of range"),
        (swap("layout/feature_label", lambda x: x[:-1]), "out of order or out of range"),
        (swap("layout/feature_ptr", lambda x: x[::-1].copy()), "out of order or out of range"),
        (swap("layout/feature_ptr", lambda x: x * 2**40), "out of order or out of range"),
        (swap("layout/feature_ptr", lambda x: x.astype(np.int32)), "out of order or out of range"),
        (swap("layout/pairs", lambda x: x + 9), "out of order or out of range"),
        (swap("layout/pairs", lambda x: x[::-1].copy()), "out of order or out of range"),
        (swap("layout/pairs", lambda x: x[:, None]), "out of order or out of range"),
        (swap("layout/pairs", lambda x: np.append(x[:-1], np.int32(-(2**31)))), "layout of the weights"),
        (lambda header, arrays: arrays.pop("layout/feature_ptr"), "out of order or out of range"),
        (put("layout", "n_labels", value=2**30), "layout"),
        (put("layout", "n_labels", value=0), "layout"),
        (put("layout", "n_columns", value=-1), "layout of the weights is damaged"),
        (put("layout", "n_columns", value=True), "layout of the weights is damaged"),
        (put("layout", "n_dense", value=5), "'weights' must be of shape"),
        (put("layout", "bias", value=1), "layout of the weights is damaged"),
        (put("layout", "bias", value=False), "'weights' must be of shape"),
        (put("layout", value=None), "lacks its layout"),
        (put("encoder", "kind", value="hashing"), "encoder of kind 'hashing'"),
        (put("encoder", "kind", value="matrix"), "Was it edited"),
        (put("encoder", value=None), "lacks its encoder"),
        (put("encoder", "transition_features", value="all"), "edge_columns"),
        (lambda header, arrays: header.pop("encoder"), "lacks its encoder"),
        (put("kind", value="bird_crf"), "kind 'bird_crf'; this version knows best_chain, boosted_field, chain_crf"),
        (put("kind", value=["chain_crf"]), "newer version"),
        (put("parameters", value=[]), "lacks its parameters"),
        (put("parameters", "l2", value="strong"), "parameters cannot be used: l2 must be"),
        (put("parameters", "decode", value=["viterbi"]), "decode must be one of"),
        (put("parameters", "n_jobs", value=10**9), "n_jobs must be"),
        (put("parameters", "template", value=5), "template must be"),
        (put("report", value=None), "lacks its report"),
        (put("report", "n_iter_", value="many"), "lacks n_iter_"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parts_that_disagree(change: Callable[[dict[str, Any], dict[str, Any]], object], message: str) -> None:
    raw, y = world()
    data = edited(saved(exact().fit(as_strings(raw), y)), change)
    with pytest.raises(ModelFileError) as caught:
        loaded(data)
    assert message in str(caught.value)


def test_an_encoder_of_another_model_is_noticed() -> None:
    """Encoder and layout are each right, but not for each other; smaller or larger, sparse or dense."""
    raw, y = world(60)
    host = saved(exact().fit(as_strings(raw[:20]), y[:20]))
    for write, number in ((as_strings, 4), (as_strings, 60), (as_arrays, 20)):
        X = [[step[:1] for step in x] if write is as_strings else x for x in write(raw[:number])]
        donor = read_archive(io.BytesIO(saved(exact().fit(X, y[:number]))))

        def transplant(header: dict[str, Any], arrays: dict[str, Any], donor: Any = donor) -> None:
            header["encoder"] = donor.header["encoder"]
            arrays.update({k: v for k, v in donor.arrays.items() if k.startswith("encoder/")})

        with pytest.raises(ModelFileError, match=r"encoder makes \(\d+, \d+, 0, 0\) columns.*weights are for"):
            loaded(edited(host, transplant))


def test_a_parameter_of_a_newer_version_is_passed_over() -> None:
    raw, y = world()
    model = exact().fit(as_strings(raw), y)
    again = loaded(edited(saved(model), put("parameters", "temperature", value=2.0)))
    assert same(again.predict(as_strings(raw)), model.predict(as_strings(raw)))


FUZZ = """
import faulthandler
import sys

from tests.cases.model_file_fuzz import fuzz

faulthandler.enable()
print(fuzz(int(sys.argv[1]), 40))
"""


def test_hostile_files_never_crash_the_process() -> None:
    """Edits with right checksums: only the checks of meaning stand before the kernels. In a child, to see it live."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, "1"], cwd=root, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, used = map(int, done.stdout.split())
    assert refused > 200
    assert used > 30
