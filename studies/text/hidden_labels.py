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

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.estimators.base.sequences import taken
from crfield.estimators.chain.crf import ChainCRF
from crfield.metrics import span_report
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.storage.exchange import read_columns
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seeds, data_path

WINDOWS = (
    "-2,0 -1,0 0,0 1,0 2,0 -1,0/0,0 0,0/1,0 -2,1 -1,1 0,1 1,1 2,1 -2,1/-1,1 -1,1/0,1 0,1/1,1 1,1/2,1 "
    "-2,1/-1,1/0,1 -1,1/0,1/1,1 0,1/1,1/2,1"
)
ALL, LABELS, SENTENCES = "all labels", "half of the labels", "half of the sentences"
COLUMNS = ("trained on", "labels", "F1", "F1 − all labels")
MOST = 0.01


def cases(settings: Settings) -> list[Case]:
    """All labels once, whatever the seed; then a case for each seed."""
    return [{"seed": None}, *by_seeds(settings)]


def run(settings: Settings, case: Case) -> Outcome:
    """F1 on the test part and the number of labels, for each training of the seed."""
    (X, y), (X_test, y_test) = (read_chunks(settings, part) for part in ("train", "test"))
    X, y = X[: settings["most_sentences"]], y[: settings["most_sentences"]]

    def judged(X: Any, y: Any) -> list[float]:
        model = ChainCRF(template=chunk_template(), tol=settings["tol"], n_jobs=settings["n_jobs"]).fit(X, y)
        known = sum(label is not None for labels in y for label in labels)
        return [float(span_report(y_test, model.predict(X_test)).f1), known]

    if case["seed"] is None:
        return {"sentences": len(y), ALL: judged(X, y)}
    rng = np.random.default_rng(case["seed"])
    hidden = hide(y, rng)
    kept = np.sort(rng.permutation(len(y))[: len(y) // 2])
    return {LABELS: judged(X, hidden), SENTENCES: judged(taken(X, kept), [y[k] for k in kept])}


def read_chunks(settings: Settings, part: str) -> tuple[Any, Any]:
    """Words with their parts of speech, and the chunks, of the sentences of a part of CoNLL-2000."""
    return read_columns(data_path(settings, "conll2000", f"{part}.txt.gz")).split_column(-1)


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


def _scores(outcomes: Outcomes) -> dict[str, list[float]]:
    return {name: [own[name][0] for _, own in outcomes if name in own] for name in (ALL, LABELS, SENTENCES)}


def _drops(outcomes: Outcomes) -> dict[str, list[float]]:
    scores = _scores(outcomes)
    return {name: [f1 - scores[ALL][0] for f1 in scores[name]] for name in (LABELS, SENTENCES)}


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """F1 and labels of each training."""
    scores, drops = _scores(outcomes), _drops(outcomes)
    rows = [
        (
            name,
            f"{np.mean([own[name][1] for _, own in outcomes if name in own]):,.0f}",
            mean_interval(found),
            mean_interval(drops[name]) if name in drops else None,
        )
        for name, found in scores.items()
    ]
    seeds = (f"{name} {', '.join(f'{100 * f1:.2f}' for f1 in found)}" for name, found in scores.items())
    return Findings(
        f"Chunks: {outcomes[0][1]['sentences']:,} sentences, labels or sentences left out, {len(settings['seeds'])} "
        "seeds; F1 on the test part",
        COLUMNS,
        tuple(rows),
        notes=(
            "features: CRF++'s example for chunking; l2 = 1; ± is half of the 95 % interval of the mean over seeds",
            f"F1 by seed: {'; '.join(seeds)}",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Hidden labels cost little, and less than missing sentences."""
    lost = {name: -float(np.mean(drops)) for name, drops in _drops(outcomes).items()}
    told = ", ".join(f"{name} {100 * value:.2f}" for name, value in lost.items())
    sentence = f"hiding half of the labels costs less than {100 * MOST:.1f} points of F1"
    return [
        Claim(sentence, lost[LABELS] < MOST, f"{100 * lost[LABELS]:.2f}"),
        Claim("and less than half of the sentences does", lost[LABELS] < lost[SENTENCES], told),
    ]


FULL: Settings = {"seeds": [0, 1, 2], "most_sentences": None, "tol": 1e-3}
STUDY = Study(FULL, {"seeds": [0, 1], "most_sentences": 400, "tol": 1e-2}, cases, run, report, claims)
