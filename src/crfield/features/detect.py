"""Which encoder suits the data: a look at the first items of X, and helpful words when none does.

The user hands X to ``fit`` and says nothing about its kind. Token columns (or a template) mean templates,
dicts and lists of strings records, arrays and sparse matrices matrices; feature functions mean themselves.
Only the first non-empty items are looked at: the encoder checks the rest as it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crfield.data.attributes import AttributeSequences
from crfield.data.clocks.readings import Readings
from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, InputError, ModelFileError
from crfield.features.encoder import Encoder
from crfield.features.functions import FunctionEncoder
from crfield.features.matrices import MatrixEncoder, is_sparse
from crfield.features.records import RecordEncoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.transformed import TransformedEncoder

__all__ = ["encoder_for", "encoder_from_state"]

KINDS: dict[str, Any] = {
    encoder.kind: encoder
    for encoder in (RecordEncoder, MatrixEncoder, FunctionEncoder, TemplateEncoder, TransformedEncoder)
}

SHAPES = (
    "X is a list of sequences; each is a list with one dict or one list of feature strings per step, a 2-D "
    "array (steps, features), or a scipy CSR matrix."
)


def encoder_for(
    X: Any,
    *,
    template: Any = None,
    functions: Iterable[Any] | None = None,
    transition_features: str | Sequence[Any] | None = None,
    transition_functions: Iterable[Any] = (),
    standardize: bool = False,
    features: Any = None,
    missing: bool | str = False,
) -> Encoder:
    """An unfitted encoder for data like X; ``features`` is a transformer that X passes through first.

    With ``missing`` NaN in matrices is a missing value, for models that can do without one; "dense": in dense arrays.

    >>> import numpy as np
    >>> encoder_for([[{"word": "dog"}]]).kind, encoder_for([np.zeros((3, 2))]).kind
    ('records', 'matrix')
    >>> encoder_for([{"word": "dog"}, {"word": "cat"}])
    Traceback (most recent call last):
    crfield.errors.FeatureError: X looks like one sequence of 2 dicts, expected a list of sequences. Write
    [X]. ...
    """
    transition_functions = list(transition_functions)
    if functions is None and transition_functions:
        raise InputError("transition_functions need functions beside them, got None. Pass functions=[f, …].")
    if features is not None:
        _refuse_both(template is not None or functions is not None, "features", "a template or functions")
        return TransformedEncoder(
            features,
            lambda given: encoder_for(given, transition_features=transition_features, standardize=standardize),
        )
    if functions is not None:
        _refuse_both(template is not None, "functions", "a template")
        _refuse_both(transition_features is not None, "functions", "transition_features (use transition_functions)")
        return FunctionEncoder(functions, transition_functions=transition_functions, standardize=standardize)
    if template is not None:
        _refuse_both(transition_features is not None, "a template", "transition_features (use B lines in it)")
        return TemplateEncoder(template)
    if isinstance(X, TokenColumns):
        raise InputError(
            "X holds token columns, but no template says which features to make of them. Pass template=…, "
            "the text of a CRF++ template such as 'U00:%x[0,0]\\nU01:%x[-1,0]\\nB'."
        )
    if isinstance(X, AttributeSequences) or _looks_like_records(X):
        return RecordEncoder(transition_features=transition_features, standardize=standardize)
    return MatrixEncoder(transition_features=transition_features, standardize=standardize, missing=missing)


def encoder_from_state(
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    functions: Iterable[Any] | None = None,
    transition_functions: Iterable[Any] = (),
    missing: bool | str = False,
) -> Encoder:
    """The encoder that a model file stores; feature functions are code and must be given again.

    ``missing`` as in `encoder_for`, for models whose older files do not say that they bear missing values.

    >>> encoder = encoder_for([[["a"]]])
    >>> _ = encoder.fit([[["a"], ["b"]]])
    >>> encoder_from_state(*encoder.state()).node_name(1)
    'b'
    """
    kind = header.get("kind") if isinstance(header, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ModelFileError(
            f"the model file holds an encoder of kind {kind!r}; this version knows {sorted(KINDS)}. Was it "
            "written by a newer version of crfield?"
        )
    encoder: Encoder = KINDS[kind].from_state(header, arrays)
    if functions is not None:
        if not isinstance(encoder, FunctionEncoder):
            raise InputError(f"functions were given, but the model was trained on data of kind {kind!r}.")
        encoder.attach(functions, transition_functions=transition_functions)
    if missing and isinstance(encoder, MatrixEncoder):
        encoder.missing = missing
    return encoder


def _refuse_both(wrong: bool, one: str, other: str) -> None:
    if wrong:
        raise InputError(f"{one} and {other} cannot be used together. Leave one of them out.")


def _looks_like_records(X: Any) -> bool:
    """True for records, False for matrices; an error that says what is wrong for anything else."""
    if isinstance(X, str | bytes):
        raise FeatureError(
            f"X is a {type(X).__name__} ({X[:30]!r}…), expected data. {SHAPES} Files are read by crfield's "
            "readers, not by fit."
        )
    if not isinstance(X, list | tuple):
        if is_sparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "biufc"):
            return False  # the encoder of matrices has the better words for a single one
        if _is_frame(X):
            raise FeatureError(
                f"X is a {type(X).__name__}, expected a list of sequences. Write X, y = crfield.from_frame(frame, "
                "sequence=…, label=…) with the column that tells sequences apart."
            )
        if isinstance(X, Mapping | set | frozenset) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
            raise FeatureError(f"X is of type {type(X).__name__}, expected a list of sequences. {SHAPES}")
    if not len(X):
        raise FeatureError(f"X is empty, so there is nothing to learn from. {SHAPES}")
    kinds: dict[str, int] = {}
    for number, sequence in enumerate(X):
        kind = _kind_of_sequence(X, sequence, number)
        if kind:
            kinds.setdefault(kind, number)
        if len(kinds) > 1:
            (one, first), (other, second) = kinds.items()
            raise FeatureError(
                f"X mixes kinds: sequence {first} holds {one}, sequence {second} {other}. Give all in one "
                "form; words and numbers go together in dicts, "
                "{'word': 'dog', 'speed': 2.5, 'vector': array}."
            )
        if number >= 100 and kinds:
            break
    if not kinds:
        raise FeatureError(
            f"X holds {len(X)} sequences, all of them empty, so there is nothing to learn from. {SHAPES}"
        )
    return "records" in kinds


def _is_frame(thing: Any) -> bool:
    """Whether it is a frame of pandas or polars, of which neither is imported."""
    return hasattr(thing, "columns") and hasattr(thing, "dtypes") and hasattr(thing, "__getitem__")


def _kind_of_sequence(X: Any, sequence: Any, number: int) -> str:
    """'records', 'matrices', or '' for an empty sequence."""
    if isinstance(sequence, Mapping):
        raise FeatureError(
            f"X looks like one sequence of {len(X)} dicts, expected a list of sequences. Write [X]. {SHAPES}"
        )
    if isinstance(sequence, str | bytes):
        raise FeatureError(
            f"X looks like a list of {type(sequence).__name__} ({sequence[:30]!r}, …), expected a list of "
            f"sequences with features on every step. {SHAPES}"
        )
    if isinstance(sequence, Readings):
        raise FeatureError(
            f"sequence {number} is a Readings, of which columns are still to be made: features=ReadingFeatures(), or "
            "a crfield.Pipeline that begins with one."
        )
    if not isinstance(sequence, list | tuple):
        if is_sparse(sequence) or (isinstance(sequence, np.ndarray) and sequence.dtype.kind in "biufc"):
            return "matrices"
        if _is_frame(sequence):
            raise FeatureError(
                f"sequence {number} is a {type(sequence).__name__}, expected a list of steps or a matrix. Write "
                "X, y = crfield.from_frame(frames, label=…), which makes them of a list of frames with one sequence "
                "each."
            )
        if not hasattr(sequence, "__len__") or not hasattr(sequence, "__getitem__"):
            raise FeatureError(
                f"sequence {number} is {sequence!r:.40} of type {type(sequence).__name__}, expected a list of "
                f"steps or a matrix. {SHAPES}"
            )
    if not len(sequence):
        return ""
    step = next(iter(sequence))
    if isinstance(step, Mapping | set | frozenset):
        return "records"
    if isinstance(step, str):
        raise FeatureError(
            f"sequence {number}, step 0 is the str {step[:30]!r}, expected a dict or a list of feature "
            "strings. If these are words, make features of them: features=TextFeatures(), [{'word': w} for w in "
            "sequence], functions or a template. If X is one sequence of lists of features, write [X]."
        )
    if isinstance(step, int | float | np.number):
        raise FeatureError(
            f"sequence {number} is a list of numbers, expected a matrix (steps, features). Write [[v] for v "
            "in sequence] for one feature per step, or [X] if X is a single sequence."
        )
    items = [item for item in sequence if hasattr(item, "__len__") and len(item)]
    if not items:
        return "records"
    first = items[0]
    if isinstance(first, str | Mapping | set | frozenset):
        return "records"
    return "records" if isinstance(next(iter(first)), str) else "matrices"
