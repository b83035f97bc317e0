"""What a selection did, round by round: a frozen record that every method leaves behind.

Who entered when, with which weights, what the training loss and the held-out error were, and the seconds of processor
time until then. `SelectionPath.best` is the round that held-out steps liked best (error by default; the loss settles
ties, then the smaller model). `crfield.report.displays.paths` draws it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.data.frames import frame_of
from crfield.errors import InputError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.selection.problem import SelectionModel
from crfield.storage.state import State, refuse

CRITERIA = ("error", "nll")
_ROUND = ("held_error", "held_nll", "seconds", "penalty", "largest")  # numbers of a round in a model file
_MODEL = ("loss", "value", "violation")  # and of its model


@dataclass(frozen=True, eq=False)
class SelectionRound:
    """One round; numbers of features count candidates, not the base."""

    number: int
    added: tuple[str, ...]  # names of the candidates that entered
    model: SelectionModel = field(repr=False)
    held_error: float  # share of wrong labels, NaN without held-out steps
    held_nll: float  # loss per step
    seconds: float  # of processor time since the selection began
    penalty: float = float("nan")  # λ, for paths that have one
    largest: float = float("nan")  # the largest |slope| of a candidate before the round

    @property
    def n_features(self) -> int:
        """Candidates in the model."""
        return len(self.model.active)


@dataclass(frozen=True, eq=False)
class SelectionPath(ShownAsTables):
    """All rounds of a selection.

    >>> def model(k):
    ...     return SelectionModel(np.arange(k), np.ones(k), np.zeros(2), 10.0 - k, 10.0 - k)
    >>> path = SelectionPath("grafting", tuple(
    ...     SelectionRound(k, (f"f{k}",), model(k), error, error, 0.1 * k)
    ...     for k, error in enumerate([0.5, 0.2, 0.3])
    ... ))
    >>> path
    SelectionPath(grafting: 3 rounds, best has 1 feature, held-out error 0.2, 0.10 s to it)
    >>> path.best.number, len(path), path.rows()[1]["held_error"]
    (1, 3, 0.2)
    """

    method: str
    rounds: tuple[SelectionRound, ...]
    criterion: str = "error"
    stop_reason: str = ""
    names: dict[int, str] = field(default_factory=dict, repr=False)  # of every candidate that was ever active
    chosen: int | None = None  # the round that folds chose; by the held-out scores where that is None

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise InputError(f"criterion must be 'error' or 'nll', got {self.criterion!r}.")
        if self.chosen is not None and not 0 <= self.chosen < len(self.rounds):
            raise InputError(f"chosen must be the number of a round, got {self.chosen} of {len(self.rounds)}.")
        if not self.rounds:
            raise InputError("a path has at least one round, the model before anything was added.")

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[SelectionRound]:
        return iter(self.rounds)

    def __getitem__(self, number: int) -> SelectionRound:
        return self.rounds[number]

    def __repr__(self) -> str:
        best = self.best
        judged = "" if np.isnan(best.held_error) else f", held-out error {best.held_error:.3g}"
        noun = "feature" if best.n_features == 1 else "features"
        return (
            f"SelectionPath({self.method}: {len(self)} rounds, best has {best.n_features} {noun}{judged}, "
            f"{best.seconds:.2f} s to it)"
        )

    @property
    def best(self) -> SelectionRound:
        """The round that was chosen: the least held-out error or loss, or the last where nothing was held out."""
        if self.chosen is not None:
            return self.rounds[self.chosen]
        return self.rounds[best_round([(r.held_error, r.held_nll) for r in self.rounds], self.criterion)]

    def features(self, number: int | None = None) -> list[tuple[str, float]]:
        """Names and weights (for standardised columns) of a round, the best by default; large ones first."""
        model = (self.best if number is None else self.rounds[number]).model
        order = np.argsort(-np.abs(model.weights), kind="stable")
        return [(self.names.get(int(model.active[k]), str(model.active[k])), float(model.weights[k])) for k in order]

    def entered(self) -> list[tuple[int, str]]:
        """Round and name of every candidate, when it first entered."""
        seen: dict[str, int] = {}
        for one in self.rounds:
            for name in one.added:
                seen.setdefault(name, one.number)
        return [(number, name) for name, number in seen.items()]

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict a round, for tables and JSON."""
        return [
            {
                "round": one.number,
                "added": list(one.added),
                "n_features": one.n_features,
                "train_loss": one.model.loss,
                "held_error": one.held_error,
                "held_nll": one.held_nll,
                "penalty": one.penalty,
                "largest_slope": one.largest,
                "seconds": one.seconds,
            }
            for one in self.rounds
        ]

    def _tables(self) -> list[Table]:
        shown = ("round", "added", "n_features", "train_loss", "held_error", "held_nll", "penalty")
        return [Table.of_dicts(self.rows(), shown, left=2)]

    def state(self) -> State:
        """All rounds; active candidates and weights lie end to end."""
        models = [one.model for one in self.rounds]
        header = {
            "method": self.method,
            "criterion": self.criterion,
            "stop_reason": self.stop_reason,
            "chosen": self.chosen,
            "names": {str(candidate): name for candidate, name in self.names.items()},
            "rounds": [
                {
                    "added": list(one.added),
                    "converged": bool(one.model.converged),
                    "n_evaluations": int(one.model.n_evaluations),
                    **{name: _finite(getattr(one, name)) for name in _ROUND},
                    **{name: _finite(getattr(one.model, name)) for name in _MODEL},
                }
                for one in self.rounds
            ],
        }
        arrays = {
            "starts": np.cumsum([0, *(len(model.active) for model in models)]).astype(np.int64),
            "active": np.concatenate([np.zeros(0, np.int64), *(model.active for model in models)]).astype(np.int64),
            "weights": np.concatenate([np.zeros(0), *(model.weights for model in models)]),
            "base": np.stack([model.base for model in models]),
        }
        return State(header, arrays)

    @classmethod
    def from_state(cls, state: State) -> SelectionPath:
        """The path whose `state` this is; an error of some kind where parts of a damaged file do not fit."""
        header, rows = state.header, state.listed("rounds")
        starts, active = state.array("starts", (len(rows) + 1,), np.int64), state.array("active", (None,), np.int64)
        weights, base = state.array("weights", active.shape), state.array("base", (len(rows), None))
        if starts[0] != 0 or starts[-1] != len(active) or (np.diff(starts) < 0).any():
            refuse("rounds and weights do not fit")
        rounds = []
        for k, row in enumerate(rows):
            loss, value, violation, *others = (_number(row[name]) for name in (*_MODEL, *_ROUND))
            part, told = slice(*starts[k : k + 2].tolist()), (bool(row["converged"]), violation)
            weighed = active[part].copy(), weights[part].copy(), base[k].copy()
            model = SelectionModel(*weighed, loss, value, *told, int(row["n_evaluations"]))
            rounds.append(SelectionRound(k, tuple(str(name) for name in row["added"]), model, *others))
        names = {int(candidate): str(name) for candidate, name in header["names"].items()}
        chosen = header.get("chosen")  # not in files of before it was kept
        return cls(
            state.word("method"),
            tuple(rounds),
            state.word("criterion"),
            state.word("stop_reason"),
            names,
            None if chosen is None else int(chosen),
        )

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; InputError where pandas is not installed."""
        rows = self.rows()
        return frame_of(rows, list(rows[0])).set_index("round")


def best_round(scores: Sequence[tuple[float, float]], criterion: str) -> int:
    """Number of the best of (error, nll) pairs; the last where all are NaN.

    >>> best_round([(0.5, 1.0), (0.2, 0.9), (0.2, 0.8)], "error"), best_round([(0.5, 0.1), (0.2, 0.9)], "nll")
    (2, 0)
    """
    keys = [score if criterion == "error" else (score[1], score[0]) for score in scores]
    known = [k for k, key in enumerate(keys) if not np.isnan(key[0])]
    if not known:
        return len(scores) - 1
    return min(known, key=lambda k: (keys[k], k))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
