"""What a layer is handed, checked and brought to one form: batch first, of 32 or 64 bits, a boolean mask.

A mask may keep any steps. Lengths are a mask of first steps. Scores of 16 bits become 32 bits, exactly. Scores on
another device than the CPU make a round trip there, which is told once; gradients come back the same way.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crfield.errors import InputError, LabelError, ShapeError, SpeedWarning

BACKENDS = ("kernels", "torch")
REDUCTIONS = ("none", "sum", "mean", "token_mean")
_told: set[str] = set()


@dataclass(frozen=True, eq=False)
class Steps:
    """Scores (B, T, L) and the steps that count, on the device where sums are made."""

    score: Tensor
    mask: Tensor | None  # (B, T) bool
    device: torch.device  # where answers belong
    batch_first: bool

    def here(self, x: Any, name: str, *, labels: bool = False, kind: torch.dtype | None = None) -> Any:
        """Another argument of the same steps, (B, T) or with ``labels`` (B, T, L), beside the scores."""
        if x is None:
            return None
        x = _tensor(x, name)
        x = x if self.batch_first else x.transpose(0, 1)
        wanted = self.score.shape if labels else self.score.shape[:2]
        if x.shape != wanted:
            said = tuple(wanted) if self.batch_first else (wanted[1], wanted[0], *wanted[2:])
            got = tuple(x.shape) if self.batch_first else tuple(x.transpose(0, 1).shape)
            raise ShapeError(f"{name} must be {said} as the emissions are, got {got}.")
        return x.to(device=self.score.device, dtype=kind or x.dtype).contiguous()

    def back(self, x: Tensor) -> Tensor:
        """An answer of steps, (B, T, …), in the caller's order and on its device."""
        return (x if self.batch_first else x.transpose(0, 1)).to(self.device)

    def counts(self) -> Tensor:
        """(B,) kept steps."""
        if self.mask is None:
            return torch.full(self.score.shape[:1], self.score.shape[1], device=self.score.device)
        return self.mask.sum(dim=1)


def read_steps(emissions: Any, mask: Any, lengths: Any, *, n_labels: int, batch_first: bool, backend: str) -> Steps:
    """Emissions and the mask or the lengths that go with them."""
    emissions = _tensor(emissions, "emissions")
    if emissions.ndim != 3 or emissions.shape[2] != n_labels:
        order = "(batch, steps, tags)" if batch_first else "(steps, batch, tags)"
        raise ShapeError(
            f"emissions must be {order} with {n_labels} tags, got {tuple(emissions.shape)}. "
            "A linear layer in front of this one brings features to that width."
        )
    if not emissions.is_floating_point():
        raise InputError(f"emissions must be floating-point scores, got {emissions.dtype}.")
    device = emissions.device
    if backend == "kernels":
        emissions = to_cpu(emissions)
    score = emissions if batch_first else emissions.transpose(0, 1)
    score = score if score.dtype in (torch.float32, torch.float64) else score.float()
    steps = Steps(score.contiguous(), None, device, batch_first)
    if mask is None and lengths is None:
        return steps
    if mask is not None and lengths is not None:
        raise InputError("give either mask or lengths: both say which steps count.")
    if mask is not None:
        kept = steps.here(mask, "mask").bool()
    else:
        many = _tensor(lengths, "lengths").to(score.device)
        if many.shape != score.shape[:1] or many.is_floating_point():
            raise ShapeError(f"lengths must be {score.shape[0]} whole numbers, got {tuple(many.shape)} {many.dtype}.")
        if not torch.compiler.is_compiling() and backend == "kernels" and len(many):
            low, high = int(many.min()), int(many.max())
            if low < 0 or high > score.shape[1]:
                raise ShapeError(f"lengths must lie in 0 … {score.shape[1]}, got {low} … {high}.")
        kept = torch.arange(score.shape[1], device=score.device) < many[:, None]
    return Steps(steps.score, kept.contiguous(), device, batch_first)


def read_tags(steps: Steps, tags: Any, name: str = "tags") -> Tensor | None:
    """Tags (B, T) beside the scores."""
    if tags is None:
        return None
    tags = _tensor(tags, name)
    if tags.is_floating_point() or tags.dtype == torch.bool:
        raise LabelError(f"{name} must be whole numbers, got {tags.dtype}.")
    found: Tensor = steps.here(tags, name, kind=torch.int64)
    return found


def read_weight(steps: Steps, weight: Any) -> Tensor | None:
    """(B,) how much each sequence counts."""
    if weight is None:
        return None
    weight = torch.as_tensor(weight).to(steps.score.device)
    if weight.shape != steps.score.shape[:1]:
        raise ShapeError(f"sequence_weight must have {steps.score.shape[0]} numbers, got {tuple(weight.shape)}.")
    return weight.to(torch.float64)


def to_cpu(x: Tensor) -> Tensor:
    """The tensor on the CPU; one notice in a process for every kind of device that it came from."""
    where = device_of(x)
    if where == "cpu":
        return x
    if where not in _told and not torch.compiler.is_compiling():
        _told.add(where)
        warnings.warn(
            f"scores on {where!r} are copied to the CPU, where crfield's kernels sum, and gradients are copied back. "
            "It is one round trip; backend='torch' stays on the device, in plain torch.",
            SpeedWarning,
            stacklevel=4,
        )
    return x.cpu()


def device_of(x: Tensor) -> str:
    """The kind of device: "cpu", "cuda", …

    >>> device_of(torch.zeros(1))
    'cpu'
    """
    return x.device.type


def reduced(each: Tensor, steps: Steps, weight: Tensor | None, reduction: str) -> Tensor:
    """Log-likelihoods (B,) as ``reduction`` asks; a weight of w counts as w copies of the sequence.

    >>> steps = Steps(torch.zeros(2, 3, 1), None, torch.device("cpu"), True)
    >>> reduced(torch.tensor([-1.0, -4.0]), steps, torch.tensor([3.0, 1.0]), "mean")
    tensor(-1.7500)
    """
    own = each if weight is None else each * weight
    return own if reduction == "none" else own.sum() / divisor(steps, weight, reduction)


def divisor(steps: Steps, weight: Tensor | None, reduction: str) -> Tensor | float:
    """What a sum over sequences is divided by."""
    if reduction == "sum":
        return 1.0
    if reduction == "mean":
        return float(steps.score.shape[0]) if weight is None else weight.sum()
    if steps.mask is None and weight is None:
        return float(steps.score.shape[0] * steps.score.shape[1])
    counts = steps.counts()
    return counts.sum() if weight is None else (counts * weight).sum()


def check_reduction(reduction: str) -> None:
    """Refuse what is no reduction."""
    if reduction not in REDUCTIONS:
        raise InputError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}.")


def _tensor(x: Any, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, got {type(x).__name__}. torch.as_tensor makes one.")
    return x
