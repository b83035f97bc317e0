"""Ingredient phrases with their labels: a small world in which context decides.

    2     1/2   cups   finely    chopped   red    onions ,  plus      more      for       serving
    B-QTY I-QTY B-UNIT B-COMMENT I-COMMENT B-NAME I-NAME O  B-COMMENT I-COMMENT I-COMMENT I-COMMENT

A phrase is put together from parts: a quantity (digits, fractions, ranges, words), a unit, what is done to
the ingredient (before or behind it), and a name of one to four words. Hardly a word belongs to one label
alone: *cloves* and *leaves* are units or names, *1* counts cups or inches, *oil* is bought or something
comes packed in it, a comma ends a name, joins two comments or stands between two adjectives. A table of the
commonest label of each word therefore gets about seven tokens in ten right, a chain model that sees the
neighbours 97 of a hundred. Two things keep it from being perfect, as in real recipes: words that no
training set has seen (``oov``, made of syllables) and plain carelessness (``noise``: typing errors, odd
case, lost units, *200g*, stray marks).

All chances are drawn in bulk, a row of numbers for each phrase, so phrase i does not depend on how many
follow it, and 20,000 phrases take about a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.simulate import ingredients as stock
from crfield.simulate.ingredients import Group

Draw = Callable[[], int]

LABELS = ("B-COMMENT", "B-NAME", "B-QTY", "B-UNIT", "I-COMMENT", "I-NAME", "I-QTY", "O")

_DRAWS = 96  # numbers for one phrase; even the longest uses fewer than 90
_BLOCK = 2_000  # phrases drawn at a time
_WHOLE = 1 << 32
_LONGEST = 18
_RUNS = {
    kind: [[f"B-{kind}"] * bool(n) + [f"I-{kind}"] * (n - 1) for n in range(_LONGEST)]
    for kind in ("QTY", "UNIT", "NAME", "COMMENT")
}


@dataclass(frozen=True, eq=False)
class Phrases:
    """Phrases as lists of tokens, and a tag for each token.

    >>> phrases = make_phrases(3)
    >>> len(phrases), all(len(t) == len(y) for t, y in zip(phrases.tokens, phrases.labels))
    (3, True)
    """

    tokens: list[list[str]]
    labels: list[list[str]]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<Phrases: {len(self):,} phrases, {sum(map(len, self.tokens)):,} tokens>"

    @property
    def lines(self) -> list[str]:
        """Each phrase as one text, its tokens joined by spaces."""
        return [" ".join(row) for row in self.tokens]


def make_phrases(
    n: int = 20_000,
    *,
    random_state: int | np.random.Generator | None = 0,
    noise: float = 0.05,
    oov: float = 0.08,
) -> Phrases:
    """Make n labelled ingredient phrases.

    ``noise`` is the chance of each kind of carelessness (of a typing error for each word of four letters or
    more, of the others for each phrase), ``oov`` the chance that a word of a name or preparation is invented.
    The same ``random_state`` gives the same phrases, and fewer of them the first ones of more.

    >>> make_phrases(2).lines == make_phrases(100).lines[:2]
    True
    """
    if n < 0 or not (0 <= noise <= 1 and 0 <= oov <= 1):
        raise InputError(f"expected n ≥ 0, noise and oov in 0 … 1, got n={n}, noise={noise}, oov={oov}.")
    structure, slips = np.random.default_rng(random_state).spawn(2)
    maker = _Maker(int(noise * _WHOLE), int(oov * _WHOLE))
    bounds = [0]
    for done in range(0, n, _BLOCK):
        size = (min(_BLOCK, n - done), _DRAWS)
        for row in structure.integers(0, _WHOLE, size=size, dtype=np.uint32).tolist():
            maker.phrase(iter(row).__next__)
            bounds.append(len(maker.tokens))
    _misspell(maker.tokens, slips, noise)
    pairs = list(pairwise(bounds))
    return Phrases([maker.tokens[a:b] for a, b in pairs], [maker.labels[a:b] for a, b in pairs])


class _Maker:
    """Puts phrases behind one another into one run of tokens and one of labels."""

    def __init__(self, noise: int, oov: int) -> None:
        self.noise, self.oov = noise, oov
        self.tokens: list[str] = []
        self.labels: list[str] = []

    def put(self, kind: str, words: Sequence[str]) -> None:
        self.tokens += words
        self.labels += _RUNS[kind][len(words)]

    def outside(self, *words: str) -> None:
        self.tokens += words
        self.labels += ["O"] * len(words)

    def phrase(self, draw: Draw) -> None:
        first = len(self.tokens)
        if draw() < self.noise:
            self.outside(*_pick(stock.LEADS, draw))
        form, group = draw() % 40, _pick(stock.GROUPS, draw)
        if form < 2:
            self.put("COMMENT", (_pick(("juice", "zest", "leaves", "seeds"), draw), "of"))
            self.put("QTY", _quantity(draw))
            self.put("NAME", self.name(group, draw))
        elif form < 5:
            self.put("NAME", self.name(group, draw))
        else:
            self.measured(group, draw)
        if draw() % 24 == 0:
            self.outside(_pick(("or", "and", "or"), draw))
            self.put("NAME", self.name(group, draw))
        self.behind(group, draw)
        self.careless_case(first, draw)

    def measured(self, group: Group, draw: Draw) -> None:
        """Quantity, unit, preparation, name."""
        unit, lost = _pick(group.units, draw), draw() < self.noise
        alone = False
        if unit in stock.METRIC:
            amount = str((1 + draw() % 19) * 25)
            if lost or draw() % 6 == 0:
                self.put("QTY", (amount + unit,))
            else:
                self.put("QTY", (amount,))
                self.put("UNIT", (unit,))
        elif unit in stock.CONTAINERS:
            self.sized(unit, lost=lost, draw=draw)
        else:
            quantity = _quantity(draw)
            self.put("QTY", quantity)
            alone = unit == "-" and quantity == ("1",)
            if unit != "-" and not lost:
                self.unit(unit, quantity, draw)
        before = draw() % 10
        if before < 3:
            words = [self.prepared(group, draw)]
            if draw() % 2:
                words.insert(0, _pick(stock.ADVERBS, draw))
            self.put("COMMENT", words)
        elif before == 3 and group.solid:
            self.put("COMMENT", (_pick(stock.SIZES, draw),))
        name = self.name(group, draw)
        if alone:
            name[-1] = _singular(name[-1])
        self.put("NAME", name)

    def sized(self, unit: str, *, lost: bool, draw: Draw) -> None:
        """A number of containers of some size: 2 ( 14 oz ) cans."""
        count, size = 1 + draw() % 3, str(4 + draw() % 28)
        self.put("QTY", (str(count),))
        style = draw() % 4
        if style < 2:
            self.put("COMMENT", ("(", size, _pick(("oz", "ounce", "oz.", "g", "ml"), draw), ")"))
        elif style == 2:
            self.put("COMMENT", (f"{size}-{_pick(('oz', 'ounce', 'g'), draw)}",))
        if not lost:
            self.put("UNIT", (unit if count == 1 else stock.PLURALS[unit],))

    def unit(self, unit: str, quantity: tuple[str, ...], draw: Draw) -> None:
        if draw() % 16 == 0:
            self.put("COMMENT", (_pick(stock.SIZES, draw),))
        one = len(quantity) == 1 and quantity[0] in stock.SINGULAR
        self.put("UNIT", (unit if one else stock.PLURALS.get(unit, unit),))
        more = draw() % 24
        if more == 0:
            self.outside("plus")
            quantity = _quantity(draw)
            self.put("QTY", quantity)
            self.put("UNIT", (_pick(("tablespoons", "teaspoons", "tbsp", "tsp", "cup"), draw),))
        elif more < 4:
            self.outside("of")

    def name(self, group: Group, draw: Draw) -> list[str]:
        form = draw() % 24
        if form == 0:
            return list(_pick(stock.PAIRED, draw))
        words = []
        if form < 11:
            words.append(self.invented("modifier", draw) or _pick(group.modifiers, draw))
        if form < 4:
            if form == 1:
                words.append(",")
            words.append(self.invented("modifier", draw) or _pick(group.modifiers, draw))
        if form % 3 == 0:
            first, second = _pick(group.compounds, draw)
            words += (self.invented("modifier", draw) or first, self.invented("noun", draw) or second)
        else:
            words.append(self.invented("noun", draw) or _pick(group.nouns, draw))
        return words

    def prepared(self, group: Group, draw: Draw) -> str:
        return self.invented("prepared", draw) or _pick(group.prepared, draw)

    def invented(self, kind: str, draw: Draw) -> str:
        """An invented word at the rate ``oov``, else nothing."""
        if draw() >= self.oov:
            return ""
        number, word = draw(), ""
        for _ in range(2):
            for parts in (stock.ONSETS, stock.VOWELS, stock.CODAS):
                word += parts[number % len(parts)]
                number //= len(parts)
        return word + _pick(stock.EXTRA[kind], draw)

    def behind(self, group: Group, draw: Draw) -> None:
        """What follows the name: nothing, or a comment behind a comma, in brackets or bare."""
        place = draw() % 10
        if place < 4:
            return
        words = self.comment(group, draw)
        if place < 7:
            if len(words) < 8 and draw() % 6 == 0:
                words += [",", *self.comment(group, draw)]
            self.outside(",")
            self.put("COMMENT", words)
        elif place == 7:
            self.put("COMMENT", ["(", *words, ")"])
        else:
            self.put("COMMENT", words if place == 8 else _pick(stock.TAILS, draw))
        if draw() < self.noise:
            self.outside(_pick(stock.STRAYS, draw))

    def comment(self, group: Group, draw: Draw) -> list[str]:
        form = draw() % 12
        if form < 2:
            return [_pick(stock.ADVERBS, draw), self.prepared(group, draw)]
        if form < 4:
            return [self.prepared(group, draw)]
        if form < 5:
            first, second = self.prepared(group, draw), self.prepared(group, draw)
            return [first, "and", second] if first != second else [first]
        if form < 6:
            first, second, third = (self.prepared(group, draw) for _ in range(3))
            return [first, ",", second, "and", third]
        if form < 7 and group.solid:
            return ["cut", "into", _pick(("1", "1/2", "2", "1/4"), draw), "inch", _pick(stock.SHAPES, draw)]
        if form < 8 and group.solid:
            verb = _pick(("cut", "torn", "broken"), draw)
            return [verb, "into", _pick(stock.SIZES, draw), _pick(stock.SHAPES, draw)]
        if form < 9:
            quantity = _quantity(draw)
            return [
                "about",
                *quantity,
                _pick(("cups", "pounds", "cloves", "slices", "oz", "leaves", "lb"), draw),
            ]
        if form < 10:
            return [*_pick(stock.LINKS, draw), *self.name(_pick(stock.GROUPS, draw), draw)]
        return list(_pick(stock.TAILS, draw))

    def careless_case(self, first: int, draw: Draw) -> None:
        """A capital where the phrase opens with a word, now and then everywhere."""
        tokens, chance = self.tokens, draw()
        if chance < self.noise:
            change = (str.upper, str.title, str.title)[chance % 3]
            tokens[first:] = [change(word) if word.isalpha() else word for word in tokens[first:]]
        elif chance % 2 and tokens[first].isalpha():
            tokens[first] = tokens[first].capitalize()


def _pick(items: Sequence[Any], draw: Draw) -> Any:
    return items[draw() % len(items)]


def _quantity(draw: Draw) -> tuple[str, ...]:
    style, low = _pick(stock.STYLES, draw), 1 + draw() % 6
    if style == "whole":
        return (str(low),)
    if style == "fraction":
        return (_pick(stock.FRACTIONS, draw),)
    if style == "mixed":
        return (str(low), _pick(stock.FRACTIONS, draw))
    if style == "sign":
        return (_pick(stock.SIGNS, draw),)
    if style == "decimal":
        return (f"{low}.{_pick('2557', draw)}",)
    if style == "hyphen":
        return (f"{low}-{low + 1 + draw() % 3}",)
    if style == "to":
        return (str(low), _pick(("to", "to", "or"), draw), str(low + 1 + draw() % 3))
    return (_pick(stock.NUMBERS, draw),)


def _singular(word: str) -> str:
    if word.endswith("oes"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith(("us", "ss")) else word


def _misspell(tokens: list[str], slips: np.random.Generator, noise: float) -> None:
    """Swap two letters or drop one, in place, in a share of the longer words."""
    draws = slips.integers(0, _WHOLE, size=len(tokens), dtype=np.uint32)
    for i in np.flatnonzero(draws < noise * _WHOLE).tolist():
        word, number = tokens[i], int(draws[i])
        if len(word) >= 4 and word.isalpha():
            at = 1 + (number >> 1) % (len(word) - 2)
            kept = word[at + 1] + word[at] if number % 2 else word[at + 1]
            tokens[i] = word[:at] + kept + word[at + 2 :]


_SHAPED = re.compile(r"\d+|[^\W\d_]+")
_TOKEN = re.compile(r"[(),;!*]|[^\s(),;!*]+")


def split_phrase(line: str) -> list[str]:
    """The tokens of a typed line: words and numbers, with brackets and commas apart.

    >>> split_phrase("1 (14 oz) can tomatoes, drained")
    ['1', '(', '14', 'oz', ')', 'can', 'tomatoes', ',', 'drained']
    """
    return _TOKEN.findall(line)


def phrase_features(tokens: Sequence[str]) -> list[dict[str, Any]]:
    """A feature dict for each token: the word, its endings and shape, its neighbours and place.

    >>> features = phrase_features(["2", "cups", "Flour"])
    >>> features[2]["word"], features[2]["shape"], features[2]["previous"], features[0]["is_number"]
    ('flour', 'Xx', 'cups', True)
    """
    own = [_word_features(token) for token in tokens]
    last = len(own) - 1
    features = []
    for t, mine in enumerate(own):
        row = mine.copy()
        if t:
            before = own[t - 1]
            row["previous"], row["previous_suffix"] = before["word"], before["suffix2"]
            row["previous_shape"] = before["shape"]
        else:
            row["previous"] = "<start>"
        if t < last:
            after = own[t + 1]
            row["next"], row["next_suffix"], row["next_shape"] = (
                after["word"],
                after["suffix2"],
                after["shape"],
            )
        else:
            row["next"] = "<end>"
        row["position"] = str(t) if t < 4 else "later"
        features.append(row)
    return features


@lru_cache(maxsize=1 << 16)
def _word_features(token: str) -> dict[str, Any]:
    """What a token tells by itself. The dict is shared, so callers copy it."""
    word = token.lower()
    return {
        "word": word,
        "suffix2": word[-2:],
        "suffix3": word[-3:],
        "shape": _SHAPED.sub(_shape, token),
        "is_number": token[:1].isnumeric(),
        "has_slash": "/" in token,
        "length": float(len(token)),
    }


def _shape(run: re.Match[str]) -> str:
    """d for digits; X, x or Xx for letters."""
    text = run.group()
    if text[0].isdigit():
        return "d"
    if text.islower():
        return "x"
    return "X" if text.isupper() else "Xx"
