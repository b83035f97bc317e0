"""A game to watch: positions, true and predicted labels and marginals, made ready for a page.

`Replay` checks that everything has as many steps, thins it out if asked (``every``), and gives labels numbers. Its
`html` is one file without anything from outside: a field seen from above, a ring around the robot that the true label
names and a dashed one around the predicted, the labels of the whole game on a strip to click on, and the marginals
around the present frame. Positions are kept as 16-bit numbers, so that a minute of three robots takes about 60 kB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import integer
from crfield.errors import InputError, LabelError, ShapeError

MOST_FRAMES = 500_000


@dataclass(frozen=True, eq=False)
class Replay:
    """A game as an HTML replay; made by `Replay.of` from a game of `make_tag` or `make_soccer`, or by hand.

    ``points_at`` (L,) is the agent that each class names, or −1; ``groups`` (R,) are colours.

    >>> import crfield
    >>> game = crfield.make_tag(0.1, random_state=1)
    >>> replay = Replay.of(game, predicted=game.labels, every=2)
    >>> replay
    <Replay: 180 frames of 3 agents, labels 0, 1, 2, with predictions>
    >>> page = replay.html()
    >>> page.startswith("<!DOCTYPE html>"), "://" in page
    (True, False)
    """

    positions: np.ndarray  # (T, R, 2)
    labels: np.ndarray  # (T,) int64 codes of classes, −1 unknown
    classes: tuple[str, ...]
    predicted: np.ndarray | None  # (T,) int64
    marginals: np.ndarray | None  # (T, L)
    points_at: tuple[int, ...]
    agents: tuple[str, ...]
    groups: tuple[int, ...]
    sizes: tuple[float, ...]
    field: tuple[float, float]
    rate: float
    every: int
    title: str

    @classmethod
    def of(
        cls,
        game: Any,
        *,
        predicted: Any = None,
        marginals: Any = None,
        classes: Sequence[Any] | None = None,
        every: int = 1,
        title: str | None = None,
    ) -> Replay:
        """The replay of a game, anything with ``positions``, ``labels``, ``rate``, ``field`` and ``diameter``.

        ``predicted`` (T,) are labels, ``marginals`` (T, L) probabilities of the classes, in their order: ``classes``,
        or the sorted labels of the game. Every ``every``-th frame is kept.
        """
        positions = np.asarray(game.positions, np.float64)
        if positions.ndim != 3 or positions.shape[2] != 2:
            raise ShapeError(f"positions must be (steps, agents, 2), got {positions.shape}.")
        if not np.isfinite(positions).all():
            raise InputError("positions must be finite to be shown; fill gaps first.")
        integer(1)("every", every)
        steps, robots = positions.shape[:2]
        if steps > MOST_FRAMES * every:
            raise InputError(f"{steps:,} frames are too many for a page; keep fewer with every=…, or show a piece.")
        labels = np.asarray(game.labels)
        seen = labels.tolist() if predicted is None else [*labels.tolist(), *np.asarray(predicted).tolist()]
        numbered = np.issubdtype(labels.dtype, np.integer)
        chosen = list(classes) if classes is not None else list(range(robots)) if numbered else sorted(set(seen))
        codes = _codes(labels, chosen, steps, "labels")
        guess = None if predicted is None else _codes(predicted, chosen, steps, "predicted")
        chance = None if marginals is None else np.asarray(marginals, np.float64)
        if chance is not None and chance.shape != (steps, len(chosen)):
            raise ShapeError(f"marginals must be ({steps}, {len(chosen)}) for these classes, got {chance.shape}.")
        if chance is not None and not ((chance >= -1e-6) & (chance <= 1 + 1e-6)).all():
            raise InputError("marginals must be probabilities between 0 and 1.")
        names = tuple(getattr(game, "agents", None) or (f"robot {r}" for r in range(robots)))
        groups = _teams(names) if hasattr(game, "agents") else tuple(range(robots))
        keep = slice(None, None, every)
        return cls(
            positions[keep],
            codes[keep],
            tuple(map(str, chosen)),
            None if guess is None else guess[keep],
            None if chance is None else np.clip(chance[keep], 0.0, 1.0),
            tuple(int(k) if numbered and isinstance(k, int | np.integer) and 0 <= k < robots else -1 for k in chosen),
            names,
            groups,
            tuple(60.0 if name == "ball" else float(game.diameter) for name in names),
            (float(game.field[0]), float(game.field[1])),
            float(game.rate),
            int(every),
            f"{robots} agents, {steps / float(game.rate):.0f} s" if title is None else title,
        )

    def html(self) -> str:
        """The page, as text to write into a file."""
        from crfield.report.replay_page import replay_page

        return replay_page(self)

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:760px;border:0"></iframe>'

    def __repr__(self) -> str:
        parts = {"predictions": self.predicted, "marginals": self.marginals}
        extra = " and ".join(word for word, part in parts.items() if part is not None)
        return (
            f"<Replay: {len(self.labels):,} frames of {len(self.agents)} agents, labels {', '.join(self.classes)}"
            f"{', with ' + extra if extra else ''}>"
        )


def _codes(labels: Any, classes: list[Any], steps: int, what: str) -> np.ndarray:
    """(T,) the place of each label among the classes."""
    listed = np.asarray(labels).tolist()
    if len(listed) != steps:
        raise ShapeError(f"{what} must have one entry for each of {steps} steps, got {len(listed)}.")
    place = {label: k for k, label in enumerate(classes)}
    missing = [label for label in listed if label not in place]
    if missing:
        raise LabelError(f"{what} hold {missing[0]!r}, which is not among the classes {classes}.")
    return np.array([place[label] for label in listed], np.int64)


def _teams(names: tuple[str, ...]) -> tuple[int, ...]:
    """A colour for each name without its number: those of a team share one."""
    stems = [name.rstrip("0123456789") for name in names]
    order = list(dict.fromkeys(stems))
    return tuple(order.index(stem) for stem in stems)
