"""Columns of Hugging Face datasets, with a stand-in for their features and with the package where it is installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from crfield.compat.hub_columns import from_dataset, to_columns
from crfield.errors import InputError, LabelError

NAMES = ["O", "B-PER", "B-LOC"]
COLUMNS = {"tokens": [["Ana", "vive"], ["Lima"]], "ner_tags": [[1, 0], [-100]]}


class StandIn(dict[str, Any]):
    """A data set as far as it is asked."""

    features = {"ner_tags": SimpleNamespace(feature=SimpleNamespace(names=NAMES))}  # noqa: RUF012

    @property
    def column_names(self) -> list[str]:
        return list(self)


def test_names_are_those_of_the_data_set() -> None:
    expected = [["Ana", "vive"], ["Lima"]], [["B-PER", "O"], [None]]
    assert from_dataset(StandIn(COLUMNS)) == expected
    assert from_dataset(COLUMNS, names=NAMES) == expected
    assert from_dataset(COLUMNS)[1] == [[1, 0], [None]]
    assert from_dataset(COLUMNS, tags=None) == (expected[0], None)


def test_back_to_columns() -> None:
    X, y = from_dataset(COLUMNS, names=NAMES)
    assert y is not None
    assert to_columns(X, y, names=NAMES) == (COLUMNS, NAMES)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="no column 'words'; it has"):
        from_dataset(COLUMNS, tokens="words")
    with pytest.raises(LabelError, match="holds 1, and there are 1 names"):
        from_dataset(COLUMNS, names=["O"])
    with pytest.raises(InputError, match="row 0 has 2"):
        from_dataset({"tokens": [["a", "b"]], "ner_tags": [[0]]}, names=NAMES)
    with pytest.raises(LabelError, match="not among the names"):
        to_columns([["a"]], [["X"]], names=NAMES)


def test_with_the_package_itself() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=NAMES)),
        }
    )
    made = datasets.Dataset.from_dict(COLUMNS, features=features)
    assert from_dataset(made) == ([["Ana", "vive"], ["Lima"]], [["B-PER", "O"], [None]])
