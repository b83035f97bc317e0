"""Chunking with CRF++'s example template: known optimum, known quality, CRFsuite's own numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.contestant import Ours, chain
from benchmarks.corpora import Corpus, chunk_strings, conll2000, template_strings
from benchmarks.crfsuite_model import read_model

from crfield import ChainCRF
from crfield.metrics import span_f1
from tests.real.conftest import folder

OPTIMUM = 12_887.1179  # −Σ log p + ‖w‖², observed pairs, no scores for labels alone


@pytest.fixture(scope="module")
def corpus(data: Path) -> Corpus:
    """CoNLL-2000 as Python lists."""
    folder(data, "conll2000")
    return conll2000(data)


@pytest.fixture(scope="module")
def ours(corpus: Corpus) -> Ours:
    """The training part as a problem."""
    return Ours.build(corpus.train, corpus.template, n_jobs=2)


@pytest.fixture(scope="module")
def model(corpus: Corpus) -> ChainCRF:
    """Trained with default tolerance on two threads."""
    return chain(corpus.template, n_jobs=2).fit(corpus.train.rows, corpus.train.tags)


def test_sizes(corpus: Corpus, ours: Ours) -> None:
    assert (len(corpus.train.rows), corpus.train.n_tokens) == (8_936, 211_727)
    assert (len(corpus.test.rows), corpus.test.n_tokens) == (2_012, 47_377)
    assert (ours.layout.n_labels, ours.layout.n_columns, ours.n_weights) == (22, 338_551, 456_468)


def test_default_tolerance_stops_within_1e_4_of_the_optimum(model: ChainCRF) -> None:
    assert model.converged_
    assert -1e-7 <= model.objective_ / OPTIMUM - 1 <= 1e-4


def test_chunk_f1(model: ChainCRF, corpus: Corpus) -> None:
    assert span_f1(corpus.test.tags, model.predict(corpus.test.rows)) >= 0.935


def test_optimum(ours: Ours) -> None:
    result = ours.minimise(tol=1e-6)
    assert result.converged
    assert result.value == pytest.approx(OPTIMUM, rel=1e-6)


def test_threads_agree_on_one_evaluation(ours: Ours) -> None:
    weights = ours.half_trained(epochs=1)
    evaluations = []
    for n_jobs in (1, 2, 4):
        ours.problem.n_jobs, gradient = n_jobs, np.empty(ours.n_weights)
        evaluations.append((ours.problem.evaluate(weights, gradient), gradient))
    ours.problem.n_jobs = 2
    value, gradient = evaluations[0]
    for other, slope in evaluations[1:]:
        assert other == pytest.approx(value, rel=1e-10)
        assert np.abs(slope - gradient).max() <= 1e-10 * np.abs(gradient).max()


def test_threads_agree_on_the_trained_objective(model: ChainCRF, corpus: Corpus) -> None:
    other = chain(corpus.template, n_jobs=1).fit(corpus.train.rows, corpus.train.tags)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-8)


def test_strings_are_the_columns(corpus: Corpus) -> None:
    rows = corpus.test.rows[:20]
    encoder = Ours.build(corpus.test.first(20), corpus.template).encoder
    batch = encoder.encode(rows)
    names = [encoder.node_name(k) for k in batch.node.indices]
    strings = template_strings(corpus.template, rows)
    assert [name for sequence in strings for features in sequence for name in features] == names
    assert chunk_strings(rows) == strings


def test_crfsuite_weights_have_the_value_that_crfsuite_gives(corpus: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("pycrfsuite")
    from benchmarks import crfsuite_rival

    train, path = corpus.train.first(2_000), str(tmp_path / "model.crfsuite")
    trained = crfsuite_rival.train(chunk_strings(train.rows), train.tags, path, max_iterations=15)
    ours = Ours.build(train, corpus.template)
    weights = ours.weights_of(read_model(path))
    assert ours.objective(weights) == pytest.approx(trained.loss, rel=1e-9)
    tagger, rows = crfsuite_rival.tagger(path), corpus.test.rows[:500]
    assert ours.tag(weights, rows) == [tagger.tag(features) for features in chunk_strings(rows)]
