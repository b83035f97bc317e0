"""The compiled bodies of the kernels against the NumPy ones, which run where nothing was compiled.

Both do the same work to the same digits (`tests/kernels/`), so there is nothing to judge: the ratios are what the
warning of `crfield.kernels.choice` tells somebody whose installation has no compiled modules. Data are a part of
those of the other comparisons, since the NumPy side would take minutes for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import interleaved
from crfield import HMM, ChainCRF, GridCRF
from crfield.errors import ConvergenceWarning
from crfield.kernels import choice


def on(body: str, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work on one of the bodies, without a word on trainings that are cut short here."""

    def run() -> Any:
        with choice.use(body), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return work()

    return run


def compared(name: str, work: Callable[[], Any], turns: int) -> Row:
    """How many times longer the NumPy bodies take."""
    ours, rival = interleaved(on("native", work), on("numpy", work), turns=turns)
    return ratio(f"bodies: {name}", ours, rival)


def run(bench: Bench) -> list[Row]:
    """Training and tagging of text and of numbers, on a chain and on a grid."""
    turns, corpus, rng = (2 if bench.quick else 3), bench.chunks, np.random.default_rng(0)
    train, test = corpus.train.first(200), corpus.test.first(200)
    chain = ChainCRF(template=corpus.template, solver="lbfgs", max_iter=10)
    ready = ChainCRF(template=corpus.template, max_iter=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ready.fit(train.rows, train.tags)
    strings = [[[f"w={row[0]}", f"p={row[-1]}"] for row in rows] for rows in train.rows]
    numbers = [rng.normal(size=(200, 12)) for _ in range(20)]
    labels = [rng.integers(0, 5, 200) for _ in numbers]
    images = [rng.normal(size=(24, 24)) for _ in range(4)]
    truth = [(image > 0).astype(int) for image in images]
    length = len(train.rows)
    return [
        compared(f"ten steps of training, {length} sequences", lambda: chain.fit(train.rows, train.tags), turns),
        compared("the same from lists of strings", lambda: ChainCRF(max_iter=10).fit(strings, train.tags), turns),
        compared(f"tagging of {len(test.rows)} sequences", lambda: _fresh(ready).predict(test.rows), turns),
        compared("marginals of the same", lambda: _fresh(ready).predict_proba(test.rows), turns),
        compared(
            "ten steps of training on 4,000 steps of 12 columns",
            lambda: ChainCRF(max_iter=10, solver="lbfgs").fit(numbers, labels),
            turns,
        ),
        compared(
            "Baum–Welch on the same, three rounds",
            lambda: HMM(training="em", n_states=5, n_init=1, max_iter=3).fit(numbers),
            turns,
        ),
        compared(
            "GridCRF on four images of 24 × 24",
            lambda: GridCRF(objective="pseudo_likelihood", max_iter=5).fit(images, truth),
            turns,
        ),
    ]


def _fresh(model: ChainCRF) -> ChainCRF:
    """The model without what it has made for a body."""
    vars(model._model).pop("tagger", None)
    return model
