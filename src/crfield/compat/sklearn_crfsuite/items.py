r"""X and y in the forms that python-crfsuite reads and `ChainCRF` does not.

    bytes                        as names, values, features and labels: UTF-8, and bytes that are none as ``\xff``
    dict views, iterators        as X, as a sequence, as the features of a step, as labels
    pycrfsuite.ItemSequence      the dicts it was made of
    False                        a feature that is there, with the value 0: its pairs with labels have a weight

A sequence of numbers (an array, a sparse matrix) and the columns of files go through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np

from crfield.errors import FeatureError

_VIEWS = (KeysView, ValuesView, Iterator)
_LISTS = (list, tuple, *_VIEWS)


def listed(X: Any) -> Any:
    """X with a list where it, or a sequence in it, is a view, an iterator or an ItemSequence; steps are as before.

    >>> listed({"first": iter([{"word": "dog"}])}.values())
    [[{'word': 'dog'}]]
    """
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim:
        X = list(X)
    if not isinstance(X, _LISTS):
        return X
    return [_sequence(sequence) for sequence in X]


def plain_items(X: Any) -> Any:
    """X in plain strings and numbers, with 0 for False; what has another form is as before.

    >>> plain_items([[{"upper": False, b"word": b"dog"}, {"a": 1}.keys()]])
    [[{'upper': 0.0, 'word': 'dog'}, ['a']]]
    """
    X = listed(X)
    if not isinstance(X, list):
        return X
    return [[_step(step) for step in x] if isinstance(x, list | tuple) else x for x in X]


def plain_labels(y: Any) -> Any:
    """Lists of labels, with text for bytes.

    >>> plain_labels([(b"N", "V"), {"N": 1}.keys()])
    [['N', 'V'], ['N']]
    """
    if isinstance(y, np.ndarray) and y.ndim:
        y = list(y)
    if not isinstance(y, _LISTS):
        return y
    return [_labels(labels) for labels in y]


def asked(question: Callable[[Any], Any], X: Any) -> Any:
    """The answer about X, which is only read in plain items where the model cannot read it as it is.

    >>> asked(lambda X: [len(x) for x in X], {"one": [{"a": 1}, {"b": 1}]}.values())
    [2]
    """
    X = listed(X)
    try:
        return question(X)
    except FeatureError:
        return question(plain_items(X))


def as_array(answers: list[list[Any]]) -> np.ndarray:
    """Answers as sklearn-crfsuite 0.5 gives them: lists in an array, or, where all are equally long, a 2-D array.

    >>> as_array([["N", "V"], ["N"]]).shape, as_array([["N", "V"], ["N", "N"]]).shape
    ((2,), (2, 2))
    """
    lengths = {len(answer) for answer in answers}
    if len(lengths) != 1:
        out = np.empty(len(answers), dtype=object)
        for k, answer in enumerate(answers):
            out[k] = answer
        return out
    table = np.empty((len(answers), lengths.pop()), dtype=object)
    for k, answer in enumerate(answers):
        for t, entry in enumerate(answer):
            table[k, t] = entry
    return table


def _sequence(sequence: Any) -> Any:
    if isinstance(sequence, _VIEWS):
        return list(sequence)
    if type(sequence).__name__ == "ItemSequence":  # python-crfsuite's; it need not be installed
        return sequence.items()
    return sequence


def _labels(labels: Any) -> Any:
    if isinstance(labels, list | tuple | np.ndarray | KeysView | ValuesView | Iterator):
        return [_text(label) for label in labels]
    return labels


def _step(step: Any) -> Any:
    if isinstance(step, Mapping):
        return _features(step)
    if isinstance(step, (list, tuple, set, frozenset, *_VIEWS)):
        return _texts(step)
    return step


def _features(features: Mapping[Any, Any]) -> dict[Any, Any]:
    return {_text(name): _value(value) for name, value in features.items()}


def _value(value: Any) -> Any:
    if value is False:
        return 0.0
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        return _features(value)
    if isinstance(value, list | set | frozenset):
        return _texts(value)
    return value


def _texts(items: Iterable[Any]) -> list[Any]:
    return [_text(item) for item in items]


def _text(item: Any) -> Any:
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item
