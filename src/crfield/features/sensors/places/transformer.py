"""`ReadingFeatures`: recordings of readings become sequences of named columns, one row a reading, each column marked.

The mark says whether a column *describes a place*: whether it becomes another one when senders are exchanged, when a
constant is added to the strengths of a sender, or when one is added to its phases. That is what moving to another
room does at least, and a test holds the marks to it, column by column. It does not say that a column means the same
wherever one goes: a room may have fewer antennas, hear less, or see other things done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np

from crfield.core.checks import Check, flag, is_number, number
from crfield.core.estimator import Estimator, TransformerMixin
from crfield.core.parameters import parameter
from crfield.data.clocks.readings import Readings
from crfield.errors import InputError, ModelFileError, NotFittedError, ShapeError
from crfield.features.sensors.places.travelling import travelling_columns
from crfield.features.sensors.readings import RADII, WEAKEST, Column, room_columns

MOST_SENDERS, MOST_RADII = 1_000, 100
MOST = 200_000  # columns


def _are_radii(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        return False
    return 0 < len(value) <= MOST_RADII and all(is_number(one) and one > 0 for one in value)


def _are_names(value: Any) -> bool:
    return value is None or (isinstance(value, Sequence | np.ndarray) and all(isinstance(one, str) for one in value))


class ReadingFeatures(TransformerMixin, Estimator):
    """Features of readings that come when they come: one row a reading, about it and the time around it.

    X is a list of `Readings`. ``describes_place_`` says of each column whether it describes the place of the
    recordings; with ``travels=True`` there are only those that do not.

    Parameters
    ----------
    axes : sequence of str, optional
        Names of the values; x, y, z if there are three, else their numbers.
    radii : sequence of float
        Seconds before and after a reading that its windows reach.
    travels : bool
        Only columns that do not describe a place. They take recordings with any number of senders.
    weakest : float
        The strength that counts as nothing: strengths of the place are measured from it.

    Attributes
    ----------
    axes_ : tuple of str
    n_senders_ : int
    describes_place_ : array of bool (columns,)
    n_features_out_ : int

    Examples
    --------
    >>> from crfield.data.clocks.readings import Readings
    >>> some = Readings(seconds=[0.0, 0.5, 9.0], values=np.eye(3), sender=[0, 0, 1], strength=[-60.0, -61.0, -55.0])
    >>> features = ReadingFeatures(radii=(1.0, 8.0)).fit([some])
    >>> features.transform([some])[0].shape == (3, features.n_features_out_)
    True
    >>> names = features.get_feature_names_out()
    >>> names[features.describes_place_][:3].tolist()
    ['strength', 'sender 1', 'sender 2']
    >>> names[~features.describes_place_][-1]
    'readings for this recording, ±8s'
    >>> bool(ReadingFeatures(travels=True).fit([some]).describes_place_.any())
    False
    """

    kind = "reading_features"  # the word for them in a file

    axes: Sequence[str] | None = parameter(Check("a sequence of names, or None", _are_names), default=None)
    radii: Sequence[float] = parameter(
        Check(f"1 … {MOST_RADII} finite numbers > 0 (seconds)", _are_radii), default=RADII
    )
    travels: bool = parameter(flag, default=False)
    weakest: float = parameter(number(meaning="dB"), default=WEAKEST)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what the values are called and how many senders there are; nothing else depends on the data."""
        self.check()
        recordings = check_readings(X)
        if not recordings:
            raise InputError("X holds no recordings; at least one is needed to learn what was read.")
        width = recordings[0].values.shape[1]
        n_senders = max((int(one.sender.max(initial=-1)) + 1 for one in recordings), default=0)
        phase = recordings[0].phase is not None
        for k, one in enumerate(recordings):
            _check_form(k, one, width, phase)
        self._learn(_axis_names(self.axes, width), n_senders, phase)
        return self

    def _learn(self, axes: tuple[str, ...], n_senders: int, phase: bool) -> None:
        if not self.travels and n_senders > MOST_SENDERS:
            raise InputError(
                f"senders are numbered 0 … {n_senders - 1:,}, more than {MOST_SENDERS:,}. Number those that are "
                "heard by np.unique(sender, return_inverse=True)[1], over all recordings together."
            )
        columns = (1 + len(self.radii)) * (7 * len(axes) + 5 * (0 if self.travels else n_senders) + 15)
        if columns > MOST:
            raise InputError(f"there would be some {columns:,} columns, more than {MOST:,}. Give fewer radii.")
        self.axes_, self.n_senders_, self.phase_ = axes, n_senders, phase
        none = np.zeros(0)
        made = self._columns(Readings(none, np.zeros((0, len(axes))), none, none, none if phase else None))
        self._names = [column.name for column in made]
        self.describes_place_ = np.array([column.place for column in made], dtype=bool)
        self.n_features_out_ = len(made)

    def transform(self, X: Any) -> list[np.ndarray]:
        """A list of arrays (readings, columns), one for each recording."""
        self._fitted()
        out = []
        for k, one in enumerate(check_readings(X)):
            self._check_recording(k, one)
            out.append(np.stack([column.values for column in self._columns(one)], axis=1))
        return out

    def _columns(self, one: Readings) -> list[Column]:
        n_senders = 0 if self.travels else self.n_senders_
        sender = np.zeros(len(one), dtype=np.int64) if self.travels else one.sender
        room = room_columns(
            one.seconds,
            one.values,
            sender,
            one.strength,
            names=self.axes_,
            n_senders=max(n_senders, 1),
            radii=self.radii,
            weakest=self.weakest,
        )
        other = travelling_columns(one, names=self.axes_, radii=self.radii)
        return [column for column in chain(room, other) if not (self.travels and column.place)]

    def _check_recording(self, k: int, one: Readings) -> None:
        _check_form(k, one, len(self.axes_), self.phase_)
        beyond = int(one.sender.max(initial=-1))
        if not self.travels and beyond >= self.n_senders_:
            raise InputError(
                f"recording {k} has the sender {beyond}, fit met 0 … {self.n_senders_ - 1}: is it another "
                "place? Columns that name senders cannot go there; ReadingFeatures(travels=True) has others."
            )

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns, as objects."""
        self._fitted()
        return np.array(self._names, dtype=object)

    # ------------------------------------------------------------------ storage

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header from which `from_state` makes the same features again; there are no arrays."""
        self.check()
        plain = {
            "axes": None if self.axes is None else [str(name) for name in self.axes],
            "radii": [float(radius) for radius in self.radii],
            "travels": bool(self.travels),
            "weakest": float(self.weakest),
        }
        fitted = [list(self.axes_), self.n_senders_, self.phase_] if self.__sklearn_is_fitted__() else None
        return {"kind": self.kind, "options": plain, "fitted": fitted}, {}

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> ReadingFeatures:
        """The features whose `state` this is; ModelFileError where it cannot be one."""
        options, fitted = header.get("options"), header.get("fitted")
        if not isinstance(options, dict) or not set(options) <= {"axes", "radii", "travels", "weakest"}:
            raise ModelFileError("the file's reading features must have the options axes, radii, travels, weakest.")
        try:
            made = cls(**options)
            made.check()
            if fitted is not None:
                axes, n_senders, phase = fitted
                good = isinstance(axes, list) and 0 < len(axes) <= MOST and isinstance(phase, bool)
                if not good or not isinstance(n_senders, int) or n_senders < 0:
                    raise InputError("they must have been fitted to named values, senders and perhaps phases")
                made._learn(_axis_names([str(name) for name in axes], len(axes)), int(n_senders), phase)
        except (InputError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"the file's reading features cannot be used: {error}. Was the file edited?"
            ) from None
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "axes_")

    def _fitted(self) -> None:
        if not hasattr(self, "axes_"):
            raise NotFittedError("this ReadingFeatures is not fitted yet. Call fit(X) first.")


def check_readings(X: Any) -> list[Readings]:
    """The recordings of X; InputError where they are none.

    >>> check_readings([[1.0, 2.0]])
    Traceback (most recent call last):
    crfield.errors.InputError: X must be a list of Readings, but recording 0 is of type list. Make one by ...
    """
    recordings = [X] if isinstance(X, Readings) else list(X)
    for k, one in enumerate(recordings):
        if not isinstance(one, Readings):
            raise InputError(
                f"X must be a list of Readings, but recording {k} is of type {type(one).__name__}. Make one by "
                "crfield.Readings(seconds=…, values=…, sender=…, strength=…, phase=…)."
            )
    return recordings


def _check_form(k: int, one: Readings, width: int, phase: bool) -> None:
    if one.values.shape[1] != width:
        raise ShapeError(f"recording {k} must have {width} values, got {one.values.shape[1]}.")
    if phase != (one.phase is not None):
        has, had = ("a phase", "none") if one.phase is not None else ("no phase", "one")
        raise InputError(f"recording {k} has {has}, the first one of fit had {had}. Give it for all or none.")


def _axis_names(given: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if given is None:
        return ("x", "y", "z") if width == 3 else tuple(str(k) for k in range(width))
    if len(given) != width:
        raise ShapeError(f"there are {width} values but {len(given)} names for them: {tuple(given)}.")
    return tuple(str(name) for name in given)
