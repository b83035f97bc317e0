"""Handwritten words: trees in a chain read at least 92 % of the letters of a fold that they have not seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, GraphCRF, TreeCRF
from crfield.core.topology import Chains
from crfield.errors import FormatError
from crfield.storage.datasets.letters import Letters, read_letters
from studies.handwriting.letters import ALONE, BOOSTED, LINEAR, MARKOV, on_counts, outcome_of
from studies.handwriting.letters import STUDY as letters
from tests.real.conftest import folder


@pytest.fixture(scope="module")
def here(data: Path) -> str:
    """The folder in which the letters lie."""
    folder(data, "letters")
    return str(data)


@pytest.fixture(scope="module")
def words(here: str) -> Letters:
    """All words."""
    return read_letters(Path(here) / "letters" / "letters.npz")


def test_sizes(words: Letters) -> None:
    assert len(words.pixels) == len(words.labels) == len(words.fold) == 6_877
    assert sum(map(len, words.labels)) == 52_152
    assert all(x.shape == (len(y), 128) and x.max() <= 1 for x, y in zip(words.pixels, words.labels))
    assert len(np.unique(np.concatenate(words.labels))) == 26
    assert np.unique(words.fold).tolist() == list(range(10))


def test_words_as_graphs_are_the_chain(words: Letters) -> None:
    X, y = [np.asarray(x, float) for x in words.pixels[:60]], [[str(c) for c in row] for row in words.labels[:60]]
    options = {"l2": 1.0, "tol": 1e-7, "feature_pairs": "all"}
    chain = ChainCRF(boundaries=False, transition_pairs="all", **options).fit(X, y)
    joined = [crfield.chain(x) for x in X]
    graph = GraphCRF(**options).fit(joined, y)
    assert (graph.plan_.exact, graph.plan_.strength) == (True, None)
    assert graph.objective_ == pytest.approx(chain.objective_, rel=1e-5)
    for one, other in zip(graph.predict_proba(joined), chain.predict_proba(X)):
        np.testing.assert_allclose(one, other, atol=0.01)


def test_trees_in_a_chain_read_92_percent(words: Letters) -> None:
    """A fast setting; the experiment's own, with more and smaller steps, is two points better."""
    learn, test = words.part(words.fold != 0), words.part(words.fold == 0)
    model = TreeCRF(n_rounds=30, max_depth=6, learning_rate=0.4, subsample=0.3, max_features=0.5).fit(*learn)
    found = outcome_of(model.potentials(test[0]), model._coder, test[1])
    assert found["letters"] == pytest.approx(model.score(*test), abs=1e-12)
    assert found["letters"] >= 0.92
    assert found["words"] >= 0.7


def test_the_quick_experiment(here: str) -> None:
    found = letters(data=here, seeds=[0], n_rounds=12, max_depth=5, learning_rate=0.4, most_words=1_000)
    right = {row[0]: row[1] for row in found.rows}
    assert right[ALONE] + 0.05 < right[MARKOV]
    assert right[LINEAR] > right[ALONE]
    assert right[BOOSTED] > right[ALONE]
    assert found[BOOSTED, "letters − linear chain"].mean == pytest.approx(right[BOOSTED] - right[LINEAR], abs=1e-9)


def test_a_foreign_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "letters.npz", pixels=np.zeros((2, 16), np.uint8), labels=[0, 30], offsets=[0, 2], fold=[0])
    with pytest.raises(FormatError, match="do not fit together"):
        read_letters(tmp_path / "letters.npz")
    (tmp_path / "text.npz").write_text("a b c")
    with pytest.raises(FormatError, match="not the letters"):
        read_letters(tmp_path / "text.npz")


def test_counts_make_a_hidden_markov_model() -> None:
    from crfield.data.labels import LabelCoder

    coder = LabelCoder().fit([["a", "b"]])
    tables = [np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([[0.5, 0.5]])]
    scores = on_counts(tables, [np.array(list("aab")), np.array(list("b"))], coder)
    assert isinstance(scores.topology, Chains)
    start, shares = np.array([0.5, 0.5]), np.array([0.5, 0.5])
    np.testing.assert_allclose(scores.node[0], np.log(tables[0][0] / shares * start))
    np.testing.assert_allclose(scores.node[1], np.log(tables[0][1] / shares))
    np.testing.assert_allclose(scores.edge[0], np.log([[0.5, 0.5], [0.5, 0.5]]))
