"""One sentence at a time: ``model.tagger().tag`` against python-crfsuite's ``Tagger.tag`` with the same features.

Sentences of 4 and of 20 tokens, each tagged by a call of its own, as a service does it that has one request at a
time. The features are those of the chunking template, 19 a token: as dicts ``{"U00": "the", …}`` and as lists of
strings, made before the clock starts. Our models are one trained here and CRFsuite's own file read by `crfield.load`;
models of CRF++ and Wapiti start from raw columns and fill their template inside the clock, for which the rival has
the strings ready. Their files are written here from our weights, since only reading them is ours. `predict` of one
sentence stands beside, and `predict` of many by models that were trained here and read from elsewhere.

Both sides are called in a loop of Python over a few hundred different sentences, so that caches are as cold as in
use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import crfield
from benchmarks import crfsuite_rival
from benchmarks.contestant import LIKE_CRFSUITE, chain
from benchmarks.corpora import Bench, Strings, chunk_strings
from benchmarks.table import Row
from benchmarks.timing import Timing, interleaved
from crfield import ChainCRF
from crfield.errors import ConvergenceWarning

REQUIRED = {4: 1.0, 20: 2.0}  # times faster than the rival
MANY_REQUIRED = 4.0
SENTENCES = 200
MANY = 800


def run(bench: Bench) -> list[Row]:
    """Sentences one by one, then many at once."""
    corpus, turns = bench.chunks, 5 if bench.quick else 15
    train, test = corpus.train, corpus.test
    strings = chunk_strings(train.rows)
    paths = {form: bench.path(f"sentence-{form}.crfsuite") for form in ("strings", "dicts")}
    crfsuite_rival.train(strings, train.tags, paths["strings"], max_iterations=10)
    crfsuite_rival.train(_dicts(strings), train.tags, paths["dicts"], max_iterations=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps give a model of the right size
        of_strings = ChainCRF(**LIKE_CRFSUITE, n_jobs=1, max_iter=5).fit(strings, train.tags)
        of_dicts = ChainCRF(**LIKE_CRFSUITE, n_jobs=1, max_iter=5).fit(_dicts(strings), train.tags)
        of_columns = chain(corpus.template, max_iter=5).fit(train.rows, train.tags)
    del strings
    rivals = {form: crfsuite_rival.tagger(path) for form, path in paths.items()}
    read = {form: crfield.load(path) for form, path in paths.items()}
    crfpp = crfield.load(_crfpp_file(of_columns, Path(bench.path("sentence-crfpp.txt"))))
    wapiti = crfield.load(_wapiti_file(of_columns, Path(bench.path("sentence.wapiti"))))

    def data(sentences: Sequence[Any]) -> dict[str, Any]:
        made = chunk_strings(sentences)
        return {"strings": made, "dicts": _dicts(made), "columns": sentences}

    rows = []
    for length, required in REQUIRED.items():
        given = data([s[:length] for s in test.rows if len(s) >= length][:SENTENCES])
        cases: list[tuple[str, str, str, Callable[[Any], Any]]] = [
            ("dicts, trained here", "dicts", "dicts", of_dicts.tagger().tag),
            ("dicts, read from CRFsuite", "dicts", "dicts", read["dicts"].tagger().tag),
            ("strings, trained here", "strings", "strings", of_strings.tagger().tag),
            ("strings, read from CRFsuite", "strings", "strings", read["strings"].tagger().tag),
            ("columns with a template, trained here", "columns", "strings", of_columns.tagger().tag),
            ("columns, read from CRF++", "columns", "strings", crfpp.tagger().tag),
            ("columns, read from Wapiti", "columns", "strings", wapiti.tagger().tag),
            ("dicts, predict([x])", "dicts", "dicts", lambda x: of_dicts.predict([x])),
            ("strings, predict([x])", "strings", "strings", lambda x: of_strings.predict([x])),
        ]
        for name, form, rival_form, tag in cases:
            ours, rival = interleaved(
                _each(tag, given[form]), _each(rivals[rival_form].tag, given[rival_form]), turns=turns
            )
            asked = bench.judged(1.0 if "predict" in name else required)
            rows.append(_row(f"sentence of {length}: {name}", ours, rival, len(given[form]), asked))
    given = data(test.rows[:MANY])
    for name, form, rival_form, model in (
        ("dicts, trained here", "dicts", "dicts", of_dicts),
        ("dicts, read from CRFsuite", "dicts", "dicts", read["dicts"]),
        ("strings, trained here", "strings", "strings", of_strings),
        ("strings, read from CRFsuite", "strings", "strings", read["strings"]),
        ("columns, read from CRF++", "columns", "strings", crfpp),
        ("columns, read from Wapiti", "columns", "strings", wapiti),
    ):
        ours, rival = interleaved(
            lambda model=model, form=form: model.predict(given[form]),  # type: ignore[misc]
            _each(rivals[rival_form].tag, given[rival_form]),
            turns=max(3, turns // 2),
        )
        asked = bench.judged(MANY_REQUIRED) if "CRFsuite" in name else None
        rows.append(_row(f"predict of {len(given[form])} sentences: {name}", ours, rival, len(given[form]), asked))
    return rows


def _row(name: str, ours: Timing, rival: Timing, calls: int, required: float | None) -> Row:
    """How many times faster, with microseconds of a sentence beside it."""

    def each(timing: Timing) -> str:
        return f"{timing.best / calls * 1e6:.3g} µs"

    ratio = rival.median / ours.median
    detail = {"ours_best": ours.best, "rival_best": rival.best, "ratio_of_medians": ratio, "sentences": calls}
    return Row(
        name,
        rival.best / ours.best,
        required=required,
        ours=each(ours),
        rival=each(rival),
        note=f"medians {ratio:.2f}×",
        detail=detail,
    )


def _each(tag: Callable[[Any], Any], sentences: Sequence[Any]) -> Callable[[], None]:
    def all_of_them() -> None:
        for sentence in sentences:
            tag(sentence)

    return all_of_them


def _dicts(sequences: Strings) -> list[list[dict[str, str]]]:
    """``["U00:the", …]`` as ``{"U00": "the", …}``."""
    return [[dict(feature.split(":", 1) for feature in step) for step in steps] for steps in sequences]  # type: ignore[misc]


def _crfpp_file(model: ChainCRF, path: Path) -> Path:
    """The weights of a model of columns as a text model of CRF++: dense over the labels, in the order of names."""
    names, table, pairs = _weights(model, "_B")
    labels = [str(label) for label in model.classes_.tolist()]
    size = len(labels)
    lines = ["version: 100", "cost-factor: 1", f"maxid: {size * size + table.size}", "xsize: 2", "", *labels, ""]
    lines += [*str(model.template).strip().splitlines(), ""]
    lines += ["0 B", *(f"{size * size + size * k} {name}" for k, name in enumerate(names)), ""]
    lines += [repr(weight) for weight in [*pairs.ravel().tolist(), *table.ravel().tolist()]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _wapiti_file(model: ChainCRF, path: Path) -> Path:
    """The same as a model of Wapiti, which stores what is not 0."""
    names, table, pairs = _weights(model, "_x")
    patterns = [_lower(line) for line in str(model.template).strip().splitlines() if line[:1] in "UB"]
    observations = [_lower("B"), *map(_lower, names)]
    flat = np.concatenate([pairs.ravel(), table.ravel()])
    met = np.flatnonzero(flat)
    parts = [f"#mdl#2#{len(met)}\n#rdr#{len(patterns)}/2/0\n", *map(_counted, patterns)]
    parts += [f"#qrk#{len(model.classes_)}\n", *map(_counted, map(str, model.classes_.tolist()))]
    parts += [f"#qrk#{len(observations)}\n", *map(_counted, observations)]
    parts += [f"{k}={float(flat[k]).hex()}\n" for k in met.tolist()]
    path.write_text("".join(parts), encoding="utf-8")
    return path


def _weights(model: ChainCRF, mark: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the node columns, with a tool's mark beyond the ends, weights (K, L), and of transitions (L, L)."""
    inner = model.column_model("benchmark")
    column, label = inner.layout.node_features()
    table = np.zeros((inner.layout.n_columns, inner.layout.n_labels))
    table[column, label] = inner.weights[inner.layout.part["node"]]
    names = [
        inner.encoder.node_name(k).replace("_B-", f"{mark}-").replace("_B+", f"{mark}+") for k in range(len(table))
    ]
    return names, table, np.nan_to_num(inner.layout.transitions(inner.weights))


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _counted(text: str) -> str:
    return f"{len(text.encode())}:{text},\n"
