"""Files that say what no writer of ours would, with every checksum right: one kind of error, little memory, no hang.

The cases by name were real ones; the rest is `tests.fuzz` with a few inputs of every format.
"""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, ClassifierHMM, EncodedDataset, LogitBoost, SelectedCRF, load
from crfield.errors import InputError, ModelFileError
from crfield.estimators.base.load import KINDS
from crfield.storage import archive_reading, limits
from crfield.storage.archive import read_archive, write_archive
from crfield.storage.archive_reading import text_problem
from crfield.storage.checkpoints import Checkpoint
from crfield.storage.encoded import FRONT
from crfield.storage.foreign.crfsuite import CrfsuiteModel, format_crfsuite_model
from tests.cases.estimators import as_strings, some_chains, world
from tests.fuzz import formats
from tests.fuzz.models import ask
from tests.fuzz.runner import run_format
from tests.storage.test_archive_damage import sealed

Change = Callable[[dict[str, Any], dict[str, np.ndarray]], object]


def changed(data: bytes, change: Change) -> bytes:
    archive = read_archive(io.BytesIO(data))
    header, arrays = json.loads(json.dumps(archive.header)), {k: a.copy() for k, a in archive.arrays.items()}
    change(header, arrays)
    stream = io.BytesIO()
    write_archive(stream, header, arrays)
    return stream.getvalue()


def saved(model: Any) -> bytes:
    stream = io.BytesIO()
    model.save(stream)
    return stream.getvalue()


# --------------------------------------------------------------------------------------------------------- headers


def test_a_header_of_empty_lists_is_counted_before_it_is_built() -> None:
    """67 MB of them would take gigabytes; a tenth of that, refused in the time of a few passes."""
    body = b'{"header":{"a":[' + b"[]," * 2_300_000 + b'[]]},"arrays":[]}'
    began = time.process_time()
    with pytest.raises(ModelFileError, match="more than 2,097,152 values"):
        read_archive(io.BytesIO(sealed(body, b"")))
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": "[[[[,,,,{{{"}', None),
        ('{"a\\"[,,,,,[": ["\\\\", 1, "\\\\\\"[,"]}', None),
        ("[1,2,3,4,5,6,7,8]", None),
        ("[1,2,3,4,5,6,7,8,9,0]", "values"),
        ('["", [], [], [], {}, {}, {}, {}]', "values"),
        ("[[[[]]]]", None),
        ("[[[[[]]]]]", "deep"),
        ('{"x":{"x":{"x":{"x":{"x":1}}}}}', "deep"),
        ('"[[[[[[[["', None),
    ],
)
def test_values_and_depth_of_a_text_are_those_of_the_value(
    text: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_reading, "MAX_DEPTH", 4)
    monkeypatch.setattr(archive_reading, "MAX_VALUES", 10)
    for piece in (1 << 20, 1, 3):
        monkeypatch.setattr(archive_reading, "_PIECE", piece)
        found = text_problem(text.encode())
        assert (found is None) == (problem is None)
        assert problem is None or problem in str(found)


def test_what_cannot_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reading, "MAX_VALUES", 100)
    with pytest.raises(InputError, match="more than 100 values"):
        write_archive(io.BytesIO(), {"a": [0] * 200}, {})


# ------------------------------------------------------------------------------------------------ sizes that are lies


def many_labels(n: int) -> bytes:
    """A model of CRFsuite with n labels and next to nothing else."""
    labels = [f"label{k}" for k in range(n)]
    model = CrfsuiteModel.of(labels, ["w"], state={("w", labels[0]): 1.0}, transitions={(labels[0], labels[1]): 0.5})
    return format_crfsuite_model(model)


def test_a_small_file_of_many_labels_describes_no_table_of_gigabytes() -> None:
    data = many_labels(20_000)
    assert len(data) < 1_500_000
    with pytest.raises(ModelFileError, match=r"transitions of 20,000 labels need 3,200,000,000 bytes.*file_growth"):
        load(io.BytesIO(data))


def test_many_labels_load_where_they_fit_and_where_the_limit_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = many_labels(600)
    assert load(io.BytesIO(data)).predict([[["w"]]])[0].tolist() == ["label0"]
    monkeypatch.setattr(limits, "FLOOR", 1 << 20)
    with crfield.file_growth(10), pytest.raises(ModelFileError, match="transitions of 600 labels"):
        load(io.BytesIO(data))
    with crfield.file_growth(None):
        assert len(load(io.BytesIO(data)).classes_) == 600
    monkeypatch.setattr(limits, "TIMES", 1.0)  # a model of our own with weights for its labels is in proportion
    model = load(io.BytesIO(many_labels(40)))
    assert len(load(io.BytesIO(saved(model))).classes_) == 40


@pytest.mark.parametrize("window", [2**63, 2**40, 5000, -1, 1.5, True])
def test_a_window_of_a_file_is_in_range(window: Any) -> None:
    X, y = some_chains(8, 0)
    for model in (ClassifierHMM(LogitBoost(n_rounds=2)), crfield.TreeCRF(n_rounds=2)):
        data = saved(model.fit(X, y))
        with pytest.raises(ModelFileError, match="window must be an integer"):
            load(io.BytesIO(changed(data, lambda header, _: header["parameters"].update(window=window))))


@pytest.mark.parametrize("name", ["n_columns", "n_dense"])
@pytest.mark.parametrize("count", [2**31, 2**31 - 1, 10**6])
def test_a_data_set_has_the_columns_of_its_encoder(name: str, count: int, tmp_path: Path) -> None:
    X, y = world(6)
    crfield.encode_dataset([(as_strings(X), y)], tmp_path / "data")
    front = tmp_path / "data" / FRONT
    front.write_bytes(changed(front.read_bytes(), lambda header, _: header.update({name: count})))
    with pytest.raises(ModelFileError, match=r"damaged|dense columns"):
        ChainCRF(max_iter=2).fit(EncodedDataset(tmp_path / "data"))


# ------------------------------------------------------------------------------------------------------- the models


@pytest.mark.parametrize("size", [1e308, -1e308, 1e200])
def test_numbers_too_large_to_be_added_are_refused(size: float) -> None:
    X, y = some_chains(8, 0)
    data = saved(ChainCRF(tol=1e-2).fit(X, y))
    wrong = changed(data, lambda _, arrays: arrays["weights"].__setitem__(slice(None), size))
    with pytest.raises(ModelFileError, match=r"array 'weights' holds .*beyond 1e\+100"):
        load(io.BytesIO(wrong))
    fine = changed(data, lambda _, arrays: arrays["weights"].__setitem__(slice(None), 1e90))
    ask(load(io.BytesIO(fine)), X)


def test_mapped_models_are_checked_when_they_are_built(tmp_path: Path) -> None:
    X, y = some_chains(8, 0)
    data = saved(ChainCRF(tol=1e-2).fit(X, y))
    wrongs: list[Change] = [
        lambda _, arrays: arrays["weights"].__setitem__(0, 1e308),
        lambda header, _: header["layout"].pop("n_labels"),
        lambda header, _: header["encoder"].update(kind=["records"]),
        lambda header, _: header["encoder"].update(transition_features=7),
    ]
    for number, change in enumerate(wrongs):
        path = tmp_path / f"{number}.crfield"
        path.write_bytes(changed(data, change))
        with pytest.raises(ModelFileError):
            load(path, mmap=True).predict(X)


SELECTED: dict[str, Change] = {
    "options": lambda header, _: header["parameters"].update(options=[1]),
    "a label that is a list": lambda header, _: header["features"][0].__setitem__(1, [["A"]]),
    "rounds that are none": lambda header, _: header["path"].update(rounds=3),
    "names that are none": lambda header, _: header["path"].update(names=[1]),
    "a weight that is a word": lambda header, _: header["features"][0].__setitem__(2, "x"),
    "strengths of words": lambda _, arrays: arrays.update(strengths=np.zeros((1, 1, 1))),
}
BOOSTED: dict[str, Change] = {
    "discrete": lambda header, _: header["parameters"].update(discrete=True),
    "discrete columns": lambda header, _: header["parameters"].update(discrete=[[1]]),
    "numbers": lambda header, _: header.update(numbers="b99"),
    "width": lambda header, _: header.update(n_features_in=2**70),
    "names": lambda header, _: header.update(feature_names_in=7),
    "evidence": lambda header, _: header.update(evidence=[["a", -1]]),
    "form of evidence": lambda header, _: header.update(evidence_form=["scores"]),
    "a class that is a list": lambda header, _: header["classes"].__setitem__(0, {"float": "x"}),
    "leaves": lambda _, arrays: arrays["step/leaves"].__setitem__(0, 2**40),
}


@pytest.fixture(scope="module")
def selected() -> bytes:
    return saved(SelectedCRF(method="l1-path").fit(*some_chains(8, 0)))


@pytest.mark.parametrize("name", SELECTED)
def test_headers_of_selected_models(name: str, selected: bytes) -> None:
    only_refused_or_usable(selected, SELECTED[name], some_chains(8, 0)[0])


@pytest.mark.parametrize("name", BOOSTED)
def test_headers_of_boosted_models(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    only_refused_or_usable(saved(LogitBoost(n_rounds=3).fit(X, X[:, 0] > 0)), BOOSTED[name], X)


def only_refused_or_usable(data: bytes, change: Change, X: Any) -> None:
    try:
        model = load(io.BytesIO(changed(data, change)))
    except ModelFileError:
        return
    ask(model, X)


# ------------------------------------------------------------------------------------------------------ checkpoints


def interrupted(path: Path) -> tuple[ChainCRF, Any, Any]:
    """A training, and the checkpoint of its sixth step."""
    X, y = world(12)
    model = ChainCRF(checkpoint=path, checkpoint_every=0, callback=lambda step, _: step.n_iter == 6)
    model.fit(as_strings(X), y)
    return ChainCRF(checkpoint=path, checkpoint_every=0), as_strings(X), y


def test_checkpoints_have_a_version_and_those_without_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run"
    model, X, y = interrupted(path)
    data = path.read_bytes()
    assert read_archive(path).header["version"] == 1
    whole = ChainCRF().fit(X, y)
    path.write_bytes(changed(data, lambda header, _: header.pop("version")))
    np.testing.assert_array_equal(model.fit(X, y).coef_, whole.coef_)
    for version in (2, 0, "1", True, None):
        path.write_bytes(changed(data, lambda header, _, version=version: header.update(version=version)))  # type: ignore[misc]
        with pytest.raises(ModelFileError, match=r"version .*this crfield resumes version 1"):
            model.fit(X, y)


STATES: dict[str, Change] = {
    "no weights": lambda _, arrays: arrays.pop("state/weights"),
    "one weight for all": lambda _, arrays: arrays.update({"state/weights": np.ones(1)}),
    "weights of another type": lambda _, arrays: arrays.update({"state/weights": arrays["state/weights"] > 0}),
    "infinite gradient": lambda _, arrays: arrays["state/gradient"].__setitem__(0, np.inf),
    "no steps": lambda _, arrays: arrays.pop("state/steps"),
    "narrow steps": lambda _, arrays: arrays.update({"state/steps": arrays["state/steps"][:, :3]}),
    "no point": lambda header, _: header["state"].pop("point"),
    "a point of two": lambda header, _: header["state"].update(point=[1.0, 2.0]),
    "a point of words": lambda header, _: header["state"].update(point=["a", 2.0, 3]),
    "no course": lambda header, _: header["state"].update(course=7),
    "no count": lambda header, _: header["state"].update(n_evaluations=-1),
    "no memory": lambda header, _: header["state"].pop("memory"),
    "too much memory": lambda header, _: header["state"].update(memory=2**40),
    "a stopping rule without values": lambda header, _: header["state"].update(stopping={}),
    "a stopping rule of numbers": lambda header, _: header["state"].update(stopping=3),
    "a history of another size": lambda _, arrays: arrays.update({"state/history/s": np.zeros((2, 1))}),
    "no phase": lambda header, _: header.update(phase=3),
    "things beside that are none": lambda header, _: header.update(beside={"held_out": 3}),
}


@pytest.mark.parametrize("name", STATES)
def test_states_that_no_run_left(name: str, tmp_path: Path) -> None:
    model, X, y = interrupted(tmp_path / "run")
    wrong = changed((tmp_path / "run").read_bytes(), STATES[name])
    (tmp_path / "run").write_bytes(wrong)
    with pytest.raises(ModelFileError, match="Delete it to begin anew"):
        model.fit(X, y)
    assert (tmp_path / "run").read_bytes() == wrong
    os.unlink(tmp_path / "run")
    model.fit(X, y)


def test_a_checkpoint_of_epochs_is_checked_too(tmp_path: Path) -> None:
    X, y = world(12)
    path = tmp_path / "run"
    ChainCRF(solver="warm", checkpoint=path, checkpoint_every=0, tol=1e-2).fit(as_strings(X), y)
    digests = read_archive(path).header["digests"]
    weights = read_archive(path).arrays["state/weights"]
    good = {"epoch": 1, "step": 0.1, "loss": 3.0, "random": np.random.default_rng(0).bit_generator.state}
    wrongs = [{"epoch": -1}, {"step": "x"}, {"loss": None}, {"random": 3}, {"random": {"bit_generator": "PCG64"}}]
    for wrong in wrongs:
        path.unlink()
        Checkpoint(path, digests, every=0.0).offer("epochs", lambda wrong=wrong: (good | wrong, {"weights": weights}))  # type: ignore[misc]
        with pytest.raises(ModelFileError, match="cannot be resumed"):
            ChainCRF(solver="warm", checkpoint=path, checkpoint_every=0, tol=1e-2).fit(as_strings(X), y)


# ------------------------------------------------------------------------------------------------------- the fuzzer


@pytest.fixture(scope="module")
def every_format() -> list[Any]:
    return formats.formats()


def test_the_corpus_has_every_kind_of_model(every_format: list[Any]) -> None:
    assert {saved.kind for saved in formats._models()} == set(KINDS)


def test_whole_files_are_used(every_format: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing is fuzzed but the first check."""
    import random

    monkeypatch.setattr(formats, "damaged", lambda good, rng: good)
    monkeypatch.setattr(formats, "_edited", lambda good, rng: good)
    monkeypatch.setattr(formats, "edited", lambda good, rng: good)
    for form in formats.formats():
        if form.name != "gzip":
            form.use(form.make(random.Random(1)))


def test_a_few_inputs_of_every_format(every_format: list[Any]) -> None:
    """`make fuzz` runs more of them; the page docs/design/reliability.md says what came of a hundred thousand."""
    for form in every_format:
        outcome = run_format(form, seed=20, count=40 if "model file" in form.name else 12)
        assert outcome.clean, outcome.trouble
        assert outcome.refused + outcome.answered == outcome.inputs


def test_the_runner_sees_crashes_hangs_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fuzz import runner

    monkeypatch.setattr(runner, "SECONDS", 3.0)  # the first touch of 350 MB may take one
    monkeypatch.setattr(runner, "MEMORY", 512 << 20)

    def use(data: bytes) -> None:
        what = data[0]
        if what == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while what == 2:
            pass
        if what == 3:
            bytearray(1 << 32)
        if what == 4:
            raise KeyError("x")
        if what == 5:
            raise formats.Damage("NaN")
        if what == 6:
            bytearray(b"x") * (350 << 20)
        if what == 7:
            raise ModelFileError("no")

    numbers = iter(range(100))
    shared = {}

    def make(rng: Any) -> bytes:
        return bytes([shared.setdefault(rng.random(), next(numbers))])

    form = runner.Format("x", make, use)
    for k in range(9):
        runner.input_of(form, 0, k)
    out = run_format(form, seed=0, count=9)
    counts = (out.answered, out.crashes, out.hangs, out.large, out.wrong, out.silent, out.refused)
    assert counts == (3, 1, 1, 2, 1, 1, 1)
    assert not out.clean
