"""Frames of pandas or polars, or dicts of columns, to sequences, and predictions back to columns.

A frame has one row for each step, a column (or several) that says to which sequence a row belongs, perhaps one of
labels, perhaps one of times; all others are features. Decided here:

- Sequences come in the order in which they first occur, and rows keep theirs. The rows of a sequence must stand
  together: where they are torn apart it is as a rule two sequences with one name (sentence 1 of every document), and
  joining them in silence would be wrong. With ``time`` the rows of each sequence are sorted by it, and may be mixed.
- If all features are numbers, a sequence becomes a 2-D array (steps, features), NaN where one is missing, which
  ``fit`` will not take; otherwise a list of dicts, one for each step, from which missing values are left out. A
  missing label is None: nobody knows it.
- A frame is anything with ``columns`` and ``frame[name]``, or a dict: neither pandas nor polars is imported, and what
  comes back is a frame of the kind that was handed in.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np

from crfield.errors import FeatureError, InputError, ShapeError

Names = str | Sequence[str]
_NUMBER = "number of the frame"


def from_frame(
    frame: Any,
    *,
    sequence: Names | None = None,
    label: str | None = None,
    features: Sequence[str] | None = None,
    time: Any = None,
) -> tuple[list[Any], list[list[Any]] | None]:
    """X and y of a pandas or polars frame, or of a list of them with one sequence each; y is None without ``label``.

    ``sequence`` names the column, or the columns together, that tell sequences apart; ``features`` the columns to
    use, all others if it is None. What comes out goes into ``fit`` and ``predict`` of every model of sequences.

    >>> table = {"sent": [1, 1, 2], "word": ["He", "runs", "Stop"], "long": [2, 4, 4], "tag": ["P", "V", "V"]}
    >>> X, y = from_frame(table, sequence="sent", label="tag")
    >>> X[0], y
    ([{'word': 'He', 'long': 2}, {'word': 'runs', 'long': 4}], [['P', 'V'], ['V']])
    >>> from_frame(table, sequence="sent", features=["long"])[0][0].tolist()
    [[2.0], [4.0]]
    >>> from_frame([{"long": [2, 4], "tag": ["P", "V"]}, {"tag": ["V"], "long": [4]}], label="tag")[1]
    [['P', 'V'], ['V']]
    """
    if isinstance(frame, list | tuple):
        if sequence is not None:
            raise InputError(
                "expected a frame of pandas or polars, or a dict of columns, got list: each frame of a list is one "
                "sequence, so leave sequence= out, or join the frames to one."
            )
        frame, sequence = _stacked(frame), _NUMBER
    if sequence is None:
        raise InputError("sequence must name the column that tells the sequences of a frame apart, got None.")
    names = _column_names(frame)
    keys = _listed(sequence, "sequence")
    roles = [*keys, *([label] if label is not None else []), *([time] if time is not None else [])]
    for name in roles:
        _check_name(name, names)
    chosen = [name for name in names if name not in roles] if features is None else _listed(features, "features")
    for name in chosen:
        _check_name(name, names)
        if name == label:
            raise InputError(f"the column {name!r} holds the labels and cannot be a feature too.")
    if not chosen:
        raise InputError(f"the frame has no columns left for features beside {roles}.")
    groups = _groups(frame, keys, time)
    columns = {name: values_of(frame, name) for name in chosen}
    numbers = [column for column in map(_numbers, columns.values()) if column is not None]
    if len(numbers) == len(chosen):
        table = np.column_stack(numbers)
        X: list[Any] = [table[rows] for rows in groups]
    else:
        steps = _dicts(columns)
        X = [[steps[row] for row in rows] for rows in groups]
    if label is None:
        return X, None
    labels = [None if _missing(value) else value for value in values_of(frame, label)]
    return X, [[labels[row] for row in rows] for rows in groups]


def _stacked(frames: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of frames of one sequence each, end to end, with the number of the frame."""
    if not frames:
        raise InputError("there are no frames in the list.")
    names = _column_names(frames[0])
    for number, frame in enumerate(frames):
        if set(_column_names(frame)) != set(names):
            raise InputError(f"frame {number} has the columns {_column_names(frame)}, the first one {names}.")
        if not len(frame_rows(frame)):
            raise InputError(f"frame {number} has no rows. Leave it out, with its labels.")
    joined = {name: [value for frame in frames for value in values_of(frame, name)] for name in names}
    joined[_NUMBER] = [number for number, frame in enumerate(frames) for _ in frame_rows(frame)]
    return joined


def to_frame(
    frame: Any,
    answers: Sequence[Any],
    *,
    sequence: Names,
    time: Any = None,
    name: str = "predicted",
    classes: Sequence[Hashable] | None = None,
) -> Any:
    """The frame with predictions as new columns, each in the row that its step came from.

    ``answers`` is what ``predict`` gives for the X of `from_frame`: the column is called ``name``. Of what
    ``predict_proba`` gives, with ``classes`` the model's ``classes_``, there is a column ``name_label`` for each
    label. The frame handed in stays as it is.

    >>> table = {"sent": [1, 1, 2], "word": ["He", "runs", "Stop"]}
    >>> to_frame(table, [["P", "V"], ["V"]], sequence="sent")["predicted"]
    ['P', 'V', 'V']
    """
    names = _column_names(frame)
    keys = _listed(sequence, "sequence")
    for column in [*keys, *([time] if time is not None else [])]:
        _check_name(column, names)
    groups = _groups(frame, keys, time)
    found, wanted = [len(answer) for answer in answers], [len(rows) for rows in groups]
    if found != wanted:
        where = next((k for k, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        raise ShapeError(
            f"the frame has {len(wanted)} sequences, the answers are for {len(found)}, and they differ at number "
            f"{where}. Predict for the X that from_frame gave for this frame, with the same sequence and time."
        )
    order = np.concatenate([*groups, np.zeros(0, np.int64)]).astype(np.int64)
    new: dict[str, list[Any]] = {}
    if classes is None:
        flat = [value for answer in answers for value in _plain_list(answer)]
        new[name] = _scattered(flat, order)
    else:
        shape = (-1, len(classes))
        stacked = np.concatenate([np.zeros((0, len(classes))), *(np.reshape(answer, shape) for answer in answers)])
        for k, label in enumerate(_plain_list(classes)):
            new[f"{name}_{label}"] = _scattered(stacked[:, k].tolist(), order)
    return _with_columns(frame, new, keys[0])


def values_of(frame: Any, name: str) -> list[Any]:
    """A column as a list of Python values.

    >>> values_of({"a": np.array([1, 2])}, "a")
    [1, 2]
    """
    return _plain_list(frame[name])


def frame_rows(frame: Any) -> range:
    """The numbers of its rows.

    >>> frame_rows({"a": [1, 2]})
    range(0, 2)
    """
    names = _column_names(frame)
    lengths = {len(frame[name]) for name in names}
    if len(lengths) > 1:
        raise ShapeError(f"the columns of the frame have different lengths: {sorted(lengths)}.")
    return range(lengths.pop() if lengths else 0)


def _column_names(frame: Any) -> list[str]:
    if isinstance(frame, Mapping):
        return list(frame)
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise InputError(
            f"expected a frame of pandas or polars, or a dict of columns, got {type(frame).__name__}. Collect a lazy "
            "frame first."
        )
    return list(frame.columns)


def _plain_list(values: Any) -> list[Any]:
    for method in ("to_list", "tolist"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


def _listed(names: Any, what: str) -> list[str]:
    listed = [names] if isinstance(names, str) else list(names)
    if not listed or len(set(listed)) < len(listed):
        raise InputError(f"{what} must name one column or several different ones, got {names!r}.")
    return listed


def _check_name(name: Any, names: list[str]) -> None:
    if name not in names:
        shown = ", ".join(map(str, names[:20])) + (", …" if len(names) > 20 else "")
        raise InputError(f"the frame has no column {name!r}; it has {shown}.")


def _groups(frame: Any, keys: list[str], time: Any) -> list[np.ndarray]:
    """Row numbers of each sequence, in the order of its steps."""
    count = len(frame_rows(frame))
    columns = [values_of(frame, key) for key in keys]
    for key, column in zip(keys, columns):
        for row, value in enumerate(column):
            if _missing(value):
                raise InputError(
                    f"row {row}: the column {key!r} must say which sequence it belongs to, got {value!r}."
                )
    groups: dict[Any, list[int]] = {}
    before: Any = None
    for row, name in enumerate(zip(*columns)):
        if name in groups and name != before and time is None:
            shown = name[0] if len(name) == 1 else name
            raise InputError(
                f"row {row}: sequence {shown!r} continues after another one began. If these are two sequences of one "
                f"name, give more columns, sequence=[{', '.join(map(repr, keys))}, …]; if the rows are mixed, pass "
                "time=… to sort them by, or sort the frame."
            )
        groups.setdefault(name, []).append(row)
        before = name
    listed = [np.array(rows, np.int64) for rows in groups.values()]
    if time is None or not count:
        return listed
    times = values_of(frame, time)
    late = next((row for row, value in enumerate(times) if _missing(value)), None)
    if late is not None:
        raise InputError(f"row {late}: the column {time!r} must say when the step was, got {times[late]!r}.")
    return [np.array(sorted(rows.tolist(), key=times.__getitem__), np.int64) for rows in listed]


def _missing(value: Any) -> bool:
    """None, NaN, pandas's NA and NaT: what is not equal to itself, or will not say."""
    if value is None or isinstance(value, str | list | tuple | np.ndarray | Mapping):
        return value is None
    try:
        return not value == value  # noqa: PLR0124, SIM201
    except (TypeError, ValueError):
        return True


def _numbers(values: list[Any]) -> np.ndarray | None:
    """The column as float64, NaN where a value is missing; None when it holds anything but numbers."""
    kinds = {type(value) for value in values if value is not None}
    if not all(issubclass(kind, Real | np.bool_) or kind.__name__ == "NAType" for kind in kinds):
        return None
    return np.array([np.nan if _missing(value) else float(value) for value in values])


def _dicts(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{} for _ in next(iter(columns.values()))]
    for name, values in columns.items():
        for row, value in enumerate(values):
            if _missing(value):
                continue
            if not isinstance(value, str | Real | np.bool_ | list | tuple | np.ndarray | Mapping):
                raise FeatureError(
                    f"row {row}: the column {name!r} holds {value!r:.40} of type {type(value).__name__}, which is no "
                    "feature. Turn it into text or numbers, or leave the column out with features=[…]."
                )
            steps[row][str(name)] = value
    return steps


def _scattered(values: list[Any], order: np.ndarray) -> list[Any]:
    out: list[Any] = [None] * len(order)
    for row, value in zip(order.tolist(), values):
        out[row] = value
    return out


def _with_columns(frame: Any, new: dict[str, list[Any]], some: str) -> Any:
    if isinstance(frame, Mapping):
        return {**frame, **new}
    if hasattr(frame, "with_columns"):  # polars
        series = type(frame[some])
        return frame.with_columns(*(series(name, values) for name, values in new.items()))
    if hasattr(frame, "assign"):  # pandas
        return frame.assign(**new)
    raise InputError(f"columns cannot be added to a {type(frame).__name__}: hand over a frame of pandas or polars.")


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
