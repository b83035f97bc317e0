"""Rows as a pandas table, for results that have ``to_frame``; pandas is imported when asked for and not before."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from crfield.errors import InputError


def frame_of(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame of plain dicts; InputError where pandas is not installed.

    >>> import pytest
    >>> pandas = pytest.importorskip("pandas")
    >>> frame_of([{"a": 1}], ["a"])["a"].tolist()
    [1]
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise InputError(
            "to_frame needs pandas, which is not installed. Install it (pip install pandas), or use rows()."
        ) from None
    return pandas.DataFrame(list(rows), columns=list(columns))
