"""What every fitted model shows of itself: a report on labelled data, and a table for notebooks.

scikit-learn draws an estimator in a notebook with its parameters. Below that comes what ``fit`` has found: labels,
columns, the objective and whether training converged, as a plain table that needs neither styles nor scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from crfield.report.page.model_report import ModelReport

_MARK = "crfield-fitted"
_LABELS = 20


class Reported:
    """For estimators: ``report``, and what notebooks show."""

    def report(
        self,
        X: Any,
        y: Any,
        *,
        n_shown: int = 48,
        n_best: int = 5,
        explained: int = 1200,
        title: str | None = None,
        names: Sequence[str] | None = None,
        show: Callable[[Any, int], str] | None = None,
        feature_names: Sequence[str] | None = None,
        signals: Sequence[np.ndarray] | None = None,
        signal_names: Sequence[str] | None = None,
        seconds: float | None = None,
    ) -> ModelReport:
        """Judge the model on labelled data: a value that prints, ``.save("report.html")``, ``.to_markdown()``.

        At most ``n_shown`` sequences (images, graphs, rows) are taken apart, drawn by kind of error, with their
        ``n_best`` labellings and reasons for up to ``explained`` steps. ``names`` are names of the sequences,
        ``title`` is that of the page, ``show(x, t)`` the text of a step, ``feature_names`` are names of the columns
        where X holds arrays. For sensors ``signals`` are arrays (samples, channels) to draw instead of X, one for
        each sequence and of any rate (for images pictures of their size), ``signal_names`` those of the channels,
        and ``seconds`` the time between two steps.

        >>> from crfield import ChainCRF
        >>> X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=dog"]]]
        >>> model = ChainCRF(l2=0.1).fit(X, [["D", "N", "V"], ["D", "N"]])
        >>> report = model.report(X, [["D", "N", "V"], ["D", "V"]])
        >>> print(str(report).splitlines()[1])
        4 of 5 steps right, 0.800; 1 of 2 sequences without an error
        >>> report.groups[0].gold, report.groups[0].predicted
        ('V', 'N')
        """
        from crfield.estimators.reporting.model_report import model_report

        return model_report(
            self,
            X,
            y,
            n_shown=n_shown,
            n_best=n_best,
            explained=explained,
            title=title,
            names=names,
            show=show,
            feature_names=feature_names,
            signals=signals,
            signal_names=signal_names,
            seconds=seconds,
        )

    # ------------------------------------------------------------------------------------------- notebooks

    @property
    def _repr_html_(self) -> Any:
        drawn = super()._repr_html_  # type: ignore[misc]  # AttributeError where scikit-learn is to show text
        return lambda: with_facts(self, drawn())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = with_facts(self, bundle["text/html"])
        return bundle


def with_facts(model: object, drawn: str) -> str:
    """What scikit-learn has drawn, and below it what a fitted model has found; once, however often it is asked."""
    if _MARK in drawn or not _is_fitted(model):
        return drawn
    from crfield.estimators.base.facts import answering, labels_of, model_lines
    from crfield.metrics.notebook import Table

    rows, model = [], answering(model)
    for of, labels in labels_of(model).items():
        more = f", … ({len(labels)} in all)" if len(labels) > _LABELS else ""
        rows.append([f"labels {of}".strip(), ", ".join(map(str, labels[:_LABELS])) + more])
    rows += [[name, text] for name, text in model_lines(model).items() if name != "labels"]
    table = Table(["fitted", ""], rows, left=2).html()
    return f'{drawn}\n<div class="{_MARK}">{table}</div>'


def _is_fitted(model: object) -> bool:
    asked = getattr(model, "__sklearn_is_fitted__", None)
    return bool(asked()) if asked is not None else hasattr(model, "classes_")
