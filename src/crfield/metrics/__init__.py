"""How good predicted labels are: token, sequence, span and segment scores, tag schemes, scikit-learn scorers.

Everything takes sequences of label sequences (lists, tuples or arrays of any hashables) and needs NumPy
alone. Names are fetched when first used: a chain asks for tag schemes at once, for scores seldom.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crfield.metrics.partial_spans import PartialSpanReport as PartialSpanReport
    from crfield.metrics.partial_spans import partial_span_report as partial_span_report
    from crfield.metrics.schemes import Violation as Violation
    from crfield.metrics.schemes import check_scheme as check_scheme
    from crfield.metrics.schemes import convert as convert
    from crfield.metrics.schemes import convert_sequences as convert_sequences
    from crfield.metrics.schemes import guess_scheme as guess_scheme
    from crfield.metrics.schemes import spans as spans
    from crfield.metrics.schemes import tags_from_spans as tags_from_spans
    from crfield.metrics.scorers import SequenceScorer as SequenceScorer
    from crfield.metrics.scorers import edit_scorer as edit_scorer
    from crfield.metrics.scorers import label_f1_scorer as label_f1_scorer
    from crfield.metrics.scorers import segment_f1_scorer as segment_f1_scorer
    from crfield.metrics.scorers import sequence_accuracy_scorer as sequence_accuracy_scorer
    from crfield.metrics.scorers import span_f1_scorer as span_f1_scorer
    from crfield.metrics.scorers import token_accuracy_scorer as token_accuracy_scorer
    from crfield.metrics.scores import Scores as Scores
    from crfield.metrics.segment_scores import SegmentReport as SegmentReport
    from crfield.metrics.segment_scores import edit_score as edit_score
    from crfield.metrics.segment_scores import segment_f1 as segment_f1
    from crfield.metrics.segment_scores import segment_report as segment_report
    from crfield.metrics.segment_scores import segments as segments
    from crfield.metrics.sequences import sequence_accuracy as sequence_accuracy
    from crfield.metrics.span_scores import SpanReport as SpanReport
    from crfield.metrics.span_scores import span_f1 as span_f1
    from crfield.metrics.span_scores import span_report as span_report
    from crfield.metrics.tokens import Confusion as Confusion
    from crfield.metrics.tokens import LabelReport as LabelReport
    from crfield.metrics.tokens import confusion as confusion
    from crfield.metrics.tokens import label_f1 as label_f1
    from crfield.metrics.tokens import label_report as label_report
    from crfield.metrics.tokens import token_accuracy as token_accuracy
else:
    _HOME = {
        "Confusion": "crfield.metrics.tokens",
        "LabelReport": "crfield.metrics.tokens",
        "PartialSpanReport": "crfield.metrics.partial_spans",
        "Scores": "crfield.metrics.scores",
        "SegmentReport": "crfield.metrics.segment_scores",
        "SequenceScorer": "crfield.metrics.scorers",
        "SpanReport": "crfield.metrics.span_scores",
        "Violation": "crfield.metrics.schemes",
        "check_scheme": "crfield.metrics.schemes",
        "confusion": "crfield.metrics.tokens",
        "convert": "crfield.metrics.schemes",
        "convert_sequences": "crfield.metrics.schemes",
        "edit_score": "crfield.metrics.segment_scores",
        "edit_scorer": "crfield.metrics.scorers",
        "guess_scheme": "crfield.metrics.schemes",
        "label_f1": "crfield.metrics.tokens",
        "label_f1_scorer": "crfield.metrics.scorers",
        "label_report": "crfield.metrics.tokens",
        "partial_span_report": "crfield.metrics.partial_spans",
        "segment_f1": "crfield.metrics.segment_scores",
        "segment_f1_scorer": "crfield.metrics.scorers",
        "segment_report": "crfield.metrics.segment_scores",
        "segments": "crfield.metrics.segment_scores",
        "sequence_accuracy": "crfield.metrics.sequences",
        "sequence_accuracy_scorer": "crfield.metrics.scorers",
        "span_f1": "crfield.metrics.span_scores",
        "span_f1_scorer": "crfield.metrics.scorers",
        "span_report": "crfield.metrics.span_scores",
        "spans": "crfield.metrics.schemes",
        "tags_from_spans": "crfield.metrics.schemes",
        "token_accuracy": "crfield.metrics.tokens",
        "token_accuracy_scorer": "crfield.metrics.scorers",
    }

    __all__ = list(_HOME)

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'crfield.metrics' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted(set(globals()) | set(_HOME))
