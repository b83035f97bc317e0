"""Checkpoints: kill -9 at any moment, then the same call, ends with the same bits; no file is left broken."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF
from crfield.errors import CrfieldWarning, InputError, ModelFileError
from crfield.storage.archive import read_archive, write_archive
from crfield.storage.checkpoints import Checkpoint
from tests.cases.estimators import KINDS, as_strings, world

SCRIPT = """
import sys, time
import crfield
from crfield.estimators.chain.crf import ChainCRF
checkpoint, answer, pause, l1, fraction = sys.argv[1:]
phrases = crfield.make_phrases(100)
X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
l1, fraction = float(l1), float(fraction) or None
slow = lambda step, weights: time.sleep(float(pause))
print("ready", flush=True)
model = ChainCRF(l1=l1, checkpoint=checkpoint, checkpoint_every=0, solver="warm", tol=1e-4, callback=slow,
                 validation_fraction=fraction, patience=8).fit(X, phrases.labels)
with open(answer, "wb") as file:
    file.write(model.coef_.tobytes() + repr((model.objective_, model.n_iter_)).encode())
"""


def run(
    folder: Path, *, pause: float, kill_after: float | None, l1: float = 0.0, fraction: float = 0.0
) -> bytes | None:
    """Train in a process of its own; killed after so many seconds of training, if it is not done by then."""
    checkpoint, answer = folder / "run.checkpoint", folder / "answer"
    arguments = [str(checkpoint), str(answer), str(pause), str(l1), str(fraction)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    if kill_after is not None:
        time.sleep(kill_after)
        child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    if checkpoint.exists():
        read_archive(checkpoint)  # whole at every moment
    if child.returncode == 0:
        return answer.read_bytes()
    assert child.returncode == -signal.SIGKILL
    return None


def killed_and_resumed(
    folder: Path, moments: list[float], *, pause: float = 0.02, **options: Any
) -> tuple[bytes, bytes, int]:
    """The answers without and with kills, and how many of them hit; steps take ``pause`` seconds until then."""
    phrases = crfield.make_phrases(100)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    l1, fraction = options.get("l1", 0.0), options.get("fraction")
    model = ChainCRF(l1=l1, solver="warm", tol=1e-4, validation_fraction=fraction, patience=8).fit(X, phrases.labels)
    whole = model.coef_.tobytes() + repr((model.objective_, model.n_iter_)).encode()
    hits = 0
    for moment in moments:
        hits += run(folder, pause=pause, kill_after=moment, **options) is None
    end = run(folder, pause=0.0, kill_after=None, **options)
    assert end is not None
    assert sorted(path.name for path in folder.iterdir()) == ["answer", "run.checkpoint"]
    return whole, end, hits


def test_killed_and_resumed(tmp_path: Path) -> None:
    whole, end, hits = killed_and_resumed(tmp_path, [0.5])
    assert hits
    assert end == whole


@pytest.mark.skipif(not os.environ.get("CRFIELD_LONG"), reason="long: CRFIELD_LONG=1 runs it")
@pytest.mark.parametrize("case", ["ridge", "lasso", "held_out"])
def test_killed_at_ten_random_moments(case: str, tmp_path: Path) -> None:
    draw = random.Random(case)
    options = {"ridge": {}, "lasso": {"l1": 0.5}, "held_out": {"fraction": 0.2}}[case]
    moments = [draw.uniform(0.0, 1.0) for _ in range(10)]
    whole, end, hits = killed_and_resumed(tmp_path, moments, pause=0.5 if case == "held_out" else 0.15, **options)
    assert hits == 10
    assert end == whole


# ----------------------------------------------------------------- in one process


def test_a_place_that_cannot_be_written_is_told_before_training(tmp_path: Path) -> None:
    raw, y = world(4)
    for path, words in ((tmp_path / "no" / "run", "there is no folder"), (tmp_path, "it is a folder")):
        with pytest.raises(InputError, match=f"checkpoint must name a file that can be written, got .*{words}"):
            ChainCRF(checkpoint=path).fit(as_strings(raw), y)


def test_a_full_disk_costs_the_checkpoint_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    raw, y = world(10)
    whole = ChainCRF().fit(as_strings(raw), y)
    monkeypatch.setattr("crfield.storage.checkpoints.write_archive", full)
    with pytest.warns(CrfieldWarning, match="could not be written .*No space left"):
        model = ChainCRF(checkpoint=tmp_path / "run", checkpoint_every=0).fit(as_strings(raw), y)
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    assert not (tmp_path / "run").exists()


def stopping_at(step: int) -> Any:
    return lambda now, weights: now.n_iter >= step


@pytest.mark.parametrize("solver", ["lbfgs", "warm"])
def test_a_training_stopped_by_a_callback_goes_on(solver: str, tmp_path: Path) -> None:
    phrases = crfield.make_phrases(350)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    path = tmp_path / "run.checkpoint"
    common: dict[str, Any] = {"solver": solver, "tol": 1e-3}
    whole = ChainCRF(**common).fit(X, phrases.labels)
    for step in (1, 4):
        model = ChainCRF(checkpoint=path, callback=stopping_at(step), **common).fit(X, phrases.labels)
        assert model.n_iter_ == step
    model = ChainCRF(checkpoint=path, **common).fit(X, phrases.labels)
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    assert model.objective_ == whole.objective_
    assert [step.value for step in model.history_] == [step.value for step in whole.history_]
    again = ChainCRF(checkpoint=path, **common).fit(X, phrases.labels)  # done: at the end at once
    assert again.coef_.tobytes() == whole.coef_.tobytes()
    assert again.n_evaluations_ == whole.n_evaluations_


def test_held_out_scores_are_kept_too(tmp_path: Path) -> None:
    raw, y = world(40)
    X, path = as_strings(raw), tmp_path / "run.checkpoint"
    common: dict[str, Any] = {"validation_fraction": 0.25, "l2": 0.001, "patience": 3, "tol": 1e-8}
    whole = ChainCRF(**common).fit(X, y)
    assert whole.stop_reason_ == "held-out score"
    ChainCRF(checkpoint=path, callback=stopping_at(3), **common).fit(X, y)
    model = ChainCRF(checkpoint=path, **common).fit(X, y)
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    assert [step.score for step in model.history_] == [step.score for step in whole.history_]
    again = ChainCRF(checkpoint=path, **common).fit(X, y)
    assert (again.stop_reason_, again.n_iter_) == (whole.stop_reason_, whole.n_iter_)
    assert again.coef_.tobytes() == whole.coef_.tobytes()


def test_another_training_is_told_apart(tmp_path: Path) -> None:
    raw, y = world(14)
    X, path = as_strings(raw), tmp_path / "run.checkpoint"
    stopped: dict[str, Any] = {"checkpoint": path, "callback": stopping_at(2)}
    ChainCRF(**stopped).fit(X, y)
    before = path.read_bytes()
    for model, data, match in (
        (ChainCRF(l2=2.0, **stopped), (X, y), "the parameters differ"),
        (ChainCRF(**stopped), (X[:-1], y[:-1]), "the data"),
        (ChainCRF(feature_pairs="all", **stopped), (X, y), "the features and labels differ"),
    ):
        with pytest.raises(InputError, match=match) as caught:
            model.fit(*data)
        assert "delete the file" in str(caught.value)
        assert path.read_bytes() == before
    ChainCRF(checkpoint=path, tol=1e-6, max_iter=900).fit(X, y)  # how long is not what
    other = ChainCRF(checkpoint=path, l2=2.0).fit(X, y)  # the other one is done, so this may take its place
    assert other.coef_.tobytes() == ChainCRF(l2=2.0).fit(X, y).coef_.tobytes()


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    raw, y = world(14)
    X, path = as_strings(raw), tmp_path / "run.checkpoint"
    ChainCRF(checkpoint=path, callback=stopping_at(2)).fit(X, y)
    good = path.read_bytes()
    for k in range(0, len(good), max(len(good) // 40, 1)):
        bad = bytearray(good)
        bad[k] ^= 0xFF
        path.write_bytes(bytes(bad))
        with suppress(ModelFileError):  # padding between arrays may be anything
            ChainCRF(checkpoint=path, callback=stopping_at(3)).fit(X, y)
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(ModelFileError, match="Delete it to begin anew"):
        ChainCRF(checkpoint=path).fit(X, y)
    ChainCRF().fit(X, y).save(path)
    with pytest.raises(ModelFileError, match="is no checkpoint"):
        ChainCRF(checkpoint=path).fit(X, y)
    crfield.load(path)


@pytest.mark.parametrize(
    ("part", "factor", "words"),
    [
        ("basis/scale", 1e150, r"no number of a model is beyond 1e\+100"),
        ("/weights", 1e9, "its weights have the value"),
    ],
)
def test_an_edited_state_does_not_end_in_weights_of_nothing(
    part: str, factor: float, words: str, tmp_path: Path
) -> None:
    raw, y = world(12)
    path = tmp_path / "run"
    options = {"checkpoint": path, "checkpoint_every": 0, "solver": "warm"}
    ChainCRF(**options, callback=stopping_at(3)).fit(as_strings(raw), y)
    held = read_archive(path)
    edited = {name: array * factor if name.endswith(part) else array for name, array in held.arrays.items()}
    assert any(name.endswith(part) for name in held.arrays)
    write_archive(path, held.header, edited)
    with pytest.raises(ModelFileError, match=words):
        ChainCRF(**options).fit(as_strings(raw), y)


def test_infinities_survive(tmp_path: Path) -> None:
    path = tmp_path / "state"
    header = {"a": [float("inf"), -1.5], "b": {"c": float("-inf")}}
    Checkpoint(path, {}, every=0.0).offer("x", lambda: (header, {"w": np.arange(3.0)}))
    assert Checkpoint(path, {}).found("x")[0] == header  # type: ignore[index]


def test_parameters_are_checked(tmp_path: Path) -> None:
    raw, y = world(5)
    X = as_strings(raw)
    for options, match in (
        ({"checkpoint": 3}, "checkpoint must be the path"),
        ({"checkpoint_every": -1.0}, "checkpoint_every must be a finite number ≥ 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a number between 0 and 1"),
        ({"validation_score": "loss"}, "validation_score must be one of"),
        ({"patience": 0}, "patience must be an integer"),
        ({"checkpoint": tmp_path / "x", "validation_fraction": 0.5, "random_state": None}, "needs a random_state"),
        ({"checkpoint": tmp_path / "x", "solver": "cg"}, "cannot be resumed from a checkpoint"),
    ):
        with pytest.raises(InputError, match=match):
            ChainCRF(**options).fit(X, y)
    with pytest.raises(InputError, match="Leave one of them out"):
        ChainCRF(validation_fraction=0.5).fit(X, y, validation=(X, y))
    with pytest.raises(InputError, match=r"must be a pair \(X, y\)"):
        ChainCRF().fit(X, y, validation=X)
    with pytest.raises(InputError, match="at least two sequences"):
        ChainCRF(validation_fraction=0.5).fit(X[:1], y[:1])


# ------------------------------------------------------------------ early stopping


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k.name in ("dicts", "columns", "label_functions")], ids=lambda k: k.name
)
@pytest.mark.parametrize("score", ["log_likelihood", "accuracy", "f1"])
def test_the_best_weights_are_kept(kind: Any, score: str) -> None:
    X, y = kind.data(30)
    held = kind.data(20, seed=9)
    model = kind.model(l2=0.001, validation_score=score, patience=4).fit(X, y, validation=held)
    scores = [step.score for step in model.history_]
    best = int(np.argmax(scores))
    asked = {
        "log_likelihood": lambda: model.log_prob(*held).sum() / sum(map(len, held[1])),
        "accuracy": lambda: model.score(*held),
        "f1": lambda: crfield.metrics.label_f1(held[1], model.predict(held[0]), average="macro"),
    }[score]()
    assert asked == pytest.approx(scores[best], abs=1e-12)
    assert model.objective_ == model.history_[best].value
    if model.stop_reason_ == "held-out score":
        assert not model.converged_


def test_scorers_and_tags() -> None:
    X = [[["a"], ["b"], ["c"]]] * 6
    y = [["B-X", "I-X", "O"]] * 6
    seen = []

    def scorer(estimator: Any, X: Any, y: Any) -> float:
        seen.append(estimator.predict(X))
        return -float(len(seen))

    model = ChainCRF(validation_score=scorer, patience=2).fit(X, y, validation=(X, y))
    assert (len(seen), model.n_iter_, model.stop_reason_) == (3, 3, "held-out score")
    assert model.objective_ == model.history_[0].value
    tagged = ChainCRF(validation_score="f1", validation_fraction=0.3).fit(X, y)
    assert max(step.score for step in tagged.history_) == 1.0
