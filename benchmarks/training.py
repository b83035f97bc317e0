"""Training from Python lists to within 1e-4 of the optimum, data conversion included.

Ours: `ChainCRF.fit` on lists of (word, tag) tuples with the default tolerance. python-crfsuite: string features
made by a Python function, ``Trainer.append``, ``Trainer.train`` until its objective is within 1e-4 of the
optimum or it stops by itself, whichever is first. The optimum is ours at a tolerance of 1e-7; it is checked against
CRFsuite's, and our objective against CRFsuite's at CRFsuite's own weights (read as doubles from its model file),
where also the best labels of all test sentences must be the same.

That is what users of either write, and it charges CRFsuite for strings that Python makes. So there is a row in which
both are handed the same lists of strings, made beforehand and not timed: chunks, and Spanish names where these lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import crfsuite_rival
from benchmarks.contestant import LIKE_CRFSUITE, Ours, chain
from benchmarks.corpora import Bench, Labelled, Strings, Tags, chunk_strings, entity_strings, spanish_names
from benchmarks.crfsuite_model import read_model
from benchmarks.table import Row, ratio, seconds
from benchmarks.timing import Timing, settled
from crfield import ChainCRF
from crfield.metrics import span_f1

REQUIRED, GOAL = 8.0, 10.0
WITHIN = 1e-4


def run(bench: Bench) -> list[Row]:
    """Time, then the checks of value, optimum and quality."""
    corpus = bench.chunks
    train = corpus.train.first(1_000) if bench.quick else corpus.train
    judged = corpus.real and not bench.quick
    ours = Ours.build(train, corpus.template, n_jobs=2)
    optimum = ours.minimise(tol=1e-7).value

    fits = []
    mine = Timing()

    def fit() -> None:
        with settled(), mine.turn():
            fits.append(chain(corpus.template).fit(train.rows, train.tags))

    fit()
    conversion = Timing()
    with settled():
        with conversion.turn():
            strings = chunk_strings(train.rows)
        path = bench.path("training.crfsuite")
        trained = crfsuite_rival.train(strings, train.tags, path)
    del strings
    fit()
    if bench.quick:
        fit()
    training, reached = trained.until(optimum * (1 + WITHIN))
    theirs = Timing([conversion.best + trained.append_seconds + training])
    end = (
        f"at iteration {reached}" if reached else f"by its own rule after {len(trained.iterations)}, not within 1e-4"
    )
    model = fits[0]
    worst = max(fit.objective_ for fit in fits)
    rows = [
        ratio(
            f"training: {len(train.rows):,} sentences to 1e-4 of the optimum",
            mine,
            theirs,
            required=REQUIRED if judged else None,
            goal=GOAL,
            note=f"ours {model.n_iter_} steps or epochs, {model.n_evaluations_} evaluations; CRFsuite ends {end}; "
            f"its strings {seconds(conversion.best)}, append {seconds(trained.append_seconds)}, "
            f"training {seconds(training)}",
        ),
        Row(
            "training: our gap to the optimum with default options",
            worst / optimum - 1,
            unit="",
            required=WITHIN,
            better="less",
            ours=f"{worst:,.4f}",
            rival=f"{optimum:,.4f}",
            note="rival: our optimum (tolerance 1e-7)",
        ),
        Row(
            "training: our optimum above CRFsuite's end",
            optimum / trained.loss - 1,
            unit="",
            required=1e-5,
            better="less",
            ours=f"{optimum:,.4f}",
            rival=f"{trained.loss:,.4f}",
        ),
    ]
    rows += [same_strings(bench, name, X, y) for name, X, y in string_sets(bench, train)]
    rows += same_weights(ours, path, trained.loss, corpus)
    f1 = span_f1(corpus.test.tags, model.predict(corpus.test.rows))
    rows.append(Row("training: span F1 on the test part", 100 * f1, unit="%", required=93.5 if judged else None))
    return rows


def string_sets(bench: Bench, train: Labelled) -> Iterator[tuple[str, Strings, Tags]]:
    """Names, lists of strings and labels."""
    yield "chunks", chunk_strings(train.rows), train.tags
    names = spanish_names(bench)
    if names is not None:
        yield "Spanish names", entity_strings(names.rows), names.tags


def same_strings(bench: Bench, name: str, X: Strings, y: Tags) -> Row:
    """Time to 1e-4 of the optimum from the same lists of strings on both sides."""
    mine, options = Timing(), {**LIKE_CRFSUITE, "n_jobs": 1}
    model = None
    for _ in range(2):
        with settled(), mine.turn():
            model = ChainCRF(**options).fit(X, y)
    assert model is not None
    optimum = ChainCRF(**options, tol=1e-6, max_iter=2000).fit(X, y).objective_
    with settled():
        trained = crfsuite_rival.train(X, y, bench.path("strings.crfsuite"))
    training, reached = trained.until(optimum * (1 + WITHIN))
    return ratio(
        f"training: the same lists of strings, {len(X):,} sentences of {name}",
        mine,
        Timing([trained.append_seconds + training]),
        note=f"ours {model.n_evaluations_} evaluations, {model.objective_ / optimum - 1:.0e} above the optimum; "
        f"CRFsuite {f'there at iteration {reached}' if reached else 'ends by its own rule before'}, append "
        f"{seconds(trained.append_seconds)}, training {seconds(training)}",
    )


def same_weights(ours: Ours, path: str, loss: float, corpus: Any) -> list[Row]:
    """Objective and best labels under CRFsuite's own weights."""
    weights = ours.weights_of(read_model(path))
    value = ours.objective(weights)
    tagger = crfsuite_rival.tagger(path)
    theirs = [tagger.tag(features) for features in chunk_strings(corpus.test.rows)]
    mine = ours.tag(weights, corpus.test.rows)
    differ = sum(a != b for a, b in zip(mine, theirs))
    return [
        Row(
            "training: our value of CRFsuite's weights, relative difference",
            abs(value / loss - 1),
            unit="",
            required=1e-9,
            better="less",
            ours=f"{value:,.6f}",
            rival=f"{loss:,.6f}",
        ),
        Row(
            "training: sentences tagged otherwise with CRFsuite's weights",
            float(differ),
            unit="",
            required=0,
            better="less",
            note=f"of {len(mine):,}",
        ),
    ]
