"""Text models of CRF++ and models of Wapiti: small ones written by hand, whose scores are sums done by hand."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield import ChainCRF
from crfield.errors import ModelFileError
from crfield.features.templates.names import template_state
from crfield.features.templates.template import Template

# Labels A and B. Weights 0…3 of B (pairs AA AB BA BB), then of each U feature for A and B, then the pairs of B1:x.
CRFPP = """version: 100
cost-factor: 2
maxid: 16
xsize: 2

A
B

U0:%x[0,0]
U1:%x[-1,0]/%x[0,1]
B
B1:%x[0,1]

0 B
4 U0:a
6 U0:b
8 U1:_B-1/x
10 U1:a/x/y
12 B1:x

""" + "".join(f"{weight}\n" for weight in (0.5, -0.5, 0.25, 1, 3, -3, 1.5, 2.5, 0.125, -0.125, 7, 8, 1, 2, 3, 4))


def strings(*texts: str) -> str:
    return "".join(f"{len(text.encode())}:{text},\n" for text in texts)


def wapiti(
    patterns: tuple[str, ...], observations: tuple[str, ...], weights: dict[int, str], *, head: str = "#mdl#2#"
) -> bytes:
    """A model with the labels A and B."""
    parts = [f"{head}{len(weights)}\n#rdr#{len(patterns)}/1/0\n", strings(*patterns), "#qrk#2\n", strings("A", "B")]
    parts += [f"#qrk#{len(observations)}\n", strings(*observations)]
    return ("".join(parts) + "".join(f"{k}={value}\n" for k, value in weights.items())).encode()


PATTERNS = ("u0:%x[ 0,0]", "*1:%x[-1,0]", "b", "u5:%x[-6,0]")
OBSERVATIONS = ("u0:a", "*1:a", "b", "*1:_x-1", "u5:_x-#")
# u0:a 0 1 · *1:a 2 3 and pairs 4…7 · b pairs 8…11 · *1:_x-1 12 13 and pairs 14…17 · u5:_x-# 18 19
WEIGHTS = {
    1: "0x1.8p+0",
    2: "-0x1p-1",
    5: "0x1p+1",
    7: "-2.25",
    9: "0x1p+0",
    13: "0x1.4p+2",
    14: "0x1p+6",
    18: "0.125",
}


def load_text(text: str, folder: Path) -> ChainCRF:
    (folder / "model.txt").write_text(text, encoding="utf-8")
    return crfield.load(folder / "model.txt")


def test_scores_of_a_crfpp_model_are_the_sums_of_its_weights(tmp_path: Path) -> None:
    model = load_text(CRFPP, tmp_path)
    scores = model.potentials([[("a", "x"), ("b", "x/y"), ("c", "x")]])
    # U0:a and U1:_B-1/x · U0:b and U1:a/x/y (values a, x/y) · nothing (U1:b/x is not there); all times 2
    assert scores.node.tolist() == [[6.25, -6.25], [17.0, 21.0], [0.0, 0.0]]
    # B · B and B1:x, read at the later step
    assert scores.edge[scores.tables].tolist() == [[[1.0, -1.0], [0.5, 2.0]], [[3.0, 3.0], [6.5, 10.0]]]
    assert model.predict([[("a", "x"), ("b", "x/y"), ("c", "x")]])[0].tolist() == ["A", "B", "B"]
    assert (model.classes_.tolist(), model.stop_reason_) == (["A", "B"], "trained by CRF++")


def test_a_name_that_can_be_cut_in_two_ways_scores_both(tmp_path: Path) -> None:
    """U1:a/x/y is (a, x/y) and (a/x, y): for CRF++ one string."""
    model = load_text(CRFPP, tmp_path)
    for first, second in (("a", "x/y"), ("a/x", "y")):
        assert model.potentials([[(first, "-"), ("-", second)]]).node[1].tolist() == [14.0, 16.0]


def test_a_crfpp_model_is_saved_pickled_and_explained_like_any_other(tmp_path: Path) -> None:
    model = load_text(CRFPP, tmp_path)
    model.save(tmp_path / "m.crfield")
    X = [[("a", "x"), ("b", "x/y"), ("c", "x")]]
    for again in (crfield.load(tmp_path / "m.crfield"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(X)[0], model.predict_proba(X)[0])
    assert model.top_features(1)[0][:2] == ("U1:a/x/y", "B")
    assert model.transitions_.to_dict()["B", "B"] == 2.0


def test_a_plain_bigram_line_that_stands_there_twice_counts_twice(tmp_path: Path) -> None:
    head = "version: 100\ncost-factor: 1\nmaxid: 6\nxsize: 1\n\nA\nB\n\nU:%x[0,0]\nB\nB\n\n0 B\n4 U:a\n\n"
    model = load_text(head + "1\n2\n3\n4\n5\n6\n", tmp_path)
    assert model.potentials([[("a",), ("b",)]]).edge[0].tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_scores_of_a_wapiti_model_are_the_sums_of_its_weights() -> None:
    model = crfield.load(io.BytesIO(wapiti(PATTERNS, OBSERVATIONS, WEIGHTS)))
    scores = model.potentials([[("a",), ("a",), ("b",)] + [("b",)] * 3])
    # u0:a, *1:_x-1 and u5, six rows before the beginning · u0:a, *1:a and u5, five rows · *1:a (no u5:_x-4) · …
    assert scores.node.tolist() == [[0.125, 6.5], [-0.375, 1.5], [-0.5, 0.0]] + [[0.0, 0.0]] * 3
    edges = scores.edge[scores.tables]
    # b, and *1:a where the step before is a; the pairs of *1:_x-1 are for a first step, which has no pair
    assert edges[0].tolist() == edges[1].tolist() == [[0.0, 3.0], [0.0, -2.25]]
    assert edges[2].tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert model.stop_reason_ == "trained by Wapiti"


def test_marks_of_wapiti_survive_saving_and_pickling(tmp_path: Path) -> None:
    model = crfield.load(io.BytesIO(wapiti(PATTERNS, OBSERVATIONS, WEIGHTS, head="#mdl#")))
    model.save(tmp_path / "m.crfield")
    for again in (crfield.load(tmp_path / "m.crfield"), pickle.loads(pickle.dumps(model))):
        assert again.potentials([[("c",)]]).node.tolist() == [[0.125, 5.0]]
        assert again.potentials([[("_B-1",)]]).node.tolist() == [[0.125, 5.0]]


def test_a_word_that_looks_like_a_mark_is_one(tmp_path: Path) -> None:
    """As in CRF++: the mark is an ordinary string."""
    assert load_text(CRFPP, tmp_path).potentials([[("_B-1", "-"), ("-", "x")]]).node[1].tolist() == [0.25, -0.25]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ('u:%t[0,0,"x"]', "only %x"),
        ('u:%m[ 0,0,"^.?.?"]', "only %x"),
        ("u:%X[0,0]", "only %x"),
        ("u:%x[@1,0]", "only %x"),
        ("c:%x[0,0]", "begins with none of u, b and"),
    ],
)
def test_patterns_that_are_not_known_here_are_told(pattern: str, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        crfield.load(io.BytesIO(wapiti((pattern,), ("u:a",), {0: "1"})))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (wapiti(("u",), ("u",), {0: "1"}, head="#mdl#1#"), "of kind MEMM; only CRFs"),
        (wapiti(("u",), ("u",), {0: "1"}, head="#mdl#0#"), "maximum entropy"),
        (wapiti((), ("u",), {0: "1"}), "has no patterns"),
        (wapiti(("u:%x[0,0]",), ("u:a",), {2: "1"}), "weight 2 of 2"),
        (wapiti(("u:%x[0,0]",), ("u:a",), {0: "0x"}), "not a finite number"),
        (wapiti(("u:%x[0,0]",), ("u:a",), {0: "inf"}), "not a finite number"),
        (wapiti(("u:%x[0,0]",), ("u:a", "u:a"), {0: "1"}), "an observation twice"),
        (wapiti(("u:%x[0,0]",), ("v:a",), {0: "1"}), "begins with none"),
        (wapiti(("u:%x[0,0]",), ("u0:a",), {0: "1"}), "'U0:a' belongs to no line"),
        (wapiti(("u:%x[0,0]",), ("u:a",), {0: "1"}) + b"more", "there is more behind"),
        (wapiti(("u:%x[0,9999999]",), ("u:a",), {0: "1"}), "template cannot be used"),
        (wapiti(("u:%x[0,0]",), ("u:a",), {0: "1"}).replace(b"3:u:a", b"3:u:\xff"), "not UTF-8"),
        (wapiti(("u:%x[0,0]",), ("u:a",), {0: "1"}).replace(b"#qrk#2", b"#qrk#99999999999"), "cannot stand in"),
    ],
)
def test_other_models_of_wapiti_and_damage_are_told(data: bytes, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        crfield.load(io.BytesIO(data))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: 100", "version: 123x", "has no number"),
        ("maxid: 16", "maxid: 17", "should have 17 weights and has 16"),
        ("xsize: 2", "xsize: 1", "trained on 1 columns, and its template reads 2"),
        ("\nA\nB\n", "\nA\nA\n", "2 labels, 1 of them different"),
        ("U0:%x[0,0]", "X0:%x[0,0]", "begins neither with U nor with B"),
        ("U0:%x[0,0]", "U0:%y[0,0]", "template cannot be used"),
        ("4 U0:a", "5 U0:a", "overlap"),
        ("12 B1:x", "13 B1:x", "overlap, or end behind the last"),
        ("4 U0:a", "x U0:a", "is not a number and a name"),
        ("4 U0:a", "4 U0:b", "two features have one name"),
        ("4 U0:a", "4 U2:a", "'U2:a' belongs to no line"),
        ("0.125\n", "nan\n", "line 29 should be a weight and is 'nan'"),
        ("0.125\n", "0.1.2\n", "line 29 should be a weight"),
    ],
)
def test_damage_of_a_crfpp_model_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in CRFPP
    with pytest.raises(ModelFileError, match=words):
        load_text(CRFPP.replace(old, new, 1), tmp_path)


@pytest.mark.parametrize("data", [CRFPP.encode(), wapiti(PATTERNS, OBSERVATIONS, WEIGHTS)], ids=["crfpp", "wapiti"])
def test_cut_and_changed_files_are_refused_or_answer(data: bytes) -> None:
    rng = np.random.default_rng(0)
    variants = [data[:end] for end in range(20, len(data) - 8, 9)]
    for _ in range(60):
        changed = bytearray(data)
        changed[int(rng.integers(12, len(data)))] = int(rng.integers(256))
        variants.append(bytes(changed))
    refused = 0
    for variant in variants:
        try:
            crfield.load(io.BytesIO(variant)).predict([[("a", "x", "y"), ("b", "x", "y")]])
        except ModelFileError:
            refused += 1
        except crfield.errors.TemplateError:  # reads a column that these data do not have
            pass
    assert refused > len(range(20, len(data) - 8, 9)) - 2


def test_names_are_not_tried_for_ever() -> None:
    """A name that fits in very many ways, and one that fits in none after very many tries, end at once."""
    template = Template("U:%x[0,0]/%x[0,1]/%x[0,2]/%x[0,3]|%x[0,4]")
    with pytest.raises(ModelFileError, match="in more than 256 ways"):
        template_state(template, ["U:" + "/" * 400 + "|x"], [], marks="crfpp")
    with pytest.raises(ModelFileError, match="belongs to no line"):
        template_state(template, ["U:" + "/" * 4000 + "x"], [], marks="crfpp")
