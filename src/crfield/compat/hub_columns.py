"""Columns of Hugging Face ``datasets``: tokens and tags in, predictions out, without importing the package.

Data sets for named entities have a column of words and one of whole numbers, whose names stand beside in
``features``. Models here want the names; trainers there the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crfield.errors import InputError, LabelError


def from_dataset(
    dataset: Any, *, tokens: str = "tokens", tags: str | None = "ner_tags", names: Sequence[str] | None = None
) -> tuple[list[list[str]], list[list[Any]] | None]:
    """X and y of a data set, or of any mapping of columns; y is None without ``tags``.

    ``names`` are those of the numbers in ``tags``; by default the data set's own. −100, which masks a token there, is
    None here: unknown.

    >>> columns = {"tokens": [["Ana", "vive"]], "ner_tags": [[1, 0]]}
    >>> from_dataset(columns, names=["O", "B-PER"])
    ([['Ana', 'vive']], [['B-PER', 'O']])
    """
    X = [[str(word) for word in words] for words in _column(dataset, tokens)]
    if tags is None:
        return X, None
    own = _names_of(dataset, tags) if names is None else list(names)
    y = [[_name(value, own, tags) for value in row] for row in _column(dataset, tags)]
    for number, (words, labels) in enumerate(zip(X, y)):
        if len(words) != len(labels):
            raise InputError(f"row {number} has {len(words)} in {tokens!r} and {len(labels)} in {tags!r}.")
    return X, y


def to_columns(
    X: Sequence[Sequence[str]],
    y: Sequence[Sequence[Any]],
    *,
    names: Sequence[str] | None = None,
    tokens: str = "tokens",
    tags: str = "ner_tags",
) -> tuple[dict[str, list[Any]], list[str]]:
    """Columns for ``datasets.Dataset.from_dict``, with numbers for tags, and the names of the numbers.

    >>> to_columns([["Ana", "vive"]], [["B-PER", None]])
    ({'tokens': [['Ana', 'vive']], 'ner_tags': [[0, -100]]}, ['B-PER'])
    """
    found = sorted({str(label) for labels in y for label in labels if label is not None})
    own = found if names is None else list(names)
    number = {name: k for k, name in enumerate(own)}
    unknown = [label for label in found if label not in number]
    if unknown:
        raise LabelError(f"the tags {unknown[:5]} are not among the names {own[:10]}. Add them to names.")
    coded = [[-100 if label is None else number[str(label)] for label in labels] for labels in y]
    return {tokens: [list(words) for words in X], tags: coded}, own


def _column(dataset: Any, name: str) -> Any:
    known = list(getattr(dataset, "column_names", None) or (dataset.keys() if hasattr(dataset, "keys") else []))
    if name not in known:
        raise InputError(f"the data set has no column {name!r}; it has {known}.")
    return dataset[name]


def _names_of(dataset: Any, tags: str) -> list[str] | None:
    """The names of a column of class labels, or of lists of them."""
    feature = (getattr(dataset, "features", None) or {}).get(tags)
    for _ in range(3):
        if feature is None:
            return None
        if getattr(feature, "names", None) is not None:
            return list(feature.names)
        feature = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
    return None


def _name(value: Any, names: list[str] | None, tags: str) -> Any:
    if isinstance(value, str) or value is None:
        return value
    number = int(value)
    if number == -100:
        return None
    if names is None:
        return number
    if not 0 <= number < len(names):
        raise LabelError(f"{tags!r} holds {number}, and there are {len(names)} names.")
    return names[number]
