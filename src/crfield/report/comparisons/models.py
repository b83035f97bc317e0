"""What a search among models found: a row for each candidate, which one was taken, and why.

Scores are of groups (people, trials, places) that a candidate was not trained on, and their intervals are over
groups, which are what is independent. A candidate that was not run has its reason in the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crfield.errors import InputError, ModelFileError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.findings import Interval, aligned, cell_text, mean_interval

SCORES = ("macro F1", "segment F1@50")
_HEAD = ("model", *SCORES, "both", "CPU s", "setting")


@dataclass(frozen=True)
class CandidateRow:
    """One candidate: its scores of every group in the order of the groups; ``reason`` where it was not run.

    >>> row = CandidateRow("boosting", "rounds 50", (0.5, 0.7), (0.4, 0.6), 1.5)
    >>> row.both, row.macro
    (.550 ± 1.271, .600 ± 1.271)
    """

    name: str
    setting: str = ""
    macro_of_groups: tuple[float, ...] = ()
    segment_of_groups: tuple[float, ...] = ()
    seconds: float = 0.0  # of the processor, for all settings in all folds
    reason: str = ""

    @property
    def ran(self) -> bool:
        """Whether it was run at all."""
        return not self.reason

    @property
    def macro(self) -> Interval:
        """Mean F1 of labels over steps, with its interval over groups."""
        return mean_interval(self.macro_of_groups)

    @property
    def segment(self) -> Interval:
        """F1 of segments at 50 % overlap, with its interval over groups."""
        return mean_interval(self.segment_of_groups)

    @property
    def both(self) -> Interval:
        """The mean of the two, which decides."""
        return mean_interval(self.marks)

    @property
    def marks(self) -> list[float]:
        """The mean of the two scores of every group."""
        return [(a + b) / 2 for a, b in zip(self.macro_of_groups, self.segment_of_groups, strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class ModelChoice(ShownAsTables):
    """All candidates, the one that was taken, and why in sentences.

    >>> rows = (CandidateRow("steps", "", (0.5, 0.5), (0.1, 0.3), 0.1), CandidateRow("trees", reason="budget"))
    >>> choice = ModelChoice(rows, "steps", ("it is the only one.",), 2, 2)
    >>> print(choice)
    2 groups in 2 folds; ± is half of a 95 % interval over groups; both is the mean that decides
    <BLANKLINE>
    model      macro F1  segment F1@50         both  CPU s  setting
    steps   .500 ± .000   .200 ± 1.271  .350 ± .635    0.1
    <BLANKLINE>
    not run
      trees: budget
    <BLANKLINE>
    chosen: steps
    it is the only one.
    >>> choice.best.name
    'steps'
    """

    rows: tuple[CandidateRow, ...]
    chosen: str
    why: tuple[str, ...]
    n_groups: int
    n_folds: int

    def __getitem__(self, name: str) -> CandidateRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"there is no candidate {name!r}; there are {', '.join(row.name for row in self.rows)}.")

    @property
    def best(self) -> CandidateRow:
        """The row that was chosen."""
        return self[self.chosen]

    def _cells(self) -> list[list[str]]:
        shown = [row for row in self.rows if row.ran]
        return [
            [row.name, *map(cell_text, (row.macro, row.segment, row.both)), f"{row.seconds:.1f}", row.setting]
            for row in shown
        ]

    def table(self) -> str:
        """The candidates that ran, aligned."""
        return aligned([list(_HEAD), *self._cells()])

    @property
    def not_run(self) -> dict[str, str]:
        """Why candidates were not run, by name."""
        return {row.name: row.reason for row in self.rows if not row.ran}

    def _headline(self) -> str:
        return (
            f"{self.n_groups} groups in {self.n_folds} folds; ± is half of a 95 % interval over groups; both is the "
            "mean that decides"
        )

    def _tables(self) -> list[Table]:
        return [Table(_HEAD, self._cells(), title=self._headline(), note=" ".join(self.why))]

    def __str__(self) -> str:
        parts = [self._headline(), self.table()]
        if self.not_run:
            parts.append("not run\n" + "\n".join(f"  {name}: {reason}" for name, reason in self.not_run.items()))
        return "\n\n".join([*parts, "\n".join([f"chosen: {self.chosen}", *self.why])])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        rows = [
            {
                "name": row.name,
                "setting": row.setting,
                "macro F1": list(row.macro_of_groups),
                "segment F1@50": list(row.segment_of_groups),
                "seconds": row.seconds,
                "reason": row.reason,
            }
            for row in self.rows
        ]
        return {
            "chosen": self.chosen,
            "why": list(self.why),
            "groups": self.n_groups,
            "folds": self.n_folds,
            "rows": rows,
        }

    @classmethod
    def from_dict(cls, value: Any) -> ModelChoice:
        """The choice whose `to_dict` this is; ModelFileError for anything else.

        >>> choice = ModelChoice((CandidateRow("a", "", (0.5,), (0.25,)),), "a", (), 1, 2)
        >>> ModelChoice.from_dict(choice.to_dict()).best.both
        .375
        """
        try:
            rows = tuple([_row(row) for row in value["rows"]])
            made = cls(rows, value["chosen"], tuple(value["why"]), int(value["groups"]), int(value["folds"]))
            if not made.best.ran or not all(isinstance(line, str) for line in made.why):
                raise ValueError("nothing was chosen")
            str(made)
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise ModelFileError(f"the model file's table of candidates cannot be read: {error}") from None
        return made


def _row(value: Mapping[str, Any]) -> CandidateRow:
    texts = [value[name] for name in ("name", "setting", "reason")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("names must be text")
    scores = [tuple([float(score) for score in value[name]]) for name in SCORES]
    return CandidateRow(texts[0], texts[1], scores[0], scores[1], float(value["seconds"]), texts[2])
