"""Semi-Markov sums and maxima: enumeration, forbidden scores, long sequences, parts, threads, both bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.core.potentials import Potentials
from crfield.core.segments import Segmentation, SegmentPotentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.segments import SegmentEngine, segmentation_scores
from crfield.kernels import choice, segments
from crfield.kernels.segments import Marks, Parts
from tests.cases.chains import native_level
from tests.cases.segment_oracle import enumerated, random_segments

SHAPES = [([4, 0, 1, 3], 3, 2), ([5], 2, 2), ([3, 2], 9, 3), ([6], 4, 1), ([0], 2, 2)]
KINDS: list[dict[str, Any]] = [
    {},
    {"shared": False},
    {"scale": 400.0},
    {"scale": 400.0, "shared": False},
    {"forbidden": 0.25},
    {"forbidden": 0.4, "shared": False},
    {"scale": 3000.0, "forbidden": 0.2},
]


def kind_name(kind: dict[str, Any]) -> str:
    return "-".join(f"{name}{value}" for name, value in kind.items()) or "plain"


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
@pytest.mark.parametrize(("lengths", "most", "labels"), SHAPES)
def test_enumeration(body: str, lengths: list[int], most: int, labels: int, kind: dict[str, Any]) -> None:
    rng = np.random.default_rng(len(lengths) * most + labels)
    engine = SegmentEngine()
    for _ in range(4):
        scores = random_segments(rng, lengths, most, labels, **kind)
        total, segment, edge, best = enumerated(scores)
        found = engine.infer(scores, Semiring.LOG)
        np.testing.assert_allclose(found.total, total, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.segment, segment, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.edge, edge, rtol=0, atol=1e-10)
        possible = np.repeat(~np.isneginf(total), lengths)
        np.testing.assert_allclose(found.node.sum(axis=1), possible, rtol=0, atol=1e-10)
        value, cut = engine.best(scores)
        np.testing.assert_allclose(value, best, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(segmentation_scores(scores, cut), best, rtol=1e-12, atol=1e-10)
        hot = engine.infer(scores, Semiring.MAX)
        fits = [
            (hot.segment * np.where(np.isneginf(scores.segment), 0, scores.segment)).sum(),
            (hot.edge * np.where(np.isneginf(scores.edge), 0, scores.edge)).sum(),
        ]
        assert sum(fits) == pytest.approx(best[~np.isneginf(best)].sum(), rel=1e-12, abs=1e-9)


def test_gradient_of_the_total(body: str) -> None:
    rng = np.random.default_rng(3)
    for shared in (True, False):
        scores = random_segments(rng, [4, 3], 3, 2, shared=shared)
        found = SegmentEngine().infer(scores, Semiring.LOG)
        for name in ("segment", "edge"):
            values, gradient = getattr(scores, name), getattr(found, name)
            for place in np.ndindex(values.shape):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = {"segment": scores.segment.copy(), "edge": scores.edge.copy()}
                    moved[name][place] += step
                    total = SegmentEngine().infer(SegmentPotentials(**moved, topology=scores.topology), Semiring.LOG)
                    ends.append(total.total.sum())
                assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_segments_of_one_step_are_a_chain(body: str, kind: dict[str, Any]) -> None:
    scores = random_segments(np.random.default_rng(5), [7, 1, 0, 4], 1, 3, **kind)
    chain = Potentials(scores.segment[:, 0], scores.edge, scores.topology)
    one, other = SegmentEngine().infer(scores, Semiring.LOG), ChainEngine().infer(chain, Semiring.LOG)
    np.testing.assert_allclose(one.total, other.total, rtol=1e-12)
    np.testing.assert_allclose(one.segment[:, 0], other.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(one.edge, other.edge, rtol=0, atol=1e-10)


@pytest.mark.parametrize("level", [2, 3, 4])
def test_levels_agree_with_numpy(level: int) -> None:
    for number, kind in enumerate(KINDS):
        for labels in (1, 3, 9):
            rng = np.random.default_rng(number)
            scores = random_segments(rng, [30, 1, 0, 17], 6, labels, **kind)
            with choice.use("numpy"):
                wanted = SegmentEngine().infer(scores, Semiring.LOG)
                best, cut = SegmentEngine().best(scores)
            with native_level(level):
                found = SegmentEngine().infer(scores, Semiring.LOG)
                again, same = SegmentEngine().best(scores)
            np.testing.assert_allclose(found.total, wanted.total, rtol=1e-12)
            np.testing.assert_allclose(found.segment, wanted.segment, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.edge, wanted.edge, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(again, best, rtol=1e-12)
            assert same.stop.tolist() == cut.stop.tolist()
            assert same.label.tolist() == cut.label.tolist()


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_hundred_thousand_steps(scale: float) -> None:
    """Half of the sequence twice: the total of the whole is known when the middle is cut, and so are marginals."""
    half, most, labels = 50_000, 5, 3
    with choice.use(choice.chosen()):
        rng = np.random.default_rng(8)
        segment = scale * rng.standard_normal((half, most, labels))
        for d in range(1, most):
            segment[:d, d] = -np.inf  # what would begin before the half
        scores = SegmentPotentials(
            np.concatenate([segment, segment]), np.zeros((1, labels, labels)), Chains.from_lengths([2 * half])
        )
        one = SegmentPotentials(segment, np.zeros((1, labels, labels)), Chains.from_lengths([half]))
        whole, part = (SegmentEngine().infer(s, Semiring.LOG) for s in (scores, one))
        assert whole.total[0] == pytest.approx(2 * part.total[0], rel=1e-13)
        np.testing.assert_allclose(whole.segment[:half], part.segment, rtol=0, atol=1e-8)
        np.testing.assert_allclose(whole.segment[half:], part.segment, rtol=0, atol=1e-8)
        np.testing.assert_allclose(whole.node.sum(axis=1), 1.0, rtol=0, atol=1e-9)
        value, cut = SegmentEngine().best(scores)
        assert value[0] == pytest.approx(segmentation_scores(scores, cut)[0], rel=1e-12)


def test_a_step_over_which_every_segment_must_go(body: str) -> None:
    """Nothing may end at step 1, so the message there is empty and the sum goes on over it."""
    segment = np.zeros((4, 3, 2))
    segment[1] = -np.inf
    scores = SegmentPotentials(segment, np.zeros((1, 2, 2)), Chains.from_lengths([4]))
    total, wanted, *_ = enumerated(scores)
    found = SegmentEngine().infer(scores, Semiring.LOG)
    np.testing.assert_allclose(found.total, total)
    np.testing.assert_allclose(found.segment, wanted, atol=1e-14)
    assert found.segment[1].sum() == 0


# ------------------------------------------------------------------------------------------------- parts


def some_parts(rng: np.random.Generator, lengths: list[int], most: int, labels: int) -> tuple[Any, ...]:
    chains = Chains.from_lengths(lengths)
    shape = (chains.n_nodes, labels)
    item_label = np.array([j for k in range(4) for j in range(labels) if (j + k) % 2 == 0 or labels == 1], np.int32)
    item_ptr = np.concatenate(
        [[0], np.cumsum([sum((j + k) % 2 == 0 or labels == 1 for j in range(labels)) for k in range(4)])]
    )
    parts = Parts(
        rng.standard_normal(shape),
        rng.standard_normal((most, labels)),
        *(rng.standard_normal(shape) for _ in range(3)),
        weight=rng.standard_normal(len(item_label)),
    )
    reach = np.arange(chains.n_nodes) - np.repeat(chains.offsets[:-1], chains.lengths) + 1
    ptr, steps, item = [0], [], []
    for most_here in np.minimum(reach, most).tolist():
        for d in range(1, most_here + 1):
            if rng.random() < 0.5:
                steps.append(d)
                item.append(int(rng.integers(4)))
        ptr.append(len(steps))
    marks = Marks(np.array(ptr), np.array(steps, np.int32), np.array(item, np.int32), item_ptr, item_label)
    limit = np.minimum(np.arange(labels) + 1, most)[::-1].astype(np.int32)
    limit[0] = most
    return chains, limit, parts, marks


def test_scores_from_parts(body: str) -> None:
    chains, limit, parts, marks = some_parts(np.random.default_rng(0), [4, 0, 1, 3], 3, 3)
    out = segments.expand(chains.offsets, limit, parts, marks)
    assert parts.first is not None
    assert parts.last is not None
    assert parts.mean is not None
    assert parts.weight is not None
    for s in range(chains.n_sequences):
        for n in range(chains.offsets[s], chains.offsets[s + 1]):
            for d in range(1, 4):
                first = n - d + 1
                for j in range(3):
                    if d > limit[j] or first < chains.offsets[s]:
                        assert out[n, d - 1, j] == -np.inf
                        continue
                    wanted = parts.node[first : n + 1, j].sum() + parts.mean[first : n + 1, j].mean()
                    wanted += parts.first[first, j] + parts.last[n, j] + parts.length[d - 1, j]
                    for m in range(marks.ptr[n], marks.ptr[n + 1]):
                        if marks.steps[m] == d:
                            own = slice(marks.item_ptr[marks.item[m]], marks.item_ptr[marks.item[m] + 1])
                            wanted += parts.weight[own][marks.item_label[own] == j].sum()
                    assert out[n, d - 1, j] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_expectations_are_the_gradient(body: str, shared: bool) -> None:
    rng = np.random.default_rng(1)
    chains, limit, parts, marks = some_parts(rng, [4, 0, 1, 3], 3, 2)
    edge = rng.standard_normal((1 if shared else chains.n_edges, 2, 2))
    factor = np.array([1.0, 3.0, 0.5, 2.0])
    total, found, pairs = segments.expectations(chains.offsets, limit, parts, marks, edge, factor=factor)
    plain = segments.sum_product(chains.offsets, segments.expand(chains.offsets, limit, parts, marks), edge)
    np.testing.assert_allclose(total, plain[0], rtol=1e-13)

    def value(**changed: np.ndarray) -> float:
        table = changed.pop("edge", edge)
        names = ("node", "length", "first", "last", "mean", "weight")
        moved = Parts(**{**{name: getattr(parts, name) for name in names}, **changed})
        scores = segments.expand(chains.offsets, limit, moved, marks)
        return float(factor @ segments.sum_product(chains.offsets, scores, table)[0])

    for name in ("node", "length", "first", "last", "mean", "weight", "edge"):
        own = edge if name == "edge" else getattr(parts, name)
        gradient = pairs if name == "edge" else getattr(found, name)
        for place in np.ndindex(own.shape):
            step = np.zeros_like(own)
            step[place] = 1e-5
            slope = (value(**{name: own + step}) - value(**{name: own - step})) / 2e-5
            assert gradient[place] == pytest.approx(slope, abs=1e-8), (name, place)


def test_bodies_and_threads_agree_on_parts() -> None:
    rng = np.random.default_rng(2)
    chains, limit, parts, marks = some_parts(rng, [9, 0, 4, 1, 12, 3], 5, 3)
    for edge in (rng.standard_normal((1, 3, 3)), rng.standard_normal((chains.n_edges, 3, 3))):
        with choice.use("numpy"):
            wanted = segments.expectations(chains.offsets, limit, parts, marks, edge)
        for jobs in (1, 2, 5):
            found = segments.expectations(chains.offsets, limit, parts, marks, edge, n_jobs=jobs)
            twice = segments.expectations(chains.offsets, limit, parts, marks, edge, n_jobs=jobs)
            for one, other, again in zip(found, wanted, twice, strict=True):
                names = ("node", "length", "first", "last", "mean", "weight") if isinstance(one, Parts) else ("",)
                for name in names:
                    a, b, c = (getattr(x, name) if name else x for x in (one, other, again))
                    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
                    assert a.tobytes() == c.tobytes()


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("limits", [[1, 6, 2, 1, 6, 3, 1, 1, 4], [1] * 9, [6] * 9, [1, 1, 1, 1, 6], [3]], ids=str)
def test_limits_of_labels_at_every_level(level: int, limits: list[int]) -> None:
    """Labels stand in vectors by how long they may last; answers come in the order of the caller."""
    rng, labels = np.random.default_rng(3), len(limits)
    chains, _, parts, marks = some_parts(rng, [9, 0, 4, 1, 12, 3], 6, labels)
    limit = np.array(limits, np.int32)
    forbidden = np.where(np.eye(labels) > 0, -np.inf, rng.standard_normal((1, labels, labels)))
    for edge in (
        rng.standard_normal((1, labels, labels)),
        rng.standard_normal((chains.n_edges, labels, labels)),
        rng.standard_normal((1, labels, labels)) if labels == 1 else forbidden,
    ):
        with choice.use("numpy"):
            wanted = segments.expectations(chains.offsets, limit, parts, marks, edge)
        with native_level(level):
            found = segments.expectations(chains.offsets, limit, parts, marks, edge)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
        np.testing.assert_allclose(found[2], wanted[2], rtol=1e-9, atol=1e-12)
        for name in ("node", "length", "first", "last", "mean", "weight"):
            np.testing.assert_allclose(getattr(found[1], name), getattr(wanted[1], name), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------------------------------- bad input


def test_sizes_that_do_not_fit_are_refused(body: str) -> None:
    offsets, scores, edge = np.array([0, 3]), np.zeros((3, 2, 2)), np.zeros((1, 2, 2))
    for bad in (np.array([0, 4]), np.array([1, 3]), np.array([0, 5, 3])):
        with pytest.raises(ValueError):
            segments.sum_product(bad, scores, edge)
        with pytest.raises(ValueError):
            segments.max_product(bad, scores, edge)
    for table in (np.zeros((1, 3, 2)), np.zeros((5, 2, 2))):
        with pytest.raises(ValueError):
            segments.sum_product(offsets, scores, table)
    chains, limit, parts, marks = some_parts(np.random.default_rng(0), [4, 2], 3, 2)
    wrong: list[tuple[np.ndarray, Marks]] = [
        (np.array([0, 3], np.int32), marks),
        (np.array([9, 3], np.int32), marks),
        (limit, Marks(marks.ptr, marks.steps + 2, marks.item, marks.item_ptr, marks.item_label)),
        (limit, Marks(marks.ptr, marks.steps, marks.item + 9, marks.item_ptr, marks.item_label)),
        (limit, Marks(marks.ptr, marks.steps, marks.item, marks.item_ptr, marks.item_label + 7)),
        (limit, Marks(marks.ptr[::-1].copy(), marks.steps, marks.item, marks.item_ptr, marks.item_label)),
        (limit, Marks(marks.ptr[:-1], marks.steps, marks.item, marks.item_ptr, marks.item_label)),
    ]
    for bad_limit, bad_marks in wrong:
        with pytest.raises(ValueError):
            segments.expand(chains.offsets, bad_limit, parts, bad_marks)
        with pytest.raises(ValueError):
            segments.expectations(chains.offsets, bad_limit, parts, bad_marks, edge)


def test_what_engines_and_nouns_refuse() -> None:
    chains = Chains.from_lengths([2])
    for value in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite or -inf"):
            SegmentEngine().infer(
                SegmentPotentials(np.full((2, 1, 1), value), np.zeros((1, 1, 1)), chains), Semiring.LOG
            )
    with pytest.raises(ShapeError, match="segment scores"):
        SegmentPotentials(np.zeros((3, 1, 1)), np.zeros((1, 1, 1)), chains)
    with pytest.raises(ShapeError, match="edge scores"):
        SegmentPotentials(np.zeros((2, 1, 2)), np.zeros((1, 1, 1)), chains)
    for start, stop in (([0], [1]), ([0, 1], [2, 2]), ([1], [2]), ([], [])):
        with pytest.raises(ShapeError, match="cover"):
            Segmentation(chains, np.array(start), np.array(stop), np.zeros(len(start)))
    with pytest.raises(ShapeError, match="reaches over"):
        Segmentation(Chains.from_lengths([1, 1]), np.array([0]), np.array([2]), np.array([0]))
    with pytest.raises(LabelError, match="codes ≥ 0"):
        Segmentation(chains, np.array([0]), np.array([2]), np.array([-1]))
    scores = SegmentPotentials(np.zeros((2, 1, 1)), np.zeros((1, 1, 1)), chains)
    with pytest.raises(LabelError, match="labels up to 3"):
        segmentation_scores(scores, Segmentation(chains, np.array([0]), np.array([2]), np.array([3])))
    assert segmentation_scores(scores, Segmentation(chains, [0], [2], [0])).tolist() == [-np.inf]  # type: ignore[arg-type]
