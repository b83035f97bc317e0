"""Annotation tools: what they export comes in, what models say goes out; damage is refused with its place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import Document, TextSpan, marked, read_documents, tagged, write_documents
from crfield.compat.documents import word_places
from crfield.data.texts.annotations import format_label_studio
from crfield.errors import DataWarning, FormatError, InputError, ShapeError

TEXT = "Ana María vive en Lima, cerca de José."
DOCUMENT = Document(TEXT, (TextSpan(0, 9, "PER"), TextSpan(18, 22, "LOC"), TextSpan(33, 37, "PER")), "one", {"id": 3})


def test_spans_become_tags_and_tags_spans() -> None:
    made = tagged([DOCUMENT, Document("")])
    assert made.tokens[0] == ["Ana", "María", "vive", "en", "Lima", ",", "cerca", "de", "José", "."]
    assert made.tags == [["B-PER", "I-PER", "O", "O", "B-LOC", "O", "O", "O", "B-PER", "O"], []]
    assert made.places[0][4] == (18, 22)
    assert marked([DOCUMENT, Document("")], made.places, made.tags) == [DOCUMENT, Document("")]


@pytest.mark.parametrize("scheme", ["iob2", "bioes", "bilou"])
def test_random_documents_survive_the_round_trip(scheme: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        words = ["".join(rng.choice(list("abcé"), int(rng.integers(1, 6)))) for _ in range(int(rng.integers(1, 20)))]
        text = " ".join(words)
        spans, k = [], 0
        starts = [sum(len(w) + 1 for w in words[:n]) for n in range(len(words))]
        while k < len(words):
            size = int(rng.integers(1, 4))
            if rng.random() < 0.5:
                last = min(k + size, len(words)) - 1
                spans.append(TextSpan(starts[k], starts[last] + len(words[last]), str(rng.choice(["A", "B"]))))
            k += size
        document = Document(text, tuple(spans))
        made = tagged([document], scheme=scheme)
        assert made.places[0] == word_places(text)
        assert marked([text], made.places, made.tags, scheme=scheme)[0].spans == document.spans


def test_spans_that_cut_words() -> None:
    cut = Document("New Yorkers came", (TextSpan(0, 8, "LOC"),))
    with pytest.warns(DataWarning, match="1 spans begin or end within a word"):
        assert tagged([cut]).tags == [["B-LOC", "I-LOC", "O"]]
    with pytest.warns(DataWarning, match="unknown"):
        assert tagged([cut], unaligned="unknown").tags == [["B-LOC", None, "O"]]
    with pytest.raises(InputError, match="cuts the word 'Yorkers'"):
        tagged([cut], unaligned="error")
    letters = tagged([cut], tokenizer=lambda text: [(k, k + 1) for k in range(len(text)) if text[k] != " "])
    assert letters.tags[0][:8] == ["B-LOC", *["I-LOC"] * 6, "O"]


def test_nested_spans_keep_the_longest() -> None:
    nested = Document("University of Lima", (TextSpan(14, 18, "LOC"), TextSpan(0, 18, "ORG")))
    with pytest.warns(DataWarning, match="1 spans overlap longer ones"):
        assert tagged([nested]).tags == [["B-ORG", "I-ORG", "I-ORG"]]


@pytest.mark.parametrize(("format", "name"), [("doccano", "a.jsonl"), ("label_studio", "a.json"), ("brat", "folder")])
def test_formats_survive_the_round_trip(tmp_path: Path, format: str, name: str) -> None:
    other = Document("Nada.", (), "two", {"id": 4})
    path = tmp_path / name
    write_documents(path, [DOCUMENT, other], format=format)
    found = read_documents(path)  # the format is guessed
    assert [(each.text, each.spans) for each in found] == [(each.text, each.spans) for each in (DOCUMENT, other)]
    if format == "brat":
        assert [each.name for each in found] == ["one", "two"]
        assert read_documents(path / "one.txt")[0].spans == DOCUMENT.spans
    else:
        assert [each.meta["id"] for each in found] == [3, 4]


def test_what_the_tools_export_besides() -> None:
    entity = {"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3}
    lines = json.dumps({"id": 1, "text": "Ana va", "entities": [entity], "relations": []})
    assert read_documents(io.StringIO(lines), format="doccano")[0].spans == (TextSpan(0, 3, "PER"),)
    task = {
        "id": 9,
        "data": {"text": "Ana va"},
        "annotations": [
            {"was_cancelled": True, "result": [{"value": {"start": 4, "end": 6, "labels": ["X"]}}]},
            {
                "result": [
                    {"type": "choices", "value": {"choices": ["good"]}},
                    {"value": {"start": 0, "end": 3, "labels": ["PER"]}},
                ]
            },
        ],
    }
    assert read_documents(io.StringIO(json.dumps([task])), format="label_studio")[0].words == ["Ana"]
    predicted = json.loads(format_label_studio([DOCUMENT], predictions=True))
    assert "annotations" not in predicted[0]
    assert read_documents(io.StringIO(json.dumps(predicted)), format="label_studio")[0].spans == DOCUMENT.spans


@pytest.mark.parametrize(
    ("format", "text", "words"),
    [
        ("doccano", '{"text": "a"}\n{"text": 3}', "line 2: a document needs a text"),
        ("doccano", '{"text": "a", "label": [[0, 5, "X"]]}', "line 1: the span"),
        ("doccano", '{"text": "a", "label": [[0, "1", "X"]]}', "two whole numbers"),
        ("doccano", '{"text": "a", "label": {"X": 1}}', "expected a list of spans"),
        ("doccano", "[1]", "expected a JSON object"),
        ("doccano", "{", "not JSON"),
        ("doccano", "[" * 200_000, "too deeply nested"),
        ("label_studio", "{}", "expected a list of tasks"),
        ("label_studio", '[{"text": "a"}]', "no 'data'"),
        ("label_studio", '[{"data": {"text": "a"}, "annotations": {"a": 1}}]', "expected a list of annotations"),
        ("label_studio", '[{"data": {"n": 1}}]', "needs a text"),
    ],
)
def test_damaged_files_are_refused(format: str, text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        read_documents(io.StringIO(text), format=format)


def test_damaged_brat_files_and_names(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ana")
    (tmp_path / "a.ann").write_text("T1\tPER zero 3\tAna\n")
    with pytest.raises(FormatError, match=r"a\.ann, line 1"):
        read_documents(tmp_path)
    with pytest.raises(FormatError, match="no name of a file"):
        write_documents(tmp_path / "out", [Document("a", (), "../b")], format="brat")
    with pytest.raises(InputError, match="white space"):
        write_documents(tmp_path / "out", [Document("abc", (TextSpan(0, 1, "a b"),))], format="brat")
    with pytest.raises(FormatError, match="two files"):
        read_documents(io.StringIO("a"), format="brat")
    with pytest.raises(FormatError, match="give format="):
        read_documents(tmp_path / "what.xyz")


@pytest.mark.parametrize(
    "wrong",
    [lambda text: [(0, 2), (1, 3)], lambda text: [(0, 99)], lambda text: [(2, 2)]],
)
def test_a_tokenizer_that_cannot_be(wrong: Any) -> None:
    with pytest.raises(InputError, match="a tokenizer must give"):
        tagged([DOCUMENT], tokenizer=wrong)


def test_lengths_that_differ() -> None:
    with pytest.raises(ShapeError, match="1 texts, 2 lists"):
        marked(["a"], [[(0, 1)], []], [["O"], []])
    with pytest.raises(ShapeError, match="1 tokens and 2 tags"):
        marked(["a"], [[(0, 1)]], [["O", "O"]])


def test_from_an_annotated_text_to_a_model_and_back() -> None:
    texts = [f"{name} vive en {place}." for name in ("Ana", "Juan", "Eva") for place in ("Lima", "Quito")]
    documents = [
        Document(text, (TextSpan(0, text.index(" "), "PER"), TextSpan(text.rindex(" ") + 1, len(text) - 1, "LOC")))
        for text in texts
    ]
    made = tagged(documents)
    model = crfield.ChainCRF(features=crfield.TextFeatures()).fit(made.tokens, made.tags)
    found = marked(texts, made.places, model.predict(made.tokens))
    assert [each.spans for each in found] == [each.spans for each in documents]
