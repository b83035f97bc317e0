"""The search: every candidate through the inner folds, the average of the best few, and the choice.

    for each family, cheap ones first:   for each setting:   for each fold:   train, probabilities of held-out steps
    for each of these probabilities:     every decoding, scored group by group
    then the mean of the probabilities of the best two, three, four families, decoded and scored in the same way

What is decided by is the mean of macro F1 and segment F1 at 50 % overlap, averaged over groups. Held-out
probabilities are kept, so the average costs its decodings and no training (Caruana, Niculescu-Mizil, Crew &
Ksikes 2004, *Ensemble selection from libraries of models*, of which this is the short form: best first, alike
weights). A row's setting and decoding are chosen by the same groups that it is then scored by, so the scores of the
table are somewhat high, alike for all rows; what the choice is worth must be asked of groups that took no part.

The first family chooses how many columns there are, for all. With a budget, a family is first trained on a
sixteenth of the data: what that takes, times sixteen, folds and settings, is what it would cost, and where that is
more than is left, less what refitting takes, the family is not run. The first family always is.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crfield.errors import CrfieldError, CrfieldWarning, InputError
from crfield.estimators.choice.decoding import MARKOV, MEMORY, SETTINGS, STEPS, Setting, log_floored
from crfield.estimators.choice.folds import Fold, GroupFolds, Width
from crfield.estimators.choice.sources import BOOSTING, FAMILIES, GAUSSIAN, LOGISTIC, MOST_ROWS, Source
from crfield.report.comparisons.models import CandidateRow, ModelChoice
from crfield.report.findings import paired_interval

MOST_AVERAGED = 4
PILOT = 16  # one part in so many is tried before a family is run under a budget
FEW_STEPS = 400  # fewer tell nothing about time
FORM_NAMES = {STEPS: "", MARKOV: " + Markov model", MEMORY: " + Markov model, memory"}


@dataclass(frozen=True, eq=False)
class Entry:
    """Held-out probabilities (as logs) of one family in one setting, with its columns."""

    family: str
    setting: Any
    width: Width
    logs: np.ndarray  # (N, L)


@dataclass(frozen=True, eq=False)
class Taken:
    """Some entries and a decoding, with the scores (G, 2) that they have together."""

    name: str
    entries: tuple[Entry, ...]
    decoding: Setting
    marks: np.ndarray
    seconds: float = 0.0

    @property
    def mark(self) -> float:
        """What decides."""
        return float(self.marks.mean())

    def row(self) -> CandidateRow:
        """As the table shows it."""
        macro, segment = (tuple(column.tolist()) for column in self.marks.T)
        told = [f"{self.decoding!r}"]
        if len(self.entries) == 1:
            own = self.entries[0]
            settings = (f"{name} {value:g}" for name, value in own.setting.items() if name not in ("memory", "scale"))
            told = [*settings, *(["trained with memory"] if own.setting.get("memory") else []), *told]
            told += [] if own.width[0] is None else [f"{own.width[0]} columns"]
        return CandidateRow(self.name, ", ".join(told), macro, segment, self.seconds)


@dataclass(eq=False)
class Search:
    """One search on folds; `run` gives the best and the table."""

    folds: GroupFolds
    families: Sequence[str]
    widths: Sequence[Width]
    budget: float | None = None
    average: bool = True
    seed: int = 0
    after: Callable[[int, float], None] = lambda done, best: None
    rows: list[Taken] = field(default_factory=list)
    refused: list[CandidateRow] = field(default_factory=list)
    refit: dict[str, float] = field(default_factory=dict)  # CPU seconds that a family takes on all data, about

    def __post_init__(self) -> None:
        known = sum(int((own >= 0).sum()) for own in self.folds.codes)
        self.thin = max(1, known // MOST_ROWS)
        self.began = time.process_time()

    def run(self) -> tuple[Taken, ModelChoice]:
        """Go through all families, then average the best."""
        widths, failed = list(self.widths), None
        for number, family in enumerate(self.families):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", CrfieldWarning)
                    warnings.simplefilter("ignore", UserWarning)
                    self._family(family, widths, must=number == 0)
            except CrfieldError as error:
                failed = error
                self.refused.append(CandidateRow(family, reason=str(error).split(". ")[0].rstrip(".")))
            if self.rows and len(widths) > 1:
                liked = max(self.rows, key=lambda row: row.mark).entries[0].width
                for width in widths:
                    if width != liked:
                        self.folds.forget(width)
                widths = [liked]
            self.after(number + 1, max((row.mark for row in self.rows), default=0.0))
        if not self.rows:
            assert failed is not None
            raise failed
        best = max(self.rows, key=lambda row: row.mark)  # the first of equals, which is the cheaper one
        mean = self._averaged() if self.average else None
        rows = [row.row() for row in self.rows] + ([] if mean is None else [mean.row()])
        taken = mean if mean is not None and mean.mark > best.mark else best
        names = len(dict.fromkeys(self.folds.groups))
        why = reasons(taken, best, mean, self.rows)
        return taken, ModelChoice((*rows, *self.refused), taken.name, why, names, len(self.folds.folds))

    # ------------------------------------------------------------------------------------------------ one family

    def _family(self, family: str, widths: Sequence[Width], *, must: bool) -> None:
        began = time.process_time()
        if self.budget is not None and not must:
            left = self.budget - (began - self.began) - sum(self.refit.values())
            told = self._predicted(family, widths[0]) if left > 0 else 0.0
            if left <= 0 or told > left:
                words = "budget: nothing is left"
                if left > 0:
                    words = f"budget: it would take about {told:.1f} s, and {left:.1f} s are left"
                self.refused.append(CandidateRow(family, reason=words))
                return
        entries = [entry for width in widths for entry in self._entries(family, width)]
        count = len(self.folds.folds)
        trained = 1 if family == BOOSTING else len(FAMILIES[family].settings)
        once = (time.process_time() - began) / (count * trained * len(widths))
        self.refit[family] = once * count / max(count - 1, 1)
        groups: list[tuple[str, ...]] = [(form,) for form in FORM_NAMES]
        if family == GAUSSIAN:
            groups = groups[1:]
        elif family not in (LOGISTIC, BOOSTING):
            groups = [tuple(FORM_NAMES)]
        found = []
        for forms in groups:
            name = family + (FORM_NAMES[forms[0]] if len(forms) == 1 else "")
            settings = [one for one in SETTINGS if one.form in forms]
            found.append(max((self._best(name, (entry,), settings) for entry in entries), key=lambda row: row.mark))
        seconds = time.process_time() - began
        self.rows += [replace(row, seconds=seconds) for row in found]

    def _entries(self, family: str, width: Width) -> list[Entry]:
        """Held-out probabilities in every setting."""
        settings = FAMILIES[family].settings
        logs = [np.empty((self.folds.n_steps, self.folds.n_labels)) for _ in settings]
        for fold in self.folds.folds:
            rows = self.folds.columns(fold, width)
            asked, first = [rows[k] for k in fold.asked], None
            for setting, table in zip(settings, logs, strict=True):
                if family == BOOSTING and first is not None:
                    source = first.first_rounds(setting)
                else:
                    source = first = self._fitted(family, setting, fold, rows)
                table[fold.steps] = log_floored(source.chances(asked, self.folds.n_labels))
        return [Entry(family, setting, width, table) for setting, table in zip(settings, logs, strict=True)]

    def _fitted(self, family: str, setting: Any, fold: Fold, rows: Sequence[np.ndarray]) -> Source:
        learn = [rows[k] for k in fold.learn], [self.folds.codes[k] for k in fold.learn]
        return Source.fitted(family, setting, *learn, seed=self.seed, thin=self.thin)

    def _predicted(self, family: str, width: Width) -> float:
        """CPU seconds that the folds of a family would take, by a part of the first fold; 0 for little data."""
        fold, settings = self.folds.folds[0], FAMILIES[family].settings
        rows, some, codes = self.folds.columns(fold, width), [], []
        for place, k in enumerate(fold.learn):
            size = -(-len(rows[k]) // PILOT)
            first = int((len(rows[k]) - size) * place / max(len(fold.learn) - 1, 1))
            some.append(rows[k][first : first + size])
            codes.append(self.folds.codes[k][first : first + size])
        n, steps = sum(map(len, codes)), sum(len(rows[k]) for k in fold.learn)
        if n < FEW_STEPS:
            return 0.0
        began = time.process_time()
        thin = max(1, self.thin // PILOT) if family in (LOGISTIC, BOOSTING) else 1
        Source.fitted(family, settings[0], some, codes, seed=self.seed, thin=thin)
        taken = time.process_time() - began
        rate = steps / n
        if family in (LOGISTIC, BOOSTING):
            rate *= thin / self.thin
        trained = 1 if family == BOOSTING else len(settings)
        return taken * rate * trained * (len(self.folds.folds) + 1)

    # ------------------------------------------------------------------------------------------------ decodings

    def _best(self, name: str, entries: tuple[Entry, ...], settings: Sequence[Setting]) -> Taken:
        logs = entries[0].logs
        if len(entries) > 1:
            logs = log_floored(np.mean([np.exp(entry.logs) for entry in entries], axis=0))
        tried = [Taken(name, entries, one, self.folds.marks(self.folds.decoded(logs, one))) for one in settings]
        return max(tried, key=lambda row: row.mark)

    def _averaged(self) -> Taken | None:
        """The best mean of the best two, three, … families; None where there are not two."""
        began = time.process_time()
        order = sorted(self.rows, key=lambda row: -row.mark)
        pool: dict[str, Entry] = {}
        for row in order:
            pool.setdefault(row.entries[0].family, row.entries[0])
        some = list(pool.values())[:MOST_AVERAGED]
        if len(some) < 2:
            return None
        found = []
        for count in range(2, len(some) + 1):
            name = "average of " + ", ".join(entry.family for entry in some[:count])
            found.append(self._best(name, tuple(some[:count]), SETTINGS))
        best = max(found, key=lambda row: row.mark)
        return replace(best, seconds=time.process_time() - began)


def reasons(taken: Taken, best: Taken, mean: Taken | None, rows: Sequence[Taken]) -> tuple[str, ...]:
    """Why one was taken, in sentences."""

    def gap(one: Taken, other: Taken) -> str:
        found = paired_interval(one.marks.mean(axis=1), other.marks.mean(axis=1))
        return f"{found.mean:+.3f}, 95 % interval {found.low:+.3f} … {found.high:+.3f}"

    told = []
    if mean is None:
        told.append(f"{best.name!r} has the highest mean of both scores in the held-out groups, {best.mark:.3f}.")
    elif taken is mean:
        told.append(
            f"it is better in the held-out groups than the best single one, {best.name!r}: {gap(mean, best)}."
        )
    else:
        told.append(
            f"no average is better in the held-out groups than {best.name!r}: {mean.name!r} has {gap(mean, best)}."
        )
    others = sorted((row for row in rows if row is not best), key=lambda row: -row.mark)
    if others:
        told.append(f"the next single one is {others[0].name!r}: {gap(others[0], best)}.")
    return tuple(told)


def families_named(name: str, value: Any) -> None:
    """InputError unless it is "all", or some families, none of them twice.

    >>> families_named("candidates", ["bosting"])
    Traceback (most recent call last):
    crfield.errors.InputError: candidates must be 'all' or some of 'logistic regression', ..., got 'bosting'.
    """
    if isinstance(value, str) and value == "all":
        return
    words = f"{name} must be 'all' or some of {', '.join(map(repr, FAMILIES))}"
    if isinstance(value, str) or not hasattr(value, "__iter__") or not list(value):
        raise InputError(f"{words}, got {value!r:.60}.")
    listed = list(value)
    for one in listed:
        if one not in FAMILIES:
            raise InputError(f"{words}, got {one!r:.60}.")
    if len(set(listed)) < len(listed):
        raise InputError(f"{name} names a family twice: {listed}.")
