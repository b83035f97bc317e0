"""Spanish names (CoNLL-2002): tags of tokens against labels of segments, on the same features of tokens.

People, places, organisations and the rest in news (Tjong Kim Sang 2002). A tag-level chain (`ChainCRF`, tags in IOB2)
and semi-Markov models (`SemiMarkovCRF`) read the same columns of tokens: words, parts of speech and shapes around,
affixes. The semi-Markov model can also look at what no token has:

    tags of tokens          the chain: B-PER, I-PER, …
    segments and length     columns summed over a segment, those of its first and last token, its length
    … and their text        also every name, and every run of shapes, that was seen as a name in training

Penalties are chosen on ``esp.testa`` alone, from one grid for all models, and so is one of the semi-Markov models;
only that one and the chain then meet ``esp.testb``. F1 is of whole spans, by the rules of conlleval. Names longer
than the longest segment are cut for training, counted, and lost in testing, for no prediction can have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.segments.semi_markov import SemiMarkovCRF
from crfield.metrics import span_report, spans
from crfield.report.findings import Claim, Findings
from crfield.storage.exchange import read_columns
from studies.framework import Case, Outcome, Outcomes, Settings, Study, data_path

CHAIN, LENGTHS, TEXTS = "tags of tokens", "segments and length", "… and their text"
MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType({LENGTHS: {}, TEXTS: {"segment_text": ("word", "shape")}})
COLUMNS = ("model", "l2", "F1 testa", "precision", "recall", "F1 testb", "weights")
Sentence = list[dict[str, str]]
DRAWS = 1000


@dataclass(frozen=True)
class Part:
    """Sentences with the features of their tokens, and their tags."""

    X: list[Sentence]
    y: list[list[str]]


@dataclass(frozen=True)
class Choice:
    """The model of the penalty that did best on testa, and what each penalty did there."""

    model: Any
    l2: float
    tried: Mapping[float, float]

    @property
    def f1(self) -> float:
        """F1 on testa."""
        return self.tried[self.l2]


def cases(settings: Settings) -> list[Case]:
    """One: what is tested depends on what was chosen."""
    if not settings["penalties"]:
        raise InputError("penalties must name at least one l2, got none.")
    return [{}]


def run(settings: Settings, case: Case) -> Outcome:
    """Every model at every penalty on testa; the chain and the best model of segments on testb."""
    train, choose, test = (
        read_part(data_path(settings, "conll2002", f"esp.{name}.gz"), settings["most_sentences"])
        for name in ("train", "testa", "testb")
    )
    found = {}
    for name in (CHAIN, *MODELS):
        options = {option: settings[option] for option in ("max_length", "tol", "n_jobs")}
        found[name] = chosen(_model(name, **options), settings["penalties"], train, choose)
    best = max(MODELS, key=lambda name: found[name].f1)
    predicted = {name: [tags.tolist() for tags in found[name].model.predict(test.X)] for name in (CHAIN, best)}
    models = {}
    for name, choice in found.items():
        scores: list[float | None] = [None, None, None]
        if name in predicted:
            report = span_report(test.y, predicted[name])
            scores = [report.precision, report.recall, report.f1]
        tried = [[l2, f1] for l2, f1 in choice.tried.items()]
        own = {"l2": choice.l2, "f1": choice.f1, "tried": tried, "test": scores, "weights": len(choice.model.coef_)}
        models[name] = own
    return {
        "models": models,
        "best": best,
        "gap": gap_interval(test.y, predicted[best], predicted[CHAIN]),
        "long": _long_names(train, test, settings["max_length"], found[best].model.n_split_),
    }


def chosen(model: Any, penalties: Sequence[float], train: Part, choose: Part) -> Choice:
    """The model at each penalty, from strong to weak, and which does best on testa.

    Semi-Markov models go on from the weights of the penalty before, which takes about half the evaluations; a chain's
    stochastic epochs are as fast from nothing.
    """
    tried: dict[float, float] = {}
    best = model
    for l2 in sorted(set(penalties), reverse=True):
        fitted = copy(model.set_params(l2=l2).fit(train.X, train.y))
        tried[l2] = float(span_report(choose.y, [tags.tolist() for tags in fitted.predict(choose.X)]).f1)
        if tried[l2] == max(tried.values()):
            best = fitted
    return Choice(best, best.l2, tried)


def _model(name: str, *, max_length: int, tol: float, n_jobs: int) -> Any:
    if name == CHAIN:
        return ChainCRF(tol=tol, n_jobs=n_jobs)
    options = dict(MODELS[name])
    return SemiMarkovCRF(max_length=max_length, scheme="iob2", tol=tol, warm_start=True, n_jobs=n_jobs, **options)


def read_part(path: str, most: int | None = None) -> Part:
    """Sentences of a file of the corpus: word, part of speech, tag."""
    X, y = [], []
    for sentence in read_columns(path)[:most]:
        X.append(token_features([row[0] for row in sentence], [row[1] for row in sentence]))
        y.append([row[2] for row in sentence])
    return Part(X, y)


def shape_of(word: str) -> str:
    """Letters and digits by kind, repetitions left out.

    >>> [shape_of(word) for word in ("Barcelona", "EFE", "25-M", "del")]
    ['Aa', 'A', '0-A', 'a']
    """
    out = ""
    for letter in word:
        kind = "A" if letter.isupper() else "a" if letter.islower() else "0" if letter.isdigit() else letter
        if not out.endswith(kind):
            out += kind
    return out


def token_features(words: Sequence[str], tags: Sequence[str]) -> Sentence:
    """Word, part of speech and shape of each token and its neighbours; affixes.

    >>> features = token_features(["La", "Coruña", "duerme"], ["DA", "NC", "VMI"])[1]
    >>> features["word"], features["shape-1"], features["tail3"], features["word+1"]
    ('Coruña', 'Aa', 'uña', 'duerme')
    """
    shapes = [shape_of(word) for word in words]
    out = []
    for t, word in enumerate(words):
        own = {"word": word, "tag": tags[t], "shape": shapes[t], "lower": word.lower(), "first": str(t == 0)}
        for size in (2, 3, 4):
            own[f"head{size}"], own[f"tail{size}"] = word[:size], word[-size:]
        for step in (-2, -1, 1, 2):
            inside = 0 <= t + step < len(words)
            own[f"word{step:+d}"] = words[t + step] if inside else "<>"
            own[f"tag{step:+d}"] = tags[t + step] if inside else "<>"
            own[f"shape{step:+d}"] = shapes[t + step] if inside else "<>"
        own["words-1"], own["words+1"] = f"{own['word-1']}|{word}", f"{word}|{own['word+1']}"
        own["shapes"] = f"{own['shape-1']}|{shapes[t]}|{own['shape+1']}"
        out.append(own)
    return out


def gap_interval(
    truth: Sequence[list[str]], one: Sequence[list[str]], other: Sequence[list[str]]
) -> tuple[float, ...]:
    """F1 of one − F1 of the other, and its 95 % interval by drawing sentences again (Efron's bootstrap).

    >>> gap_interval([["B-X"], ["O"]] * 20, [["B-X"], ["O"]] * 20, [["O"], ["O"]] * 20)
    (1.0, 1.0, 1.0)
    """
    counts = np.array(
        [
            [len(gold & a), len(gold & b), len(gold), len(a), len(b)]
            for gold, a, b in ((set(spans(t)), set(spans(p)), set(spans(q))) for t, p, q in zip(truth, one, other))
        ],
        dtype=np.float64,
    )

    def gap(weights: np.ndarray) -> np.ndarray:
        hit_a, hit_b, gold, said_a, said_b = weights @ counts
        return np.asarray(2 * hit_a / max(gold + said_a, 1.0) - 2 * hit_b / max(gold + said_b, 1.0))

    rng, n = np.random.default_rng(0), len(counts)
    drawn = [float(gap(rng.multinomial(n, np.full(n, 1 / n)).astype(np.float64))) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(gap(np.ones(n))), float(low), float(high)


def _long_names(train: Part, test: Part, most: int, n_split: int) -> str:
    told = []
    for name, part in (("train", train), ("testb", test)):
        lengths = np.array([stop - start for tags in part.y for start, stop, _ in spans(tags)])
        told.append(f"{int((lengths > most).sum())} of {len(lengths):,} in {name} (longest {lengths.max(initial=0)})")
    return f"names of more than {most} tokens: {', '.join(told)}; in training {n_split} were cut into pieces"


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Every model at its best penalty."""
    found, most = outcomes[0][1], settings["most_sentences"]
    learnt = "esp.train" if most is None else f"{most:,} sentences"
    return Findings(
        f"Spanish names: trained on {learnt}, penalty and segment features chosen on testa, segments of at most "
        f"{settings['max_length']} tokens",
        COLUMNS,
        tuple(
            (name, f"{own['l2']:g}", own["f1"], *own["test"], own["weights"]) for name, own in found["models"].items()
        ),
        notes=(
            *(
                f"F1 on testa by l2, {name}: {', '.join(f'{l2:g} {100 * f1:.2f}' for l2, f1 in own['tried'])}"
                for name, own in found["models"].items()
            ),
            found["long"],
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Segments are not below tags."""
    best, (gap, low, high) = outcomes[0][1]["best"], outcomes[0][1]["gap"]
    found = f"{100 * gap:+.2f} points, 95 % interval {100 * low:+.2f} … {100 * high:+.2f} (sentences drawn again)"
    if settings["most_sentences"] is None:
        return [Claim(f"{best}, chosen on testa: F1 on testb not below that of {CHAIN}", gap >= 0, found)]
    return [Claim(f"{best}, chosen on testa: within ten points of {CHAIN}", gap > -0.1, found)]


FULL: Settings = {"penalties": [2.0, 1.0, 0.5], "max_length": 10, "most_sentences": None, "tol": 1e-3}
STUDY = Study(FULL, {**FULL, "penalties": [1.0], "most_sentences": 300, "tol": 1e-2}, cases, run, report, claims)
