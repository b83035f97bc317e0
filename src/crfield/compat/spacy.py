"""spaCy: its documents as training data, and a trained chain as a component of its pipelines.

    nlp = spacy.blank("es")
    nlp.add_pipe("crfield", config={"model": "names.crfield"})
    nlp("Ana vive en Lima").ents

`from_docs` gives tokens and tags of annotated documents for ``fit``; the component reads a document sentence by
sentence where sentences are marked (else as a whole), asks the model, and writes what it says: entities with their
probabilities (``doc.spans["crfield"]`` with ``attrs["scores"]``), or the tags or parts of speech of tokens. It is
saved with the pipeline (``nlp.to_disk``), model file and all.

A model must read what a document has: rows of token attributes (``columns``, the words alone by default), as models
with `crfield.TextFeatures`, a template, or feature functions do. The factory is found by spaCy by itself where
crfield is installed; ``import crfield.compat.spacy`` finds it otherwise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from crfield.core.checks import one_of
from crfield.errors import InputError
from crfield.estimators.base.load import load
from crfield.metrics.schemes import spans as spans_of

try:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token
except ImportError as error:  # pragma: no cover - told to whoever has no spaCy
    raise ImportError("crfield.compat.spacy needs spaCy 3: pip install 'crfield[spacy]'.") from error

TARGETS = ("ents", "tag", "pos")
MODEL = "model.crfield"


def rows_of(doc: Doc | Span, columns: Sequence[str] = ("text",)) -> list[Any]:
    """The tokens of a document as a model reads them: words, or tuples of several attributes.

    >>> import spacy
    >>> rows_of(spacy.blank("es")("Ana vive"), ("text", "shape_"))
    [('Ana', 'Xxx'), ('vive', 'xxxx')]
    """
    if not columns:
        raise InputError("columns must name at least one attribute of tokens, such as 'text'.")
    for name in columns:
        if name.startswith("_") or not hasattr(Token, name):
            raise InputError(f"a token of spaCy has no attribute {name!r}: columns are 'text', 'lemma_', 'pos_' …")
    if len(columns) == 1:
        return [str(getattr(token, columns[0])) for token in doc]
    return [tuple(str(getattr(token, name)) for name in columns) for token in doc]


def from_docs(
    docs: Iterable[Doc], *, columns: Sequence[str] = ("text",), target: str = "ents", by_sentence: bool = False
) -> tuple[list[list[Any]], list[list[str | None]]]:
    """X and y of annotated documents, for ``fit``; what is not annotated is None, unknown.

    ``target`` is "ents" (tags of the scheme iob2), "tag" or "pos"; ``by_sentence`` makes a sequence of each sentence.

    >>> import spacy
    >>> from spacy.tokens import Span
    >>> doc = spacy.blank("es")("Ana vive en Lima")
    >>> doc.ents = [Span(doc, 0, 1, "PER"), Span(doc, 3, 4, "LOC")]
    >>> from_docs([doc])
    ([['Ana', 'vive', 'en', 'Lima']], [['B-PER', 'O', 'O', 'B-LOC']])
    """
    one_of(*TARGETS)("target", target)
    X, y = [], []
    for doc in docs:
        for part in doc.sents if by_sentence else [doc]:
            X.append(rows_of(part, columns))
            y.append([_label(token, target) for token in part])
    return X, y


def _label(token: Any, target: str) -> str | None:
    if target == "ents":
        return None if not token.ent_iob_ else "O" if token.ent_iob_ == "O" else f"{token.ent_iob_}-{token.ent_type_}"
    return (token.tag_ if target == "tag" else token.pos_) or None


class ChainComponent:
    """A trained chain in a pipeline of spaCy.

    >>> import spacy, crfield
    >>> X, y = [["Ana", "vive", "en", "Lima"]], [["B-PER", "O", "O", "B-LOC"]]
    >>> model = crfield.ChainCRF(features=crfield.TextFeatures()).fit(X, y)
    >>> doc = ChainComponent(model)(spacy.blank("es")("Ana vive en Lima"))
    >>> [(ent.text, ent.label_) for ent in doc.ents]
    [('Ana', 'PER'), ('Lima', 'LOC')]
    """

    def __init__(
        self, model: Any = None, *, columns: Sequence[str] = ("text",), target: str = "ents", scheme: str = "iob2"
    ) -> None:
        one_of(*TARGETS)("target", target)
        self.model, self.columns, self.target, self.scheme = model, tuple(columns), target, scheme

    def __call__(self, doc: Doc) -> Doc:
        """Label one document."""
        return next(iter(self.pipe([doc])))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Label many documents, some at a time in one call of the model."""
        batch: list[Doc] = []
        for doc in stream:
            batch.append(doc)
            if len(batch) >= max(1, batch_size):
                yield from self._labelled(batch)
                batch = []
        yield from self._labelled(batch)

    def _labelled(self, docs: list[Doc]) -> list[Doc]:
        if self.model is None:
            raise InputError("the component has no model: give its file, config={'model': 'names.crfield'}.")
        parts = [(doc, part) for doc in docs for part in (doc.sents if doc.has_annotation("SENT_START") else [doc])]
        parts = [(doc, part) for doc, part in parts if len(part)]
        rows = [rows_of(part, self.columns) for _, part in parts]
        answers = self.model.predict(rows) if rows else []
        chances: list[Any] = [None] * len(rows)
        found = [spans_of(labels.tolist(), self.scheme) for labels in answers] if self.target == "ents" else []
        if found and hasattr(self.model, "span_probability"):
            chances = self.model.span_probability(rows, found, scheme=self.scheme)
        said: dict[int, list[tuple[Span, float]]] = {}
        for k, ((doc, part), labels) in enumerate(zip(parts, answers)):
            start = part[0].i
            if self.target == "ents":
                own = said.setdefault(id(doc), [])
                for n, (first, stop, kind) in enumerate(found[k]):
                    chance = float("nan") if chances[k] is None else float(chances[k][n])
                    own.append((Span(doc, start + first, start + stop, label=str(kind)), chance))
            else:
                for token, label in zip(part, labels.tolist()):
                    setattr(token, "tag_" if self.target == "tag" else "pos_", str(label))
        if self.target == "ents":
            for doc in docs:
                own = said.get(id(doc), [])
                doc.set_ents([span for span, _ in own], default="outside")
                doc.spans["crfield"] = [span for span, _ in own]
                doc.spans["crfield"].attrs["scores"] = [chance for _, chance in own]
        return docs

    # ------------------------------------------------------------------ saved with the pipeline

    def to_bytes(self, *, exclude: Sequence[str] = ()) -> bytes:
        """The model file."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder, exclude=exclude)
            return (Path(folder) / MODEL).read_bytes()

    def from_bytes(self, data: bytes, *, exclude: Sequence[str] = ()) -> ChainComponent:
        """Take over a model file."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / MODEL).write_bytes(data)
            return self.from_disk(folder, exclude=exclude)

    def to_disk(self, path: Any, *, exclude: Sequence[str] = ()) -> None:
        """Write the model file into the folder of the component."""
        if self.model is None:
            raise InputError("the component has no model to save.")
        Path(path).mkdir(parents=True, exist_ok=True)
        self.model.save(Path(path) / MODEL)

    def from_disk(self, path: Any, *, exclude: Sequence[str] = ()) -> ChainComponent:
        """Read the model file of the folder of the component."""
        self.model = load(Path(path) / MODEL)
        return self


@Language.factory("crfield", default_config={"model": "", "columns": ["text"], "target": "ents", "scheme": "iob2"})
def make_component(
    nlp: Language, name: str, model: str, columns: list[str], target: str, scheme: str
) -> ChainComponent:
    """The component that ``nlp.add_pipe("crfield", config={"model": path})`` adds.

    >>> import spacy
    >>> type(spacy.blank("es").add_pipe("crfield")).__name__
    'ChainComponent'
    """
    return ChainComponent(load(model) if model else None, columns=columns, target=target, scheme=scheme)
