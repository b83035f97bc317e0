"""Spanish names (CoNLL-2002) by `TextFeatures` and a chain whose tags keep the rules of BIO.

People, places, organisations and the rest in news (Tjong Kim Sang 2002). Nothing beside the training sentences is
used: no lists, no clusters. What is chosen is chosen on ``esp.testa`` and from the two short lists here, `SETS` of
features (at the first penalty) and then the penalty; the chosen model meets ``esp.testb`` once. Then every group of
features is left out of the chosen set in turn, on testa.

The corpus has a few names that begin with I-; they are read as conlleval reads them and written as BIO before
training. F1 is of whole spans. With ``constraints="bio"`` no labelling that breaks the scheme has a probability, so
none can come out: this is counted over everything that any model here predicts, and over the answers of models of
random weights, which have no reason to keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from crfield.data.tokens import TokenColumns
from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.features.text.transformer import TextFeatures
from crfield.metrics import check_scheme, convert_sequences, span_report
from crfield.report.findings import Claim, Findings, percent
from crfield.storage.exchange import read_columns
from studies.framework import Case, Outcome, Outcomes, Settings, Study, data_path

Tags = list[list[str]]
WORDS = (("word[-1]", "word"), ("word", "word[+1]"))
SHAPES = (("short_shape[-1]", "short_shape", "short_shape[+1]"),)
AROUND = (("lower[-1]", "short_shape"), ("short_shape", "lower[+1]"))
LEAN: Mapping[str, Any] = MappingProxyType({"shape": None, "flags": None})
SETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "shapes together": {**LEAN, "conjunctions": WORDS + SHAPES},
        "and words around a shape": {**LEAN, "conjunctions": WORDS + SHAPES + AROUND, "lower": 1},
        "and neighbours' affixes": {**LEAN, "conjunctions": WORDS + SHAPES + AROUND, "lower": 1, "affixes": 1},
    }
)
GROUPS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "single words": {"word": None, "lower": None},
        "single shapes": {"shape": None, "short_shape": None},
        "affixes": {"prefixes": (), "suffixes": ()},
        "parts of speech": {"other": None},
        "conjunctions": {"conjunctions": ()},
        "neighbours": {name: 0 for name in ("word", "lower", "short_shape", "affixes", "other")}
        | {"conjunctions": (), "borders": 0},
    }
)
COLUMNS = ("features", "l2", "F1 testa", "− chosen", "precision", "recall", "F1 testb", "weights")
WANTED, N_RANDOM = 0.80, 5


def cases(settings: Settings) -> list[Case]:
    """One: what is tested and left out depends on what was chosen."""
    if not settings["penalties"] or not settings["sets"]:
        raise InputError("at least one set of features and one penalty must be named.")
    return [{}]


def run(settings: Settings, case: Case) -> Outcome:
    """Choose on testa, test once on testb, leave groups out."""
    penalties = settings["penalties"]
    train, choose, test = (
        read_names(data_path(settings, "conll2002", f"esp.{part}.gz"), settings["most_sentences"])
        for part in ("train", "testa", "testb")
    )
    trials = _Trials(train, choose, tol=settings["tol"], n_jobs=settings["n_jobs"])
    rows = [trials.row(name, SETS[name], penalties[0]) for name in settings["sets"]]
    best = max(rows, key=lambda row: float(row[2]))[0]
    rows += [trials.row(best, SETS[best], l2) for l2 in penalties[1:]]
    chosen = max(rows, key=lambda row: float(row[2]))
    features, model = trials.kept[chosen[0], chosen[1]]
    report = span_report(test[1], trials.predict(model, features, test[0]))
    chosen[4:7] = [float(report.precision), float(report.recall), float(report.f1)]
    for name in settings["groups"]:
        if any(SETS[best].get(option, "") != value for option, value in GROUPS[name].items()):
            row = trials.row(f"without {name}", {**SETS[best], **GROUPS[name]}, chosen[1], keep=False)
            rows.append([*row[:3], row[2] - chosen[2], *row[4:]])
    random = _random_answers(model, features.transform(test[0][:200]))
    answers = {"predicted": [tags for row in trials.predicted for tags in row], "random": random}
    illegal = {
        name: [sum(check_scheme([tags], "iob2") is not None for tags in some), len(some)]
        for name, some in answers.items()
    }
    return {"rows": rows, "chosen": chosen, "illegal": illegal, "steps": model.n_iter_}


def read_names(path: str, most: int | None = None) -> tuple[TokenColumns, Tags]:
    """Rows (word, part of speech) of a file of the corpus, and their tags as BIO."""
    X, y = read_columns(path)[:most].split_column(-1)
    return X, convert_sequences([tags.tolist() for tags in y], "iob2", "iob2")


class _Trials:
    """Models on the training part, and what they did on testa; ``predicted`` has all answers of all of them."""

    def __init__(self, train: tuple[Any, Tags], choose: tuple[Any, Tags], *, tol: float, n_jobs: int) -> None:
        self.train, self.choose, self.tol, self.n_jobs = train, choose, tol, n_jobs
        self.kept: dict[tuple[str, float], tuple[TextFeatures, ChainCRF]] = {}
        self.predicted: list[Tags] = []

    def row(self, name: str, options: Mapping[str, Any], l2: float, *, keep: bool = True) -> list[Any]:
        """Train, and score on testa; the cells of testb are left empty."""
        features = TextFeatures(**options)
        model = ChainCRF(l2=l2, constraints="bio", tol=self.tol, n_jobs=self.n_jobs)
        model.fit(features.transform(self.train[0]), self.train[1])
        f1 = float(span_report(self.choose[1], self.predict(model, features, self.choose[0])).f1)
        if keep:
            self.kept[name, l2] = features, model
        return [name, l2, f1, None, None, None, None, len(model.coef_)]

    def predict(self, model: ChainCRF, features: TextFeatures, X: Any) -> Tags:
        """Tags of X."""
        tags = [found.tolist() for found in model.predict(features.transform(X))]
        self.predicted.append(tags)
        return tags


def _random_answers(model: ChainCRF, X: Any) -> Tags:
    """What models of random weights answer: best paths, and the five best of some."""
    rng, out = np.random.default_rng(0), []
    for _ in range(N_RANDOM):
        other, weights = copy(model), rng.normal(scale=3.0, size=len(model.coef_))
        other._model = replace(model.column_model("random weights"), weights=weights)
        out += [tags.tolist() for tags in other.predict(X)]
        for labellings in other.predict_n_best(X[:20], 5):
            out += [labelling.labels.tolist() for labelling in labellings]
    return out


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Every set of features, every penalty, and the chosen ones without each group."""
    found, penalties, most = outcomes[0][1], settings["penalties"], settings["most_sentences"]
    learnt, chosen = "esp.train" if most is None else f"{most:,} sentences", found["chosen"]
    return Findings(
        f"Spanish names: TextFeatures and a chain with constraints='bio', trained on {learnt}; "
        "features and penalty chosen on testa",
        COLUMNS,
        tuple((row[0], f"{row[1]:g}", *row[2:]) for row in found["rows"]),
        notes=(
            f"features chosen among {'; '.join(settings['sets'])} at l2 = {penalties[0]:g}; then l2 among "
            f"{', '.join(f'{l2:g}' for l2 in penalties)}",
            f"chosen: {chosen[0]}, l2 = {chosen[1]:g}; this model alone met testb; stochastic epochs, then "
            f"{found['steps']} steps of L-BFGS",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Good enough, and always within the scheme."""
    f1, illegal = outcomes[0][1]["chosen"][6], outcomes[0][1]["illegal"]
    (wrong, of), (astray, drawn) = illegal["predicted"], illegal["random"]
    told = f"{wrong} of {of:,} predicted sentences, {astray} of {drawn:,} by {N_RANDOM} models of random weights"
    return [
        Claim(f"F1 on testb of at least {percent(WANTED, 0)}", f1 >= WANTED, percent(f1)),
        Claim("no answer breaks the scheme", not wrong and not astray, told),
    ]


FULL: Settings = {
    "sets": list(SETS),
    "penalties": [0.5, 0.25],
    "groups": list(GROUPS),
    "most_sentences": None,
    "tol": 1e-3,
}
QUICK: Settings = {
    "sets": ["shapes together"],
    "penalties": [1.0],
    "groups": ["affixes"],
    "most_sentences": 300,
    "tol": 1e-2,
}
STUDY = Study(FULL, QUICK, cases, run, report, claims)
