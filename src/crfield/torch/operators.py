"""Operators of PyTorch whose bodies are crfield's kernels.

Why operators (`torch.library.custom_op`) and not ``autograd.Function``: the compiler would trace into the body of the
latter, and stop at NumPy. An operator is one node for it, whose shapes it learns from the ``register_fake``
functions. An operator's arguments are flat; `operator` gathers those that come first everywhere into one value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Maybe = Tensor | None


def operator(
    given: Callable[..., Any], first: str, schema: str, fake: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Any]:
    """An operator crfield::name of the arguments ``first``, then those of ``schema``.

    Its body and ``fake``, which tells shapes, are functions of ``given(*the first)`` and of the others.
    """
    options, returns = schema.split(" -> ")
    many = first.count(",")

    def made(body: Callable[..., Any]) -> Any:
        def whole(*arguments: Any) -> Any:
            return body(given(*arguments[:many]), *arguments[many:])

        def shapes(*arguments: Any) -> Any:
            return fake(given(*arguments[:many]), *arguments[many:])

        made_of = torch.library.custom_op(
            f"crfield::{body.__name__}",
            whole,
            mutates_args=(),
            device_types="cpu",
            schema=f"({first}{options}) -> {returns}",
        )
        made_of.register_fake(shapes)
        made_of.__doc__ = body.__doc__
        return made_of

    return made


def as_array(tensor: Maybe) -> Any:
    """The tensor as NumPy sees it, without a copy where it is contiguous."""
    return None if tensor is None else tensor.detach().numpy()


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep what the gradient of sums needs: all tensors, and the options unknown, contrast and n_jobs."""
    *tensors, unknown, contrast, n_jobs = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.options = (unknown, contrast, n_jobs)
    ctx.set_materialize_grads(False)
