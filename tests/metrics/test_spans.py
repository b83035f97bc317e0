"""Span scores against a slow walk written from conlleval's rules, and against examples worked out by hand."""

from __future__ import annotations

import random
import re
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ShapeError
from crfield.metrics import convert_sequences, span_f1, span_f1_scorer, span_report, spans
from crfield.metrics.chunks import read_tags, split_tags


def parts(tag: str) -> tuple[str, str]:
    head, hyphen, kind = tag.partition("-")
    return (head, kind) if hyphen else (tag, "")


def ended(before: str, now: str) -> bool:
    """Whether a chunk ends between two neighbouring tags, rule by rule."""
    (p, p_kind), (c, c_kind) = parts(before), parts(now)
    if p in ("E", "S", "[", "]"):
        return True
    if p in ("B", "I") and c in ("B", "S", "O"):
        return True
    return p != "O" and p_kind != c_kind


def started(before: str, now: str) -> bool:
    """Whether a chunk starts between two neighbouring tags, rule by rule."""
    (p, p_kind), (c, c_kind) = parts(before), parts(now)
    if c in ("B", "S", "[", "]"):
        return True
    if p in ("O", "E", "S") and c in ("I", "E"):
        return True
    return c != "O" and p_kind != c_kind


def walk(y_true: list[list[str]], y_pred: list[list[str]]) -> tuple[Counter, Counter, Counter, int, int]:
    """Gold, predicted and right chunks by kind, right tags and tags, in one walk with one bit of memory."""
    gold, predicted, right = Counter(), Counter(), Counter()
    tags = right_tags = 0
    lines: list[tuple[str, str] | None] = []
    for g_row, p_row in zip(y_true, y_pred):
        lines += [*zip(g_row, p_row), None]
    g_last = p_last = "O"
    together = False
    for line in lines:
        g, p = line or ("O", "O")
        g_kind, p_kind = parts(g)[1], parts(p)[1]
        if together:
            g_end, p_end = ended(g_last, g), ended(p_last, p)
            if g_end and p_end and parts(g_last)[1] == parts(p_last)[1]:
                right[parts(g_last)[1]] += 1
                together = False
            elif g_end != p_end or g_kind != p_kind:
                together = False
        if started(g_last, g) and started(p_last, p) and g_kind == p_kind:
            together = True
        gold[g_kind] += started(g_last, g)
        predicted[p_kind] += started(p_last, p)
        if line is not None:
            tags += 1
            right_tags += g == p
        g_last, p_last = g, p
    assert not together
    return gold, predicted, right, right_tags, tags


def agrees(y_true: list[list[str]], y_pred: list[list[str]], scheme: str = "iob2") -> None:
    report = span_report(y_true, y_pred, scheme=scheme)
    gold, predicted, right, right_tags, tags = walk(y_true, y_pred)
    kinds = {kind for kind in gold | predicted if gold[kind] or predicted[kind]}
    assert {row.name for row in report.rows} == kinds
    for row in report.rows:
        assert (row.support, row.predicted, row.correct) == (
            gold[row.name],
            predicted[row.name],
            right[row.name],
        )
    micro = report.micro
    assert (micro.support, micro.predicted, micro.correct) == (gold.total(), predicted.total(), right.total())
    assert report.n_tokens == tags
    assert report.accuracy == (right_tags / tags if tags else 0.0)


def stacks(letters: str) -> st.SearchStrategy[tuple[list[list[str]], list[list[str]]]]:
    """Gold tags of any kind, well or ill formed, and predictions that mostly follow them."""
    tag = st.sampled_from(["O", *(f"{x}-{kind}" for x in letters for kind in ("NP", "VP", "A-1"))])
    step = st.tuples(tag, tag, st.integers(0, 3)).map(lambda s: (s[0], s[0] if s[2] else s[1]))
    row = st.lists(step, max_size=8)
    return st.lists(row, max_size=4).map(lambda rows: tuple([[s[i] for s in row] for row in rows] for i in (0, 1)))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["BI", "I", "IE", "BIES", "[]", "BIES[]"]).flatmap(stacks))
def test_equal_to_the_walk(stack: tuple[list[list[str]], list[list[str]]]) -> None:
    agrees(*stack)


def test_every_pair_of_tags() -> None:
    tags = ["O", *(f"{p}-{kind}" for p in "BIES[]" for kind in ("NP", "VP"))]
    pairs = [(before, now) for before in tags for now in tags]
    codes = np.array([tags.index(tag) for pair in pairs for tag in pair])
    reading = read_tags(codes, Chains.from_lengths([2] * len(pairs)), split_tags(tags))
    for i, (before, now) in enumerate(pairs):
        assert reading.ends[3 * i + 1] == ended(before, now), (before, now)
        assert reading.begins[3 * i + 1] == started(before, now), (before, now)


@settings(max_examples=100, deadline=None)
@given(stacks("BI"))
def test_legal_tags_score_as_sets_of_spans(stack: tuple[list[list[str]], list[list[str]]]) -> None:
    for scheme in ("iob1", "iob2", "bioes", "bilou", "ioe1", "ioe2"):
        y_true, y_pred = (convert_sequences(y, "iob2", scheme) for y in stack)
        meant = {(s, *span) for s, row in enumerate(y_true) for span in spans(row, scheme)}
        said = {(s, *span) for s, row in enumerate(y_pred) for span in spans(row, scheme)}
        micro = span_report(y_true, y_pred, scheme=scheme).micro
        assert (micro.correct, micro.predicted, micro.support) == (len(meant & said), len(said), len(meant))
        assert span_report(y_true, y_true, scheme=scheme).micro.correct == len(meant)


def test_example_by_hand() -> None:
    y_true = [["B-NP", "I-NP", "B-VP", "B-NP", "O"], ["B-NP", "B-NP", "I-NP"]]
    y_pred = [["B-NP", "I-NP", "B-VP", "I-VP", "O"], ["B-NP", "B-NP", "O"]]
    # gold NP (0,0-2) (0,3-4) (1,0-1) (1,1-3), VP (0,2-3); predicted NP (0,0-2) (1,0-1) (1,1-2), VP (0,2-4)
    report = span_report(y_true, y_pred)
    assert (report.micro.correct, report.micro.predicted, report.micro.support) == (2, 4, 5)
    assert report.precision == 0.5
    assert report.recall == 0.4
    assert report.f1 == pytest.approx(4 / 9)
    assert (report["NP"].correct, report["NP"].predicted, report["NP"].support) == (2, 3, 4)
    assert (report["VP"].correct, report["VP"].predicted, report["VP"].support) == (0, 1, 1)
    assert report.accuracy == 6 / 8
    assert span_f1(y_true, y_pred) == report.f1
    assert span_f1(y_true, y_pred, average="macro") == pytest.approx((4 / 7 + 0) / 2)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "I-NP", "I-NP"], [(1, 3, "NP")]),
        (["B-NP", "I-VP"], [(0, 1, "NP"), (1, 2, "VP")]),
        (["I-NP", "B-NP", "I-NP"], [(0, 1, "NP"), (1, 3, "NP")]),
        (["O", "O"], []),
        ([], []),
        (["B-NP", "E-NP", "S-NP", "E-NP"], [(0, 2, "NP"), (2, 3, "NP"), (3, 4, "NP")]),
        (["E-NP", "I-NP", "O"], [(0, 1, "NP"), (1, 2, "NP")]),
        (["[-NP", "]-NP", "O", "[-NP"], [(0, 1, "NP"), (1, 2, "NP"), (3, 4, "NP")]),
        (["B", "I", "O", "I"], [(0, 2, ""), (3, 4, "")]),
        (["B-A-1", "I-A-1", "I-A-2"], [(0, 2, "A-1"), (2, 3, "A-2")]),
    ],
)
def test_reading_by_hand(tags: list[str], expected: list[tuple[int, int, str]]) -> None:
    assert spans(tags) == expected


def test_a_span_does_not_cross_into_the_next_sequence() -> None:
    assert span_report([["B-NP"], ["I-NP"]], [["B-NP"], ["I-NP"]]).micro.correct == 2
    assert span_report([["B-NP", "I-NP"]], [["B-NP", "I-NP"]]).micro.correct == 1


def test_nothing_to_judge() -> None:
    for y in ([], [[]], [["O", "O"]]):
        report = span_report(y, y)
        assert report.rows == ()
        assert report.f1 == report.macro.f1 == 0.0
        assert span_report(y, y, zero_division=1.0).f1 == 1.0
    assert span_report([], []).accuracy == 0.0
    assert span_report([], [], zero_division=1.0).accuracy == 1.0


def test_refusals_say_where() -> None:
    with pytest.raises(LabelError, match="sequence 1, step 2"):
        span_report([["O"], ["O", "B-X", None]], [["O"], ["O", "O", "O"]])
    with pytest.raises(LabelError, match=r"'QTY' is not a tag.*label_report"):
        span_report([["QTY"]], [["O"]])
    with pytest.raises(LabelError, match="scheme='bilou'"):
        span_report([["L-X"]], [["O"]])
    with pytest.raises(LabelError, match=r"3 \(int\)"):
        span_report([[3]], [["O"]])
    with pytest.raises(InputError, match=r"scheme must be one of.*'iob3'"):
        span_report([["O"]], [["O"]], scheme="iob3")
    with pytest.raises(InputError, match="average must be"):
        span_f1([["O"]], [["O"]], average="median")
    with pytest.raises(ShapeError, match="sequence 1: y_true has 2 labels but y_pred has 1"):
        span_report([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(LabelError, match="no kind 'VP'"):
        span_report([["B-NP"]], [["B-NP"]])["VP"]


def test_text_and_dict_tell_the_same() -> None:
    report = span_report([["B-NP", "O", "B-VP"]], [["B-NP", "O", "O"]])
    data = report.to_dict()
    assert data["kinds"]["NP"]["f1"] == 1.0
    assert data["micro"]["recall"] == 0.5
    assert data["tokens"] == 3
    assert "1 of 1 predicted spans right, 2 gold" in str(report)


def test_two_hundred_thousand_tokens_take_no_time() -> None:
    draw = random.Random(0)
    tags = ["O", *(f"{p}-{k}" for p in "BI" for k in ("NP", "VP", "PP"))]
    y = [draw.choices(tags, k=20) for _ in range(10_000)]
    other = np.empty(len(y), dtype=object)
    other[:] = [np.array(draw.choices(tags, k=20), dtype=object) for _ in y]

    def cost() -> float:
        begin = time.process_time()
        span_report(y, other)
        return time.process_time() - begin

    assert min(cost() for _ in range(3)) < 0.2


# ------------------------------------------------------------------------------------------------------- strict

PATTERNS = {
    "iob2": r"B(?P<k>.)(I(?P=k))*",
    "bioes": r"S.|B(?P<k>.)(I(?P=k))*E(?P=k)",
    "bilou": r"U.|B(?P<k>.)(I(?P=k))*L(?P=k)",
    "ioe2": r"(I(?P<k>.)(I(?P=k))*E(?P=k))|E.",
}
LETTERS = {"iob1": "BI", "iob2": "BI", "ioe1": "IE", "ioe2": "IE", "bioes": "BIES", "bilou": "BILU"}


def strict_by_pattern(tags: list[str], scheme: str) -> list[tuple[int, int, str]]:
    """Spans as the longest matches of a pattern over tags of two characters, with none of the kind before."""
    text = "".join(tag.replace("-", "").ljust(2, ".") for tag in tags)
    found = []
    for match in re.finditer(rf"(?=({PATTERNS[scheme]}))", text):
        start, stop = match.start(1) // 2, match.end(1) // 2
        if match.start(1) % 2:
            continue
        begun = scheme == "ioe2" and start and tags[start - 1] == f"I-{tags[start][2:]}"
        goes_on = scheme == "iob2" and text[2 * stop : 2 * stop + 2] == f"I{tags[start][2:]}"
        if not begun and not goes_on:
            found.append((start, stop, tags[start][2:]))
    return found


def random_tags(rng: np.random.Generator, scheme: str, n: int) -> list[list[str]]:
    tags = ["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in "XY")]
    return [[tags[k] for k in rng.integers(len(tags), size=rng.integers(0, 8))] for _ in range(n)]


def changed(rng: np.random.Generator, y: list[list[str]], scheme: str) -> list[list[str]]:
    tags = ["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in "XY")]
    return [[tag if rng.random() < 0.6 else tags[rng.integers(len(tags))] for tag in row] for row in y]


@pytest.mark.parametrize("scheme", PATTERNS)
def test_strict_spans_of_any_tags_are_those_of_the_pattern(scheme: str) -> None:
    for row in random_tags(np.random.default_rng(3), scheme, 1500):
        assert spans(row, scheme, mode="strict") == strict_by_pattern(row, scheme), row


@pytest.mark.parametrize("scheme", LETTERS)
def test_strict_scores_are_those_of_seqeval(scheme: str) -> None:
    seqeval = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed; the dev extra has it")
    from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, IOE1, IOE2, Entities

    theirs = {"iob1": IOB1, "iob2": IOB2, "ioe1": IOE1, "ioe2": IOE2, "bioes": IOBES, "bilou": BILOU}[scheme]
    rng = np.random.default_rng(4)
    many = random_tags(rng, scheme, 1000)
    for row, wanted in zip(many, Entities(many, theirs).entities, strict=True):
        found = [(entity.start, entity.end, entity.tag) for entity in wanted]
        assert spans(row, scheme, mode="strict") == found, row
    for _ in range(20):
        gold = random_tags(rng, scheme, 6)
        predicted = changed(rng, gold, scheme)
        report = span_report(gold, predicted, scheme=scheme, mode="strict")
        if not report.rows:
            continue
        options = {"mode": "strict", "scheme": theirs, "zero_division": 0}
        wanted = seqeval.classification_report(gold, predicted, output_dict=True, **options)
        for row in report.rows:
            cells = wanted[row.name]
            assert cells["support"] == row.support
            assert (cells["precision"], cells["recall"]) == pytest.approx((row.precision, row.recall))
            assert cells["f1-score"] == pytest.approx(row.f1)
        for average in ("micro", "macro", "weighted"):
            f1 = span_f1(gold, predicted, scheme=scheme, mode="strict", average=average)
            assert f1 == pytest.approx(wanted[f"{average} avg"]["f1-score"])


@settings(max_examples=60, deadline=None)
@given(stacks("BI"))
def test_legal_tags_score_alike_in_both_modes(stack: tuple[list[list[str]], list[list[str]]]) -> None:
    for scheme in ("iob1", "iob2", "bioes", "bilou", "ioe2"):  # ioe1: seqeval misses legal spans of one step
        y_true, y_pred = (convert_sequences(y, "iob2", scheme) for y in stack)
        assert span_report(y_true, y_pred, scheme=scheme, mode="strict") == span_report(y_true, y_pred, scheme=scheme)


def test_strict_scores_refuse_foreign_tags_and_unknown_modes() -> None:
    with pytest.raises(LabelError, match="'S-X' is not of the scheme iob2"):
        span_report([["B-X"]], [["S-X"]], mode="strict")
    with pytest.raises(LabelError, match="'L-X' is not of the scheme bioes"):
        spans(["B-X", "L-X"], "bioes", mode="strict")
    with pytest.raises(LabelError, match="'E-X' is not of the scheme bilou"):
        span_f1([["B-X", "E-X"]], [["O", "O"]], scheme="bilou", mode="strict")
    with pytest.raises(InputError, match="mode must be one of 'conlleval', 'strict', got 'default'"):
        span_f1([["B-X"]], [["O"]], mode="default")
    with pytest.raises(InputError, match="mode must be one of"):
        span_f1_scorer(mode="lenient")
    assert span_report([[]], [[]], mode="strict").rows == span_report([], [], mode="strict").rows == ()
