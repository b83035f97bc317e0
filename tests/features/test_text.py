"""Features of words: against a plain loop over tokens, and at their edges."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import crfield
from crfield.errors import FeatureError, FormatError, InputError, NotFittedError, ShapeError
from crfield.features.text.lexicon import Lexicon
from crfield.features.text.transformer import RARE, TextFeatures
from crfield.features.text.words import FLAGS, length_bucket, shape, short_shape, word_flags

SENTENCES = [
    [("Ana", "NP"), ("vive", "VM"), ("en", "SP"), ("San", "NP"), ("Sebastián", "NP"), (".", "F")],
    [],
    [("EFE", "NP")],
    [("En", "SP"), ("1998", "Z"), ("La", "DA"), ("Coruña", "NP"), ("perdió", "VM"), ("3-0", "Z")],
]
PLACES = {"San Sebastián", "San", "La Coruña"}
CLUSTERS = {"Ana": "0011", "San": "010101", "La": "01"}
NOTHING: dict[str, Any] = {
    "word": None,
    "lower": None,
    "shape": None,
    "short_shape": None,
    "flags": None,
    "prefixes": (),
    "suffixes": (),
    "other": None,
    "conjunctions": (),
    "borders": 0,
}


def name(kind: str, place: int) -> str:
    return f"{kind}[{place:+d}]" if place else kind


def by_hand(sentence: list[tuple[str, str]]) -> list[set[str]]:
    """Every kind of feature within one step, token by token."""
    words = [row[0] for row in sentence]
    marks = Lexicon(PLACES).mark(words)
    out = []
    for t in range(len(words)):
        found = set()
        for place in (-1, 0, 1):
            n = t + place
            if n < 0:
                found.add("start[-1]")
                continue
            if n >= len(words):
                found.add("end[+1]")
                continue
            word = words[n]
            single = {
                "word": word,
                "lower": word.lower(),
                "shape": shape(word),
                "short_shape": short_shape(word),
                "length": length_bucket(word),
                "tag": sentence[n][1],
            }
            if len(word) >= 3:
                single |= {"prefix3": word[:3], "suffix3": word[-3:]}
            if marks[n]:
                single["lexicon.place"] = str(marks[n])
            for size in (2, 4):
                if len(CLUSTERS.get(word, "")) >= size:
                    single[f"cluster{size}"] = CLUSTERS[word][:size]
            found |= {f"{name(kind, place)}={value}" for kind, value in single.items()}
            found |= {name(flag, place) for flag in word_flags(word)}
        before = sentence[t - 1][1] if t else "<start>"
        after = short_shape(words[t + 1]) if t + 1 < len(words) else "<end>"
        found.add(f"tag[-1]|word|short_shape[+1]={before}|{words[t]}|{after}")
        if marks[t]:
            found.add(f"lexicon.place|word={marks[t]}|{words[t]}")
        out.append(found)
    return out


def everything() -> TextFeatures:
    window = dict.fromkeys(("word", "lower", "shape", "short_shape", "length", "flags", "affixes", "other"), 1)
    return TextFeatures(
        **window,
        prefixes=(3,),
        suffixes=(3,),
        lexicons={"place": PLACES},
        clusters=CLUSTERS,
        cluster_bits=(2, 4),
        conjunctions=[("tag[-1]", "word", "short_shape[+1]"), ("lexicon.place", "word")],
        borders=1,
    )


@pytest.mark.parametrize("form", ["rows", "columns", "tuples"])
def test_features_are_those_of_a_plain_loop(form: str) -> None:
    X: Any = SENTENCES
    if form == "columns":
        X = crfield.TokenColumns.from_sequences(SENTENCES)
    elif form == "tuples":
        X = tuple(np.array(sentence, dtype=object).reshape(len(sentence), 2).tolist() for sentence in SENTENCES)
    made = everything().transform(X)
    assert len(made) == len(SENTENCES)
    for found, sentence in zip(made, SENTENCES):
        assert [set(step) for step in found] == by_hand(sentence)
        assert all(len(set(step)) == len(step) for step in found)


def test_words_alone_are_the_word_column() -> None:
    words = [[row[0] for row in sentence] for sentence in SENTENCES]
    alone = TextFeatures().transform(words)
    both = TextFeatures(other=None).transform(SENTENCES)
    assert [list(x) for x in alone] == [list(x) for x in both]


def test_a_sentence_has_the_same_features_alone_and_among_others() -> None:
    features = everything()
    together = features.transform(SENTENCES)
    for k, sentence in enumerate(SENTENCES):
        assert features.transform([sentence])[0] == together[k]


def test_rare_words_lose_their_name_but_not_their_look() -> None:
    words = [["Ana", "Ana", "Eva"], ["Ana", "duerme"]]
    features = TextFeatures(**{**NOTHING, "word": 0, "suffixes": (2,)}, min_count=2)
    with pytest.raises(NotFittedError, match="min_count"):
        features.transform(words)
    features.fit(words)
    assert features.vocabulary_ == {"Ana"}
    assert features.transform([["Ana", "Eva", "Leo"]])[0] == [
        ["word=Ana", "suffix2=na"],
        [f"word={RARE}", "suffix2=va"],
        [f"word={RARE}", "suffix2=eo"],
    ]


def test_lexicon_takes_the_longest_and_goes_on_behind_it() -> None:
    lexicon = Lexicon(["a b c", "a b", "b", ("c", "d")])
    assert lexicon.mark(list("abcdabbxcda")) == ["B", "I", "I", None, "B", "I", "B", None, "B", "I", None]
    assert lexicon.mark([]) == []
    assert len(Lexicon(["A b", "a B"], ignore_case=True)) == 1
    with pytest.raises(InputError, match="collection"):
        Lexicon("Madrid")
    with pytest.raises(InputError, match="entry"):
        Lexicon([3])


def test_files_of_entries_and_clusters() -> None:
    assert crfield.read_clusters(io.StringIO("Ana\t0011\nSan\t01\n")) == {"Ana": "0011", "San": "01"}
    with pytest.raises(FormatError, match="line 2"):
        crfield.read_clusters(io.StringIO("0011\tAna\t3\nnothing\n"))


def test_empty_and_single() -> None:
    features = TextFeatures()
    assert len(features.transform([])) == 0
    assert list(features.transform([[], []])) == [[], []]
    assert "end[+1]" in features.transform([["sí"]])[0][0]
    assert list(TextFeatures(**NOTHING).transform([["a", "b"]])) == [[[], []]]
    assert TextFeatures(**{**NOTHING, "shape": 0}).transform([[""]])[0] == [["shape="]]


@pytest.mark.parametrize(
    ("options", "X", "error", "words"),
    [
        ({}, ["one sentence"], FeatureError, "list of words"),
        ({}, "text", FeatureError, "list of sentences"),
        ({}, [["a", 3]], FeatureError, "step 1 is 3"),
        ({}, [[("a", "b"), ("c",)]], FeatureError, "rows"),
        ({"columns": ["word"]}, [[("a", "b")]], ShapeError, "2 columns"),
        ({"columns": ["form", "tag"]}, [[("a", "b")]], InputError, "'word'"),
        ({"columns": ["word", "caps"]}, [[("a", "b")]], InputError, "caps"),
        ({"word": -1}, [["a"]], InputError, "radius"),
        ({"word": "2"}, [["a"]], InputError, "radius"),
        ({"suffixes": (0,)}, [["a"]], InputError, "suffixes"),
        ({"min_count": 0}, [["a"]], InputError, "min_count"),
        ({"borders": -1}, [["a"]], InputError, "borders"),
        ({"conjunctions": [("word",)]}, [["a"]], InputError, "two or more"),
        ({"conjunctions": [("word", "form[+1]")]}, [["a"]], InputError, "'form'"),
        ({"lexicons": ["a"]}, [["a"]], InputError, "lexicons"),
        ({"clusters": {"a": 1}}, [["a"]], InputError, "bit strings"),
    ],
    ids=lambda value: None,
)
def test_what_cannot_be_read_is_refused(options: dict[str, Any], X: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        TextFeatures(**options).transform(X)


def test_flags_are_all_reachable() -> None:
    words = ["Ana", "EFE", "iPod", "3,5", "1998", "A-3", "etc.", "J.", "XIV", "?"]
    assert {flag for word in words for flag in word_flags(word)} == set(FLAGS)


def test_scikit_learn_manners() -> None:
    features = everything()
    again = clone(features)
    assert list(again.transform(SENTENCES)) == list(features.transform(SENTENCES))
    assert list(pickle.loads(pickle.dumps(features)).transform(SENTENCES)) == list(features.transform(SENTENCES))
    assert features.fit(SENTENCES) is features
    y = [["B", "O", "O", "B", "I", "O"], [], ["B"], ["O", "O", "B", "I", "O", "O"]]
    pipe = make_pipeline(features, crfield.ChainCRF(l2=0.1)).fit(SENTENCES, y)
    assert [labels.tolist() for labels in pipe.predict(SENTENCES)] == y
