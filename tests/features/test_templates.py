"""Templates against a plain reading of CRF++'s rules, on both bodies."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.batch import Columns
from crfield.data.texts.conll import parse_columns
from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, ModelFileError, NotFittedError, TemplateError
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.templates.template import Template
from crfield.kernels import columns as kernel

pytestmark = pytest.mark.usefixtures("body")
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Sequences = list[list[tuple[str, ...]]]
Feature = tuple[tuple[str, ...], tuple[str, ...]]
MACRO = re.compile(r"%x\[(-?\d+),(\d+)\]")


def naive(line: str, sequence: list[tuple[str, ...]], t: int) -> Feature:
    """CRF++'s rule for one line at one token, but for gluing the parts into one string."""
    values = []
    for row, col in MACRO.findall(line):
        at = t + int(row)
        if at < 0:
            values.append(f"_B{at}")
        elif at >= len(sequence):
            values.append(f"_B+{at - len(sequence) + 1}")
        else:
            values.append(sequence[at][int(col)])
    return tuple(MACRO.split(line)[::3]), tuple(values)


def naive_rows(lines: list[str], kind: str, sequences: Sequences) -> list[list[Feature]]:
    lines = [line for line in lines if line[0] == kind and (kind == "U" or "%" in line)]
    first = 1 if kind == "B" else 0
    return [[naive(line, s, t) for line in lines] for s in sequences for t in range(first, len(s))]


def glued(feature: Feature) -> str:
    literals, values = feature
    return literals[0] + "".join(v + text for v, text in zip(values, literals[1:]))


def rows_of(columns: Columns) -> list[list[int]]:
    return [part.tolist() for part in np.split(columns.indices, columns.indptr[1:-1])] if columns.n_rows else []


def check(lines: list[str], train: Sequences, test: Sequences, min_count: int = 1) -> TemplateEncoder:
    """Fit and encode must equal the naive reading, in numbers, order and names."""
    encoder = TemplateEncoder("\n".join(lines))
    fitted = encoder.fit(train, min_count=min_count)
    encoded = encoder.encode(test)
    restored = TemplateEncoder.from_state(*encoder.state()).encode(TokenColumns.from_sequences(test), n_jobs=2)
    for kind in "UB":
        rows = naive_rows(lines, kind, train)
        met = [feature for row in rows for feature in row]
        kept = [feature for feature in dict.fromkeys(met) if met.count(feature) >= min_count]
        number = {feature: k for k, feature in enumerate(kept)}
        columns = fitted.node if kind == "U" else fitted.edge
        if columns is None:
            assert not met
            assert encoded.edge is None
            continue
        assert columns.width == len(kept)
        assert rows_of(columns) == [[number[f] for f in row if f in number] for row in rows]
        name = encoder.node_name if kind == "U" else encoder.edge_name
        assert [name(k) for k in range(len(kept))] == [glued(feature) for feature in kept]
        want = [[number[f] for f in row if f in number] for row in naive_rows(lines, kind, test)]
        for batch in (encoded, restored):
            got = batch.node if kind == "U" else batch.edge
            assert got is not None
            assert got.indices.dtype == np.int32
            assert rows_of(got) == want
    return encoder


# Few words and literals, so that skeletons are shared, words repeat and marks occur as words.
words = st.sampled_from(["a", "b", "/", "a/", "_B-1", "_B+1", "é", "", "U", "\ud800"])
sequences = st.lists(st.lists(st.tuples(words, words), max_size=5), max_size=5)
macros = st.builds(lambda r, c: f"%x[{r},{c}]", st.integers(-3, 3), st.integers(0, 1))
line = st.builds(
    lambda kind, name, parts: kind + name + "/".join(parts),
    st.sampled_from("UB"),
    st.sampled_from(["", "0:", "1:", "a"]),
    st.lists(macros, max_size=5),
)


@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")  # what is drawn to be encoded may be new altogether
@quick
@given(st.lists(line, min_size=1, max_size=6), sequences, sequences, st.integers(1, 3))
def test_random_templates(lines: list[str], train: Sequences, test: Sequences, min_count: int) -> None:
    check(lines, train, test, min_count)


def test_bag_of_words_shares_columns_and_counts_twice() -> None:
    encoder = check(["U:%x[-1,0]", "U:%x[1,0]", "B"], [[("a",), ("b",), ("a",)]], [[("a",)] * 3])
    batch = encoder.encode([[("a",), ("b",), ("a",)]])
    assert [[encoder.node_name(k) for k in row] for row in rows_of(batch.node)] == [
        ["U:_B-1", "U:b"],
        ["U:a", "U:a"],
        ["U:b", "U:_B+1"],
    ]


def test_tuples_that_only_gluing_would_confuse_stay_apart() -> None:
    encoder = TemplateEncoder("U%x[0,0]%x[0,1]")
    assert encoder.fit([[("ab", "c"), ("a", "bc")]]).node.width == 2
    assert encoder.node_name(0) == encoder.node_name(1) == "Uabc"


def test_five_words_of_a_large_alphabet() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(9_000)]
    train = [[(words[i],) for i in rng.permutation(9_000)]]
    train += [[(words[i],) for i in rng.integers(0, 40, 12)] for _ in range(150)]
    test = [*train[:40], *[[(words[i],) for i in rng.integers(0, 40, 12)] for _ in range(40)]]
    five = "/".join(f"%x[{row},0]" for row in range(-2, 3))
    nine = "/".join(f"%x[{row},0]" for row in range(-4, 5))
    encoder = TemplateEncoder(f"U1:{five}\nU2:{nine}\nU3:%x[0,0]\nB1:{five}")
    fitted = encoder.fit(train)
    lines = encoder.template.text.split("\n")
    for kind, columns, got in (
        ("U", fitted.node, encoder.encode(test).node),
        ("B", fitted.edge, encoder.encode(test).edge),
    ):
        assert columns is not None
        assert got is not None
        rows = naive_rows(lines, kind, train)
        number: dict[Feature, int] = {}
        assert rows_of(columns) == [[number.setdefault(f, len(number)) for f in row] for row in rows]
        assert rows_of(got) == [[number[f] for f in row if f in number] for row in naive_rows(lines, kind, test)]
    last = fitted.node.width - 1
    assert encoder.node_name(last) == glued(
        list(dict.fromkeys(f for r in naive_rows(lines, "U", train) for f in r))[last]
    )


@pytest.mark.parametrize("radix", [2**31 - 1, 2**21, 2_000_000, 70_000, 3])
@pytest.mark.parametrize("skeletons", [1, 5])
def test_keys_are_exact_for_any_radix(radix: int, skeletons: int) -> None:
    """Codes chosen so that keys would wrap or clash if they were cut to 64 bits."""
    rng = np.random.default_rng(radix)
    pool = np.unique(np.concatenate([[0, 1, radix - 1, radix - 2], rng.integers(0, radix, 4)]))
    pool = pool[(pool >= 0) & (pool < radix)]
    holes = [1 + (s + 2) % 7 for s in range(skeletons)]
    table = kernel.templates(
        radix=radix,
        skeleton=np.arange(skeletons),
        holes=np.cumsum([0, *holes]),
        macros=np.array([(0, h) for n in holes for h in range(n)]),
        marks=np.zeros((2, 0), int),
    )
    codes = rng.choice(pool, (1_000, 7))
    unknown = np.where(rng.random((500, 7)) < 0.05, -1, rng.choice(pool, (500, 7)))
    indptr, indices = kernel.apply(table, codes, np.array([0, 400, 1_000]), grow=True)
    number: dict[tuple[int, ...], int] = {}
    want = [number.setdefault((s, *row[:n]), len(number)) for row in codes.tolist() for s, n in enumerate(holes)]
    assert indices.tolist() == want
    assert indptr.tolist() == [skeletons * i for i in range(1_001)]
    skeleton, filling = table.tuples()
    assert [(s,) for s in skeleton] == [key[:1] for key in number]
    assert filling.tolist() == [code for key in number for code in key[1:]]
    again = kernel.templates(
        radix=radix,
        skeleton=np.arange(skeletons),
        holes=np.cumsum([0, *holes]),
        macros=np.array([(0, h) for n in holes for h in range(n)]),
        marks=np.zeros((2, 0), int),
    )
    kernel.extend(again, skeleton, filling)
    want = [number[key] for row in unknown.tolist() for s, n in enumerate(holes) if (key := (s, *row[:n])) in number]
    for jobs in (1, 2, 7):
        for made in (table, again):
            assert kernel.apply(made, unknown, np.arange(501), n_jobs=jobs)[1].tolist() == want


def test_many_sequences_on_threads() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 9, 1_500)
    sequences = [[(f"w{i}", f"p{i % 7}") for i in rng.integers(0, 60, n)] for n in lengths]
    encoder = TemplateEncoder("U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB0:%x[0,1]\nB")
    encoder.fit(sequences[:300])
    one, three = encoder.encode(sequences), encoder.encode(sequences, n_jobs=3)
    for a, b in ((one.node, three.node), (one.edge, three.edge)):
        assert a is not None
        assert b is not None
        assert a.indptr.tolist() == b.indptr.tolist()
        assert a.indices.tolist() == b.indices.tolist()


def test_alphabet_holds_only_what_the_template_reads() -> None:
    tokens = parse_columns(b"He PRP B\nruns VBZ O\n\nno DT B\n")
    encoder = TemplateEncoder("U0:%x[0,1]")
    encoder.fit(tokens[:1])
    _, arrays = encoder.state()
    assert bytes(arrays["alphabet_pool"]) == b"PRPVBZ"
    assert encoder.encode(tokens).node.indptr.tolist() == [0, 1, 2, 2]
    assert encoder.encode(tokens[1:]).node.indptr.tolist() == [0, 0]


def test_small_cuts_of_large_data_are_translated_too() -> None:
    tokens = TokenColumns.from_sequences([[(f"w{i}", "x")] for i in range(200)])
    encoder = TemplateEncoder("U0:%x[0,0]")
    encoder.fit(tokens)
    assert [encoder.encode(tokens[i : i + 1]).node.indices.tolist() for i in (0, 7, 199)] == [[0], [7], [199]]


def test_empty_data() -> None:
    encoder = TemplateEncoder("U0:%x[-1,3]\nB0:%x[0,0]")
    batch = encoder.fit([])
    assert batch.node.width == 0
    assert batch.edge is not None
    assert encoder.encode([[]]).topology.n_sequences == 1
    assert encoder.encode([[("a",) * 4]]).node.indices.tolist() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("U0:%x[0,0]\nU1:%x[0]", r"line 2: expected a macro.*got '%x\[0\]'.*\n    U1:%x\[0\]\n       \^"),
        ("U1:%x[a,0]", r"line 1: expected a macro"),
        ("U1:%x[0,-1]", r"line 1: expected a macro"),
        ("U1:%m[0,0]", r"line 1: expected a macro"),
        ("U1:50%", r"got '%'"),
        ("\n\n#c\nX1:%x[0,0]", r"line 4: expected a line that begins with U, B or #, got 'X'"),
        ("U1:%x[5000,0]", "rows lie within ±1000"),
        ("U1:%x[0,99999999]", "columns below"),
        ("", "no U or B line"),
        ("# only a comment\n", "no U or B line"),
    ],
)
def test_malformed_templates(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        Template(text)


def test_template_is_read() -> None:
    template = Template("\ufeff# c\r\n  U0:%x[ -2 , 0 ]/x/%x[+1,3] \r\n\nU\nB01\nB1:%x[0,1]\n")
    assert template.unigrams[0].macros == ((-2, 0), (1, 3))
    assert template.unigrams[0].literals == ("U0:", "/x/", "")
    assert template.unigrams[1].macros == ()
    assert template.transitions
    assert len(template.bigrams) == 1
    assert (template.n_columns_needed, template.reach, template.columns) == (4, 2, (0, 1, 3))
    assert template == Template(template.text)
    assert not Template("U0:%x[0,0]").transitions
    assert "U0" in repr(template)
    with pytest.raises(TemplateError, match="got bytes"):
        Template(b"U0")  # type: ignore[arg-type]


def test_missing_columns_and_wrong_calls() -> None:
    encoder = TemplateEncoder("U0:%x[0,0]\nU1:%x[-1,0]/%x[0,2]")
    with pytest.raises(NotFittedError, match="fit"):
        encoder.encode([[("a", "b")]])
    with pytest.raises(TemplateError, match=r"line 2 .*%x\[0,2\] reads column 2, but there are 2 columns"):
        encoder.fit([[("a", "b")]])
    encoder.fit([[("a", "b", "c")]])
    with pytest.raises(TemplateError, match="there is 1 column "):
        encoder.encode([[("a",)]])
    with pytest.raises(FeatureError, match="bare string"):
        encoder.encode([["a", "b"]])
    for bad in (-1, 2):
        with pytest.raises(FeatureError):
            encoder.node_name(bad)
    with pytest.raises(FeatureError, match="no"):
        encoder.dense_name(0)
    with pytest.raises(FeatureError, match="no"):
        encoder.edge_dense_name(0)


def test_encoders_are_copied_and_pickled() -> None:
    encoder = TemplateEncoder("U0:%x[0,0]\nB0:%x[0,0]")
    assert pickle.loads(pickle.dumps(encoder)).template == encoder.template
    encoder.fit([[("a",), ("b",)]])
    for again in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
        assert again.encode([[("b",), ("b",)]]).edge.indices.tolist() == [0]
        assert again.edge_name(0) == "B0:b"


def damaged(arrays: dict[str, np.ndarray], name: str, value: object) -> dict[str, object]:
    return {key: array for key, array in {**arrays, name: value}.items() if array is not None}


def test_damaged_states_are_refused() -> None:
    encoder = TemplateEncoder("U0:%x[0,0]/%x[1,0]\nU1:%x[0,0]\nB0:%x[0,0]")
    encoder.fit([[("a",), ("b",), ("a",)]])
    header, arrays = encoder.state()
    assert TemplateEncoder.from_state(header, dict(arrays)).node_name(0) == "U0:a/b"
    for bad_header in ({}, {"template": 3}, {"template": "X"}, {"template": "U0:%x[0,0]"}):
        with pytest.raises(ModelFileError):
            TemplateEncoder.from_state(bad_header, arrays)
    codes = arrays["node_codes"]
    for name, value in [
        ("alphabet_pool", None),
        ("alphabet_pool", arrays["alphabet_pool"][:-1]),
        ("alphabet_offsets", arrays["alphabet_offsets"].astype(np.int32)),
        ("alphabet_offsets", arrays["alphabet_offsets"][:-1]),
        ("node_skeleton", arrays["node_skeleton"][None]),
        ("node_skeleton", arrays["node_skeleton"] + 7),
        ("node_skeleton", arrays["node_skeleton"] - 1),
        ("node_skeleton", arrays["node_skeleton"][:-1]),
        ("node_codes", codes[:-1]),
        ("node_codes", np.append(codes, codes[:1])),
        ("node_codes", codes + 100),
        ("node_codes", codes - 3),
        ("node_codes", np.zeros_like(codes)),
        ("node_codes", "codes"),
        ("edge_skeleton", None),
    ]:
        with pytest.raises(ModelFileError):
            TemplateEncoder.from_state(header, damaged(arrays, name, value))  # type: ignore[arg-type]


def test_marks_missing_from_a_stored_alphabet_are_refused() -> None:
    encoder = TemplateEncoder("U0:%x[-1,0]")
    encoder.fit([[("a",)]])
    header, arrays = encoder.state()
    pool, offsets = Alphabet(["a", "b", "c"]).to_arrays()
    with pytest.raises(ModelFileError):
        TemplateEncoder.from_state(header, {**arrays, "alphabet_pool": pool, "alphabet_offsets": offsets})


def test_batch_lies_on_the_chains_of_the_tokens() -> None:
    tokens = TokenColumns.from_sequences([[("a",)], [], [("b",), ("c",)]])
    batch = TemplateEncoder("U0:%x[0,0]\nB0:%x[-1,0]/%x[0,0]").fit(tokens)
    assert isinstance(batch.topology, Chains)
    assert batch.topology.lengths.tolist() == [1, 0, 2]
    assert batch.edge is not None
    assert batch.edge.n_rows == 1
