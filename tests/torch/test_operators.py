"""The registered operators: what PyTorch itself demands of them, first and second derivatives, and the compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from crfield.torch import CRFLayer, SemiCRFLayer
from crfield.torch.chains import ops
from crfield.torch.segments import ops as segment_ops
from tests.torch.cases import NAMES, batch

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def scores(labels: int = 3, *, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    emissions, _, _ = batch((3, 4, labels), dtype=dtype)
    tables = torch.randn(labels, labels), torch.randn(labels), torch.randn(labels)
    return tuple(x.to(dtype).requires_grad_() for x in (emissions, *tables))


def said(kind: str) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Tags, allowed tags, mask."""
    _, tags, kept = batch((3, 4, 3))
    if kind == "nothing":
        return None, None, None
    tags[0, 0] = -100
    allowed = torch.ones(3, 4, 3, dtype=torch.bool)
    allowed[0, 0, 1] = False
    return tags, allowed if kind == "allowed" else None, kept


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["nothing", "tags", "allowed"])
def test_opcheck_of_sums(kind: str, dtype: torch.dtype) -> None:
    given, weight = said(kind), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    contrast = kind != "nothing"
    torch.library.opcheck(ops.chain_sums, (*scores(dtype=dtype), *given, None, -100, contrast, 1), test_utils=TESTS)
    torch.library.opcheck(ops.chain_sums, (*scores(), *given, weight, -100, False, 1), test_utils=TESTS)


def test_opcheck_of_the_others() -> None:
    given = said("allowed")
    plain = tuple(x.detach() for x in scores())
    torch.library.opcheck(ops.chain_pairs, (*scores(), *given, -100, 1), test_utils=TESTS)
    torch.library.opcheck(ops.chain_best, (*plain, *given, -100, 1), test_utils=TESTS)
    for test in ("test_schema", "test_faketensor"):
        torch.library.opcheck(ops.chain_tangent, (*plain, *given, None, *plain, -100, True, 1), test_utils=test)
        torch.library.opcheck(ops.pairs_tangent, (*plain, *given, torch.randn(3, 3, 3, 3), -100, 1), test_utils=test)


def test_opcheck_of_segments() -> None:
    emissions, edge, start, end = scores()
    length, limit = (
        torch.randn(2, 3, dtype=torch.float64, requires_grad=True),
        torch.tensor([2, 1, 2], dtype=torch.int32),
    )
    tags, _, kept = said("tags")
    extra = [torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for first, last in ((None, None), extra):
        given = emissions, first, last, edge, start, end, length, limit, tags, None, None, kept
        torch.library.opcheck(segment_ops.segment_sums, (*given, None, -100, True, 1), test_utils=TESTS)
    plain = tuple(x.detach() if isinstance(x, Tensor) else x for x in given)
    torch.library.opcheck(segment_ops.segment_best, (*plain, -100, 1), test_utils=TESTS)


def called(layer: Any, method: str, **options: Any) -> Any:
    """The method as a function of emissions and parameters."""

    def run(emissions: Tensor, *parameters: Tensor) -> Any:
        before = dict(layer.named_parameters())
        class_of = type(layer)
        try:
            for name, value in zip(NAMES, parameters):
                delattr(layer, name)
                setattr(layer, name, value)
            return getattr(class_of, method)(layer, emissions, **options)
        finally:
            for name, value in before.items():
                if name in layer.__dict__:
                    delattr(layer, name)
                setattr(layer, name, value)

    return run


@pytest.mark.parametrize("backend", ["kernels", "torch"])
@pytest.mark.parametrize("rules", [None, [(0, 2)]])
def test_first_and_second_derivatives(backend: str, rules: Any) -> None:
    layer = CRFLayer(3, backend=backend, constraints=rules).double()
    emissions, _, kept = batch((2, 3, 3), seed=7)
    tags = torch.full((2, 3), 1)
    tags[0, 1] = -100
    inputs = emissions.requires_grad_(), *(getattr(layer, name) for name in NAMES)
    for reduction in ("none", "sum", "token_mean"):
        weight = torch.tensor([1.0, 0.5]) if reduction == "sum" else None
        run = called(layer, "forward", tags=tags, mask=kept, reduction=reduction, sequence_weight=weight)
        assert torch.autograd.gradcheck(run, inputs)
        assert torch.autograd.gradgradcheck(run, inputs)
    for method in ("log_partition", "marginals", "pair_marginals", "entropy"):
        assert torch.autograd.gradcheck(called(layer, method, mask=kept, known=tags), inputs)
    assert torch.autograd.gradgradcheck(called(layer, "log_partition", mask=kept), inputs)


def test_a_third_derivative_is_refused_by_the_kernels() -> None:
    layer = CRFLayer(2).double()
    x = torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)
    (once,) = torch.autograd.grad(layer.log_partition(x).sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad((once**2).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="backend='torch'"):
        torch.autograd.grad((twice**2).sum(), x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_the_compiler_takes_the_layer_whole(reduction: str, dynamic: bool) -> None:
    """``fullgraph=True``: no break in the graph, the same bits of values and gradients."""
    layer = CRFLayer(["O", "B-X", "I-X"], constraints="bio").double()
    linear = torch.nn.Linear(4, 3).double()
    x, kept = torch.randn(3, 5, 4, dtype=torch.float64), batch((3, 5, 3))[2]
    tags = torch.zeros(3, 5, dtype=torch.int64)
    tags[0, 2] = -100

    def loss(x: Tensor, tags: Tensor, kept: Tensor) -> Tensor:
        return -layer(linear(x).relu(), tags, mask=kept, reduction=reduction).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    assert kept is not None
    weights = [*linear.parameters(), *layer.parameters()]
    plain, traced = loss(x, tags, kept), compiled(x, tags, kept)
    assert torch.equal(plain, traced)
    for a, b in zip(torch.autograd.grad(plain, weights), torch.autograd.grad(traced, weights)):
        torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-14)
    answers = torch.compile(
        lambda x: (layer.marginals(linear(x), kept), layer.decode_padded(linear(x), kept)),
        fullgraph=True,
        backend="aot_eager",
        dynamic=dynamic,
    )
    node, path = answers(x)
    torch.testing.assert_close(node, layer.marginals(linear(x), kept))
    assert torch.equal(path, layer.decode_padded(linear(x), kept))


def test_the_compiler_takes_the_semi_markov_layer() -> None:
    layer = SemiCRFLayer(3, max_length=2).double()
    emissions, tags, kept = batch((3, 5, 3))
    compiled = torch.compile(lambda x: layer(x, tags, mask=kept), fullgraph=True, backend="aot_eager")
    x = emissions.requires_grad_()
    one, two = layer(x, tags, mask=kept), compiled(x)
    assert torch.equal(one, two)
    assert torch.equal(torch.autograd.grad(one, x)[0], torch.autograd.grad(two, x)[0])
