"""Checkpoints: the state of a training on disk, so that an interrupted run can be resumed.

A checkpoint is an archive (`storage.archive`): a header and arrays, nothing that could be executed. It is written
beside its place and moved there in one step, so that at any moment there is either the whole old one or the whole new
one. The header holds digests of the data and of the options, and what they are digests of; a training goes on only
from a checkpoint of its own, for anything else would end somewhere between two models. It has a version; what the
state itself may be is checked by those who resume it (`crfield.optimize.resume`).

A training that has come to its end leaves its checkpoint behind, marked as done: the same call then goes to the end
at once (its process may have died before the model was saved), and another training may take the place. One that is
not done is never overwritten by another training; `InputError` says what differs and how to begin anew.

Cost: the weights, gradients and pairs of the optimiser are written, (2 + 2 m) W numbers as a rule, every
``every`` seconds.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crfield.errors import CrfieldWarning, InputError, ModelFileError
from crfield.storage.archive import read_archive, write_archive
from crfield.storage.files import remove_leftovers
from crfield.storage.state import check_numbers

KIND = "checkpoint"
VERSION = 1  # raised when an older crfield would resume wrongly; files without one are of version 1
State = tuple[dict[str, Any], dict[str, np.ndarray]]


class Checkpoint:
    """Keeps the state of a training in one file (a `RunState` of `crfield.optimize.resume`).

    ``digests`` name what the training depends on. The file is read at once if it is there.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "run.checkpoint")
    >>> checkpoint = Checkpoint(path, {"the data": "ab12"}, every=0.0)
    >>> checkpoint.offer("epochs", lambda: ({"epoch": 3}, {"weights": np.ones(2)}))
    >>> Checkpoint(path, {"the data": "ab12"}).found("epochs")[0]
    {'epoch': 3}
    >>> Checkpoint(path, {"the data": "ffff"})
    Traceback (most recent call last):
    crfield.errors.InputError: the checkpoint ...run.checkpoint is of another training: the data differ. ...
    >>> folder.cleanup()
    """

    def __init__(
        self, path: str | os.PathLike[str], digests: Mapping[str, str], *, every: float = 60.0, resume: bool = True
    ) -> None:
        self.path, self.digests, self.every = os.fspath(path), dict(digests), every
        self._phase, self._state = "", None  # type: str, State | None
        self._found_beside: dict[str, State] = {}
        self._beside: dict[str, Callable[[], State]] = {}
        self._last: tuple[str, Callable[[], State]] | None = None
        self._written = time.monotonic()
        _check_place(self.path)
        remove_leftovers(self.path)
        if resume and os.path.exists(self.path):
            self._read()

    @property
    def resumed(self) -> bool:
        """Whether there was a state to resume."""
        return self._state is not None

    def found(self, phase: str) -> State | None:
        """What an earlier run offered last, if that was in this phase."""
        return self._state if self._phase == phase else None

    def found_beside(self, name: str) -> State | None:
        """What `keep_beside` kept under this name."""
        return self._found_beside.get(name)

    def keep_beside(self, name: str, state: Callable[[], State]) -> None:
        """From now on write this state along with whatever is offered."""
        self._beside[name] = state

    def offer(self, phase: str, state: Callable[[], State]) -> None:
        """Write the state if the last writing is long enough ago; in any case it is the last one so far."""
        self._last = (phase, state)
        if time.monotonic() - self._written >= self.every:
            self._write(done=False)

    def close(self, *, done: bool) -> None:
        """Write what was offered last, now; ``done`` marks a training that has come to its end."""
        if self._last is not None:
            self._write(done=done)
        elif self._state is not None and done:  # nothing was left to do
            state = self._state
            self._last = (self._phase, lambda: state)
            self._write(done=True)

    def _write(self, *, done: bool) -> None:
        """Write the file; a disk that is full or gone costs the checkpoint, not the training."""
        self._written = time.monotonic()
        try:
            self._write_archive(done=done)
        except OSError as error:
            warnings.warn(
                f"the checkpoint {self.path} could not be written ({error}). Training continues; the file is as it "
                "was, and writing is tried again with the next state.",
                CrfieldWarning,
                stacklevel=2,
            )

    def _write_archive(self, *, done: bool) -> None:
        phase, state = self._last  # type: ignore[misc]
        header, arrays = state()
        whole = {f"state/{name}": part for name, part in arrays.items()}
        beside = {}
        for name, make in self._beside.items():
            beside[name], more = make()
            whole |= {f"beside/{name}/{key}": part for key, part in more.items()}
        write_archive(
            self.path,
            {
                "kind": KIND,
                "version": VERSION,
                "digests": self.digests,
                "done": done,
                "phase": phase,
                "state": _strict(header),
                "beside": _strict(beside),
            },
            whole,
        )

    def _read(self) -> None:
        try:
            archive = read_archive(self.path)
            check_numbers(archive.arrays)
        except ModelFileError as error:
            raise ModelFileError(f"the checkpoint cannot be used: {error} Delete it to begin anew.") from None
        header, arrays = archive.header, archive.arrays
        digests: Any = header.get("digests")
        state: Any = header.get("state")
        beside: Any = header.get("beside")
        if header.get("kind") != KIND or not all(isinstance(part, dict) for part in (digests, state, beside)):
            raise ModelFileError(
                f"{self.path} is no checkpoint (its kind is {header.get('kind')!r}), and is left as it is. "
                "Name another file."
            )
        version = header.get("version", 1)
        if type(version) is not int or not 1 <= version <= VERSION:
            raise ModelFileError(
                f"the checkpoint {self.path} has version {str(version)[:20]}; this crfield resumes version "
                f"{VERSION} and older. Resume with the crfield that wrote it, or delete it to begin anew."
            )
        if digests != self.digests:
            if header.get("done") is True:  # finished work of another training: this one may take its place
                return
            names = [name for name in self.digests if digests.get(name) != self.digests[name]]
            raise InputError(
                f"the checkpoint {self.path} is of another training: {' and '.join(names) or 'more'} differ. "
                "Restore what it was begun with to resume it; delete the file, or name another one, to begin anew."
            )
        if not isinstance(header.get("phase"), str) or not all(isinstance(part, dict) for part in beside.values()):
            raise ModelFileError(f"the checkpoint {self.path} is damaged. Delete it to begin anew.")
        self._phase, self._state = header["phase"], (_loose(state), _under(arrays, "state/"))
        self._found_beside = {n: (_loose(part), _under(arrays, f"beside/{n}/")) for n, part in beside.items()}


def _check_place(path: str) -> None:
    """InputError where no file can be written: better before a training than after it."""
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        wrong = "it is a folder"
    elif not os.path.isdir(folder):
        wrong = f"there is no folder {folder}"
    elif not os.access(folder, os.W_OK):
        wrong = f"the folder {folder} cannot be written to"
    else:
        return
    raise InputError(f"checkpoint must name a file that can be written, got {path!r}: {wrong}.")


def _under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


_WORDS = {float("inf"): "inf", float("-inf"): "-inf"}


def _strict(value: Any) -> Any:
    """JSON has no infinities: they go as {"number": "inf"}."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"number": _WORDS.get(value, "nan")}
    return value


def _loose(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"number"} and value["number"] in ("inf", "-inf", "nan"):
            return float(value["number"])
        return {name: _loose(part) for name, part in value.items()}
    return [_loose(part) for part in value] if isinstance(value, list) else value
