"""One small fitted model of every kind that can be saved, and the questions that it is asked.

The data are made here, by NumPy's generators alone, so that nothing of the library can change them. A case must stay
as it is once files of it are stored: a new kind, or a new way to store an old one, is a new case.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

import crfield
from crfield.data.attributes import AttributeSequences
from crfield.features.relational.examples import TAG_SMALL

LABELS = ("A", "B", "C")
TEMPLATE = "U00:%x[0,0]\nU01:%x[-1,0]/%x[0,1]\nB\n"
STEPS = ("predict", "predict_proba", "log_prob")
ROWS = ("predict", "predict_proba")
Data = tuple[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model before ``fit``, its data, and what to ask; ``load`` has what a file cannot hold."""

    name: str
    model: Callable[[], Any]
    data: Callable[[int, int], Data]
    asks: tuple[str, ...] = STEPS
    fit: Callable[[Any, Any, Any], Any] = lambda model, X, y: model.fit(X, y)
    load: Mapping[str, Any] = field(default_factory=dict)
    given: Callable[[Any], Mapping[str, Any]] = lambda X: {}  # what is asked with beside X
    rounding: float = 1e-9  # how far answers may differ from one compiler or processor to another, relative


def _world(n: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], list[list[str]]]:
    """n chains: codes of words (T,), numbers (T, 2) and labels that tend to stay."""
    rng = np.random.default_rng(seed)
    words, numbers, y = [], [], []
    for _ in range(n):
        length = int(rng.integers(2, 8))
        stay, fresh = rng.random(length) < 0.6, rng.integers(0, 3, length)
        codes = fresh.copy()
        for t in range(1, length):
            codes[t] = codes[t - 1] if stay[t] else fresh[t]
        words.append(np.where(rng.random(length) < 0.75, codes * 3 + rng.integers(0, 3, length), 9))
        numbers.append(codes[:, None] * [1.0, -0.5] + rng.normal(size=(length, 2)))
        y.append([LABELS[c] for c in codes])
    return words, numbers, y


def strings(n: int, seed: int) -> Data:
    words, _, y = _world(n, seed)
    return [[[f"word={w}", f"group={w // 3}"] for w in x.tolist()] for x in words], y


def dicts(n: int, seed: int) -> Data:
    words, numbers, y = _world(n, seed)
    return [
        [{"word": f"w{w}", "speed": v[0], "even": w % 2 == 0, "vector": np.array(v)} for w, v in zip(a, b)]
        for a, b in zip((x.tolist() for x in words), (x.tolist() for x in numbers))
    ], y


def arrays(n: int, seed: int) -> Data:
    _, numbers, y = _world(n, seed)
    return numbers, y


def gaps(n: int, seed: int) -> Data:
    """Numbers of which those of the third label are mostly missing."""
    rng, (_, numbers, y) = np.random.default_rng(seed + 100), _world(n, seed)
    for x, labels in zip(numbers, y):
        x[rng.random(len(x)) < np.where(np.array(labels) == "C", 0.8, 0.1), 1] = np.nan
    return numbers, y


def matrices(n: int, seed: int) -> Data:
    words, numbers, y = _world(n, seed)
    return [
        sp.csr_array(np.hstack([np.eye(10)[w], np.where(np.abs(v) > 0.5, v, 0.0)])) for w, v in zip(words, numbers)
    ], y


def tokens(n: int, seed: int) -> Data:
    words, _, y = _world(n, seed)
    return [[(f"w{w}", f"g{w // 3}") for w in x.tolist()] for x in words], y


def attributes(n: int, seed: int) -> Data:
    words, numbers, y = _world(n, seed)
    lines = []
    for w, v in zip(words, numbers):
        lines += [f"A\tword={a}\tspeed:{b[0]!r}" for a, b in zip(w.tolist(), v.tolist())] + [""]
    return crfield.read_crfsuite(io.StringIO("\n".join(lines) + "\n"))[0], y


def rising(n: int, seed: int) -> Data:
    """Labels never fall; the words go with them."""
    words, _, y = _world(n, seed)
    return [[[f"group={g}"] for g in sorted((x // 3).tolist())] for x in words], [sorted(labels) for labels in y]


def lasting(n: int, seed: int) -> Data:
    """Every step twice."""
    X, y = arrays(n, seed)
    return [np.repeat(x, 2, axis=0) for x in X], [np.repeat(labels, 2) for labels in y]


def whole_numbers(n: int, seed: int) -> Data:
    words, _, y = _world(n, seed)
    return [x[:, None] for x in words], [[LABELS.index(label) for label in labels] for labels in y]


def steps(n: int, seed: int) -> Data:
    words, _, y = _world(n, seed)
    return [x.tolist() for x in words], y


def graphs(n: int, seed: int) -> Data:
    X, y = strings(n, seed)
    return [crfield.chain([list(names) for names in x], distances=(1, 2)) for x in X], y


def images(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    truth = [np.kron(rng.integers(0, 2, (2, 2)), np.ones((2, 2), int)) for _ in range(n)]
    return [t + rng.normal(scale=0.6, size=t.shape) for t in truth], [np.where(t, "on", "off") for t in truth]


def layers(n: int, seed: int) -> Data:
    _, numbers, y = _world(n, seed)
    return numbers, [np.array([labels, ["in" if label == "A" else "out" for label in labels]]).T for labels in y]


def rows(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, 3 * n)
    X = rng.normal(size=(3 * n, 4)) + codes[:, None] * [1.5, 0.0, -1.0, 0.0]
    return X.round(2), np.array(LABELS)[codes]


def _evidence(X: Any) -> dict[str, Any]:
    """Two attributes of `rows` that are known by distributions."""
    rough = 1.0 / (1.0 + np.exp(-X))
    low, high = rough[:, 0], rough[:, 2]
    return {
        "evidence": {
            "level": np.stack([low * high, low * (1 - high), 1 - low], axis=1),
            "side": np.stack([rough[:, 1], 1 - rough[:, 1]], axis=1),
        }
    }


def ones(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, 4 * n)
    return (rng.random((4 * n, 3)) < 0.2 + 0.6 * codes[:, None]).astype(float), np.array(["in", "out"])[codes]


def whole(n: int, seed: int) -> Data:
    X, y = arrays(n, seed)
    return X, [labels[0] for labels in y]


def real(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    y = [np.cumsum(rng.normal(size=9)) for _ in range(n)]
    return [np.stack([t + rng.normal(size=9), np.ones(9)], axis=1) for t in y], y


def games(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        seeker = np.repeat(rng.integers(0, 3, 3), 6)
        path = rng.normal(size=(18, 3, 2)).cumsum(axis=0) * 100 + np.arange(3)[:, None] * 500
        path[np.arange(18), seeker] *= 0.3
        X.append(path)
        y.append(seeker)
    return X, y


def heard(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    times, table = np.arange(5.0), rng.normal(size=(n, 5, 3))
    return [crfield.Readings(times, x[:, :2], rng.integers(0, 3, 5), x[:, 2], times) for x in table], None


def word_at(x: list[int], t: int) -> str:
    return f"w{x[t]}"


def same_word(x: list[int], t: int) -> bool:
    return x[t] == x[t - 1]


def _words() -> crfield.TextFeatures:
    return crfield.TextFeatures(
        word=1,
        min_count=2,
        lexicons={"low": ["w0", "w1 w2"]},
        clusters={"w3": "0110"},
        conjunctions=[("tag", "shape[+1]")],
    )


def _with_tags(model: Any, X: Any, y: Any) -> Any:
    return model.fit(X, y, hidden=[("noun", "verb")[int(x[0])] if k % 3 else None for k, x in enumerate(X)])


def _of_a_table(model: Any, X: Any, y: Any) -> Any:
    model.fit(X, y).source_ = {"format": "table", "columns": '["speed", "turn"]', "group": "day", "label": "label"}
    return model


def _selected(method: str) -> Callable[[], Any]:
    return lambda: crfield.SelectedCRF(method=method, refit_l2=0.5)


_functions = {"functions": (word_at,), "transition_functions": (same_word,)}
CASES = [
    Case("chain-strings", lambda: crfield.ChainCRF(transition_features="all", l2=0.7), strings),
    Case("chain-dicts", lambda: crfield.ChainCRF(standardize=True, transition_features=("speed", "vector")), dicts),
    Case("chain-arrays", lambda: crfield.ChainCRF(decode="marginal"), arrays),
    Case("chain-matrices", lambda: crfield.ChainCRF(l1=0.2), matrices),
    Case("chain-template", lambda: crfield.ChainCRF(template=TEMPLATE, feature_pairs="all"), tokens),
    Case("chain-attributes", lambda: crfield.ChainCRF(transition_pairs="all"), attributes),
    Case("chain-functions", lambda: crfield.ChainCRF(**_functions), steps, load=_functions),
    Case("chain-order-2", lambda: crfield.ChainCRF(order=2), strings),
    Case("chain-constraints", lambda: crfield.ChainCRF(constraints=[("B", "A"), ("C", "A"), ("C", "B")]), rising),
    Case("chain-perceptron", lambda: crfield.ChainCRF(solver="perceptron", max_iter=5), strings),
    Case("chain-text", lambda: crfield.ChainCRF(features=_words()), tokens),
    Case("pipeline", lambda: crfield.Pipeline([("words", _words()), ("chain", crfield.ChainCRF())]), tokens),
    Case("text-features", _words, tokens, ("transform",)),
    Case("sensor-features", lambda: crfield.SensorFeatures(rate=2.0, contexts=(3,)), arrays, ("transform",)),
    Case("reading-features", lambda: crfield.ReadingFeatures(radii=(2.0,)), heard, ("transform",)),
    Case("memm", lambda: crfield.MEMM(l2=0.5), strings),
    Case("m-estimated", lambda: crfield.MEstimatedCRF(refreshes=2, ridge=0.5), strings),
    Case("hmm-gaussian", lambda: crfield.HMM(), arrays),
    Case("hmm-full", lambda: crfield.HMM("full"), arrays),
    Case("hmm-mixture", lambda: crfield.HMM("mixture"), arrays),
    Case("hmm-categorical", lambda: crfield.HMM("categorical"), whole_numbers),
    Case("hmm-durations", lambda: crfield.HMM(min_duration=2), lasting),
    Case("hmm-discriminative", lambda: crfield.HMM(training="discriminative"), arrays),
    Case("classifier-hmm", lambda: crfield.ClassifierHMM(crfield.LogitBoost(n_rounds=5), window=1), strings),
    Case("best-chain", lambda: crfield.BestChain(candidates=("logistic regression", "Gaussian")), arrays),
    Case("best-chain-sequences", lambda: crfield.BestChain(candidates=("chain on columns",), folds=2), dicts),
    Case(
        "classifier-hmm-calibrated",
        lambda: crfield.ClassifierHMM(crfield.LogitBoost(n_rounds=2), calibrate="temperature"),
        strings,
    ),
    Case("semi-markov", lambda: crfield.SemiMarkovCRF(max_length=6, length_features=(1, 3)), strings),
    Case("semi-markov-runs", lambda: crfield.SemiMarkovCRF(max_length=2, length_features="none"), strings),
    Case("latent-dynamic", lambda: crfield.LatentDynamicCRF(n_states=2), strings),
    Case("hidden", lambda: crfield.HiddenCRF(n_states=2), whole, ROWS),
    Case("tree", lambda: crfield.TreeCRF(n_rounds=5, window=1), strings),
    Case("kernel", lambda: crfield.KernelCRF(l2=0.5), arrays),
    Case("kernel-polynomial", lambda: crfield.KernelCRF(similarity="polynomial"), strings),
    Case("continuous", lambda: crfield.ContinuousCRF(), real, ("predict", "predict_intervals")),
    Case("selected-grafting", _selected("grafting"), arrays),
    Case("selected-path", _selected("l1-path"), strings),
    Case("selected-table", _selected("all"), arrays, fit=_of_a_table),
    Case("selected-games", lambda: crfield.SelectedCRF(
        features=crfield.Specification.parse(TAG_SMALL).expand(labels=3, agents=3), rate=10.0,
        options={"max_features": 4}), games),
    Case("virtual-evidence", lambda: crfield.VirtualEvidenceBoosting(mode="verified", n_rounds=8), strings),
    Case("virtual-evidence-plain", lambda: crfield.VirtualEvidenceBoosting(n_rounds=5), arrays),
    Case("boosted-field", lambda: crfield.BoostedRandomField(n_rounds=5), graphs),
    Case("graph", lambda: crfield.GraphCRF(objective="pseudo_likelihood", decode="marginal"), graphs),
    Case("graph-exact", lambda: crfield.GraphCRF(objective="likelihood", decode="map"), graphs),
    Case("grid", lambda: crfield.GridCRF(objective="pseudo_likelihood", decode="map", neighbours=8), images),
    Case("dense", lambda: crfield.DenseCRF(compatibility="full", sweeps=3, l2=0.5), images, rounding=1e-5),
    Case("factorial", lambda: crfield.FactorialCRF(layers=("motion", "place"), l2=0.5), layers),
    Case("factorial-shared", lambda: crfield.FactorialCRF(l2=0.5, distances=(1, 2)), layers),
    Case("discriminative-field", lambda: crfield.DiscriminativeRandomField(cv=2), images),
    Case("markov-field", lambda: crfield.MarkovRandomField(n_components=2), images),
    Case("maxent", lambda: crfield.MaxentClassifier(), rows, ROWS),
    Case("kernel-logistic", lambda: crfield.KernelLogistic(), rows, ROWS),
    Case("logit-boost", lambda: crfield.LogitBoost(n_rounds=6), rows, ROWS),
    Case("logit-boost-evidence", lambda: crfield.LogitBoost(n_rounds=6), rows, ROWS, given=_evidence,
        fit=lambda model, X, y: model.fit(X * [0, 1, 0, 1], y, **_evidence(X))),
    Case("logit-boost-potentials", lambda: crfield.LogitBoost(n_rounds=6, evidence_form="potentials"), rows, ROWS,
        given=_evidence, fit=lambda model, X, y: model.fit(X * [0, 1, 0, 1], y, **_evidence(X))),
    Case("incomplete-boost", lambda: crfield.IncompleteBoost(prior="learnt"), ones, ROWS, fit=_with_tags),
    Case("stump-encoder", lambda: crfield.StumpEncoder(), arrays, ("transform",)),
    Case("stump-selector", lambda: crfield.StumpSelector(n_rounds=3), arrays, ("transform",)),
    Case("tree-missing", lambda: crfield.TreeCRF(n_rounds=5, min_samples_leaf=1), gaps),
    Case("tree-memory", lambda: crfield.TreeCRF(n_rounds=5, memory=True, class_weight={"C": 2.0}), arrays),
    Case("virtual-evidence-missing", lambda: crfield.VirtualEvidenceBoosting(n_rounds=5), gaps),
    Case("boosted-field-missing", lambda: crfield.BoostedRandomField(n_rounds=5), gaps),
    Case("stump-encoder-missing", lambda: crfield.StumpEncoder(), gaps, ("transform",)),
]  # fmt: skip


def answers(model: Any, case: Case) -> dict[str, Any]:
    """What the model says of data that it has not seen, as values of JSON."""
    X, y = case.data(4, 1)
    given = case.given(X)
    return {ask: plain(getattr(model, ask)(X, *([y] if ask == "log_prob" else []), **given)) for ask in case.asks}


def plain(value: Any) -> Any:
    """Arrays, sparse matrices and dicts as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if sp.issparse(value):
        value = value.toarray()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tolist()
    if isinstance(value, list | tuple | np.ndarray | AttributeSequences):
        return [plain(inner) for inner in value]
    return value
