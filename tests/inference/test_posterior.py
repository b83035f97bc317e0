"""Answers beyond the best path, against every labelling written out."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest

import crfield
from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.errors import CrfieldError, InputError, LabelError, ShapeError
from crfield.inference.beam import beam_paths
from crfield.inference.n_best import n_best_paths
from crfield.inference.posterior import best_spans
from crfield.metrics import segments, spans

TAGS = ["B-a", "I-a", "B-b", "I-b", "O"]


def scores_of(length: int, labels: int, *, shared: bool, seed: int, forbid: bool = True) -> Potentials:
    rng = np.random.default_rng(seed)
    node, edge = rng.normal(size=(length, labels)), rng.normal(size=(1 if shared else length - 1, labels, labels))
    if forbid and labels > 1:
        edge[0, 0, 0] = -np.inf
        node[0, labels - 1] = -np.inf
    return Potentials(node, edge, Chains.from_lengths([length]))


def labellings(scores: Potentials) -> list[tuple[float, tuple[int, ...]]]:
    """All that are possible, best first."""
    out = []
    for path in product(range(scores.n_labels), repeat=len(scores.node)):
        local = sum(scores.node[t, j] for t, j in enumerate(path))
        out.append((local + sum(scores.edge[k][i, j] for k, i, j in zip(scores.tables, path, path[1:])), path))
    return sorted((own for own in out if own[0] > -np.inf), reverse=True)


CASES = [(1, 3, True), (4, 3, True), (4, 3, False), (6, 2, False), (3, 1, True)]


@pytest.mark.parametrize(("length", "labels", "shared"), CASES)
def test_n_best_is_the_sorted_list_of_all(length: int, labels: int, shared: bool) -> None:
    scores = scores_of(length, labels, shared=shared, seed=length)
    paths, totals = n_best_paths(scores, 10_000)[0]
    everything = labellings(scores)
    assert [tuple(path) for path in paths.tolist()] == [path for _, path in everything]
    assert totals == pytest.approx([score for score, _ in everything], abs=1e-12)
    assert len(n_best_paths(scores, 2)[0][0]) == min(2, len(everything))


def test_n_best_of_ties_empty_and_impossible_sequences() -> None:
    scores = Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([0, 3, 1]))
    scores.node[3] = -np.inf
    found = n_best_paths(scores, 20)
    assert found[0][0].shape == (1, 0)
    assert len({tuple(path) for path in found[1][0].tolist()}) == 8  # all different, none twice
    assert found[2][0].shape == (0, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_a_beam_never_loses_more_than_it_says(shared: bool) -> None:
    proved = 0
    for seed in range(12):
        scores = scores_of(5, 4, shared=shared, seed=seed, forbid=seed % 2 == 0)
        every = {path: score for score, path in labellings(scores)}
        best = max(every.values())
        for width in (1, 2, 3, 4, 9):
            path, total, bound = beam_paths(scores, width=width)
            assert total[0] == pytest.approx(every[tuple(path.tolist())])
            assert best - total[0] <= bound[0] + 1e-12
            proved += bool(bound[0] == 0 and width < 4)
        assert total[0] == pytest.approx(best)
        assert bound[0] == 0
    assert proved > 1


def test_a_beam_that_runs_into_a_wall() -> None:
    edge = np.array([[[-np.inf, -np.inf], [0.0, 0.0]]])
    scores = Potentials(np.array([[1.0, 0.0], [0.0, 0.0]]), edge, Chains.from_lengths([2]))
    _, total, bound = beam_paths(scores, width=1)
    assert np.isneginf(total[0])
    assert np.isposinf(bound[0])
    assert beam_paths(scores, width=2)[1][0] == 0.0


# ------------------------------------------------------------------------------------------------------- estimators


@pytest.fixture(scope="module", params=[1, 2], ids=["order 1", "order 2"])
def model(request: pytest.FixtureRequest) -> crfield.ChainCRF:
    rng = np.random.default_rng(0)
    X = [[[f"w{rng.integers(6)}"] for _ in range(6)] for _ in range(30)]
    y = [rng.choice(TAGS, 6).tolist() for _ in range(30)]
    return crfield.ChainCRF(l2=0.3, order=request.param).fit(X, y)


X = [[["w1"], ["w2"], ["w0"], ["w5"]], [], [["w3"]]]


def distribution(model: crfield.ChainCRF, x: list) -> dict[tuple[str, ...], float]:
    """Probability of every labelling of one sequence, by its own log_prob."""
    every = list(product(model.classes_.tolist(), repeat=len(x)))
    return dict(zip(every, np.exp(model.log_prob([x] * len(every), [list(own) for own in every]))))


def test_n_best_labels_and_probabilities(model: crfield.ChainCRF) -> None:
    found = model.predict_n_best(X, 7)
    assert [len(own) for own in found] == [7, 1, 5]
    chance = distribution(model, X[0])
    expected = sorted(chance.items(), key=lambda pair: -pair[1])[:7]
    assert [tuple(own.labels) for own in found[0]] == [labels for labels, _ in expected]
    assert [own.probability for own in found[0]] == pytest.approx([p for _, p in expected], rel=1e-9)
    assert found[0][0].labels.tolist() == model.predict(X)[0].tolist()
    assert sum(own.probability for own in found[2]) == pytest.approx(1.0)
    assert "probability=" in repr(found[0][0])


def test_pairs_and_entropy(model: crfield.ChainCRF) -> None:
    chance = distribution(model, X[0])
    code = {label: k for k, label in enumerate(model.classes_)}
    pairs = np.zeros((3, 5, 5))
    for labels, p in chance.items():
        for t in range(3):
            pairs[t, code[labels[t]], code[labels[t + 1]]] += p
    told = model.predict_pairs(X)
    assert told[0] == pytest.approx(pairs, abs=1e-12)
    assert [own.shape for own in told] == [(3, 5, 5), (0, 5, 5), (0, 5, 5)]
    p = np.array(list(chance.values()))
    assert model.entropy(X) == pytest.approx([-(p * np.log(p)).sum(), 0.0, model.entropy([X[2]])[0]], abs=1e-10)


def test_samples_follow_the_distribution(model: crfield.ChainCRF) -> None:
    drawn = model.sample_labels(X, 4000, random_state=3)
    assert [own.shape for own in drawn] == [(4000, 4), (4000, 0), (4000, 1)]
    assert (drawn[0] == model.sample_labels(X, 4000, random_state=3)[0]).all()
    chance = distribution(model, X[0])
    for labels, p in sorted(chance.items(), key=lambda pair: -pair[1])[:5]:
        share = (drawn[0] == np.array(labels, dtype=object)).all(axis=1).mean()
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 4000)


@pytest.mark.parametrize("scheme", ["iob2", "runs"])
def test_span_probability_sums_all_labellings_that_are_read_so(model: crfield.ChainCRF, scheme: str) -> None:
    read = segments if scheme == "runs" else spans
    truth: dict[tuple[int, int, str], float] = {}
    for labels, p in distribution(model, X[0]).items():
        for span in read(list(labels)):
            truth[span] = truth.get(span, 0.0) + p
    own = sorted(truth)
    told = model.span_probability(X, [own, [], [(0, 1, "nobody")]], scheme=scheme)
    assert told[0] == pytest.approx([truth[span] for span in own], abs=1e-12)
    assert told[1].shape == (0,)
    assert told[2].tolist() == [0.0]
    for span in model.predict_spans(X, scheme=scheme)[0]:
        assert span.probability == pytest.approx(truth[span.start, span.stop, span.label], abs=1e-12)
    found = model.predict_spans(X, scheme=scheme)[0]
    assert [(span.start, span.stop, span.label) for span in found] == read(model.predict(X)[0].tolist())


@pytest.mark.parametrize("threshold", [0.05, 0.2, 0.5])
def test_spans_of_least_risk(model: crfield.ChainCRF, threshold: float) -> None:
    """Against every set of spans that do not overlap."""
    truth: dict[tuple[int, int, str], float] = {}
    for labels, p in distribution(model, X[0]).items():
        for span in spans(list(labels)):
            truth[span] = truth.get(span, 0.0) + p
    useful = [span for span, p in truth.items() if p > threshold]
    best = 0.0
    for size in range(5):
        for chosen in combinations(useful, size):
            if all(a[1] <= b[0] or b[1] <= a[0] for a, b in combinations(chosen, 2)):
                best = max(best, sum(truth[span] - threshold for span in chosen))
    found = model.predict_spans(X, method="risk", threshold=threshold)[0]
    assert sum(span.probability - threshold for span in found) == pytest.approx(best, abs=1e-12)
    assert all(a.stop <= b.start for a, b in pairwise(found))


def test_characters_of_spans(model: crfield.ChainCRF) -> None:
    offsets = [[(0, 2), (3, 5), (6, 8), (9, 11)], [], [(0, 2)]]
    for span in model.predict_spans(X, method="risk", threshold=0.1, offsets=offsets)[0]:
        assert (span.first, span.last) == (3 * span.start, 3 * span.stop - 1)
    with pytest.raises(ShapeError, match=r"each of the 4 steps of sequence 0, got 1"):
        model.predict_spans(X, offsets=[[(0, 2)], [], []])


def test_bad_questions(model: crfield.ChainCRF) -> None:
    for call, words in (
        (lambda: model.predict_n_best(X, 0), "n must be an integer ≥ 1"),
        (lambda: model.sample_labels(X, -1), "n must be an integer ≥ 0"),
        (lambda: model.predict_beam(X, width=0), "width must be"),
        (lambda: model.predict_spans(X, method="best"), "'path' or 'risk'"),
        (lambda: model.predict_spans(X, method="risk", threshold=0.0), "threshold must be a probability"),
        (lambda: crfield.ChainCRF().predict_n_best(X), "not fitted"),
    ):
        with pytest.raises(CrfieldError, match=words):
            call()
    with pytest.raises(ShapeError, match=r"span \(3, 9, 'a'\) of sequence 0"):
        model.span_probability(X, [[(3, 9, "a")], [], []])
    with pytest.raises(ShapeError, match="one list for each of 3 sequences, got 1"):
        model.span_probability(X, [[]])


def test_plain_labels_have_runs_but_no_tags() -> None:
    plain = crfield.ChainCRF().fit([[["a"], ["b"], ["b"]]], [["walk", "sit", "sit"]])
    assert [span.label for span in plain.predict_spans([[["a"], ["b"], ["b"]]], scheme="runs")[0]] == ["walk", "sit"]
    with pytest.raises(LabelError, match="is not a tag"):
        plain.predict_spans([[["a"]]])


def test_models_with_hidden_states_say_so() -> None:
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(8, 2)) for _ in range(4)], [["a", "a", "b", "b"] * 2] * 4
    hidden = crfield.LatentDynamicCRF(n_states=2, tol=1e-2).fit(X, y)
    with pytest.raises(InputError, match="hidden states"):
        hidden.predict_n_best(X)


def test_known_labels_are_given(model: crfield.ChainCRF) -> None:
    known = [[None, "B-b", {"O", "I-b"}, None]]
    chance = {
        labels: p
        for labels, p in distribution(model, X[0]).items()
        if labels[1] == "B-b" and labels[2] in ("O", "I-b")
    }
    whole = sum(chance.values())
    best = sorted(chance.items(), key=lambda pair: -pair[1])[:4]
    found = model.predict_n_best(X[:1], 4, known=known)[0]
    assert [tuple(own.labels) for own in found] == [labels for labels, _ in best]
    assert [own.probability for own in found] == pytest.approx([p / whole for _, p in best], rel=1e-9)
    p = np.array(list(chance.values())) / whole
    assert model.entropy(X[:1], known=known)[0] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-10)
    assert set(model.sample_labels(X[:1], 50, known=known, random_state=0)[0][:, 1]) == {"B-b"}
    assert model.predict_pairs(X[:1], known=known)[0].sum() == pytest.approx(3.0)
    assert any(span.start == 1 for span in model.predict_spans(X[:1], known=known, method="risk")[0])
    assert model.predict_beam(X[:1], 99, known=known).labels[0].tolist() == found[0].labels.tolist()


def test_the_beam_of_a_model(model: crfield.ChainCRF) -> None:
    found = model.predict_beam(X, width=99)
    assert found.bounds.tolist() == [0.0, 0.0, 0.0]
    assert [own.tolist() for own in found.labels] == [own.tolist() for own in model.predict(X)]


def test_spans_that_touch_do_not_overlap() -> None:
    assert best_spans([(0, 2, 0, 0.9), (2, 3, 1, 0.8)], threshold=0.5) == [(0, 2, 0, 0.9), (2, 3, 1, 0.8)]
    assert best_spans([], threshold=0.5) == []


def test_of_spans_worth_the_same_the_one_that_begins_first_is_kept() -> None:
    short, long = (1, 2, 0, 0.9), (0, 2, 1, 0.9)
    assert best_spans([short, long], threshold=0.5) == best_spans([long, short], threshold=0.5) == [long]
