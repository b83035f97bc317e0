"""Handwritten words, plain pixels: CRFsuite's optimum, and what it costs to get there.

The letters of Taskar, Guestrin & Koller (2004): images of 16 × 8 pixels, words in ten folds; fold 0 is tested on, the
others train. A pixel that is on is a feature, and nothing else: 128 of them, 26 labels, about 50 at a step. So few
weights and so many steps are the opposite of text, where most of the time goes to looking up weights; here it is
arithmetic.

Both have the same model (pairs that occur, no scores of labels alone, none of first and last steps) and the same
penalty, CRFsuite's default: c2 = 1 there is l2 = 2 here. CRFsuite trains until it stops by itself, and its training
time is that of `train`, without handing over the data. Ours is all of `fit`, the encoding of sparse matrices
included, and it must end at an objective that is no worse than CRFsuite's by more than 1e-4 of it. `fit` takes a turn
before and one after the long run of CRFsuite.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.crfsuite_rival import tagger, train
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, settled
from crfield import ChainCRF
from crfield.metrics import token_accuracy
from crfield.storage.letters import read_letters

FASTER, WORSE, APART = 10.0, 1e-4, 0.2
C2 = 1.0


def run(bench: Bench) -> list[Row]:
    """Time, objective and accuracy of both."""
    if bench.data is None or not (bench.data / "letters").is_dir():
        return [Row("letters: not in CRFIELD_DATA", None, unit="")]
    data = read_letters(os.fspath(bench.data / "letters" / "letters.npz"))
    learn = data.fold == 1 if bench.quick else data.fold != 0
    pixels, tags = data.part(learn)
    strings, test = _strings(pixels), data.part(data.fold == 0)
    X, labels = _sparse(pixels), [own.tolist() for own in tags]
    ours = Timing()

    def turn() -> ChainCRF:
        with ours.turn():
            return ChainCRF(l2=2 * C2, intercept=False, boundaries=False, n_jobs=1).fit(X, labels)

    path = bench.path("letters.crfsuite")
    with settled():
        turn()
        rival = train(strings, labels, path, c2=C2)
        model = turn()
    spent = rival.prepare_seconds + sum(step.seconds for step in rival.iterations)
    judged = not bench.quick
    ends = 100 * token_accuracy(test[1], model.predict(_sparse(test[0])))
    tags_of = tagger(path)
    theirs = 100 * token_accuracy(test[1], [tags_of.tag(word) for word in _strings(test[0])])
    n = sum(map(len, labels))
    return [
        ratio(
            f"letters: training on {len(labels):,} words, {n:,} letters",
            ours,
            Timing([spent]),
            required=FASTER if judged else None,
            note=f"{model.n_iter_} steps of ours, {len(rival.iterations)} of CRFsuite's",
        ),
        Row(
            "letters: objective above CRFsuite's last, relative",
            max(model.objective_ / rival.loss - 1.0, 0.0),
            unit="",
            required=WORSE if judged else None,
            better="less",
            note=f"{model.objective_:,.2f} and {rival.loss:,.2f}; {len(model.coef_):,} weights",
        ),
        Row("letters: right letters of fold 0", ends, unit="%", note=f"CRFsuite {theirs:.2f} %"),
        Row(
            "letters: points between the two",
            abs(ends - theirs),
            unit="",
            required=APART if judged else None,
            better="less",
        ),
    ]


def _strings(words: list[np.ndarray]) -> list[list[list[str]]]:
    """Names of the pixels that are on."""
    return [[[f"p{k}" for k in np.flatnonzero(letter).tolist()] for letter in word] for word in words]


def _sparse(words: list[np.ndarray]) -> list[Any]:
    import scipy.sparse as sp

    return [sp.csr_array(word.astype(np.float64)) for word in words]
