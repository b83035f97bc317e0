"""Tagging the test part, from strings already made and from raw columns.

From strings: `ChainCRF.predict` on lists of lists of strings against ``Tagger.tag`` on the same lists. From columns:
`ChainCRF.predict` with a template on lists of tuples against the Python function that makes the strings plus
``Tagger.tag``, which is what tagging costs who starts from text. That function is either general, filling the
template token by token, or written by hand for this one template, some three times as fast; both are shown, and
the figure asked for is that of the template. All models have the same features.
"""

from __future__ import annotations

import warnings

from benchmarks import crfsuite_rival
from benchmarks.contestant import LIKE_CRFSUITE, chain
from benchmarks.corpora import Bench, Strings, chunk_strings, template_strings
from benchmarks.table import Row, ratio, seconds
from benchmarks.timing import interleaved
from crfield import ChainCRF
from crfield.errors import ConvergenceWarning

STRINGS_REQUIRED, COLUMNS_REQUIRED = 3.0, 20.0


def run(bench: Bench) -> list[Row]:
    """Both ways of starting."""
    corpus, turns = bench.chunks, 3 if bench.quick else 7
    train, test = corpus.train, corpus.test
    path = bench.path("tagging.crfsuite")
    strings = chunk_strings(train.rows)
    crfsuite_rival.train(strings, train.tags, path, max_iterations=10)
    with warnings.catch_warnings():
        # A few steps give a model of the right size; its quality is the business of `training`.
        warnings.simplefilter("ignore", ConvergenceWarning)
        from_strings = ChainCRF(**LIKE_CRFSUITE, n_jobs=1, max_iter=1).fit(strings, train.tags)
        from_columns = chain(corpus.template, max_iter=1).fit(train.rows, train.tags)
    del strings
    tagger = crfsuite_rival.tagger(path)
    made = chunk_strings(test.rows)

    def tag(sequences: Strings) -> list[list[str]]:
        return [tagger.tag(features) for features in sequences]

    ours, rival = interleaved(lambda: from_strings.predict(made), lambda: tag(made), turns=turns)
    rows = [
        ratio(
            f"tagging: {test.n_tokens:,} tokens from lists of strings",
            ours,
            rival,
            required=bench.judged(STRINGS_REQUIRED),
            note=f"ours {test.n_tokens / ours.best / 1e6:.2f} M tokens/s",
        )
    ]
    for way, make, required in (
        ("the template in Python", lambda rows: template_strings(corpus.template, rows), COLUMNS_REQUIRED),
        ("strings by hand", chunk_strings, None),
    ):
        ours, making, both = interleaved(
            lambda: from_columns.predict(test.rows),
            lambda make=make: make(test.rows),  # type: ignore[misc]
            lambda make=make: tag(make(test.rows)),  # type: ignore[misc]
            turns=turns,
        )
        rows.append(
            ratio(
                f"tagging: {test.n_tokens:,} tokens from raw columns / {way}",
                ours,
                both,
                required=None if required is None else bench.judged(required),
                note=f"ours {test.n_tokens / ours.best / 1e6:.2f} M tokens/s; making strings {seconds(making.best)}",
            )
        )
    return rows
