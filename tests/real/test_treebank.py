"""321 labels: the kernel for few transitions among many labels against the plain path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.contestant import Ours
from benchmarks.corpora import FORM_TEMPLATE, Labelled, treebank, with_all_labels

from crfield import read_conllu
from crfield.core.target import Target
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.scoring.linear import LinearScorer
from crfield.training.full_batch import FullBatch
from tests.real.conftest import folder


@pytest.fixture(scope="module")
def sentences(data: Path) -> Labelled:
    """A few sentences with all labels."""
    folder(data, "ewt")
    return with_all_labels(treebank(data), 50)


@pytest.fixture(scope="module")
def ours(sentences: Labelled) -> Ours:
    """The same as a problem."""
    return Ours.build(sentences, FORM_TEMPLATE)


def test_all_labels_are_there(ours: Ours) -> None:
    assert ours.layout.n_labels == 321
    assert len(ours.layout.pairs) < 321**2 / 20


def test_fused_equals_plain(ours: Ours, sentences: Labelled) -> None:
    weights = np.random.default_rng(0).normal(0, 0.5, ours.n_weights)
    batch = ours.encoder.encode(sentences.rows)
    target = Target(batch.topology, 321, *ours.coder.encode(sentences.tags, batch.topology.lengths))
    plain = FullBatch(LinearScorer(ours.layout), batch, target, objective=Contrast(), engine=ChainEngine(2))
    fused_gradient, plain_gradient = np.empty(ours.n_weights), np.empty(ours.n_weights)
    assert ours.problem.evaluate(weights, fused_gradient) == pytest.approx(
        plain.evaluate(weights, plain_gradient), rel=1e-11
    )
    assert np.abs(fused_gradient - plain_gradient).max() <= 1e-10 * np.abs(plain_gradient).max()


def test_gradient_is_the_slope(ours: Ours) -> None:
    rng = np.random.default_rng(1)
    weights, direction = rng.normal(0, 0.3, (2, ours.n_weights))
    gradient, unused = np.empty(ours.n_weights), np.empty(ours.n_weights)
    ours.problem.evaluate(weights, gradient)
    step = 1e-4
    ahead = ours.problem.evaluate(weights + step * direction, unused)
    behind = ours.problem.evaluate(weights - step * direction, unused)
    assert (ahead - behind) / (2 * step) == pytest.approx(float(gradient @ direction), rel=1e-6)


def test_threads_agree(ours: Ours) -> None:
    weights = np.random.default_rng(2).normal(0, 0.5, ours.n_weights)
    values = []
    for n_jobs in (1, 2, 4):
        ours.problem.n_jobs = n_jobs
        values.append(ours.problem.evaluate(weights, np.empty(ours.n_weights)))
    ours.problem.n_jobs = 1
    assert values == pytest.approx([values[0]] * 3, rel=1e-10)


@pytest.mark.parametrize(("part", "sentences"), [("train", 12_544), ("dev", 2_001), ("test", 2_077)])
def test_the_treebank_is_read(data: Path, part: str, sentences: int) -> None:
    path = folder(data, "ewt") / f"en_ewt-{part}.conllu.gz"
    X, y, metadata = read_conllu(path, columns=("form", "xpos"), label="upos")
    assert (len(X), len(metadata), len({label for own in y or () for label in own})) == (sentences, sentences, 17)
    assert all("sent_id" in one and "text" in one for one in metadata)
    if part == "train":
        for label, count in (("xpos", 49), ("upos+feats", 321)):
            assert len({tag for own in read_conllu(path, label=label).y or () for tag in own}) == count
