"""CoNLL-U: comments, words, tokens of several words, empty nodes, chosen columns, and what is refused."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from crfield import ChainCRF, TextFeatures, read_conllu
from crfield.data.texts.conllu import ColumnSpec, fill_conllu, looks_like_conllu, parse_conllu
from crfield.errors import FormatError, InputError

SENTENCES = """# newdoc
# sent_id = s1
# text = I don't see New York.
1	I	I	PRON	PRP	Case=Nom|Number=Sing	4	nsubj	_	_
2-3	don't	_	_	_	_	_	_	_	SpaceAfter=No
2	do	do	AUX	VBP	_	4	aux	_	_
3	n't	not	PART	RB	Polarity=Neg	4	advmod	_	_
4	see	see	VERB	VB	VerbForm=Inf	0	root	_	_
4.1	saw	see	VERB	VBD	_	_	_	_	CopyOf=4
5	New York	New York	PROPN	NNP	Number=Sing	4	obj	_	_
6	.	.	PUNCT	.	_	4	punct	_	_

# sent_id = s2 = again
1	Go	go	VERB	VB	_	0	root	_	_
2	#	#	SYM	NN	_	1	obj	_	_
"""
ONE = b"1\ta\ta\tX\tX\t_\t0\troot\t_\t_\n"


def test_words_labels_and_comments() -> None:
    X, y, metadata = read_conllu(io.StringIO(SENTENCES), columns=("form", "feats.Number", "misc"), label="upos+feats")
    assert X[0][0] == ("I", "Sing", "_")
    assert [row[0] for row in X[0]] == ["I", "do", "n't", "see", "New York", "."]
    assert X[1] == [("Go", "_", "_"), ("#", "_", "_")]
    assert y is not None
    assert y[0].tolist()[:2] == ["PRON|Case=Nom|Number=Sing", "AUX|_"]
    assert metadata == [
        {"newdoc": "", "sent_id": "s1", "text": "I don't see New York."},
        {"sent_id": "s2 = again"},
    ]
    assert read_conllu(io.StringIO(SENTENCES)).y is None


def test_tokens_of_the_surface_and_empty_nodes() -> None:
    X, y, _ = parse_conllu(SENTENCES.encode(), columns=("id", "form", "misc"), label="xpos", surface=True)
    assert X[0][1] == ("2-3", "don't", "SpaceAfter=No+_+_")
    assert y is not None
    assert y[0].tolist() == ["PRP", "VBP+RB", "VB", "NNP", "."]
    X, y, _ = parse_conllu(SENTENCES.encode(), label="xpos", empty_nodes=True)
    assert y is not None
    assert y[0].tolist() == ["PRP", "VBP", "RB", "VB", "VBD", "NNP", "."]
    assert X[0][4] == ("saw",)


def test_every_way_to_come_by_the_text(tmp_path: Path) -> None:
    plain = read_conllu(io.StringIO(SENTENCES), label="deprel")
    packed = tmp_path / "a.conllu.gz"
    packed.write_bytes(gzip.compress(("\ufeff" + SENTENCES.replace("\n", "\r\n")).encode()))
    for source in (packed, str(packed), io.BytesIO(SENTENCES.rstrip("\n").encode())):
        found = read_conllu(source, label="deprel")
        assert list(found.X) == list(plain.X)
        assert found.metadata == plain.metadata
        assert [a.tolist() for a in found.y or ()] == [b.tolist() for b in plain.y or ()]
    nothing = parse_conllu(b"# only a comment\n\n")
    assert len(nothing.X) == 0


def test_a_model_of_it() -> None:
    X, y, _ = read_conllu(io.StringIO(SENTENCES), label="upos")
    model = ChainCRF(features=TextFeatures()).fit(X, y)
    assert model.predict(X)[0].tolist() == ["PRON", "AUX", "PART", "VERB", "PROPN", "PUNCT"]
    assert model.predict([["I", "see", "New York"]])[0].tolist() == ["PRON", "VERB", "PROPN"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("1 a a X\n", 1, ["expected 10 fields separated by tabs, got 1", "read_columns"]),
        ("# c\n1\ta\ta\n", 2, ["got 3"]),
        (ONE.decode() + ONE.decode(), 2, ["expected word 2, got 1", "blank line"]),
        (ONE.decode().replace("1", "2", 1), 1, ["expected word 1, got 2"]),
        (ONE.decode().replace("1", "x", 1), 1, ["number of a word", "'x'"]),
        (ONE.decode().replace("1", "1e400", 1), 1, ["'1e400'"]),
        (ONE.decode().replace("1", "9" * 5000, 1), 1, ["number of a word"]),
        (ONE.decode().replace("X", "", 1), 1, ["field upos is empty", "'_'"]),
        (ONE.decode() + "3-4\ta" + "\t_" * 8 + "\n", 2, ["begins at word 2, got 3-4"]),
        (ONE.decode() + "2-3\ta" + "\t_" * 8 + "\n", 3, ["expected word 2 of a token that ends at 3"]),
        (ONE.decode() + "2.1\ta" + "\t_" * 8 + "\n", 2, ["empty node 1.1", "got 2.1"]),
    ],
)
def test_what_is_no_conllu_is_told_with_its_line(text: str, line: int, words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        parse_conllu(text.encode(), file="some.conllu")
    assert (caught.value.file, caught.value.line) == ("some.conllu", line)
    for word in words:
        assert word in str(caught.value)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(FormatError, match="line 2: the line is not valid UTF-8"):
        parse_conllu(ONE + b"\xff")


@pytest.mark.parametrize("name", ["pos", "", "upos+", "form.Number", "feats.", "+", None, 3])
def test_columns_that_are_none(name: Any) -> None:
    with pytest.raises(InputError, match=r"no column|named by a word"):
        parse_conllu(ONE, columns=(name,))


def test_other_questions_that_cannot_be_answered() -> None:
    with pytest.raises(InputError, match="at least one"):
        parse_conllu(ONE, columns=())
    with pytest.raises(FormatError, match=r"'feats' is empty .* no labels"):
        parse_conllu(ONE, label="feats")


def test_labels_are_written_back_and_nothing_else_changes() -> None:
    data = SENTENCES.replace("\n", "\r\n").encode()
    y = parse_conllu(data, label="upos+feats").y
    assert y is not None
    labels = [label for own in y for label in own]
    assert fill_conllu(data, ([one] for one in labels), ColumnSpec("upos+feats")) == data
    changed = fill_conllu(data, iter([["X|A=b|C=d"]] * len(labels)), ColumnSpec("upos+feats"))
    assert [own.tolist() for own in parse_conllu(changed, label="upos+feats").y or ()] == [["X|A=b|C=d"] * 6] + [
        ["X|A=b|C=d"] * 2
    ]
    same = [k for k, (a, b) in enumerate(zip(data.split(b"\n"), changed.split(b"\n"), strict=True)) if a == b]
    assert same == [0, 1, 2, 4, 8, 11, 12, 15]
    with pytest.raises(InputError, match="cannot be written"):
        fill_conllu(data, iter([]), ColumnSpec("feats.Number"))


def test_the_look_of_it() -> None:
    assert looks_like_conllu(SENTENCES.encode())
    assert looks_like_conllu(ONE * 5000), "a cut line at the end does not matter"
    for other in (b"", b"# a comment\n", b"He PRP B\n", b"B-NP\tw=He\n", b"\t".join([b"w"] * 10) + b"\n"):
        assert not looks_like_conllu(other)
