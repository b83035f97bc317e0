"""Chains on a cluster: the same objective as on one machine, whoever is lost, and clear words elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import crfield
from crfield.errors import ClusterError, ClusterWarning, InputError, ModelFileError, SpeedWarning
from crfield.kernels import choice
from crfield.storage.encoded import EncodedDataset
from crfield.training.cluster import chain as parts
from crfield.training.cluster.chain import ChainPart, dealt
from crfield.training.cluster.pool import Faults, InProcessPool
from crfield.training.cluster.steps import ClusterStep

TIGHT: dict[str, Any] = {"solver": "lbfgs", "tol": 1e-8, "l2": 1.0}


@pytest.fixture(scope="module")
def data() -> tuple[list[Any], list[Any]]:
    phrases = crfield.make_phrases(60)
    return [crfield.phrase_features(tokens) for tokens in phrases.tokens], phrases.labels


@pytest.fixture(scope="module")
def dataset(data: tuple[list[Any], list[Any]], tmp_path_factory: pytest.TempPathFactory) -> EncodedDataset:
    X, y = data
    path = tmp_path_factory.mktemp("encoded") / "phrases"
    return crfield.encode_dataset([(X[:30], y[:30]), (X[30:], y[30:])], path, shard_bytes=6_000)


def fitted(data: Any, pool: Any = None, model: Any = None, **options: Any) -> Any:
    model = crfield.ChainCRF(**TIGHT) if model is None else clone(model)
    arguments = data if isinstance(data, tuple) else (data,)
    if pool is None:
        return model.fit(*arguments)
    with crfield.cluster(pool, **options):
        return model.fit(*arguments)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_objective_is_that_of_one_machine(dataset: EncodedDataset, data: Any, n: int) -> None:
    assert dataset.n_shards >= 3
    alone = fitted(dataset)
    for given in (dataset, data):
        found = fitted(given, InProcessPool(n))
        assert found.converged_
        assert found.objective_ == pytest.approx(alone.objective_, rel=2e-8)
        np.testing.assert_allclose(found.coef_, alone.coef_, atol=2e-3)


def test_value_and_gradient_are_those_of_one_machine(dataset: EncodedDataset) -> None:
    """One evaluation, to rounding."""
    model = crfield.ChainCRF(**TIGHT)
    alone = model._problem_on_disk(dataset, None, None).handed
    weights = np.random.default_rng(0).standard_normal(alone.n_weights)
    one, other = np.empty_like(weights), np.empty_like(weights)
    value = alone.evaluate(weights, one)
    with crfield.cluster(InProcessPool(3)) as cluster:
        there = model._problem_on_disk(dataset, None, None, cluster).handed
        assert there.evaluate(weights, other) == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(there.curvature(weights), alone.curvature(weights), rtol=1e-10, atol=1e-12)
        assert sum(there.n_steps) == dataset.n_steps


@pytest.mark.parametrize("call", [1, 2, 3, 4, 9, 20])
@pytest.mark.parametrize("worker", [0, 1])
def test_the_bits_do_not_depend_on_who_is_lost(dataset: EncodedDataset, worker: int, call: int) -> None:
    whole = fitted(dataset, InProcessPool(2))
    with pytest.warns(ClusterWarning, match="takes over"):
        found = fitted(dataset, InProcessPool(2, faults=Faults(deaths={worker: [call]})))
    assert found.objective_ == whole.objective_
    assert np.array_equal(found.coef_, whole.coef_)
    assert found.history_[-1].n_losses == (call > 4 or found.history_[-1].n_losses)


def test_losses_in_stochastic_epochs_do_not_change_bits_either(data: Any) -> None:
    X, y = data
    more, model = (X * 8, y * 8), crfield.ChainCRF(solver="warm", tol=1e-3)
    whole = fitted(more, InProcessPool(2), model)
    assert "parameter mixing" in whole.plan_.reason
    assert "sent to them, once" in whole.plan_.reason
    for call in (3, 4, 5):  # the search for a step, epochs
        with pytest.warns(ClusterWarning):
            found = fitted(more, InProcessPool(2, faults=Faults(deaths={1: [call]})), model)
        assert np.array_equal(found.coef_, whole.coef_)


def test_mixing_saves_evaluations(data: Any) -> None:
    X, y = data
    more = (X * 8, y * 8)
    cold = fitted(more, InProcessPool(2), crfield.ChainCRF(solver="lbfgs", tol=1e-4))
    warm = fitted(more, InProcessPool(2), crfield.ChainCRF(solver="warm", tol=1e-4))
    assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-4)
    assert warm.n_evaluations_ < 0.9 * cold.n_evaluations_


@pytest.mark.parametrize(
    "model",
    [
        crfield.ChainCRF(l1=0.3, l2=0.1, tol=1e-5),
        crfield.ChainCRF(objective="pseudo_likelihood", tol=1e-7),
        crfield.ChainCRF(constraints=None, class_weight={"NAME": 2.0}, objective="softmax_margin", tol=1e-7),
        crfield.MEMM(tol=1e-7, solver="lbfgs"),
    ],
    ids=["l1", "pseudo", "margin", "memm"],
)
def test_other_objectives_run_there_too(dataset: EncodedDataset, data: Any, model: Any) -> None:
    if getattr(model, "class_weight", None):
        model = clone(model).set_params(class_weight={dataset.labels.tolist()[0]: 2.0})
    for given in (dataset, data):
        alone, found = fitted(given, None, model), fitted(given, InProcessPool(2), model)
        assert found.objective_ == pytest.approx(alone.objective_, rel=2e-5)


def test_numeric_columns_have_their_coordinates_there(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((12, 3)) * [1.0, 20.0, 1.0] + [0, 500, 0] for _ in range(30)]
    y = [["a" if row[1] > 500 else "b" for row in x] for x in X]
    dataset = crfield.encode_dataset([(X[:15], y[:15]), (X[15:], y[15:])], tmp_path / "numbers", shard_bytes=2000)
    for given in (dataset, (X, y)):
        alone, found = fitted(given), fitted(given, InProcessPool(2))
        assert found.objective_ == pytest.approx(alone.objective_, rel=1e-6)
        assert found.n_evaluations_ < 2 * alone.n_evaluations_


def test_history_tells_workers_bytes_and_losses(dataset: EncodedDataset) -> None:
    seen: list[Any] = []
    model = crfield.ChainCRF(**TIGHT, callback=lambda step, weights: seen.append(step))
    with pytest.warns(ClusterWarning), crfield.cluster(InProcessPool(2, faults=Faults(deaths={0: [9]}))):
        model.fit(dataset)
    last, n = model.history_[-1], len(model.coef_)
    assert isinstance(last, ClusterStep)
    assert last == seen[-1]
    assert (last.n_workers, last.n_losses, model.history_[0].n_losses) == (2, 1, 0)
    evaluations = last.n_evaluations - model.history_[-2].n_evaluations
    assert last.n_bytes == evaluations * 2 * 2 * n * 8  # weights to two workers and gradients back


def test_the_progress_line_tells_of_the_cluster(dataset: EncodedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    with crfield.cluster(InProcessPool(2)):
        crfield.ChainCRF(**TIGHT, verbose=2).fit(dataset)
    line = capsys.readouterr().err.splitlines()[-1]
    assert "2 workers" in line
    assert "evaluations" in line
    assert "kB" in line
    assert len(line) <= 80


def sparse_data() -> tuple[list[Any], list[Any]]:
    """Sequences of which each half has words of its own."""
    X = [[[f"w{side}-{k}-{t}"] for t in range(4)] for side in range(4) for k in range(6)]
    return X, [["A" if t % 2 else "B" for t in range(4)] for _ in X]


@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_only_touched_rows_go_over_the_wire(wire: str) -> None:
    X, y = sparse_data()
    model = crfield.ChainCRF(**TIGHT, feature_pairs="all")
    alone = fitted((X, y), None, model)
    found = fitted((X, y), InProcessPool(4), model, wire=wire)
    assert found.objective_ == pytest.approx(alone.objective_, rel=1e-9 if wire == "float64" else 1e-6)
    step, n = found.history_[0], len(found.coef_)
    weights = 4 * n * 8
    gradients = (step.n_bytes - step.n_evaluations * weights) / step.n_evaluations
    size = 8 if wire == "float64" else 4
    assert gradients < 1.3 * n * size, "a quarter of the columns each, and what all of them touch"


@pytest.mark.parametrize("pairs", ["all", "observed"])
@pytest.mark.parametrize("edges", [None, "all"])
def test_what_is_not_touched_has_no_gradient(pairs: str, edges: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    X = [[{f"f{side}-{k}-{t}": 1.0} for t in range(3)] for side in range(2) for k in range(3)]
    y = [["A", "B", "A"] for _ in X]
    model = crfield.ChainCRF(feature_pairs=pairs, transition_features=edges)
    seen = []
    marked = parts.mark
    monkeypatch.setattr(parts, "mark", lambda *given: (marked(*given), seen.append(given[0])))
    with crfield.cluster(InProcessPool(2)) as cluster:
        labels = crfield.data.labels.LabelCoder().fit(y)
        problem = model.training_problem(labels, X, y, cluster=cluster).handed
        rng = np.random.default_rng(0)
        for worker in range(2):
            part: ChainPart = cluster.crew.pool.hosts[worker].kept[problem.name]  # type: ignore[attr-defined]
            part.touched = None
            _, (gradient,) = part.evaluate(rng.standard_normal(problem.n_weights))
            assert not gradient[~seen[worker]].any()
            assert gradient[seen[worker]].any()
            assert 0.2 < seen[worker].mean() < 0.9


def test_shards_beyond_the_memory_are_read_each_time(dataset: EncodedDataset) -> None:
    whole = fitted(dataset, InProcessPool(2))
    paged = fitted(dataset, InProcessPool(2), memory=1.0)
    some = fitted(dataset, InProcessPool(2), memory=4.5 * max(dataset.shard_bytes))
    assert np.array_equal(whole.coef_, paged.coef_)
    assert np.array_equal(whole.coef_, some.coef_)
    assert f"{dataset.n_shards} of {dataset.n_shards} shards" in paged.plan_.reason
    assert f"of {dataset.n_shards} shards" in some.plan_.reason
    warm = crfield.ChainCRF(solver="warm", tol=1e-3)
    assert fitted(dataset, InProcessPool(2), warm, memory=1.0).converged_


def test_workers_without_shards_do_no_harm(dataset: EncodedDataset) -> None:
    n = dataset.n_shards + 2
    with pytest.warns(ClusterWarning, match=f"too few for {n} workers: 2 of them have nothing to do"):
        found = fitted(dataset, InProcessPool(n))
    assert found.objective_ == pytest.approx(fitted(dataset).objective_, rel=2e-8)
    assert [len(own) for own in dealt([1.0] * 3, 5)].count(0) == 2


# ------------------------------------------------------------------------------- checkpoints, early stopping, growing


def test_a_checkpoint_goes_on_with_or_without_the_cluster(dataset: EncodedDataset, tmp_path: Path) -> None:
    whole = fitted(dataset, InProcessPool(2))

    def broken(step: Any, weights: np.ndarray) -> bool:
        return step.n_iter == 7

    options = {**TIGHT, "checkpoint": tmp_path / "run", "checkpoint_every": 0.0}
    fitted(dataset, InProcessPool(2), crfield.ChainCRF(**options, callback=broken))
    shutil.copy(tmp_path / "run", tmp_path / "kept")
    found = fitted(dataset, InProcessPool(2), crfield.ChainCRF(**options))
    assert np.array_equal(found.coef_, whole.coef_)
    shutil.copy(tmp_path / "kept", tmp_path / "run")
    alone = fitted(dataset, None, crfield.ChainCRF(**options))
    assert alone.objective_ == pytest.approx(whole.objective_, rel=2e-8)
    assert alone.n_iter_ > 7


def test_epochs_go_on_from_a_checkpoint_with_the_same_bits(data: Any, tmp_path: Path) -> None:
    X, y = data
    more = (X * 8, y * 8)
    whole = fitted(more, InProcessPool(2), crfield.ChainCRF(solver="warm", tol=1e-3))
    options = {"solver": "warm", "tol": 1e-3, "checkpoint": tmp_path / "run", "checkpoint_every": 0.0}
    with pytest.warns(ClusterWarning), pytest.raises(ClusterError):  # the cluster goes down in the third epoch
        fitted(more, InProcessPool(2, faults=Faults(deaths={1: list(range(5, 20))})), crfield.ChainCRF(**options))
    found = fitted(more, InProcessPool(2), crfield.ChainCRF(**options))
    assert np.array_equal(found.coef_, whole.coef_)


def test_early_stopping_and_warm_starts_work_there(dataset: EncodedDataset, data: Any) -> None:
    X, y = data
    with crfield.cluster(InProcessPool(2)):
        model = crfield.ChainCRF(l2=0.01, patience=3).fit(dataset, validation=(X[:20], y[:20]))
        assert all(step.score is not None for step in model.history_)
        again = crfield.ChainCRF(warm_start=True, tol=1e-3).fit(X[:40], y[:40])
        first = again.n_iter_
        again.set_params(tol=1e-2).fit(X[:40], y[:40])
        assert again.n_iter_ < first


# ------------------------------------------------------------------------------------------------ what says so


def test_a_path_that_workers_cannot_see_is_told_with_who(dataset: EncodedDataset, tmp_path: Path) -> None:
    copied = tmp_path / "moved"
    shutil.copytree(dataset.path, copied)
    opened = EncodedDataset(copied)
    shutil.rmtree(copied)
    with pytest.raises(ModelFileError, match=r"worker 0 on node node-0, worker 1 .*cannot be seen from here"):
        fitted(opened, InProcessPool(2))


def test_another_data_set_under_the_same_path_is_refused(dataset: EncodedDataset, data: Any, tmp_path: Path) -> None:
    copied = tmp_path / "moved"
    shutil.copytree(dataset.path, copied)
    opened = EncodedDataset(copied)
    shutil.rmtree(copied)
    crfield.encode_dataset([(data[0][:9], data[1][:9])], copied)
    with pytest.raises(ModelFileError, match="another data set here than at the driver"):
        fitted(opened, InProcessPool(2))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (crfield.ChainCRF(solver="sgd"), r"solver='sgd' does not run on a cluster: solvers that do"),
        (crfield.ChainCRF(objective="label_accuracy"), "does not run on a cluster"),
        (crfield.ChainCRF(order=2), "order above 1"),
        (crfield.HiddenCRF(), "HiddenCRF does not run on a cluster"),
        (crfield.SemiMarkovCRF(), "SemiMarkovCRF does not run on a cluster"),
    ],
    ids=["sgd", "label_accuracy", "order", "hidden", "segments"],
)
def test_what_does_not_run_there_says_so(data: Any, model: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fitted(data, InProcessPool(2), model)


def test_models_are_loaded_and_asked_within_a_block(data: Any, tmp_path: Path) -> None:
    model = crfield.HMM().fit([[[0.0], [1.0]]], [["a", "b"]])
    model.save(tmp_path / "hmm.model")
    with crfield.cluster(InProcessPool(1)):
        assert crfield.load(tmp_path / "hmm.model").predict([[[0.0]]])[0].tolist() == ["a"]


def test_numpy_bodies_warn_on_large_data_once(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    from crfield.estimators.chain import training

    X, y = data
    for module in (training, choice):
        monkeypatch.setattr(module, "MANY", 10)
    monkeypatch.setattr(choice, "_told_of_fit", False)
    crfield.ChainCRF().fit(X[:5], y[:5])  # compiled: nothing is said
    with choice.use("numpy"):
        with pytest.warns(SpeedWarning, match=r"NumPy bodies of the kernels train on .* steps of"):
            crfield.ChainCRF().fit(X[:5], y[:5])
        crfield.ChainCRF().fit(X[:5], y[:5])  # once


def test_predictions_of_files_keep_their_order_and_name_what_failed(data: Any, tmp_path: Path) -> None:
    model = crfield.ChainCRF().fit([[["sun"], ["rain"]]], [["walk", "read"]])
    model.save(tmp_path / "model")
    names = [tmp_path / f"{k}.txt" for k in range(5)]
    for k, name in enumerate(names):
        name.write_text("sun\n" * (k + 1))
    os.remove(names[2])
    found = []

    def look() -> None:
        with crfield.cluster(InProcessPool(2)) as cluster:
            for path, labels in cluster.predict(tmp_path / "model", names, read_words):
                found.append((Path(path).name, len(labels[0])))

    with pytest.raises(ClusterError, match=r"1 of 5 files failed. .*2.txt: .*No such file"):
        look()
    assert found == [("0.txt", 1), ("1.txt", 2), ("3.txt", 4), ("4.txt", 5)]


def read_words(path: str) -> list[list[list[str]]]:
    return [[[word] for word in Path(path).read_text().split()]]
