"""`StumpSelector`: the few questions about the columns that boosting finds worth asking.

Where `StumpEncoder` asks one question about every column, this runs LogitBoost on the rows as if they were
independent, and keeps the stumps that its rounds picked, each once, in the order of their first round. A field
trained on their answers by likelihood gets weights that know about neighbours, which those of the rounds do not.
"""

from __future__ import annotations

import numpy as np

from crfield.boosting.logit_rounds import Rows, Stumps, boost_rounds
from crfield.boosting.virtual_evidence.evidence import Evidence
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.stump_columns import LabelledTable, Question
from crfield.boosting.weak_learners.stumps import Stump
from crfield.core.checks import integer, resolve_jobs
from crfield.core.parameters import parameter
from crfield.estimators.boosted.logit_boost import LogitRounds
from crfield.estimators.selected.stump_encoder import StumpTransformer


class StumpSelector(LogitRounds, StumpTransformer, kind="stump_selector"):
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

    n_rounds: int = parameter(integer(1), default=50)

    def _choose(self, table: LabelledTable) -> tuple[list[Question], np.ndarray]:
        jobs = resolve_jobs(self.n_jobs)
        rows = Rows(table.rows, Evidence(None, len(table.codes)), table.codes.astype(np.int32))
        cut = Candidates.of(table.rows, max_bins=self.max_bins, n_jobs=jobs)
        model, _ = boost_rounds(
            rows,
            cut,
            Stumps(self.ridge, jobs),
            table.n_classes,
            n_jobs=jobs,
            **self._round_options(table.n_classes),
        )
        gains: dict[Question, float] = {}
        for step in model.steps:
            if isinstance(step, Stump):
                # Where nothing was missing, the side of missing values says nothing and no is the answer.
                gaps = bool(cut.missing[step.column]) and np.isfinite(step.threshold)
                asked = Question(step.column, step.threshold, bool(gaps and step.missing))
                gains[asked] = gains.get(asked, 0.0) + step.gain
        return list(gains), np.array(list(gains.values()))
