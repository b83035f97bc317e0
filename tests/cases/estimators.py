"""The estimators that keep the fit contract, with a small labelled world in every form of input they read.

The world has three labels. Its words tell them well, its numbers less well, and the label before matters; so a
model learns something from each part and still leaves room for doubt.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from crfield import (
    HMM,
    MEMM,
    BestChain,
    BoostedRandomField,
    ChainCRF,
    ChainCRFCV,
    ClassifierHMM,
    ContinuousCRF,
    DenseCRF,
    DiscriminativeRandomField,
    FactorialCRF,
    GraphCRF,
    GridCRF,
    HiddenCRF,
    IncompleteBoost,
    KernelCRF,
    KernelLogistic,
    LatentDynamicCRF,
    LogitBoost,
    MarkovRandomField,
    MaxentClassifier,
    MEstimatedCRF,
    Pipeline,
    SelectedCRF,
    SemiMarkovCRF,
    StumpEncoder,
    StumpSelector,
    TextFeatures,
    TokenColumns,
    TreeCRF,
    VirtualEvidenceBoosting,
    chain,
    read_crfsuite,
)
from crfield.core.topology import Chains
from crfield.data.attributes import AttributeSequences
from crfield.features.text.lexicon import Lexicon

SEQUENCE_ESTIMATORS: list[type[Any]] = [ChainCRF]
LABELS = ["A", "B", "C"]
TEMPLATE = "# words around\nU00:%x[0,0]\nU01:%x[-1,0]/%x[0,1]\nB\nB01:%x[0,1]\n"

WORDS = TextFeatures(
    word=1, other=0, min_count=2, lexicons={"low": Lexicon(["z0", "w00 w01"])}, clusters={"w10": "0110"}
)

Step = tuple[str, str, np.ndarray]
Sequence = list[Step]


def exact(**options: Any) -> ChainCRF:
    """A ChainCRF that goes all the way to its optimum, as comparisons need it."""
    return ChainCRF(**{"tol": 1e-10, "max_iter": 3000, **options})


def world(n: int = 14, *, seed: int = 0, empty: bool = False) -> tuple[list[Sequence], list[list[str]]]:
    """n sequences of (word, shape, two numbers) and their labels."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        code, sequence, labels = int(rng.integers(3)), [], []
        for _ in range(int(rng.integers(1, 7))):
            code = code if rng.random() < 0.5 else int(rng.integers(3))
            word = f"w{code}{rng.integers(3)}" if rng.random() < 0.7 else f"z{rng.integers(3)}"
            numbers = rng.normal([code - 1.0, -1.0 - code], 1.0)
            sequence.append((word, word[0], numbers))
            labels.append(LABELS[code])
        X.append(sequence)
        y.append(labels)
    if empty:
        X.insert(n // 2, [])
        y.insert(n // 2, [])
    return X, y


def as_dicts(X: list[Sequence]) -> Any:
    return [
        [{"word": w, "speed": float(v[0]), "known": s == "w", "vector": v.copy(), "mass": int(v[1])} for w, s, v in x]
        for x in X
    ]


def as_strings(X: list[Sequence]) -> Any:
    return [[[f"word={w}", f"shape={s}"] for w, s, _ in x] for x in X]


def as_arrays(X: list[Sequence]) -> Any:
    return [np.array([v for _, _, v in x]).reshape(-1, 2) for x in X]


VOCABULARY = sorted({f"w{c}{k}" for c in range(3) for k in range(3)} | {f"z{k}" for k in range(3)})


def as_csr(X: list[Sequence]) -> Any:
    rows = []
    for x in X:
        table = np.zeros((len(x), len(VOCABULARY) + 2))
        for t, (word, _, v) in enumerate(x):
            if word in VOCABULARY:
                table[t, VOCABULARY.index(word)] = 1.0
            table[t, -2:] = v
        rows.append(sp.csr_array(table))
    return rows


def as_rows(X: list[Sequence]) -> Any:
    return [[(w, s) for w, s, _ in x] for x in X]


def as_columns(X: list[Sequence]) -> Any:
    return TokenColumns.from_sequences(as_rows(X))


def as_attributes(X: list[Sequence]) -> Any:
    lines = []
    for x in X:
        lines += [f"A\tword={w}\tspeed:{v[0]!r}\tmass:{v[1]!r}" for w, _, v in ((w, s, v.tolist()) for w, s, v in x)]
        lines.append("")
    read = read_crfsuite(io.StringIO("\n".join(lines) + "\n"))[0]
    # A file cannot hold an empty sequence, but what is read of it may be cut so that one is there.
    lengths = Chains.from_lengths([len(x) for x in X])
    return AttributeSequences(lengths, read.indptr, read.indices, read.values, read.alphabet)


def as_raw(X: list[Sequence]) -> Any:
    return X


def word(x: Sequence, t: int) -> str:
    return x[t][0]


def speed(x: Sequence, t: int) -> float:
    return float(x[t][2][0])


def near(x: Sequence, t: int) -> list[str]:
    return [x[k][1] for k in range(max(0, t - 1), min(len(x), t + 2))]


def same_word(x: Sequence, t: int) -> bool:
    return x[t][0] == x[t - 1][0]


def stays(before: str | None, label: str, x: Sequence, t: int) -> bool:
    return before == label


def fits(before: str | None, label: str, x: Sequence, t: int) -> float:
    return float(x[t][0][1] == str(LABELS.index(label)))


def moves_up(before: str | None, label: str, x: Sequence, t: int) -> float:
    return float(x[t][2][0]) * (before is not None and label > before)


@dataclass(frozen=True)
class Kind:
    """One form of input: how to write the world in it, and the parameters that read it."""

    name: str
    write: Callable[[list[Sequence]], Any]
    options: tuple[tuple[str, Any], ...] = ()
    saved: bool = True

    def model(self, **options: Any) -> ChainCRF:
        return exact(**{**dict(self.options), **options})

    def data(self, n: int = 14, *, seed: int = 0) -> tuple[Any, list[list[str]]]:
        X, y = world(n, seed=seed)
        return self.write(X), y

    def load_options(self) -> dict[str, Any]:
        return {k: v for k, v in self.options if k in ("functions", "transition_functions")}


KINDS = [
    Kind("dicts", as_dicts),
    Kind("dicts_scaled", as_dicts, (("standardize", True), ("transition_features", ("speed", "vector")))),
    Kind("strings", as_strings, (("transition_features", "all"),)),
    Kind("arrays", as_arrays),
    Kind("arrays_edges", as_arrays, (("transition_features", (1,)), ("standardize", True))),
    Kind("csr", as_csr),
    Kind("rows", as_rows, (("template", TEMPLATE),)),
    Kind("columns", as_columns, (("template", TEMPLATE), ("feature_pairs", "all"))),
    Kind("attributes", as_attributes, (("transition_pairs", "all"),)),
    Kind("text", as_rows, (("features", WORDS),)),
    Kind("functions", as_raw, (("functions", (word, speed, near)), ("transition_functions", (same_word,)))),
    Kind("label_functions", as_raw, (("label_functions", (stays, fits, moves_up)),), saved=False),
]


def kinds(*, saved: bool = False) -> Iterator[Kind]:
    """All forms, or those whose models can be saved."""
    return (kind for kind in KINDS if kind.saved or not saved)


def plain_params(model: Any) -> dict[str, Any]:
    """The parameters, those of a transformer within instead of the transformer itself."""
    return {name: value for name, value in model.get_params().items() if not hasattr(value, "get_params")}


def same(one: Any, other: Any) -> bool:
    """Whether two predictions (arrays of label arrays) are equal in values and types."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in zip(one, other, strict=True)
    )


# ------------------------------------------------------------------------------------------ the front door


def some_chains(n: int, seed: int) -> tuple[Any, Any]:
    X, y = world(n, seed=seed)
    return as_strings(X), y


def some_numbers(n: int, seed: int) -> tuple[Any, Any]:
    X, y = world(n, seed=seed)
    return as_arrays(X), y


def some_graphs(n: int, seed: int) -> tuple[Any, Any]:
    """The same sequences as graphs, with a link over a step in between, so that the longer ones have loops."""
    X, y = world(n, seed=seed)
    return [chain([list(words) for words in x], distances=(1, 2)) for x in as_strings(X)], y


def some_images(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    truth = [np.kron(rng.integers(0, 2, (2, 2)), np.ones((2, int(rng.integers(1, 4))), int)) for _ in range(n)]
    return [t + rng.normal(scale=0.7, size=t.shape) for t in truth], [np.where(t, "on", "off") for t in truth]


def some_layers(n: int, seed: int) -> tuple[Any, Any]:
    X, y = world(n, seed=seed)
    rng = np.random.default_rng(seed)
    place = [["in" if (label == "A") == (rng.random() < 0.8) else "out" for label in labels] for labels in y]
    return as_arrays(X), [np.array([a, b], dtype="<U3").T for a, b in zip(y, place, strict=True)]


# --------------------------------------------- the same world in numbers, one cell of which may be of any size

HUGE = 3  # the sequence that has the cell, at its first step
Data = tuple[Any, Any]


def steps(size: float | None) -> Data:
    X, y = world(10, seed=0)
    rows = as_arrays(X)
    if size is not None:
        rows[HUGE][0, 1] = size
    return rows, y


def dicts(size: float | None) -> Data:
    rows, y = steps(size)
    return [[{"speed": float(a), "mass": float(b)} for a, b in x] for x in rows], y


def classes(size: float | None) -> Data:
    rows, y = steps(size)
    return rows, [labels[0] for labels in y]


def numbers(size: float | None) -> Data:
    return steps(size)[0], [x.sum(axis=1) for x in steps(None)[0]]


def table(size: float | None) -> Data:
    rows, y = steps(size)
    return np.concatenate(rows), [label for labels in y for label in labels]


def graphs(size: float | None) -> Data:
    rows, y = steps(size)
    return [chain(x, distances=(1, 2)) for x in rows], y


def layered(size: float | None) -> Data:
    return steps(size)[0], some_layers(10, 0)[1]


def images(size: float | None) -> Data:
    X, y = some_images(6, 0)
    X = [x.copy() for x in X]
    if size is not None:
        X[HUGE][0, 0] = size
    return X, y


# ------------------------------------------------------------------------------------------ the list of estimators


@dataclass(frozen=True)
class Front:
    """An estimator with data of the form that it reads, and what is special about it."""

    estimator: type[Any]
    data: Callable[[int, int], tuple[Any, Any]]
    positional: tuple[str, ...] = ()  # parameters that may be given without their name
    options: tuple[tuple[str, Any], ...] = ()  # not the defaults, for clones and files
    cells: Callable[[float | None], Data] = steps  # the form in which it reads numbers
    n: int = 12  # items that its default is fitted to; fewer where that takes seconds


FRONT_DOOR = [
    Front(ChainCRF, some_chains, options=(("l2", 2.5), ("decode", "marginal"))),
    Front(SemiMarkovCRF, some_chains, options=(("max_length", 4), ("l2", 2.5), ("length_features", (1, 3)))),
    Front(ClassifierHMM, some_chains, ("classifier",), options=(("smoothing", 2.5), ("window", 1))),
    Front(LatentDynamicCRF, some_chains, options=(("l2", 2.5), ("n_states", 3), ("decode", "viterbi"))),
    Front(HMM, some_numbers, ("emissions",), options=(("training", "discriminative"), ("deviation_factor", 1.5))),
    Front(MEMM, some_chains, options=(("l2", 2.5), ("decode", "marginal"))),
    Front(MEstimatedCRF, some_chains, options=(("refreshes", 2), ("block", 3), ("ridge", 0.5))),
    Front(SelectedCRF, some_chains, options=(("method", "l1-path"), ("refit_l2", 2.5)), n=6),
    Front(
        TreeCRF,
        some_chains,
        options=(
            ("n_rounds", 30),
            ("window", 1),
            ("decode", "marginal"),
            ("memory", True),
            ("class_weight", "balanced"),
        ),
    ),
    Front(
        GraphCRF,
        some_graphs,
        options=(("l2", 2.5), ("forbidden", (("+1", "A", "C"),)), ("decode", "marginal")),
        cells=graphs,
    ),
    Front(VirtualEvidenceBoosting, some_chains, options=(("mode", "verified"), ("l2", 2.5), ("max_bins", 16))),
    Front(BoostedRandomField, some_graphs, options=(("learner", "stump"), ("n_rounds", 20)), cells=graphs),
    Front(KernelCRF, some_chains, options=(("similarity", "polynomial"), ("l2", 2.5), ("decode", "marginal"))),
    Front(GridCRF, some_images, options=(("l2", 2.5), ("neighbours", 8), ("directed", True)), cells=images),
    Front(
        DenseCRF,
        some_images,
        ("local",),
        options=(("compatibility", "full"), ("sweeps", 3), ("accuracy", "high"), ("l2", 2.5)),
        cells=images,
        n=6,
    ),
    Front(
        FactorialCRF,
        some_layers,
        options=(("l2", 2.5), ("layers", ("motion", "place")), ("distances", (1, 2))),
        cells=layered,
    ),
    Front(DiscriminativeRandomField, some_images, ("local",), options=(("l2", 2.5), ("cv", 2)), cells=images),
    Front(
        MarkovRandomField,
        some_images,
        ("density",),
        options=(("n_components", 2), ("decode", "marginal")),
        cells=images,
    ),
]
# Classifiers of plain rows and transformers keep the contract of scikit-learn, each in a test of its own.
PLAIN: dict[type[Any], Callable[[float | None], Data] | None] = {  # with the form in which they read numbers
    BestChain: steps,
    ChainCRFCV: steps,
    ContinuousCRF: numbers,
    HiddenCRF: classes,
    IncompleteBoost: table,
    KernelLogistic: table,
    LogitBoost: table,
    MaxentClassifier: table,
    Pipeline: None,  # which hands its columns to one of the others
    StumpEncoder: None,
    StumpSelector: None,
}
ESTIMATORS: list[type[Any]] = [*(front.estimator for front in FRONT_DOOR), *PLAIN]
CELLS = {front.estimator: front.cells for front in FRONT_DOOR} | {e: cells for e, cells in PLAIN.items() if cells}
