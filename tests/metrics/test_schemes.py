"""Tag schemes: writing inverts reading, conversion keeps spans, violations are found at their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.errors import InputError, LabelError, ShapeError
from crfield.metrics import check_scheme, convert, convert_sequences, guess_scheme, spans, tags_from_spans

SCHEMES = ("iob1", "iob2", "bioes", "bilou", "ioe1", "ioe2")


@st.composite
def span_lists(draw: st.DrawFn) -> tuple[list[tuple[int, int, str]], int]:
    found, at = [], 0
    for gap, length, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(["A", "B-2", ""])), max_size=6)
    ):
        found.append((at + gap, at + gap + length, kind))
        at += gap + length
    return found, at + draw(st.integers(0, 2))


@given(span_lists(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
def test_round_trip(case: tuple[list[tuple[int, int, str]], int], source: str, target: str) -> None:
    wanted, length = case
    tags = tags_from_spans(wanted, length, source)
    assert len(tags) == length
    assert spans(tags, source) == wanted
    assert check_scheme([tags], source) is None
    assert convert(tags, source, target) == tags_from_spans(wanted, length, target)
    assert convert(convert(tags, source, target), target, source) == tags
    assert tags_from_spans(wanted[::-1], length, source) == tags


@given(st.lists(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=6), max_size=5))
def test_conversion_of_many_is_that_of_each_and_repairs(y: list[list[str]]) -> None:
    for target in SCHEMES:
        converted = convert_sequences(y, "iob2", target)
        assert converted == [convert(row, "iob2", target) for row in y]
        assert check_scheme(converted, target) is None


def test_the_table_in_the_essay() -> None:
    wanted = [(0, 3, "NP"), (4, 5, "NP"), (5, 6, "NP")]
    assert tags_from_spans(wanted, 6, "iob1") == ["I-NP", "I-NP", "I-NP", "O", "I-NP", "B-NP"]
    assert tags_from_spans(wanted, 6, "iob2") == ["B-NP", "I-NP", "I-NP", "O", "B-NP", "B-NP"]
    assert tags_from_spans(wanted, 6, "bioes") == ["B-NP", "I-NP", "E-NP", "O", "S-NP", "S-NP"]
    assert tags_from_spans(wanted, 6, "bilou") == ["B-NP", "I-NP", "L-NP", "O", "U-NP", "U-NP"]
    assert tags_from_spans(wanted, 6, "ioe1") == ["I-NP", "I-NP", "I-NP", "O", "E-NP", "I-NP"]
    assert tags_from_spans(wanted, 6, "ioe2") == ["I-NP", "I-NP", "E-NP", "O", "E-NP", "E-NP"]


@pytest.mark.parametrize(
    ("scheme", "row", "step", "text"),
    [
        ("iob2", ["I-X"], 0, "'I-X' may not begin a sequence"),
        ("iob2", ["B-X", "I-Y"], 1, "'I-Y' may not follow 'B-X'"),
        ("iob2", ["B-X", "E-X"], 1, "'E-X' may not follow 'B-X'"),
        ("iob1", ["O", "B-X"], 1, "'B-X' may not follow 'O'"),
        ("iob1", ["I-X", "B-Y"], 1, "'B-Y' may not follow 'I-X'"),
        ("bioes", ["S-X", "B-X"], 2, "may not end after 'B-X'"),
        ("bioes", ["B-X", "O"], 1, "'O' may not follow 'B-X'"),
        ("bioes", ["E-X"], 0, "'E-X' may not begin"),
        ("bioes", ["B-X", "E-Y"], 1, "'E-Y' may not follow 'B-X'"),
        ("ioe1", ["I-X", "E-X"], 2, "may not end after 'E-X'"),
        ("ioe1", ["E-X", "I-Y"], 1, "'I-Y' may not follow 'E-X'"),
        ("ioe2", ["E-X", "I-X"], 2, "may not end after 'I-X'"),
        ("ioe2", ["I-X", "E-Y"], 1, "'E-Y' may not follow 'I-X'"),
        ("ioe2", ["B-X"], 0, "'B-X' may not begin a sequence"),
        ("bilou", ["U-X", "I-X"], 1, "'I-X' may not follow 'U-X' in bilou"),
    ],
)
def test_first_violation(scheme: str, row: list[str], step: int, text: str) -> None:
    good = tags_from_spans([(0, 2, "X")], 3, scheme)
    violation = check_scheme([good, [], row, row], scheme)
    assert violation is not None
    assert (violation.sequence, violation.step) == (2, step)
    assert text in str(violation)


@given(st.lists(span_lists(), min_size=1, max_size=4), st.sampled_from(SCHEMES))
def test_guess(cases: list[tuple[list[tuple[int, int, str]], int]], scheme: str) -> None:
    y = [tags_from_spans(*case, scheme) for case in cases]
    guessed = guess_scheme(y)
    letters = {tag[0] for row in y for tag in row}
    if scheme.startswith("io") and letters <= set("BIO") and check_scheme(y, "iob2") is None:
        assert guessed == "iob2"
    elif scheme == "ioe1" and (letters <= set("IO") or check_scheme(y, "ioe2") is None):
        assert guessed == ("iob1" if letters <= set("IO") else "ioe2")
    elif any(found for found, _ in cases) and any(tag[0] in "ESLU" for row in y for tag in row):
        assert guessed == scheme
    assert check_scheme(y, guessed) is None


def test_guess_of_broken_tags_takes_the_less_broken() -> None:
    assert guess_scheme([["B-X", "I-X"], ["B-X"], ["I-X"]]) == "iob2"
    assert guess_scheme([["I-X", "I-X"], ["I-X"], ["B-X"]]) == "iob1"
    assert guess_scheme([]) == guess_scheme([["O"]]) == "iob2"


def test_both_spellings_are_read_under_either_name() -> None:
    assert (
        spans(["B-X", "L-X", "U-X"], "bioes") == spans(["B-X", "E-X", "S-X"], "BILUO") == [(0, 2, "X"), (2, 3, "X")]
    )


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 4, 'X'\) must satisfy 0 ≤ start < stop ≤ 3"):
        tags_from_spans([(2, 4, "X")], 3)
    with pytest.raises(ShapeError, match="overlaps"):
        tags_from_spans([(0, 2, "X"), (1, 3, "X")], 3)
    with pytest.raises(ShapeError, match="must satisfy"):
        tags_from_spans([(1, 1, "X")], 3)
    with pytest.raises(LabelError, match="sequence 0, step 1 is None"):
        spans(["O", None], "iob2")
    with pytest.raises(InputError, match="'morse'"):
        convert(["O"], "iob2", "morse")
    with pytest.raises(InputError, match="got 3"):
        spans(["O"], 3)
