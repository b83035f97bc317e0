"""Handwritten words, plain pixels: CRFsuite's optimum, and what it costs to get there.

The letters of Taskar, Guestrin & Koller (2004): images of 16 × 8 pixels, words in ten folds; fold 0 is tested on, the
others train. A pixel that is on is a feature, and nothing else: 128 of them, 26 labels, about 50 at a step. So few
weights and so many steps are the opposite of text, where most of the time goes to looking up weights; here it is
arithmetic.

Both have the same model (pairs that occur, no scores of labels alone, none of first and last steps) and the same
penalty: CRFsuite's default, c2 = 1, which is l2 = 2 here, and a tenth of it. CRFsuite trains until it stops itself,
and its training time is that of `train`, without handing over the data. Ours is all of `fit`, the encoding of sparse
matrices included, and it must end at an objective that is no worse than CRFsuite's by more than 1e-4 of it. `fit`
takes a turn before and one after the long run of CRFsuite.
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
from crfield.storage.datasets.letters import read_letters

Part = tuple[list[np.ndarray], list[np.ndarray]]

FASTER, WORSE, APART = 10.0, 1e-4, 0.2
PENALTIES = (1.0, 0.1)  # CRFsuite's default, and a weak one


def run(bench: Bench) -> list[Row]:
    """Time, objective and accuracy of both, for each penalty."""
    if bench.data is None or not (bench.data / "letters").is_dir():
        return [Row("letters: not in CRFIELD_DATA", None, unit="")]
    data = read_letters(os.fspath(bench.data / "letters" / "letters.npz"))
    learn = data.part(data.fold == 1 if bench.quick else data.fold != 0)
    test = data.part(data.fold == 0)
    return [row for c2 in PENALTIES for row in _compared(bench, learn, test, c2)]


def _compared(bench: Bench, learn: Part, test: Part, c2: float) -> list[Row]:
    pixels, labels = learn[0], [own.tolist() for own in learn[1]]
    X, strings = _sparse(pixels), _strings(pixels)
    ours, path = Timing(), bench.path("letters.crfsuite")

    def turn() -> ChainCRF:
        with ours.turn():
            return ChainCRF(l2=2 * c2, intercept=False, boundaries=False, n_jobs=1).fit(X, labels)

    with settled():
        turn()
        rival = train(strings, labels, path, c2=c2)
        model = turn()
    spent = rival.prepare_seconds + sum(step.seconds for step in rival.iterations)
    judged = not bench.quick
    ends = 100 * token_accuracy(test[1], model.predict(_sparse(test[0])))
    opened = tagger(path)
    theirs = 100 * token_accuracy(test[1], [opened.tag(word) for word in _strings(test[0])])
    return [
        ratio(
            f"letters: training on {len(labels):,} words, {sum(map(len, labels)):,} letters, c2 = {c2:g}",
            ours,
            Timing([spent]),
            required=FASTER if judged else None,
            note=f"{model.n_iter_} steps of ours, {len(rival.iterations)} of CRFsuite's",
        ),
        Row(
            f"letters: objective above CRFsuite's last, relative, c2 = {c2:g}",
            max(model.objective_ / rival.loss - 1.0, 0.0),
            unit="",
            required=WORSE if judged else None,
            better="less",
            note=f"{model.objective_:,.2f} and {rival.loss:,.2f}; {len(model.coef_):,} weights",
        ),
        Row(
            f"letters: points between right letters of fold 0, c2 = {c2:g}",
            abs(ends - theirs),
            unit="",
            required=APART if judged else None,
            better="less",
            note=f"{ends:.2f} % and {theirs:.2f} %",
        ),
    ]


def _strings(words: list[np.ndarray]) -> list[list[list[str]]]:
    """Names of the pixels that are on."""
    return [[[f"p{k}" for k in np.flatnonzero(letter).tolist()] for letter in word] for word in words]


def _sparse(words: list[np.ndarray]) -> list[Any]:
    import scipy.sparse as sp

    return [sp.csr_array(word.astype(np.float64)) for word in words]
