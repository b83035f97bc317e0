"""What the language looks at: recordings of agents that move, one or several, lying end to end.

Positions are (T, R, D) for T steps of R agents (objects such as a ball among them) in D dimensions; velocities are
differences of positions times ``rate`` (steps a second) unless they are given. Other measurements are *channels*:
``channels`` have one number a step (T,), ``agent_channels`` one a step and agent (T, R). All of it must be finite:
what a robot that is not seen is doing must be decided before features are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import FeatureError, ShapeError


@dataclass(frozen=True, eq=False)
class Recordings:
    """Recordings of moving agents: B of them end to end, with channels and objects.

    >>> played = Recordings.of([np.zeros((4, 3, 2)), np.ones((2, 3, 2))], rate=60.0)
    >>> played.chains.lengths.tolist(), played.positions.shape, played.velocities[5].tolist()
    ([4, 2], (6, 3, 2), [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    """

    positions: np.ndarray  # (N, R, D)
    velocities: np.ndarray  # (N, R, D)
    chains: Chains
    rate: float = 1.0
    channels: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N,)
    agent_channels: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N, R)

    @classmethod
    def of(
        cls,
        positions: Any,
        *,
        rate: float = 1.0,
        velocities: Any = None,
        channels: Mapping[str, Any] | None = None,
        agent_channels: Mapping[str, Any] | None = None,
    ) -> Recordings:
        """From lists with one array for each recording; a single array is one recording."""
        whole = _listed(positions, 3, "positions")
        widths = {array.shape[1:] for array in whole}
        if len(widths) > 1:
            raise ShapeError(f"all recordings must have the same agents and dimensions, got {sorted(widths)}.")
        if not (np.isfinite(rate) and rate > 0):
            raise FeatureError(f"rate must be a finite number > 0 (steps per second), got {rate!r}.")
        chains = Chains.from_lengths([len(array) for array in whole])
        flat = _joined(whole, (0, 0, 2), "positions")
        if velocities is None:
            moved = changes(flat, chains) * rate
        else:
            moved = _joined(_listed(velocities, 3, "velocities"), (0, 0, 2), "velocities")
            if moved.shape != flat.shape:
                raise ShapeError(f"velocities must have the shape of the positions {flat.shape}, got {moved.shape}.")
        found: list[dict[str, np.ndarray]] = []
        for what, given, shape in (
            ("channels", channels, flat.shape[:1]),
            ("agent_channels", agent_channels, flat.shape[:2]),
        ):
            made = {}
            for name, arrays in (given or {}).items():
                array = _joined(_listed(arrays, len(shape), name), (0,) * len(shape), name)
                if array.shape != shape:
                    raise ShapeError(f"{what}: {name} must be {shape} in all, got {array.shape}.")
                made[name] = array
            found.append(made)
        return cls(flat, moved, chains, float(rate), *found)

    @property
    def n_agents(self) -> int:
        """R."""
        return self.positions.shape[1]


def changes(values: np.ndarray, chains: Chains) -> np.ndarray:
    """(N, …) each value less the one before; 0 where a sequence begins."""
    out = np.zeros_like(values)
    out[chains.heads] = values[chains.heads] - values[chains.tails]
    return out


def _listed(given: Any, n_axes: int, what: str) -> list[np.ndarray]:
    if isinstance(given, np.ndarray) and given.dtype != object and given.ndim == n_axes:
        given = [given]
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise ShapeError(f"{what} must be an array or a list of arrays, got {type(given).__name__}.")
    try:
        arrays = [np.asarray(array, dtype=np.float64) for array in given]
    except (TypeError, ValueError) as error:
        raise FeatureError(f"{what} must be numbers: {error}.") from None
    for s, array in enumerate(arrays):
        if array.ndim != n_axes:
            raise ShapeError(f"{what}: recording {s} must have {n_axes} axes, got shape {array.shape}.")
    return arrays


def _joined(arrays: list[np.ndarray], empty: tuple[int, ...], what: str) -> np.ndarray:
    for s, array in enumerate(arrays):
        if not np.isfinite(array).all():
            step = int(np.argwhere(~np.isfinite(array))[0][0])
            raise FeatureError(f"{what}: recording {s} holds NaN or infinity at step {step}. Fill gaps first.")
    try:
        return np.concatenate(arrays) if arrays else np.zeros(empty)
    except ValueError as error:
        raise ShapeError(f"{what}: recordings do not fit together: {error}.") from None
