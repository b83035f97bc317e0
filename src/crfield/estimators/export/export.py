"""A fitted model as one file for the robot: a C header or a Python module without dependencies.

The suffix decides: ``.h`` is C99 with nothing but ``<math.h>``, ``.py`` plain Python. Both take the raw columns of a
step, as numbers and in the order of training, scale them as training did, and answer like `LabelStream`: the filtered
distribution, and the labels that the incremental Viterbi commits. Only models of plain numbers can be exported; words
need an alphabet, and trees and classifiers are programs of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Sequence
from typing import Any

from crfield.core.checks import integer
from crfield.errors import InputError
from crfield.estimators.export.c_code import c_header
from crfield.estimators.export.features.request import with_features
from crfield.estimators.export.python_code import python_module
from crfield.estimators.export.step_scores import DenseSteps, StepScorer
from crfield.estimators.markov.steps import GaussianSteps
from crfield.storage.files import write_text

SUFFIXES = (".h", ".py")


def export_model(
    scorer: StepScorer,
    labels: Sequence[Hashable],
    path: Any,
    *,
    name: str | None = None,
    max_lag: int,
    features: Any = None,
) -> None:
    """Write the model to ``path``, atomically.

    With ``features`` the file takes positions or samples, and computes the columns itself: see the folder
    ``features`` beside this file.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"export needs the name of a file that ends in .h or .py, got {type(path).__name__}.")
    stem, suffix = os.path.splitext(os.path.basename(os.fspath(path)))
    if suffix not in SUFFIXES:
        raise InputError(f"export writes C headers (.h) and Python modules (.py), got {os.fspath(path)!r}.")
    name = name or identifier(stem)
    if features is None:
        text = exported(scorer, labels, suffix=suffix, name=name, max_lag=max_lag)
    else:
        text = exported(scorer, labels, suffix=suffix, name=f"{name}_model", max_lag=max_lag)
        text = with_features(text, features, scorer, suffix=suffix, name=name)
    write_text(path, text)


def exported(
    scorer: StepScorer, labels: Sequence[Hashable], *, suffix: str, name: str = "model", max_lag: int
) -> str:
    """The text of the file.

    >>> import numpy as np
    >>> steps = DenseSteps(np.array([[0.5, -0.5]]), np.zeros((2, 2)))
    >>> text = exported(steps, ["walk", "run"], suffix=".py", max_lag=100)
    >>> made = {}
    >>> exec(text, made)
    >>> made["Stream"]().push([4.0])["label"]
    'walk'
    """
    if not isinstance(scorer, DenseSteps | GaussianSteps):
        raise InputError(
            "only models of plain numbers can be exported: arrays (steps, features), not dicts, strings, sparse "
            "matrices, templates or functions. Train on arrays, for example of the features that were chosen."
        )
    integer(0)("max_lag", max_lag)
    columns = scorer.names or [f"x[{k}]" for k in range(scorer.n_columns)]
    if suffix == ".py":
        return python_module(scorer, labels=labels, columns=columns, max_lag=int(max_lag))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InputError(f"name must be a name in C, got {name!r}. All names of the header begin with it.")
    texts = [str(label) for label in labels]
    return c_header(scorer, name=name, labels=texts, columns=columns, max_lag=int(max_lag))


def identifier(stem: str) -> str:
    """A name in C made of a file's.

    >>> identifier("tag-2"), identifier("2nd")
    ('tag_2', '_2nd')
    """
    made = re.sub(r"[^A-Za-z0-9_]", "_", stem) or "model"
    return f"_{made}" if made[0].isdigit() else made
