"""Cases that the contract tests of the chain share: random scores, random linear problems, and how close is close.

Sizes and options come from hypothesis, numbers from a seeded generator: so a failing case shrinks in what matters
and is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.kernels import choice
from crfield.scoring.layout import Layout

INF = np.inf
MOST_PATHS = 260  # of one sequence; enumeration is a Python loop


def examples(count: int) -> settings:
    """Settings of a hypothesis test under the `body` fixture."""
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


needs_native = pytest.mark.skipif(
    find_spec("crfield.kernels._chain") is None, reason="the compiled kernels are not built here"
)


@contextmanager
def native_level(level: int) -> Iterator[None]:
    """Run the block on the compiled code of one x86-64 level; skip where the processor lacks it."""
    from crfield.kernels import _chain  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch, choice.use("native"):
        patch.setenv("CRFIELD_LEVEL", str(level))
        if _chain.level() != level:
            pytest.skip(f"the processor runs level {_chain.level()}, not {level}")
        yield


# ------------------------------------------------------------------------------------------------- potentials


def random_potentials(
    rng: np.random.Generator,
    lengths: list[int],
    labels: int,
    *,
    shared: bool = True,
    scale: float = 1.0,
    forbidden: float = 0.0,
) -> Potentials:
    """Normal scores times ``scale``, each −∞ with the probability ``forbidden``."""
    chains = Chains.from_lengths(lengths)
    node = scale * rng.standard_normal((chains.n_nodes, labels))
    edge = scale * rng.standard_normal((1 if shared else chains.n_edges, labels, labels))
    for scores in (node, edge):
        scores[rng.random(scores.shape) < forbidden] = -INF
    return Potentials(node, edge, chains)


def longest(labels: int, most: int = MOST_PATHS) -> int:
    """Steps whose paths can still be written out."""
    return 6 if labels == 1 else int(np.log(most) / np.log(labels))


@st.composite
def shapes(draw: st.DrawFn, most_labels: int = 5, most_paths: int = MOST_PATHS) -> tuple[list[int], int, bool]:
    """Lengths (some zero), number of labels, shared edges or not."""
    labels = draw(st.integers(1, most_labels))
    lengths = draw(st.lists(st.integers(0, longest(labels, most_paths)), min_size=0, max_size=4))
    return lengths, labels, draw(st.booleans())


@st.composite
def small_potentials(draw: st.DrawFn, scales: tuple[float, ...] = (1.0, 30.0)) -> Potentials:
    """Small enough to enumerate; with and without forbidden labels and pairs."""
    lengths, labels, shared = draw(shapes())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale, forbidden = draw(st.sampled_from(scales)), draw(st.sampled_from([0.0, 0.1, 0.4]))
    return random_potentials(rng, lengths, labels, shared=shared, scale=scale, forbidden=forbidden)


@st.composite
def steep_potentials(draw: st.DrawFn, most_labels: int = 4, most_paths: int = MOST_PATHS) -> Potentials:
    """Scores on ladders around the places where exp leaves the double numbers, many of them forbidden.

    Whole numbers, so that sums are exact; rungs one nat apart, so that what is lost would be seen.
    """
    lengths, labels, shared = draw(shapes(most_labels, most_paths))
    chains = Chains.from_lengths(lengths)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def ladder(shape: tuple[int, ...]) -> np.ndarray:
        feet = draw(st.lists(st.sampled_from([0, 296, 350, 460, 594, 706, 742, 1000]), min_size=1, max_size=3))
        scores = (rng.choice(feet, shape) + rng.integers(0, 5, shape)).astype(float) * (rng.random(shape) < 0.8)
        scores[rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.6]))] = INF
        return scores

    node = -ladder((chains.n_nodes, labels))
    node[np.isfinite(node)] *= np.repeat(rng.choice([1, -1], (chains.n_nodes, 1)), labels, axis=1)[np.isfinite(node)]
    return Potentials(node, -ladder((1 if shared else chains.n_edges, labels, labels)), chains)


def magnitude(potentials: Potentials) -> np.ndarray:
    """(B,) one plus the sum over steps of the largest finite scores: what rounding errors are relative to."""
    chains = potentials.topology

    def largest(scores: np.ndarray) -> np.ndarray:
        return np.max(
            np.where(np.isfinite(scores), np.abs(scores), 0.0), axis=tuple(range(1, scores.ndim)), initial=0
        )

    out = np.ones(chains.n_sequences)
    np.add.at(out, chains.sequence_of_node, largest(potentials.node))
    edges = np.broadcast_to(largest(potentials.edge), chains.n_edges)
    np.add.at(out, chains.sequence_of_node[chains.heads], edges)
    return out


def assert_totals(actual: np.ndarray, expected: np.ndarray, potentials: Potentials, rel: float = 1e-12) -> None:
    """Equal to rounding of the sums they are made of; −∞ only with −∞."""
    assert actual.shape == expected.shape
    assert not np.isnan(actual).any()
    np.testing.assert_array_equal(np.isneginf(actual), np.isneginf(expected))
    possible = np.isfinite(expected)
    error = np.abs(actual[possible] - expected[possible]) / magnitude(potentials)[possible]
    assert error.max(initial=0.0) <= rel, f"totals differ by {error.max():.3g} relative"


def paths_of(labels: int, length: int) -> list[tuple[int, ...]]:
    """All paths of one sequence."""
    return list(product(range(labels), repeat=length))


# ------------------------------------------------------------------------------------------- linear problems


@dataclass(frozen=True)
class Options:
    """Everything a linear model and its data may have or lack."""

    labels: int = 3
    feature_pairs: str = "observed"
    transition_pairs: str = "observed"
    bias: bool = False
    boundaries: bool = True
    columns: int = 9
    values: bool = False
    dense: int = 0
    edge_columns: int = 0
    edge_values: bool = False
    edge_dense: int = 0
    partial: bool = False
    weighted: bool = False
    lengths: tuple[int, ...] = (4, 0, 1, 6, 2, 3, 1, 5, 3, 2, 7)

    def __str__(self) -> str:
        """What differs from the default, for the names of tests."""
        told = (f"{name}={value}" for name, value in vars(self).items() if value != getattr(Options, name))
        return ",".join(told) or "default"


EACH_OPTION = [
    Options(),
    Options(labels=1),
    Options(labels=2, lengths=(1,)),
    Options(labels=2, lengths=(2,), edge_columns=2, weighted=True),
    Options(feature_pairs="all"),
    Options(feature_pairs="all", transition_pairs="none", boundaries=False, columns=1),
    Options(transition_pairs="all"),
    Options(transition_pairs="none"),
    Options(bias=True, boundaries=False),
    Options(values=True),
    Options(values=True, dense=3, bias=True, feature_pairs="all"),
    Options(columns=0, dense=2),
    Options(edge_columns=4),
    Options(edge_columns=4, edge_values=True, feature_pairs="all"),
    Options(edge_dense=2, transition_pairs="none"),
    Options(edge_columns=3, edge_values=True, edge_dense=1, dense=2, values=True, bias=True),
    Options(partial=True),
    Options(partial=True, weighted=True, edge_columns=3, edge_dense=1),
    Options(weighted=True, labels=5),
    Options(labels=9, partial=True, weighted=True, values=True, bias=True, columns=30),
]


@dataclass(frozen=True, eq=False)
class LinearCase:
    """A layout, a batch and a target that fit together."""

    layout: Layout
    batch: Batch
    target: Target

    def weights(self, rng: np.random.Generator, scale: float = 0.5) -> np.ndarray:
        """Random weights (W,)."""
        return scale * rng.standard_normal(self.layout.n_weights)


@st.composite
def options(draw: st.DrawFn, labels: tuple[int, ...] = (1, 2, 3, 5, 9)) -> Options:
    """Any mixture of options."""
    number = draw(st.sampled_from(labels))
    return Options(
        labels=number,
        feature_pairs=draw(st.sampled_from(["observed", "all"])),
        transition_pairs=draw(st.sampled_from(["observed", "all", "none"])),
        bias=draw(st.booleans()),
        boundaries=draw(st.booleans()),
        columns=draw(st.sampled_from([0, 1, 7, 40])),
        values=draw(st.booleans()),
        dense=draw(st.sampled_from([0, 0, 1, 5])),
        edge_columns=draw(st.sampled_from([0, 0, 3])),
        edge_values=draw(st.booleans()),
        edge_dense=draw(st.sampled_from([0, 0, 2])),
        partial=draw(st.booleans()),
        weighted=draw(st.booleans()),
        lengths=tuple(draw(st.lists(st.integers(0, 12), max_size=20))),
    )


def random_columns(rng: np.random.Generator, rows: int, width: int, *, values: bool, dense: int) -> Columns:
    """Rows of up to five columns each, some twice in a row; early columns are common, late ones rare."""
    counts = rng.integers(0, 6, rows) if width else np.zeros(rows, np.int64)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    indices = (width * rng.random(indptr[-1]) ** 2).astype(np.int32)
    return Columns(
        indptr,
        indices,
        width,
        rng.standard_normal(len(indices)) if values else None,
        rng.standard_normal((rows, dense)) if dense else None,
    )


def random_target(rng: np.random.Generator, chains: Chains, labels: int, *, partial: bool, weighted: bool) -> Target:
    """Random labels; with ``partial`` a third of the steps allow several labels or all."""
    codes = rng.integers(0, labels, chains.n_nodes).astype(np.int32)
    allowed = None
    if partial:
        allowed = np.zeros((chains.n_nodes, labels), dtype=bool)
        allowed[np.arange(chains.n_nodes), codes] = True
        unsure = rng.random(chains.n_nodes) < 0.35
        # about a third of all sequences stay complete
        unsure &= np.isin(chains.sequence_of_node % 3, (0, 1))
        allowed[unsure] |= rng.random((int(unsure.sum()), labels)) < rng.choice([0.5, 1.0])
        codes = np.where(unsure, -1, codes).astype(np.int32)
    weight = rng.uniform(0.2, 3.0, chains.n_sequences) if weighted else None
    return Target(chains, labels, codes, allowed, weight)


def linear_case(rng: np.random.Generator, o: Options) -> LinearCase:
    """Data and layout with the given options."""
    chains = Chains.from_lengths(list(o.lengths))
    node = random_columns(rng, chains.n_nodes, o.columns, values=o.values, dense=o.dense)
    edge = None
    if o.edge_columns or o.edge_dense:
        edge = random_columns(rng, chains.n_edges, o.edge_columns, values=o.edge_values, dense=o.edge_dense)
    batch = Batch(chains, node, edge)
    target = random_target(rng, chains, o.labels, partial=o.partial, weighted=o.weighted)
    layout = Layout.observe(
        batch,
        target,
        feature_pairs=o.feature_pairs,
        transition_pairs=o.transition_pairs,
        bias=o.bias,
        boundaries=o.boundaries,
    )
    return LinearCase(layout, batch, target)


def path_score(potentials: Potentials, first: int, first_edge: int, path: tuple[int, ...]) -> float:
    """Score of one path of the sequence that starts at node ``first`` and edge ``first_edge``."""
    score = 0.0
    for t, label in enumerate(path):
        score += float(potentials.node[first + t, label])
        if t:
            table = potentials.edge[0 if potentials.shared else first_edge + t - 1]
            score += float(table[path[t - 1], label])
    return score
