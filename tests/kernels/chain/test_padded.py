"""Padded rows: both bodies against enumeration, against each other, and against the chain's own kernels; refusals."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ShapeError
from crfield.kernels import chain, choice
from crfield.kernels.padded import Slopes, pack, padded_best, padded_sums
from tests.cases.chains import INF, native_level, needs_native, random_potentials

KINDS = ("free", "tags", "unknown", "allowed", "both")


def case(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    kind: str,
    *,
    forbidden: bool = False,
    dtype: Any = np.float64,
) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Scores and options; a mask with holes and an empty row, and always a labelling that is possible."""
    batch, steps, labels = shape
    score = (2.0 * rng.standard_normal(shape)).astype(dtype)
    start, end = rng.standard_normal((2, labels))
    edge = rng.standard_normal((labels, labels))
    if forbidden and labels > 2:
        edge[0, 1] = edge[1, 0] = start[0] = -INF
    mask = rng.random((batch, steps)) < 0.7
    mask[1] = False
    tags = rng.integers(2 if forbidden and labels > 2 else 0, labels, (batch, steps))
    allowed = rng.random(shape) < 0.6
    np.put_along_axis(allowed, tags[..., None], True, axis=2)
    if kind == "unknown":
        tags[rng.random(tags.shape) < 0.4] = -100
    tags[~mask] = 77  # not looked at
    options: dict[str, Any] = {"mask": mask}
    if kind in ("tags", "unknown", "both"):
        options["tags"] = tags
    if kind in ("allowed", "both"):
        options["allowed"] = allowed
    return (score, start, end, edge), options


def enumerated(given: tuple[np.ndarray, ...], options: dict[str, Any], b: int, *, clamped: bool) -> list[Any]:
    """(score, labels of the kept steps) of every labelling of row b."""
    score, start, end, edge = given
    kept = np.flatnonzero(options["mask"][b])
    out = []
    for y in product(range(score.shape[2]), repeat=len(kept)):
        if clamped and "tags" in options and any(options["tags"][b, t] not in (-100, j) for t, j in zip(kept, y)):
            continue
        if clamped and "allowed" in options and not all(options["allowed"][b, t, j] for t, j in zip(kept, y)):
            continue
        total = sum(float(score[b, t, j]) for t, j in zip(kept, y)) + sum(edge[i, j] for i, j in pairwise(y))
        out.append((total + (start[y[0]] + end[y[-1]] if y else 0.0), y))
    return out


def log_total(paths: list[Any]) -> float:
    values = np.array([value for value, _ in paths])
    top = values.max()
    return float(top + np.log(np.exp(values - top).sum())) if top > -INF else -INF


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_totals_and_best_equal_enumeration(body: str, kind: str, forbidden: bool) -> None:
    rng = np.random.default_rng(len(kind) + forbidden)
    given, options = case(rng, (4, 5, 3), kind, forbidden=forbidden)
    found = padded_sums(*given, **options)
    best, path = padded_best(*given, **options)
    for b in range(4):
        left = enumerated(given, options, b, clamped=True)
        assert found.total[b] == pytest.approx(log_total(left), rel=1e-12)
        assert best[b] == pytest.approx(max(value for value, _ in left), rel=1e-12)
        kept = np.flatnonzero(options["mask"][b])
        assert tuple(path[b, kept].tolist()) == max(left)[1]
        assert (np.delete(path[b], kept) == -100).all()
    if kind != "free":
        contrast = padded_sums(*given, **options, contrast=True)
        free = [log_total(enumerated(given, options, b, clamped=False)) for b in range(4)]
        np.testing.assert_allclose(contrast.total, found.total - free, rtol=1e-12, atol=1e-13)


def differences(given: tuple[np.ndarray, ...], options: dict[str, Any], weight: np.ndarray) -> list[np.ndarray]:
    """Central differences of Σ weight · total in every finite score."""
    out = []
    for k, table in enumerate(given):
        slope = np.zeros(table.shape)
        for place in np.ndindex(table.shape):
            if np.isfinite(table[place]):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = table.copy()
                    moved[place] += step
                    ends.append(padded_sums(*given[:k], moved, *given[k + 1 :], **options).total @ weight)
                slope[place] = (ends[0] - ends[1]) / 2e-5
        out.append(slope)
    return out


@pytest.mark.parametrize("contrast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_differences(body: str, kind: str, contrast: bool) -> None:
    if kind == "free" and contrast:
        return
    rng = np.random.default_rng(7)
    given, options = case(rng, (3, 4, 3), kind, forbidden=True)
    weight = rng.standard_normal(3)
    found = padded_sums(*given, **options, contrast=contrast, weight=weight)
    slopes = differences(given, {**options, "contrast": contrast}, weight)
    for mine, other in zip((found.score, found.start, found.end, found.edge), slopes):
        np.testing.assert_allclose(mine, other, atol=1e-7)
    assert not found.score[~options["mask"]].any()


def everything(found: Slopes) -> tuple[np.ndarray, ...]:
    return found.total, found.score, found.edge, found.start, found.end


@lru_cache(1)  # the same for all levels, which follow each other
def read_slowly(labels: int, dtype: Any) -> list[tuple[Any, ...]]:
    """Cases of so many labels, and what the NumPy body says of them."""
    rng = np.random.default_rng(labels)
    told = []
    for steps in (12, 150):
        for kind in KINDS:
            given, options = case(rng, (6, steps, labels), kind, forbidden=kind == "both", dtype=dtype)
            options |= {"contrast": kind != "free", "weight": rng.uniform(0.0, 2.0, 6)}
            with choice.use("numpy"):
                told.append((given, options, everything(padded_sums(*given, **options))))
    return told


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("labels", [1, 2, 5, 9, 26])
def test_both_bodies_agree(labels: int, dtype: Any, level: int) -> None:
    """Short rows in groups and long ones from both ends; with threads; 32 bits differ by their last bit alone."""
    rtol, atol = (1e-6, 2e-7) if dtype == np.float32 else (1e-11, 1e-12)
    for given, options, plain in read_slowly(labels, dtype):
        with native_level(level):
            for jobs in (1, 3):
                for mine, other in zip(everything(padded_sums(*given, **options, n_jobs=jobs)), plain):
                    assert mine.dtype == other.dtype
                    long = mine.shape == (labels, labels)  # pairs: differences of sums over all steps
                    np.testing.assert_allclose(mine, other, rtol=rtol, atol=max(atol, 1e-10 * long))


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 2, 3, 7, 8, 9, 17, 22, 33, 50, 58, 100])
def test_best_paths_of_both_bodies_are_the_same(labels: int, level: int) -> None:
    """Two sequences side by side, one left over, of unequal lengths; scores on a ladder, so that there are ties."""
    rng = np.random.default_rng(labels)
    for kind in ("free", "allowed"):
        given, options = case(rng, (7, 21, labels), kind)
        given = tuple(np.round(x) for x in given)
        with choice.use("numpy"):
            total, path = padded_best(*given, **options)
        with native_level(level):
            for jobs in (1, 2):
                found = padded_best(*given, **options, n_jobs=jobs)
                np.testing.assert_array_equal(found[0], total)
                np.testing.assert_array_equal(found[1], path)


def test_no_mask_is_every_step(body: str) -> None:
    rng = np.random.default_rng(0)
    given, _ = case(rng, (3, 70, 4), "free")
    all_steps = np.ones((3, 70), bool)
    for mine, other in zip(everything(padded_sums(*given)), everything(padded_sums(*given, mask=all_steps))):
        np.testing.assert_array_equal(mine, other)
    packed = pack(given[0], given[1], given[2])
    total, node, _ = chain.sum_product(packed.offsets, packed.node, given[3][None])
    found = padded_sums(*given)
    np.testing.assert_allclose(found.total, total, rtol=1e-13)
    np.testing.assert_allclose(found.score.reshape(-1, 4), node, atol=1e-13)


def test_large_scores_and_dead_ends(body: str) -> None:
    """The way in logs: a label that is far ahead leads nowhere."""
    edge = np.array([[0.0, 0.0, -INF], [-INF, 0.0, -INF], [0.0, -INF, 0.0]])
    score = np.zeros((2, 9, 3))
    score[:, :-1, 1] = 800.0
    score[:, -1, 1] = -INF
    score[:, 1:, 2] = 800.0
    start = np.array([0.0, 0.0, -INF])
    found = padded_sums(score, start, np.zeros(3), edge, weight=np.array([1.0, 3.0]))
    np.testing.assert_allclose(found.total, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.edge, 32.0 * np.diag([1.0, 0.0, 0.0]), atol=1e-10)
    tags = np.zeros((2, 9), np.int64)
    assert padded_sums(score, start, np.zeros(3), edge, tags=tags, contrast=True).total == pytest.approx([0.0, 0.0])


def test_what_is_impossible(body: str) -> None:
    none, edge = np.zeros(2), np.array([[0.0, -INF], [0.0, 0.0]])
    tags = np.array([[0, 0], [0, 1]])
    found = padded_sums(np.zeros((2, 2, 2)), none, none, edge, tags=tags)
    assert found.total.tolist() == [0.0, -INF]
    assert not found.score[1].any()
    with pytest.raises(LabelError, match="sequence 1 has no labelling"):
        padded_sums(np.zeros((2, 2, 2)), none, none, edge, tags=tags, contrast=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_refusals(body: str, dtype: Any) -> None:
    none, edge, score = np.zeros(2), np.zeros((2, 2)), np.zeros((2, 3, 2), dtype)
    mask = np.ones((2, 3), bool)
    mask[1, 1] = False
    for bad in (np.nan, np.inf):
        wrong = score.copy()
        wrong[1, 1, 0] = bad
        padded_sums(wrong, none, none, edge, mask=mask)  # masked
        wrong[1, 2, 1] = bad
        for kernel in (padded_sums, padded_best):
            with pytest.raises(InputError, match="sequence 1, step 2, label 1"):
                kernel(wrong, none, none, edge, mask=mask)
        with pytest.raises(InputError, match="edge scores must be finite or -inf"):
            padded_sums(score, none, none, edge + bad)
    tags = np.array([[0, 1, 0], [1, 5, -1]])
    with pytest.raises(LabelError, match=r"got -1 at sequence 1, step 2"):
        padded_sums(score, none, none, edge, tags=tags, mask=mask)
    for change, named in (
        ({"mask": mask[:1]}, "mask"),
        ({"tags": tags[:, :2]}, "tags"),
        ({"allowed": np.ones((2, 3, 3))}, "allowed"),
        ({"weight": np.ones(3)}, "weight"),
        ({"weight": np.array([1.0, np.nan])}, "weight"),
    ):
        with pytest.raises(ShapeError, match=named):
            padded_sums(score, none, none, edge, **change)
    for bad_shape in ((score[0], none, none, edge), (score, none[:1], none, edge), (score, none, none, edge[:1])):
        with pytest.raises(ShapeError):
            padded_sums(*bad_shape)
    with pytest.raises(InputError, match="contrast needs tags"):
        padded_sums(score, none, none, edge, contrast=True)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (0, 0, 1)])
def test_nothing_at_all(body: str, shape: tuple[int, int, int]) -> None:
    labels = shape[2]
    none = np.zeros(labels)
    found = padded_sums(
        np.zeros(shape), none, none, np.zeros((labels, labels)), tags=np.zeros(shape[:2], int), contrast=True
    )
    assert found.total.tolist() == [0.0] * shape[0]
    assert not found.edge.any()
    assert padded_best(np.zeros(shape), none, none, np.zeros((labels, labels)))[1].shape == shape[:2]


# ------------------------------------------------------------------------------------ weights of plain chains


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_weights_of_sequences_multiply_their_marginals(body: str, forbidden: float, each: bool, shared: bool) -> None:
    if not each and not shared:
        return
    rng = np.random.default_rng(3)
    for scores in (
        random_potentials(rng, [5, 0, 1, 9, 80, 3], 4, shared=shared, forbidden=forbidden),
        Potentials(
            400.0 * rng.standard_normal((7, 3)), 400.0 * rng.standard_normal((1, 3, 3)), Chains.from_lengths([7])
        ),
    ):
        chains, weight = scores.topology, rng.standard_normal(scores.topology.n_sequences)
        given = chains.offsets, scores.node, scores.edge
        many = each or not scores.shared
        total, node, edge = chain.sum_product(*given, each=many, weight=weight)
        plain = chain.sum_product(*given, each=True)
        np.testing.assert_array_equal(total, chain.sum_product(*given, each=many)[0])
        np.testing.assert_allclose(node, plain[1] * weight[chains.sequence_of_node, None], rtol=1e-11, atol=1e-13)
        pairs = plain[2] * weight[chains.sequence_of_edge, None, None]
        np.testing.assert_allclose(edge, pairs if many else pairs.sum(axis=0, keepdims=True), rtol=1e-10, atol=1e-12)


def test_weights_must_fit(body: str) -> None:
    with pytest.raises(ValueError, match="weight does not fit"):
        chain.sum_product(np.array([0, 2]), np.zeros((2, 2)), np.zeros((1, 2, 2)), weight=np.ones(2))
