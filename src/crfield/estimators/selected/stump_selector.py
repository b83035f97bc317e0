"""`StumpSelector`: the few questions about the columns that boosting finds worth asking.

Where `StumpEncoder` asks one question about every column, this runs LogitBoost on the rows as if they were
independent, and keeps the stumps that its rounds picked, each once, in the order of their first round. A field
trained on their answers by likelihood gets weights that know about neighbours, which those of the rounds do not.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from crfield.boosting.logit_rounds import Rows, Stumps, boost_rounds
from crfield.boosting.virtual_evidence.evidence import Evidence
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.stumps import Stump
from crfield.core.checks import resolve_jobs
from crfield.core.estimator import Estimator
from crfield.errors import InputError
from crfield.estimators.selected.stump_columns import Question, StumpColumns


class StumpSelector(StumpColumns, Estimator):
    """Columns of 0 and 1 for the stumps that boosting picks.

    Parameters
    ----------
    n_rounds : int
        Rounds of LogitBoost; as many stumps at most.
    learning_rate, response_limit, ridge, max_bins, start
        As in `LogitBoost`.
    n_jobs : int, optional
        Threads.

    Attributes
    ----------
    questions_ : list of Question, or a dict of lists by kind of nodes
        Column and threshold of every stump, in the order of their first round.
    gains_ : array, or a dict of arrays
        The gains of all rounds that picked it.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import StumpSelector
    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(0, 2, 30) for _ in range(6)]
    >>> X = [np.stack([rng.normal(size=30), 3.0 * labels + rng.normal(size=30)], axis=1) for labels in y]
    >>> StumpSelector(n_rounds=2).fit(X, y).get_feature_names_out().tolist()
    ['x[1] > 1.4526', 'x[1] > 1.0926']
    """

    file_kind = "stump_selector"

    def __init__(
        self,
        *,
        n_rounds: int = 50,
        learning_rate: float = 1.0,
        response_limit: float = 4.0,
        ridge: float = 0.0,
        max_bins: int = 32,
        start: str = "prior",
        n_jobs: int | None = None,
    ) -> None:
        self.n_rounds = n_rounds
        self.learning_rate = learning_rate
        self.response_limit = response_limit
        self.ridge = ridge
        self.max_bins = max_bins
        self.start = start
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Boost, and keep the stumps; see `StumpColumns.fit`."""
        if isinstance(self.n_rounds, bool) or not isinstance(self.n_rounds, int | np.integer) or self.n_rounds < 1:
            raise InputError(f"n_rounds must be a whole number of at least 1, got {self.n_rounds!r}.")
        return super().fit(X, y)

    def _choose(self, table: Any, codes: np.ndarray, n_classes: int) -> tuple[list[Question], np.ndarray]:
        jobs = resolve_jobs(self.n_jobs)
        cut = Candidates.of(table, max_bins=self.max_bins, n_jobs=jobs)
        model, _ = boost_rounds(
            Rows(table, Evidence(None, len(codes)), codes.astype(np.int32)),
            cut,
            Stumps(self.ridge, jobs),
            n_classes,
            n_rounds=int(self.n_rounds) if n_classes > 1 else 0,
            learning_rate=self.learning_rate,
            limit=self.response_limit,
            ridge=self.ridge,
            start=self.start,
            n_jobs=jobs,
        )
        gains: dict[Question, float] = {}
        for step in model.steps:
            if isinstance(step, Stump):
                asked = Question(step.column, step.threshold)
                gains[asked] = gains.get(asked, 0.0) + step.gain
        return list(gains), np.array(list(gains.values()))

    def save(self, path: Any) -> None:
        """Write the selector to one file, atomically; `crfield.load` reads it."""
        from crfield.estimators.boosted.boost_file import save_encoder

        save_encoder(self, path)
