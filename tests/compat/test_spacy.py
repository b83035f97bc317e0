"""spaCy: documents in, a component that answers as the model does, saved with its pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crfield
from crfield.errors import InputError

spacy = pytest.importorskip("spacy")

from spacy.tokens import Span  # noqa: E402

from crfield.compat.spacy import ChainComponent, from_docs, rows_of  # noqa: E402

NAMES, PLACES = ("Ana", "Juan", "Eva"), ("Lima", "Quito", "Cuzco")
TEXTS = [f"{name} vive en {place} ." for name in NAMES for place in PLACES]


@pytest.fixture
def docs() -> list[Any]:
    made = []
    for text in TEXTS:
        doc = spacy.blank("es")(text)
        doc.ents = [Span(doc, 0, 1, "PER"), Span(doc, 3, 4, "LOC")]
        made.append(doc)
    return made


@pytest.fixture
def model(docs: list[Any]) -> crfield.ChainCRF:
    return crfield.ChainCRF(features=crfield.TextFeatures()).fit(*from_docs(docs))


def test_documents_become_training_data(docs: list[Any]) -> None:
    X, y = from_docs(docs)
    assert X[0] == ["Ana", "vive", "en", "Lima", "."]
    assert y[0] == ["B-PER", "O", "O", "B-LOC", "O"]
    assert from_docs([spacy.blank("es")("sin marcas")])[1] == [[None, None]]
    assert rows_of(docs[0], ("text", "shape_"))[0] == ("Ana", "Xxx")
    with pytest.raises(InputError, match="no attribute 'colour'"):
        rows_of(docs[0], ("colour",))
    with pytest.raises(InputError, match="target must be one of"):
        from_docs(docs, target="sense")


def test_the_component_says_what_the_model_says(model: crfield.ChainCRF, tmp_path: Path) -> None:
    path = tmp_path / "names.crfield"
    model.save(path)
    nlp = spacy.blank("es")
    nlp.add_pipe("crfield", config={"model": str(path)})
    found = list(nlp.pipe([*TEXTS, "", "Eva vive en Lima ."], batch_size=4))
    for text, doc in zip(TEXTS, found):
        expected = model.predict_spans([text.split()])[0]
        assert [(e.start, e.end, e.label_) for e in doc.ents] == [(s.start, s.stop, s.label) for s in expected]
        assert doc.spans["crfield"].attrs["scores"] == pytest.approx([span.probability for span in expected])
    assert not found[-2].ents


def test_sentences_are_labelled_one_by_one(model: crfield.ChainCRF) -> None:
    nlp = spacy.blank("es")
    nlp.add_pipe("sentencizer")
    doc = ChainComponent(model)(nlp("Ana vive en Lima . Juan vive en Quito ."))
    assert [ent.text for ent in doc.ents] == ["Ana", "Lima", "Juan", "Quito"]
    X, y = from_docs([doc], by_sentence=True)
    assert [len(x) for x in X] == [5, 5]
    assert y[1] == ["B-PER", "O", "O", "B-LOC", "O"]


def test_the_pipeline_keeps_its_model(model: crfield.ChainCRF, tmp_path: Path) -> None:
    nlp = spacy.blank("es")
    nlp.add_pipe("crfield").model = model
    expected = [ent.text for ent in nlp(TEXTS[0]).ents]
    nlp.to_disk(tmp_path / "pipeline")
    again = spacy.load(tmp_path / "pipeline")
    assert [ent.text for ent in again(TEXTS[0]).ents] == expected == ["Ana", "Lima"]
    copied = spacy.blank("es")
    copied.add_pipe("crfield")
    copied.from_bytes(nlp.to_bytes())
    assert [ent.text for ent in copied(TEXTS[0]).ents] == expected


def test_tags_of_tokens_and_what_is_refused() -> None:
    tagger = crfield.ChainCRF(features=crfield.TextFeatures()).fit([["Ana", "vive"]], [["NOUN", "VERB"]])
    doc = ChainComponent(tagger, target="pos")(spacy.blank("es")("Ana vive"))
    assert [token.pos_ for token in doc] == ["NOUN", "VERB"]
    with pytest.raises(InputError, match="has no model"):
        ChainComponent()(doc)
    with pytest.raises(InputError, match="no model to save"):
        ChainComponent().to_bytes()
