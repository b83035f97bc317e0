"""The ingredient phrases: fixed by their seed, in the intended proportions, and in need of context."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

import numpy as np
import pytest

from crfield.errors import InputError
from crfield.metrics import check_scheme, token_accuracy
from crfield.simulate.phrases import LABELS, Phrases, make_phrases, phrase_features, split_phrase

GOLDEN = [
    (
        "2 ( 17 oz ) cans ornge trugem ( boiled )",
        "B-QTY B-COMMENT I-COMMENT I-COMMENT I-COMMENT B-UNIT B-NAME I-NAME B-COMMENT I-COMMENT I-COMMENT",
    ),
    (
        "2 cloves bell peppers",
        "B-QTY B-UNIT B-NAME I-NAME",
    ),
    (
        "1.7 handfuls plus 2 teaspoons fresh vustrun cabbage",
        "B-QTY B-UNIT O B-QTY B-UNIT B-NAME I-NAME I-NAME",
    ),
]


@pytest.fixture(scope="module")
def phrases() -> Phrases:
    return make_phrases()


def words(phrases: Phrases) -> list[str]:
    return [token.lower() for row in phrases.tokens for token in row]


def test_stored_phrases(phrases: Phrases) -> None:
    for i, (line, tags) in enumerate(GOLDEN):
        assert phrases.lines[i] == line
        assert " ".join(phrases.labels[i]) == tags


def test_the_seed_decides(phrases: Phrases) -> None:
    again = make_phrases(2_500)
    assert again.tokens == phrases.tokens[:2_500]
    assert again.labels == phrases.labels[:2_500]
    assert make_phrases(50, random_state=1).tokens != again.tokens[:50]
    generator = np.random.default_rng(0)
    assert make_phrases(50, random_state=generator).tokens == again.tokens[:50]
    assert make_phrases(50, random_state=generator).tokens != again.tokens[:50]


def test_labels_and_their_shares(phrases: Phrases) -> None:
    assert len(phrases) == 20_000
    assert all(len(t) == len(y) > 0 for t, y in zip(phrases.tokens, phrases.labels))
    assert all(token and " " not in token for row in phrases.tokens for token in row)
    counts = Counter(label for row in phrases.labels for label in row)
    assert set(counts) == set(LABELS)
    assert check_scheme(phrases.labels, "iob2") is None
    share = {label: counts[label] / counts.total() for label in LABELS}
    assert 0.10 < share["B-QTY"] < 0.15
    assert 0.08 < share["B-UNIT"] < 0.13
    assert 0.24 < share["B-NAME"] + share["I-NAME"] < 0.31
    assert 0.34 < share["B-COMMENT"] + share["I-COMMENT"] < 0.44
    assert 0.02 < share["I-QTY"] < 0.05
    assert 0.05 < share["O"] < 0.10
    assert 6.5 < counts.total() / len(phrases) < 8.5


def test_invented_words_come_at_their_rate() -> None:
    known = set(words(make_phrases(noise=0, oov=0)))
    assert len(known) < 800

    def share(oov: float) -> float:
        made = make_phrases(5_000, noise=0, oov=oov)
        names = [
            token.lower() not in known
            for row, tags in zip(made.tokens, made.labels)
            for token, tag in zip(row, tags)
            if tag.endswith("NAME")
        ]
        return sum(names) / len(names)

    assert share(0) < 0.001
    assert 0.06 < share(0.08) < 0.09
    assert 0.35 < share(0.4) < 0.42
    # Most invented words of the last fifth were never seen before: that is what they are for.
    made = make_phrases(noise=0)
    seen = set(words(Phrases(made.tokens[:16_000], made.labels[:16_000])))
    late = {word for word in words(Phrases(made.tokens[16_000:], made.labels[16_000:])) if word not in known}
    assert len(late - seen) / len(late) > 0.9


def test_noise_spoils_words_and_only_words() -> None:
    clean, spoilt = make_phrases(3_000, noise=0, oov=0), make_phrases(3_000, noise=0.3, oov=0)
    known = set(words(clean))
    rate = np.mean([word not in known for word in words(spoilt) if len(word) >= 4 and word.isalpha()])
    assert 0.2 < rate < 0.35
    assert any(line.isupper() for line in spoilt.lines)
    assert not any(line.isupper() for line in clean.lines if any(c.isalpha() for c in line))
    for extreme in (make_phrases(300, noise=1, oov=1), make_phrases(300, noise=1, oov=0)):
        assert check_scheme(extreme.labels, "iob2") is None


def test_context_is_needed(phrases: Phrases) -> None:
    table: dict[str, Counter] = defaultdict(Counter)
    for row, tags in zip(phrases.tokens[:16_000], phrases.labels[:16_000]):
        for token, tag in zip(row, tags):
            table[token.lower()][tag] += 1
    commonest = {word: counts.most_common(1)[0][0] for word, counts in table.items()}
    guess = [[commonest.get(token.lower(), "I-COMMENT") for token in row] for row in phrases.tokens[16_000:]]
    assert 0.6 < token_accuracy(phrases.labels[16_000:], guess) < 0.85


def test_a_chain_with_a_window_of_one_gets_nearly_all(phrases: Phrases, tmp_path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite")
    data = [pycrfsuite.ItemSequence(phrase_features(row)) for row in phrases.tokens[:4_000]]
    trainer = pycrfsuite.Trainer(verbose=False)
    for row, tags in zip(data[:3_000], phrases.labels):
        trainer.append(row, tags)
    trainer.set_params({"c2": 1.0, "max_iterations": 60})
    trainer.train(str(tmp_path / "model"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    assert 0.92 < token_accuracy(phrases.labels[3_000:4_000], [tagger.tag(row) for row in data[3_000:]]) < 0.985


def test_features() -> None:
    rows = phrase_features(["2", "1/2", "Cups", "(", "old-fashioned", "OATS", "8-oz"])
    assert [row["shape"] for row in rows] == ["d", "d/d", "Xx", "(", "x-x", "X", "d-x"]
    assert [row["is_number"] for row in rows] == [True, True, False, False, False, False, True]
    assert [row["has_slash"] for row in rows] == [False, True, False, False, False, False, False]
    assert (rows[4]["suffix3"], rows[4]["length"], rows[4]["position"]) == ("ned", 13.0, "later")
    assert (rows[0]["previous"], rows[6]["next"]) == ("<start>", "<end>")
    assert (rows[2]["previous"], rows[2]["next"], rows[5]["previous_suffix"]) == ("1/2", "(", "ed")
    assert phrase_features([]) == []
    rows[0]["word"] = "changed"
    assert phrase_features(["2"])[0]["word"] == "2"
    assert phrase_features(["½"])[0]["is_number"]


def test_typed_lines_are_split_as_the_phrases_are() -> None:
    assert split_phrase("  2 1/2 cups (packed) brown sugar,sifted ") == (
        ["2", "1/2", "cups", "(", "packed", ")", "brown", "sugar", ",", "sifted"]
    )
    made = make_phrases(500, noise=0)
    assert [split_phrase(line) for line in made.lines] == made.tokens


def test_speed() -> None:
    begin = time.process_time()
    made = make_phrases()
    middle = time.process_time()
    for row in made.tokens:
        phrase_features(row)
    assert middle - begin < 2.0
    assert time.process_time() - middle < 2.0


def test_refusals() -> None:
    assert len(make_phrases(0)) == 0
    for options in ({"n": -1}, {"noise": 1.5}, {"oov": -0.1}, {"noise": float("nan")}):
        with pytest.raises(InputError, match="expected n ≥ 0"):
            make_phrases(**options)
