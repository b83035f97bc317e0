"""What the language looks at: recordings of agents that move, one or several, lying end to end.

Positions are (T, R, D) for T steps of R agents (objects such as a ball among them) in D dimensions; velocities are
differences of positions times ``rate`` (steps a second) unless they are given. There is no default rate: thresholds
of a speed have a unit, and a rate of 1 where the truth is 60 makes most of them hold always or never. Positions
without a rate have no velocities, and a template that speaks of them says so. Other measurements are *channels*:
``channels`` have one number a step (T,), ``agent_channels`` one a step and agent (T, R). All of it must be finite
where an agent is ``present`` (T, R), which is everywhere unless it is given: NaN alone does not say that somebody was
away. What features say of who is absent is decided in `crfield.features.relational.functions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.clocks.tracks import Tracks
from crfield.errors import FeatureError, ShapeError


@dataclass(frozen=True, eq=False)
class Recordings:
    """Recordings of moving agents: B of them end to end, with channels and objects.

    >>> played = Recordings.of([np.zeros((4, 3, 2)), np.ones((2, 3, 2))], rate=60.0)
    >>> played.chains.lengths.tolist(), played.positions.shape, played.velocities[5].tolist()
    ([4, 2], (6, 3, 2), [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    """

    positions: np.ndarray  # (N, R, D)
    velocities: np.ndarray | None  # (N, R, D); None where neither they nor a rate were given
    chains: Chains
    rate: float | None = None
    channels: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N,)
    agent_channels: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N, R)
    present: np.ndarray | None = None  # (N, R) bool; None where everybody always is

    @classmethod
    def of(
        cls,
        positions: Any,
        *,
        rate: float | None = None,
        velocities: Any = None,
        channels: Mapping[str, Any] | None = None,
        agent_channels: Mapping[str, Any] | None = None,
        present: Any = None,
    ) -> Recordings:
        """From lists with one array for each recording; a single array is one recording.

        ``positions`` may be `Tracks`, which know their rate and who is present.

        >>> seen = np.array([[[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [np.nan, np.nan]]])
        >>> Recordings.of(seen, present=[np.isfinite(seen).all(axis=2)]).present.tolist()
        [[True, True], [True, False]]
        """
        if isinstance(positions, Tracks):
            if present is not None or not (rate is None or rate == positions.rate):
                raise FeatureError("tracks know their rate and who is present; leave rate and present out.")
            rate, present, positions = positions.rate, positions.presences, positions.places
        whole = _listed(positions, 3, "positions")
        widths = {array.shape[1:] for array in whole}
        if len(widths) > 1:
            raise ShapeError(f"all recordings must have the same agents and dimensions, got {sorted(widths)}.")
        if rate is not None and not (np.isfinite(rate) and rate > 0):
            raise FeatureError(f"rate must be a finite number > 0 (steps per second), got {rate!r}.")
        chains = Chains.from_lengths([len(array) for array in whole])
        here = None
        if present is not None:
            here = _joined(_listed(present, 2, "present"), (0, 0), "present") != 0
            if here.shape != (chains.n_nodes, *([whole[0].shape[1]] if whole else [0])):
                raise ShapeError(f"present must be (steps, agents) as the positions are, got {here.shape} in all.")
            whole = _zeroed(whole, here)
        flat = _joined(whole, (0, 0, 2), "positions")
        moved: np.ndarray | None = None
        if velocities is None:
            moved = None if rate is None else changes(flat, chains) * rate
            if moved is not None and here is not None:
                moved[~here] = 0.0
                moved[1:][~here[:-1]] = 0.0  # who comes begins anew
        else:
            moved = _joined(_zeroed(_listed(velocities, 3, "velocities"), here), (0, 0, 2), "velocities")
            if moved.shape != flat.shape:
                raise ShapeError(f"velocities must have the shape of the positions {flat.shape}, got {moved.shape}.")
        found: list[dict[str, np.ndarray]] = []
        for what, given, shape in (
            ("channels", channels, flat.shape[:1]),
            ("agent_channels", agent_channels, flat.shape[:2]),
        ):
            made = {}
            for name, arrays in (given or {}).items():
                listed = _listed(arrays, len(shape), name)
                array = _joined(_zeroed(listed, here) if len(shape) == 2 else listed, (0,) * len(shape), name)
                if array.shape != shape:
                    raise ShapeError(f"{what}: {name} must be {shape} in all, got {array.shape}.")
                made[name] = array
            found.append(made)
        return cls(flat, moved, chains, None if rate is None else float(rate), found[0], found[1], here)

    @property
    def n_agents(self) -> int:
        """R."""
        return self.positions.shape[1]


def no_rate(templates: Sequence[str]) -> FeatureError:
    """What is said where templates speak of velocities or accelerations and nobody knows how long a step is."""
    which = f"the template{'s' if len(templates) > 1 else ''} {', '.join(templates)}"
    return FeatureError(
        f"{which} speak{'' if len(templates) > 1 else 's'} of velocities, which are lengths a second: expected "
        "rate=, the steps a second of the recordings, got none. Pass it where positions are handed over, such as "
        "Recordings.of(positions, rate=60.0), SelectedCRF(rate=60.0) or catalogue.stream(columns, rate=60.0); "
        "rate=1.0 means that a second is a step."
    )


def changes(values: np.ndarray, chains: Chains) -> np.ndarray:
    """(N, …) each value less the one before; 0 where a sequence begins."""
    out = np.zeros_like(values)
    out[chains.heads] = values[chains.heads] - values[chains.tails]
    return out


def _zeroed(arrays: list[np.ndarray], here: np.ndarray | None) -> list[np.ndarray]:
    """The arrays with 0 where an agent is absent; those of another length are left to be complained of."""
    if here is None or sum(map(len, arrays)) != len(here):
        return arrays
    parts = np.split(here, np.cumsum([len(array) for array in arrays])[:-1])
    out = []
    for array, part in zip(arrays, parts, strict=True):
        if array.shape[:2] == part.shape:
            array = np.where(part.reshape(part.shape + (1,) * (array.ndim - 2)), array, 0.0)
        out.append(array)
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
            raise FeatureError(
                f"{what}: recording {s} holds NaN or infinity at step {step}. Fill gaps first, or say "
                "present= where agents come and go."
            )
    try:
        return np.concatenate(arrays) if arrays else np.zeros(empty)
    except ValueError as error:
        raise ShapeError(f"{what}: recordings do not fit together: {error}.") from None
