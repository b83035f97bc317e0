r"""Lines of numbers to labels: what a model takes at a step, and where it stands in a line.

Three kinds of models take numbers one step at a time: chains of columns, chains behind windows of samples, and chains
of features of tracks, which take positions. `LineStream` is any of them behind one question, a line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from crfield.cli.model import WrongVerb, roles_of
from crfield.data.tables import is_missing, is_number
from crfield.errors import InputError, did_you_mean
from crfield.estimators.base.facts import last_step
from crfield.estimators.base.fitted import fitted_of
from crfield.estimators.export.stream import StreamStep

Answer = tuple[Hashable, float]  # a label and its probability
_SEPARATORS = re.compile(r"[,;\t]")


class LineStream:
    r"""A stream of labels that is fed with lines; made by `LineStream.of`.

    >>> from crfield import ChainCRF
    >>> X = [[[0.1, 5], [0.3, 5], [1.2, 5], [0.9, 5]], [[1.1, 5], [0.4, 5], [0.2, 5]]]
    >>> model = ChainCRF(l2=0.1).fit(X, [["low", "low", "high", "high"], ["high", "low", "low"]])
    >>> labels = LineStream.of(model, "m.crfield", lag=0)
    >>> [labels.push(line)[0][0] for line in ("1.3 5", "1.2,5", "0.1\t5")]
    ['high', 'high', 'low']
    """

    def __init__(self, stream: Any, names: Sequence[str] | None, *, lag: int, agents: int = 0, windows: Any = None):
        self._stream, self._names, self._lag, self._agents, self._windows = stream, names, lag, agents, windows
        self._labels: list[Hashable] = stream.classes_.tolist()
        self._samples = None if windows is None else windows.stream()
        self._places: list[int] | None = None  # where each column stands in a line, once a header said so
        self._steps = 0
        self.named = False  # whether the first line is behind us
        self.begun = False  # whether a sequence has

    @classmethod
    def of(cls, model: Any, path: str, *, lag: int) -> LineStream:
        """The stream of a trained model; WrongVerb where it takes no numbers."""
        last, kind = last_step(model), type(model).__name__
        if not hasattr(last, "stream"):
            raise WrongVerb(f"{path} holds a {kind}, which labels nothing step by step; a ChainCRF does.")
        catalogue: Any = getattr(last, "features", None)
        if hasattr(catalogue, "words"):
            names = [f"{agent}.{axis}" for agent in catalogue.words.agents for axis in catalogue.words.axes]
            return cls(last.stream(lag=lag), names, lag=lag, agents=len(catalogue.words.agents))
        windows = model[0] if last is not model else None
        encoder: Any = getattr(fitted_of(last), "encoder", None)
        if getattr(encoder, "kind", None) != "matrix" or not (
            windows is None or (len(model.steps) == 2 and hasattr(windows, "stream"))
        ):
            raise WrongVerb(
                f"{path} holds a {kind} of words or records, and lines of numbers are not for it: crfield tag labels "
                "its files; from Python it is crfield.load(path).stream()."
            )
        roles = roles_of(model)
        if roles is not None:
            names = list(roles.columns)
        elif windows is not None:
            names = [name for sensor in windows.sensors_ for name in sensor.axes]
        else:
            width = encoder.state()[0]["width"]
            names = encoder.feature_names or [f"x[{k}]" for k in range(width)]
        return cls(last.stream(lag=lag), names, lag=lag, windows=windows)

    def push(self, line: str) -> list[Answer]:
        """The labels that a line makes known: as a rule one; none for a header, or while it is waited."""
        cells = [cell.strip() for cell in (_SEPARATORS.split(line) if _SEPARATORS.search(line) else line.split())]
        if not self.named:
            header = not all(map(is_number, cells))
            if header:
                self._places = self._header(cells)
            self.named = True
            if header:
                return []
        return self._observed(self._numbers(cells))

    def finish(self) -> list[Answer]:
        """The sequence is over: the labels that were waited for."""
        out: list[Answer] = []
        if self._samples is not None:
            for row in self._samples.finish():
                out += self._answered(self._stream.push(row))
            self._samples = self._windows.stream()
        if self._steps:
            waiting = self._stream.finish().smoothed if self._lag else np.zeros((1, 0))
            if not self._lag:
                self._stream.reset()
            # the last lag steps are still to be told; the one before them was, with the last line
            out += [self._best(row) for row in waiting[1 if self._steps > self._lag else 0 :]]
        self._steps, self.begun = 0, False
        return out

    def _observed(self, numbers: np.ndarray) -> list[Answer]:
        self.begun = True
        if self._samples is not None:
            rows = self._samples.push(numbers)
            return [answer for row in rows for answer in self._answered(self._stream.push(row))]
        if not self._agents:
            return self._answered(self._stream.push(numbers))
        positions = numbers.reshape(self._agents, -1)
        present = np.isfinite(positions).all(axis=1)
        return self._answered(self._stream.push(positions, present=present))

    def _answered(self, step: StreamStep) -> list[Answer]:
        self._steps += 1
        told = step.probabilities if not self._lag else step.smoothed
        return [] if told is None else [self._best(told)]

    def _best(self, chances: np.ndarray) -> Answer:
        best = int(chances.argmax())
        return self._labels[best], float(chances[best])

    def _header(self, cells: Sequence[str]) -> list[int]:
        """Where the columns of the model stand."""
        names = list(self._names or ())
        missing = [name for name in names if name not in cells]
        if missing:
            raise InputError(
                f"the header must name the model's columns {_short(names)}; {missing[0]!r} is not among "
                f"{_short(cells)}.{did_you_mean(missing[0], cells)}"
            )
        return [list(cells).index(name) for name in names]

    def _numbers(self, cells: Sequence[str]) -> np.ndarray:
        """The numbers of a line in the order of the columns, NaN for an agent that is absent."""
        names = list(self._names or ())
        if self._places is not None:
            if len(cells) <= max(self._places):
                raise InputError(f"expected at least {max(self._places) + 1} cells by the header, got {len(cells)}.")
            cells = [cells[place] for place in self._places]
        elif len(cells) != len(names):
            raise InputError(f"expected {len(names)} numbers, {_short(names)}, got {len(cells)}.")
        out = np.empty(len(names))
        for k, (name, cell) in enumerate(zip(names, cells, strict=True)):
            if is_missing(cell) and self._agents:
                out[k] = np.nan
                continue
            try:
                out[k] = float(cell)
            except ValueError:
                out[k] = np.nan
            if not np.isfinite(out[k]):
                raise InputError(f"expected a number for {name!r}, got {cell!r}.")
        return out


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
