"""What scikit-learn's base classes offer, for type checkers.

scikit-learn carries no types. A class derived from an unknown one may have any attribute, so that a checker would
accept ``model.fitt()``: checkers are therefore shown these classes. Nothing of them runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np

    class TargetTags:
        """What y is."""

        required: bool
        multi_output: bool
        single_output: bool

    class InputTags:
        """What X is."""

        two_d_array: bool
        three_d_array: bool
        sparse: bool
        allow_nan: bool

    class Tags:
        """What an estimator tells scikit-learn of itself."""

        estimator_type: str | None
        target_tags: TargetTags
        input_tags: InputTags
        classifier_tags: Any
        regressor_tags: Any
        transformer_tags: Any
        non_deterministic: bool
        requires_fit: bool
        no_validation: bool

    class BaseEstimator:
        """What scikit-learn's class of this name offers."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def set_fit_request(self, **requested: bool | str | None) -> Self: ...
        def set_partial_fit_request(self, **requested: bool | str | None) -> Self: ...
        def set_predict_request(self, **requested: bool | str | None) -> Self: ...
        def set_predict_proba_request(self, **requested: bool | str | None) -> Self: ...
        def set_predict_log_proba_request(self, **requested: bool | str | None) -> Self: ...
        def set_decision_function_request(self, **requested: bool | str | None) -> Self: ...
        def set_score_request(self, **requested: bool | str | None) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def __sklearn_tags__(self) -> Tags: ...
        def __sklearn_clone__(self) -> Self: ...
        def __getstate__(self) -> Any: ...
        def __setstate__(self, state: Any) -> None: ...

    class ClassifierMixin:
        """A classifier of rows."""

        n_features_in_: int
        feature_names_in_: np.ndarray

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Tags: ...

    class RegressorMixin:
        """A regression."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Tags: ...

    class TransformerMixin:
        """A transformer."""

        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...
        def __sklearn_tags__(self) -> Tags: ...

    class NotFitted(ValueError, AttributeError):
        """A model was asked before ``fit``."""
