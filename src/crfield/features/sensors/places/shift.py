"""`PlaceShift`: the same recordings as another place would have heard them.

Whether a model knows people or a room shows in another room. Where there is none, `PlaceShift` does to recordings
what another room does at least: the antennas hang elsewhere (their numbers are exchanged), nearer or further away (a
constant is added to the strengths of each) and behind other cables (a constant is added to the phases of each); and,
if asked, some of them are missing, whose readings nobody hears. Test a model that was trained on other recordings on
the shifted ones: what it loses is what it knew of the place.

It is a least test. A model that passes may still fail in a real room, where walls stand elsewhere and things are done
in another order; one that fails will.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from crfield.core.checks import Check, flag, integer, is_integer, is_number, random_generator, seed
from crfield.core.estimator import Estimator, TransformerMixin
from crfield.core.parameters import parameter
from crfield.data.clocks.readings import Readings
from crfield.errors import InputError, NotFittedError
from crfield.features.sensors.places.transformer import check_readings


def _is_order(value: Any) -> bool:
    if value is None:
        return True
    whole = isinstance(value, Sequence | np.ndarray) and all(is_integer(one) for one in value)
    return whole and sorted(value) == list(range(len(value)))


def _is_strength(value: Any) -> bool:
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return all(is_number(one) for one in value)
    return is_number(value) and value >= 0


class PlaceShift(TransformerMixin, Estimator):
    """Recordings as another place would have heard them: senders exchanged, strengths and phases shifted.

    X is a list of `Readings`; ``fit`` draws the place, ``transform`` takes recordings there, ``labels`` gives the
    labels of those readings that are still heard.

    Parameters
    ----------
    order : sequence of int, optional
        The new number of each sender; by default drawn so that none keeps its own.
    strength : float or sequence of float
        What is added to the strengths of each sender, in dB; a number is the most that is drawn, up or down.
    phase : bool
        Add a constant to the phases of each sender.
    silent : int
        How many senders the other place does not have.
    random_state : int, numpy Generator or None
        From what the place is drawn.

    Attributes
    ----------
    order_ : array of int (senders,)
    strength_ : array (senders,)
        What is added, by the sender's old number.
    phase_ : array (senders,)
    silent_ : array of bool (senders,)

    Examples
    --------
    >>> from crfield.data.clocks.readings import Readings
    >>> X = [Readings(seconds=[0.0, 0.5, 9.0], values=np.eye(3), sender=[0, 2, 1], strength=[-60.0, -61.0, -55.0])]
    >>> place = PlaceShift(order=(1, 2, 0), strength=(3.0, 0.0, -3.0)).fit(X)
    >>> (moved,) = place.transform(X)
    >>> moved.sender.tolist(), moved.strength.tolist()
    ([1, 0, 2], [-57.0, -64.0, -55.0])
    >>> fewer = PlaceShift(silent=1, random_state=0).fit(X)
    >>> len(fewer.transform(X)[0]), len(fewer.labels(X, [["walk", "sit", "sit"]])[0])
    (2, 2)
    """

    order: Sequence[int] | None = parameter(
        Check("the numbers 0 … of the senders in another order, or None", _is_order), default=None
    )
    strength: float | Sequence[float] = parameter(
        Check("a finite number ≥ 0 (dB), or one for each sender", _is_strength), default=6.0
    )
    phase: bool = parameter(flag, default=True)
    silent: int = parameter(integer(0), default=0)
    random_state: Any = parameter(seed, default=0)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the place for as many senders as X has."""
        self.check()
        n = 1 + max((int(one.sender.max(initial=-1)) for one in check_readings(X)), default=-1)
        for name, given in (("order", self.order), ("strength", self.strength)):
            if given is not None and not is_number(given) and len(given) < n:  # type: ignore[arg-type]
                raise InputError(f"{name} must be of all {n} senders of X, got {given!r}.")
        if self.silent and self.silent >= n:
            raise InputError(f"silent must leave one of the {n} senders, got {self.silent}.")
        rng = random_generator(self.random_state)
        drawn, most = _without_fixed(n, rng), rng.uniform(-1.0, 1.0, n)
        turns, gone = rng.uniform(0.0, 2 * np.pi, n), rng.permutation(n) < self.silent
        self.order_ = drawn if self.order is None else np.asarray(self.order, dtype=np.int64)
        given = self.strength
        self.strength_ = most * float(given) if is_number(given) else np.asarray(given, dtype=float)  # type: ignore[arg-type]
        self.phase_ = turns if self.phase else np.zeros(n)
        self.silent_ = gone
        return self

    def transform(self, X: Any) -> list[Readings]:
        """The recordings as they would have been heard there."""
        out = []
        for one, heard in zip(check_readings(X), self._heard(X), strict=True):
            kept = one[heard]
            who = kept.sender
            phase = None if kept.phase is None else np.mod(kept.phase + self.phase_[who], 2 * np.pi)
            strength = kept.strength + self.strength_[who]
            out.append(Readings(kept.seconds, kept.values, self.order_[who], strength, phase, kept.channel))
        return out

    def labels(self, X: Any, y: Any) -> list[np.ndarray]:
        """The labels y of the readings of X that are heard there too."""
        heard, out = self._heard(X), []
        if len(heard) != len(y):
            raise InputError(f"X and y must be equally long, got {len(heard)} recordings and {len(y)}.")
        for k, (rows, own) in enumerate(zip(heard, y, strict=True)):
            if len(own) != len(rows):
                raise InputError(f"recording {k} has {len(rows)} readings and {len(own)} labels.")
            words = np.empty(len(own), dtype=object)
            words[:] = list(own)
            out.append(words[rows])
        return out

    def _heard(self, X: Any) -> list[np.ndarray]:
        if not hasattr(self, "order_"):
            raise NotFittedError("this PlaceShift is not fitted yet. Call fit(X) first.")
        heard = []
        for k, one in enumerate(check_readings(X)):
            most = int(one.sender.max(initial=-1))
            if most >= len(self.silent_):
                raise InputError(f"recording {k} has the sender {most}, fit met 0 … {len(self.silent_) - 1}.")
            heard.append(~self.silent_[one.sender])
        return heard


def _without_fixed(n: int, rng: np.random.Generator) -> np.ndarray:
    """A random order in which nothing stands where it stood, if there is one."""
    order = rng.permutation(n)
    while n > 1 and (order == np.arange(n)).any():
        order = rng.permutation(n)
    return order
