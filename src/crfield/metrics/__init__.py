"""How good predicted labels are: token, sequence, span and segment scores, tag schemes, scikit-learn scorers.

Everything takes sequences of label sequences (lists, tuples or arrays of any hashables) and needs NumPy
alone.
"""

from crfield.metrics.schemes import (
    Violation,
    check_scheme,
    convert,
    convert_sequences,
    guess_scheme,
    spans,
    tags_from_spans,
)
from crfield.metrics.scorers import (
    SequenceScorer,
    edit_scorer,
    label_f1_scorer,
    segment_f1_scorer,
    sequence_accuracy_scorer,
    span_f1_scorer,
    token_accuracy_scorer,
)
from crfield.metrics.scores import Scores
from crfield.metrics.segments import SegmentReport, edit_score, segment_f1, segment_report, segments
from crfield.metrics.sequences import sequence_accuracy
from crfield.metrics.span_scores import SpanReport, span_f1, span_report
from crfield.metrics.tokens import Confusion, LabelReport, confusion, label_f1, label_report, token_accuracy

__all__ = [
    "Confusion",
    "LabelReport",
    "Scores",
    "SegmentReport",
    "SequenceScorer",
    "SpanReport",
    "Violation",
    "check_scheme",
    "confusion",
    "convert",
    "convert_sequences",
    "edit_score",
    "edit_scorer",
    "guess_scheme",
    "label_f1",
    "label_f1_scorer",
    "label_report",
    "segment_f1",
    "segment_f1_scorer",
    "segment_report",
    "segments",
    "sequence_accuracy",
    "sequence_accuracy_scorer",
    "span_f1",
    "span_f1_scorer",
    "span_report",
    "spans",
    "tags_from_spans",
    "token_accuracy",
    "token_accuracy_scorer",
]
