"""`Streaming`: what makes an estimator of chains stream and be exported.

It is part of every such estimator, and what it hands out is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.export import MAX_LAG

if TYPE_CHECKING:
    from crfield.estimators.export.step_scores import StepScorer
    from crfield.estimators.export.stream import Features, LabelStream, LabelStreams


class Streaming:
    """``stream``, ``streams`` and ``export`` for estimators of chains; they give `_step_scorer` and ``_coder``."""

    _coder: Any

    def _stream_labels(self) -> LabelCoder:
        """The labels that a stream answers with."""
        coder: LabelCoder = self._coder
        return coder

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        """Scores of single steps of a fitted model; InputError where it cannot have any."""
        raise InputError(
            f"{type(self).__name__} cannot stream: its scores look at whole sequences. Use predict, or a ChainCRF."
        )

    def stream(
        self,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
        features: Features | None = None,
        history: int | None = None,
    ) -> LabelStream:
        """A `LabelStream`: push one observation at a time, get the distribution of its label.

        ``lag`` also gives that of the step so long ago; ``viterbi`` commits labels once nothing can change them, at
        the latest after ``max_lag`` steps. ``features`` is a feature stream that turns what is pushed into columns.
        ``history`` is for models of feature functions: how many steps back they look.
        """
        from crfield.estimators.export.stream import LabelStream

        scorer = self._step_scorer(history=history)
        return LabelStream(
            scorer, self._stream_labels(), lag=lag, viterbi=viterbi, max_lag=max_lag, features=features
        )

    def streams(
        self,
        n_streams: int,
        *,
        lag: int = 0,
        viterbi: bool = False,
        max_lag: int = MAX_LAG,
        history: int | None = None,
    ) -> LabelStreams:
        """`LabelStreams`: many streams advanced by one call; options as in `stream`."""
        from crfield.estimators.export.stream import LabelStreams

        scorer = self._step_scorer(history=history)
        return LabelStreams(scorer, self._stream_labels(), n_streams, lag=lag, viterbi=viterbi, max_lag=max_lag)

    def _exported_parts(self, features: Any) -> tuple[StepScorer, Any]:
        """Scores of single steps, and the features to write before them; None where a step is its columns."""
        return self._step_scorer(), None if features is False else features

    def export(self, path: Any, *, name: str | None = None, max_lag: int = MAX_LAG, features: Any = None) -> None:
        """Write the model as one file without dependencies: ``.h`` is a C99 header, ``.py`` a Python module.

        Both take the raw columns of a step and answer like `stream`. Names in the header begin with ``name``, by
        default that of the file. With ``features`` the file takes raw observations and computes the columns itself:
        a feature stream as for `stream`, or fitted `SensorFeatures`. None means the features that the model was
        trained with, where it knows them; False a file of columns all the same.
        """
        from crfield.estimators.export.export import export_model

        scorer, features = self._exported_parts(features)
        export_model(scorer, self._stream_labels().labels, path, name=name, max_lag=max_lag, features=features)
