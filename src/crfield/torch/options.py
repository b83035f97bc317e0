"""Options that layers share: names of tags, constraints as tensors, what cannot be meant, and labels as lists."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from crfield.core.constraints import FixedScores
from crfield.errors import InputError, LabelError, ShapeError
from crfield.torch.steps import BACKENDS, Steps


def named_tags(given: int | Sequence[Hashable]) -> tuple[list[Hashable], int]:
    """Names of the tags, and how many there are.

    >>> named_tags(2), named_tags(["O", "B"])
    (([0, 1], 2), (['O', 'B'], 2))
    """
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise InputError(f"num_tags must be at least 1, got {given}.")
        return list(range(given)), given
    if isinstance(given, str | bytes | bool) or not isinstance(given, Sequence) or not len(given):
        raise InputError(f"num_tags must be a number of tags or a list of their names, got {given!r:.60}.")
    names = list(given)
    if len(set(names)) != len(names):
        raise LabelError(f"names of tags must differ, got {names!r:.100}.")
    return names, len(names)


def check_options(n_labels: int, ignore_index: int, backend: str, n_jobs: int) -> None:
    """Refuse options that cannot be meant."""
    if 0 <= ignore_index < n_labels:
        raise InputError(f"ignore_index must be no tag, got {ignore_index} of {n_labels} tags.")
    if backend not in BACKENDS:
        raise InputError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {backend!r}.")
    if not isinstance(n_jobs, int) or (n_jobs < 1 and n_jobs != -1):
        raise InputError(f"n_jobs must be a number of threads or -1 for all, got {n_jobs!r}.")


def listed(path: Tensor, steps: Steps) -> list[list[int]]:
    """Labels (B, T) as lists of the kept steps'."""
    if steps.mask is None:
        found: list[list[int]] = path.tolist()
        return found
    flat, out, at = path[steps.mask].tolist(), [], 0
    for many in steps.mask.sum(1).tolist():
        out.append(flat[at : at + many])
        at += many
    return out


def fixed_buffers(fixed: FixedScores | None) -> dict[str, Tensor | None]:
    """Scores of constraints by the names that they have as buffers of a layer."""
    names = ("fixed_edge", "fixed_start", "fixed_end")
    if fixed is None:
        return dict.fromkeys(names)
    return {name: torch.from_numpy(x.copy()) for name, x in zip(names, (fixed.edge, fixed.start, fixed.end))}


def label_numbers(name: str, given: Any, n_labels: int) -> Tensor | None:
    """One number for each tag, or None."""
    if given is None:
        return None
    numbers = torch.as_tensor(given, dtype=torch.float64)
    if numbers.shape != (n_labels,) or not bool(torch.isfinite(numbers).all()) or bool((numbers < 0).any()):
        raise ShapeError(f"{name} must have a number of at least 0 for each of {n_labels} tags, got {given!r:.60}.")
    return numbers.clone()
