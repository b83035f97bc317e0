"""`LogitBoost` among the tools of scikit-learn."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from crfield import LogitBoost


@parametrize_with_checks([LogitBoost(n_rounds=10), LogitBoost(n_rounds=5, learner="tree")])
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
