"""`SemiCRFLayer` against every segmentation written out, both backends, and against the chain where D = 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from crfield.errors import InputError, LabelError
from crfield.torch import CRFLayer, SemiCRFLayer
from tests.torch.cases import batch, log_total

each_backend = pytest.mark.parametrize("backend", ["kernels", "torch"])
Cut = tuple[tuple[int, int, int], ...]


def made(backend: str = "kernels", **options: Any) -> SemiCRFLayer:
    torch.manual_seed(2)
    layer = SemiCRFLayer(3, **{"max_length": [2, 3, 1], "backend": backend, **options}).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def cuts(steps: int, limit: list[int], at: int = 0) -> Iterator[Cut]:
    """Every segmentation: (start, stop, tag) of its segments."""
    if at == steps:
        yield ()
        return
    for label, most in enumerate(limit):
        for stop in range(at + 1, min(at + most, steps) + 1):
            for rest in cuts(steps, limit, stop):
                yield ((at, stop, label), *rest)


def score_of(layer: SemiCRFLayer, cut: Cut, rows: Tensor, first: Tensor, last: Tensor) -> Tensor:
    edge, start, end = layer.transitions, layer.start_transitions, layer.end_transitions
    if layer.fixed_edge is not None:
        edge, start, end = edge + layer.fixed_edge, start + layer.fixed_start, end + layer.fixed_end
    total = rows.new_zeros(())
    for k, (a, b, j) in enumerate(cut):
        total = total + rows[a:b, j].sum() + first[a, j] + last[b - 1, j] + layer.length_scores[b - a - 1, j]
        total = total + (edge[cut[k - 1][2], j] if k else start[j])
    return total + end[cut[-1][2]] if cut else total


def tags_of(cut: Cut) -> list[int]:
    return [j for a, b, j in cut for _ in range(a, b)]


@each_backend
@pytest.mark.parametrize("rules", [None, [(0, 1), (None, 2)]])
def test_answers_equal_enumeration(backend: str, rules: Any) -> None:
    layer = made(backend, constraints=rules)
    emissions, _, kept = batch((4, 5, 3), seed=3)
    assert kept is not None
    first, last = torch.randn(2, 4, 5, 3, dtype=torch.float64)
    scored = {"first": first, "last": last}
    total, node = layer.log_partition(emissions, kept, **scored), layer.marginals(emissions, kept, **scored)
    best, padded = layer.decode(emissions, kept, **scored), layer.decode_padded(emissions, kept, **scored)
    for b in range(4):
        rows = [x[b][kept[b]] for x in (emissions, first, last)]
        found = [(cut, score_of(layer, cut, *rows)) for cut in cuts(len(rows[0]), layer.limit.tolist())]
        own = log_total([score for _, score in found])
        torch.testing.assert_close(total[b], own, rtol=1e-12, atol=1e-12)
        assert best[b] == list(max(found, key=lambda one: one[1].item())[0])
        assert padded[b][kept[b]].tolist() == tags_of(tuple(best[b]))
        expected = torch.zeros(len(rows[0]), 3, dtype=torch.float64)
        for cut, score in found:
            for t, j in enumerate(tags_of(cut)):
                expected[t, j] += (score - own).exp().detach()
        torch.testing.assert_close(node[b][kept[b]], expected, rtol=0, atol=1e-12)
    assert not node[~kept].any()


@each_backend
def test_the_likelihood_of_segments_and_of_partial_tags(backend: str) -> None:
    """Runs are segments, ``begins`` cuts them, long ones fall into pieces; unknown tags sum over all that agree."""
    layer = made(backend)
    emissions, _, _ = batch((4, 6, 3), seed=4, mask="none")
    kept = torch.ones(4, 6, dtype=torch.bool)
    kept[1, 2] = kept[3] = False
    tags = torch.tensor([[0, 0, 1, 1, 1, 2], [1, 1, 9, 1, 1, 0], [1, -100, 1, 0, -100, 2], [0] * 6])
    begins = torch.zeros(4, 6, dtype=torch.bool)
    begins[0, 1] = True
    none = torch.zeros(6, 3, dtype=torch.float64)
    found = layer(emissions, tags, mask=kept, begins=begins, reduction="none")
    wanted: dict[int, Cut] = {
        0: ((0, 1, 0), (1, 2, 0), (2, 5, 1), (5, 6, 2)),
        1: ((0, 3, 1), (3, 4, 1), (4, 5, 0)),  # four steps of tag 1, of which three fit a segment
        3: (),
    }
    for b in range(4):
        rows = emissions[b][kept[b]]
        every = {cut: score_of(layer, cut, rows, none, none) for cut in cuts(len(rows), layer.limit.tolist())}
        if b in wanted:
            left = every[wanted[b]]
        else:
            known = tags[b].tolist()
            left = log_total(
                [s for cut, s in every.items() if all(k in (-100, j) for k, j in zip(known, tags_of(cut)))]
            )
        torch.testing.assert_close(found[b], left - log_total(list(every.values())), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_gradients(backend: str) -> None:
    layer = made(backend)
    emissions, tags, kept = batch((3, 5, 3), seed=5)
    tags[0, 0] = -100
    first = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    x, weight = emissions.requires_grad_(), torch.tensor([1.0, 3.0, 0.5])
    assert torch.autograd.gradcheck(lambda x, f: layer(x, tags, mask=kept, first=f, reduction="none"), (x, first))
    assert torch.autograd.gradcheck(lambda x, f: layer(x, tags, kept, first=f, sequence_weight=weight), (x, first))


def test_both_backends_agree_on_the_gradients_of_parameters() -> None:
    grads = []
    for backend in ("kernels", "torch"):
        layer = made(backend, constraints=[(1, 0)])
        emissions, _, kept = batch((4, 7, 3), seed=6)
        layer.nll(emissions, torch.full((4, 7), 1), kept).backward()
        grads.append([parameter.grad for parameter in layer.parameters()])
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_segments_of_one_step_are_a_chain() -> None:
    semi, chain = SemiCRFLayer(4, max_length=1).double(), CRFLayer(4).double()
    torch.nn.init.zeros_(semi.length_scores)
    semi.load_state_dict({**chain.state_dict(), "length_scores": semi.length_scores})
    emissions, tags, kept = batch((5, 8, 4), seed=7)
    torch.testing.assert_close(
        semi(emissions, tags, mask=kept), chain(emissions, tags, mask=kept), rtol=1e-12, atol=0
    )
    assert torch.equal(semi.decode_padded(emissions, kept), chain.decode_padded(emissions, kept))


@each_backend
def test_second_derivatives(backend: str) -> None:
    layer = made(backend)
    emissions, tags, kept = batch((2, 4, 3), seed=8)
    tags[0, 0] = -100
    x = emissions.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x, tags, mask=kept, reduction="none"), (x,))
    assert torch.autograd.gradgradcheck(lambda x: layer(x, tags, mask=kept), (x,))
    assert torch.autograd.gradcheck(lambda x: layer.marginals(x, kept), (x,))


def test_refusals() -> None:
    layer = made()
    emissions, tags = torch.zeros(1, 3, 3), torch.zeros(1, 3, dtype=torch.int64)
    for message, call in (
        ("max_length must be", lambda: SemiCRFLayer(3, max_length=0)),
        ("max_length must be", lambda: SemiCRFLayer(3, max_length=[1, 2])),
        ("got 5 at sequence 0, step 0", lambda: layer(emissions, tags + 5)),
        ("finite or -inf", lambda: layer(emissions * torch.nan, tags)),
        ("needs tags or allowed", lambda: layer(emissions, None)),
        ("has no segmentation", lambda: made(constraints=[(None, 0)])(emissions, tags)),
        ("no segmentation that is allowed", lambda: layer.decode(emissions - torch.inf)),
    ):
        with pytest.raises((InputError, LabelError), match=message):
            call()
