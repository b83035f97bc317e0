"""Encoders of parts, merged, are the encoder of all parts one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crfield
from crfield.errors import InputError
from crfield.estimators.chain.encode_on_cluster import encode_on_cluster, joined
from crfield.estimators.chain.on_disk import learn_columns
from crfield.features.growth import without_rare
from crfield.features.merging import merged
from crfield.features.records import RecordEncoder
from crfield.training.cluster.pool import InProcessPool

TEMPLATE = "U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\nU02:%x[1,1]\nB\nB01:%x[0,1]\n"


def tokens() -> tuple[list[Any], list[Any]]:
    phrases = crfield.make_phrases(60, random_state=1)
    return [[(word, word[-2:]) for word in phrase] for phrase in phrases.tokens], phrases.labels


def parts(X: Any, y: Any, cuts: list[int]) -> list[tuple[Any, Any]]:
    return [(X[a:b], y[a:b]) for a, b in zip([0, *cuts], [*cuts, len(X)])]


SOURCES: dict[str, dict[str, Any]] = {
    "template": {"template": TEMPLATE},
    "records": {},
    "text": {"features": crfield.TextFeatures(columns={"word": 0})},
}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_columns_are_those_of_one_pass(kind: str) -> None:
    X, y = tokens()
    if kind == "records":
        X = [[[f"w={word}", f"s={ending}"] for word, ending in phrase] for phrase in X]
    pieces = parts(X, y, [10, 25, 40])
    whole = learn_columns(pieces, SOURCES[kind], count=True)
    assert whole is not None
    together: Any = None
    for pair in ((0, 2), (2, 4)):  # two workers with two parts each
        learnt = learn_columns(pieces[slice(*pair)], SOURCES[kind], count=True)
        together = learnt if together is None else joined(together, learnt)
    assert together.coder.labels == sorted(whole.coder.labels)
    for side in range(2):
        assert together.counts[side].tolist() == whole.counts[side].tolist()
    one, other = whole.encoder.encode(X), together.encoder.encode(X)
    assert np.array_equal(one.node.indices, other.node.indices)
    assert one.node.width == other.node.width
    if one.edge is not None:
        assert np.array_equal(one.edge.indices, other.edge.indices)
    names = [whole.encoder.node_name(k) for k in range(one.node.width)]
    assert [together.encoder.node_name(k) for k in range(one.node.width)] == names
    few = [without_rare(found.encoder, *(c >= 2 for c in found.counts)) for found in (whole, together)]
    assert np.array_equal(few[0].encode(X).node.indices, few[1].encode(X).node.indices)


def test_what_belongs_to_one_pass_is_refused() -> None:
    one, two = RecordEncoder(standardize=True), RecordEncoder(standardize=True)
    for encoder in (one, two):
        encoder.fit([[{"a": 1.0}, {"a": 2.0}]])
    with pytest.raises(InputError, match="cannot be learnt in several places"):
        merged(one, two)
    vectors = RecordEncoder(), RecordEncoder()
    for encoder in vectors:
        encoder.fit([[{"v": np.array([1.0, 2.0])}, {"v": np.array([0.0, 1.0])}]])
    with pytest.raises(InputError, match="vectors"):
        merged(*vectors)


def test_a_data_set_of_many_files_trains_to_the_same_optimum(tmp_path: Any) -> None:
    X, y = tokens()
    pieces = dict(zip("abcd", parts(X, y, [10, 25, 40])))
    options = {"template": TEMPLATE, "min_count": 2}
    with crfield.cluster(InProcessPool(2)) as cluster:
        there = encode_on_cluster(cluster, list("abcd"), lambda name: [pieces[name]], tmp_path / "there", **options)
    here = crfield.encode_dataset(list(pieces.values()), tmp_path / "here", **options)  # type: ignore[arg-type]
    assert (len(there), there.n_columns, there.n_shards) == (len(here), here.n_columns, 4)
    for shard in there.shards():
        assert shard.batch.topology.n_sequences
    rows = [np.concatenate([s.batch.node.indices for s in found.shards()]) for found in (there, here)]
    assert np.array_equal(*rows)
    models = [crfield.ChainCRF(tol=1e-8, solver="lbfgs").fit(found).objective_ for found in (there, here)]
    assert models[0] == pytest.approx(models[1], rel=1e-7)


def test_nothing_is_left_of_an_encoding_that_failed(tmp_path: Any) -> None:
    def read(name: str) -> Any:
        raise InputError(f"{name} cannot be read.")

    with (
        crfield.cluster(InProcessPool(2)) as cluster,
        pytest.raises(crfield.errors.ClusterError, match="2 of 2 files"),
    ):
        encode_on_cluster(cluster, ["a", "b"], read, tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
