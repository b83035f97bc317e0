"""Half of the labels, or half of the sentences? Chunks (CoNLL-2000) with labels hidden at random.

Chunking (Tjong Kim Sang & Buchholz 2000) with the features of CRF++'s example for it: words and parts of speech
within two steps, and their pairs and triples. Three trainings for each seed:

    all labels          the training part as it is (the same for all seeds)
    half of the labels  each label hidden with a chance of one half; training sums over what is hidden
    half of sentences   a random half of the sentences with all their labels: about as many labels

Labels that stand apart cost as much to write down as labels that stand together, and teach more: every sentence's
words are met, and transitions are learnt from what the neighbours say. The penalty is the same for all and was chosen
by nobody here: l2 = 1, the default. F1 is of whole chunks of the test part; intervals are over seeds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.early_stopping import taken
from crfield.metrics import span_report
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.storage.exchange import read_columns

WINDOWS = (
    "-2,0 -1,0 0,0 1,0 2,0 -1,0/0,0 0,0/1,0 -2,1 -1,1 0,1 1,1 2,1 -2,1/-1,1 -1,1/0,1 0,1/1,1 1,1/2,1 "
    "-2,1/-1,1/0,1 -1,1/0,1/1,1 0,1/1,1/2,1"
)
ALL, LABELS, SENTENCES = "all labels", "half of the labels", "half of the sentences"
COLUMNS = ("trained on", "labels", "F1", "F1 − all labels")
MOST = 0.01


def hidden_labels(
    folder: str,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    most_sentences: int | None = None,
    tol: float = 1e-3,
    n_jobs: int = 1,
) -> Findings:
    """All trainings, on the training part or its first sentences."""
    if not seeds:
        raise InputError("at least one seed is needed, got none.")
    (X, y), (X_test, y_test) = (
        read_columns(os.path.join(folder, "conll2000", f"{part}.txt.gz")).split_column(-1)
        for part in ("train", "test")
    )
    X, y = X[:most_sentences], y[:most_sentences]
    counts: dict[str, list[int]] = {name: [] for name in (ALL, LABELS, SENTENCES)}
    scores: dict[str, list[float]] = {name: [] for name in counts}

    def run(name: str, X: Any, y: Any) -> None:
        model = ChainCRF(template=chunk_template(), tol=tol, n_jobs=n_jobs).fit(X, y)
        scores[name].append(float(span_report(y_test, model.predict(X_test)).f1))
        counts[name].append(sum(label is not None for labels in y for label in labels))

    run(ALL, X, y)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        run(LABELS, X, hide(y, rng))
        kept = np.sort(rng.permutation(len(y))[: len(y) // 2])
        run(SENTENCES, taken(X, kept), [y[k] for k in kept])
    drop = {name: [f1 - scores[ALL][0] for f1 in scores[name]] for name in (LABELS, SENTENCES)}
    lost = {name: -float(np.mean(drops)) for name, drops in drop.items()}
    rows = [
        (
            name,
            f"{np.mean(counts[name]):,.0f}",
            mean_interval(found),
            mean_interval(drop[name]) if name in drop else None,
        )
        for name, found in scores.items()
    ]
    told = ", ".join(f"{name} {100 * value:.2f}" for name, value in lost.items())
    return Findings(
        f"Chunks: {len(y):,} sentences, labels or sentences left out, {len(seeds)} seeds; F1 on the test part",
        COLUMNS,
        tuple(rows),
        (
            Claim(
                f"hiding half of the labels costs less than {100 * MOST:.1f} points of F1",
                lost[LABELS] < MOST,
                f"{100 * lost[LABELS]:.2f}",
            ),
            Claim("and less than half of the sentences does", lost[LABELS] < lost[SENTENCES], told),
        ),
        (
            "features: CRF++'s example for chunking; l2 = 1; ± is half of the 95 % interval of the mean over seeds",
            "F1 by seed: "
            + "; ".join(
                f"{name} {', '.join(f'{100 * f1:.2f}' for f1 in found)}" for name, found in scores.items() if found
            ),
        ),
    )


def hide(y: Sequence[Any], rng: np.random.Generator, share: float = 0.5) -> list[list[Any]]:
    """Labels, each None with the chance ``share``.

    >>> hide([["a", "b", "c", "d"]], np.random.default_rng(1))
    [['a', 'b', None, 'd']]
    """
    return [[None if gone else label for label, gone in zip(own, rng.random(len(own)) < share)] for own in y]


def chunk_template() -> str:
    """CRF++'s template for chunking."""
    lines = [
        f"U{k:02d}:" + "/".join(f"%x[{place}]" for place in window.split("/"))
        for k, window in enumerate(WINDOWS.split())
    ]
    return "\n".join([*lines, "B", ""])
