"""Data sets on disk: the model of data in memory, and errors instead of crashes where files are damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, EncodedDataset, encode_dataset
from crfield.errors import InputError, LabelError, ModelFileError
from crfield.storage.encoded import FRONT, DatasetWriter
from tests.cases.estimators import KINDS, Kind, as_strings, exact, world

COLUMNS = [kind for kind in KINDS if kind.name in ("dicts", "strings", "arrays", "csr", "columns", "functions")]


def parts_of(X: Any, y: Any, size: int = 7) -> list[tuple[Any, Any]]:
    cut = [range(k, min(k + size, len(y))) for k in range(0, len(y), size)]
    return [(X[np.array(n)] if hasattr(X, "shape") else [X[k] for k in n], [y[k] for k in n]) for n in cut]


@pytest.mark.parametrize("kind", COLUMNS, ids=lambda kind: kind.name)
def test_the_model_is_that_of_data_in_memory(kind: Kind, tmp_path: Path) -> None:
    X, y = kind.data(20)
    options = dict(kind.options)
    reading = {k: v for k, v in options.items() if k in ("template", "functions", "transition_functions")}
    reading |= {k: v for k, v in options.items() if k == "transition_features"}
    dataset = encode_dataset(parts_of(X, y), tmp_path / "data", shard_bytes=1000, **reading)
    assert dataset.n_shards >= 3
    assert (len(dataset), dataset.n_steps) == (20, sum(map(len, y)))
    l1 = 0.3 if kind.name == "strings" else 0.0
    whole = kind.model(l1=l1).fit(X, y)
    model = exact(l1=l1, **{k: v for k, v in options.items() if k not in ("template", "transition_features")}).fit(
        dataset
    )
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-9)
    assert len(model.coef_) == len(whole.coef_)
    assert all((a == b).all() for a, b in zip(model.predict(X), whole.predict(X)))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_partial_labels_weights_rules_and_objectives(tmp_path: Path) -> None:
    raw, y = world(24)
    X, labels = as_strings(raw), [list(one) for one in y]
    labels[3][0], labels[5] = None, [{"A", "B"}] * len(labels[5])  # type: ignore[list-item]
    weights = np.linspace(0.5, 2.0, 24)
    parts = [(X[k : k + 5], labels[k : k + 5], weights[k : k + 5]) for k in range(0, 24, 5)]
    dataset = encode_dataset(parts, tmp_path / "data", shard_bytes=500)
    for model in (
        exact(l1=0.2),
        exact(solver="warm"),
        exact(costs={("A", "B"): 3.0}),
    ):
        whole = type(model)(**model.get_params()).fit(X, labels, sample_weight=weights)
        assert model.fit(dataset).objective_ == pytest.approx(whole.objective_, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "cg"},
        {"solver": "projected_cg", "l1": 0.3},
        {"objective": "pseudo_likelihood"},
        {"class_weight": "balanced"},
        {"class_weight": "balanced", "objective": "label_likelihood"},
        {"objective": "label_accuracy", "l2": 0.5},
    ],
    ids=str,
)
def test_every_solver_and_objective_that_reads_shards_ends_as_in_memory(
    options: dict[str, Any], tmp_path: Path
) -> None:
    raw, y = world(24)
    X, weights = as_strings(raw), np.linspace(0.5, 2.0, 24)
    parts = [(X[k : k + 5], y[k : k + 5], weights[k : k + 5]) for k in range(0, 24, 5)]
    dataset = encode_dataset(parts, tmp_path / "data", shard_bytes=500)
    assert dataset.n_shards >= 3
    whole = ChainCRF(**{"tol": 1e-9, **options}).fit(X, y, sample_weight=weights)
    model = ChainCRF(**{"tol": 1e-9, **options}).fit(dataset)
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)
    assert all((a == b).all() for a, b in zip(model.predict(X), whole.predict(X)))


def test_rare_features_are_counted_over_all_parts(tmp_path: Path) -> None:
    raw, y = world(20)
    X = as_strings(raw)
    dataset = encode_dataset(parts_of(X, y, 3), tmp_path / "data", min_count=4, transition_features="all")
    whole = exact(min_count=4, transition_features="all").fit(X, y)
    model = exact().fit(dataset)
    assert len(model.coef_) == len(whole.coef_)
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-9)


def test_epochs_by_shards_checkpoints_and_held_out(tmp_path: Path) -> None:
    raw, y = world(400)
    X = as_strings(raw)
    dataset = encode_dataset(parts_of(X, y, 100), tmp_path / "data", shard_bytes=8_000)
    common: dict[str, Any] = {"solver": "warm", "tol": 1e-6}
    whole = ChainCRF(**common).fit(dataset)
    assert whole.objective_ == pytest.approx(ChainCRF(**common).fit(X, y).objective_, rel=1e-5)
    path = tmp_path / "run.checkpoint"
    ChainCRF(checkpoint=path, callback=lambda step, weights: step.n_iter >= 2, **common).fit(dataset)
    model = ChainCRF(checkpoint=path, **common).fit(dataset)
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    other = world(40, seed=3)
    stopped = ChainCRF(l2=0.001, patience=2).fit(dataset, validation=(as_strings(other[0]), other[1]))
    assert all(step.score is not None for step in stopped.history_)
    assert stopped.n_seen_ == 400


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    raw, y = world(6)
    X = as_strings(raw)
    dataset = encode_dataset([(X, y)], tmp_path / "data")
    for options, arguments, match in (
        ({}, {"y": y}, "leave y and sample_weight out"),
        ({"validation_fraction": 0.5}, {}, "for data in memory"),
        ({"label_functions": [len]}, {}, "functions=…"),
        ({"order": 2}, {}, "order 1"),
        ({"solver": "gis"}, {}, "From disk use solver='lbfgs'"),
        ({"solver": "newton_cg"}, {}, "From disk use solver='lbfgs'"),
        ({"solver": "sgd"}, {}, "From disk use solver='warm'"),
        ({"solver": "primal_dual"}, {}, "From disk use solver='warm', .* to the same optimum"),
        ({"solver": "adagrad"}, {}, "From disk use solver='warm'"),
        ({"solver": "sgd_l1", "l1": 1.0}, {}, "From disk use solver='warm' with the same l1"),
        ({"solver": "perceptron"}, {}, "From disk use objective='softmax_margin'"),
        ({"solver": "arow"}, {}, "From disk use objective='softmax_margin'"),
        ({"objective": "hinge"}, {}, "solver='frank_wolfe' needs all data in memory"),
    ):
        with pytest.raises(InputError, match=match):
            ChainCRF(**options).fit(dataset, **arguments)
    with pytest.raises(InputError, match="exists already"):
        encode_dataset([(X, y)], tmp_path / "data")
    with pytest.raises(InputError, match="nothing to encode"):
        encode_dataset([], tmp_path / "other")
    with pytest.raises(InputError, match="read only once"):
        encode_dataset(iter([(X, y)]), tmp_path / "other")
    with pytest.raises(InputError, match="pairs"):
        encode_dataset([X], tmp_path / "other")
    with pytest.raises(LabelError):
        encode_dataset([(X, y), ([[["a"]]], [[["unhashable"]]])], tmp_path / "other")
    with pytest.raises(InputError, match="no encoded data set"):
        EncodedDataset(tmp_path)
    with pytest.raises(InputError, match="no steps at all"):
        ChainCRF().fit(EncodedDataset(_empty(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "empty"]


def _empty(folder: Path) -> Path:
    from crfield.data.labels import LabelCoder
    from crfield.features.detect import encoder_for

    encoder = encoder_for([[["a"]]])
    encoder.fit([[["a"]]])
    with DatasetWriter(folder / "empty", LabelCoder().fit([["A"]])) as writer:
        writer.close(*encoder.state())
    return folder / "empty"


def test_damage_is_an_error_and_never_a_crash(tmp_path: Path) -> None:
    raw, y = world(12)
    dataset = encode_dataset(parts_of(as_strings(raw), y), tmp_path / "data", shard_bytes=600)
    assert dataset.n_shards >= 2
    files = [tmp_path / "data" / FRONT, tmp_path / "data" / "shard-00000.crfield"]
    best = ChainCRF(max_iter=50).fit(dataset).objective_
    draw = random.Random(0)
    for path in files:
        good = path.read_bytes()
        for turn in range(25):
            bad = bytearray(good)
            if turn < 20:
                bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
            else:
                bad = bad[: draw.randrange(len(bad))]
            path.write_bytes(bytes(bad))
            try:
                value = ChainCRF(max_iter=50).fit(EncodedDataset(tmp_path / "data")).objective_
            except (ModelFileError, InputError):
                continue
            assert value == best  # padding between arrays
        path.write_bytes(good)
    other = tmp_path / "data" / "shard-00001.crfield"
    files[1].write_bytes(other.read_bytes())
    with pytest.raises(ModelFileError, match="is not shard 0"):
        ChainCRF().fit(EncodedDataset(tmp_path / "data"))
    files[1].unlink()
    with pytest.raises(ModelFileError, match="is missing"):
        ChainCRF().fit(EncodedDataset(tmp_path / "data"))
