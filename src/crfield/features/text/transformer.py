"""`TextFeatures`: sentences become sequences of named features for a chain.

    words, or rows of columns  →  what each word shows  →  windows  →  conjunctions  →  names

A feature is named by what it is and where it stands: "word[-1]=de", "shape=Xxxx", "capital[+1]",
"lexicon.place=B", "word|word[+1]=San|Sebastián". Windows are radii (2 is −2 … +2), tuples of places, or None to leave
the kind out. Nothing is learnt, unless ``min_count`` asks for words that are too rare to be known by name.

What a word shows by itself is computed once for every different word, and a name is made once for every different
value and place (`text_columns`); the result is an `AttributeSequences`, which behaves as a list of sentences of lists
of names and which `ChainCRF` encodes by its alphabet: a string is looked at once, however often it occurs. Dicts made
token by token take several times as long to make, and longer to encode.

``ChainCRF(features=TextFeatures(…))`` reads sentences itself, and its file holds the options, the lists and the
clusters (`TextFeatures.state`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag, integer
from crfield.core.estimator import Estimator, TransformerMixin
from crfield.data.alphabet import Alphabet
from crfield.data.attributes import AttributeSequences
from crfield.errors import InputError, ModelFileError, NotFittedError, ShapeError
from crfield.features.text.columns import FeatureTable, TextColumn, read_tokens
from crfield.features.text.lexicon import (
    Lexicon,
    cluster_of,
    cluster_prefix,
    clusters_from_arrays,
    clusters_to_arrays,
    stored_texts,
)
from crfield.features.text.words import FLAGS, length_bucket, shape, short_shape, word_flags

__all__ = ["RARE", "TextFeatures"]

RARE = "<rare>"
FAR = 1000  # the farthest place, the longest affix, the most conjunctions: what a sentence can use
_KINDS = ("word", "lower", "shape", "short_shape", "length")
_WINDOWS = (*_KINDS, "flags", "affixes", "other", "lexicon_window", "cluster_window")
_APART = ("columns", "lexicons", "clusters")  # which a file holds in a form of their own
TERM = re.compile(r"(.+?)(?:\[([+-]?\d{1,9})\])?", re.DOTALL)
Window = int | Sequence[int] | None


class TextFeatures(TransformerMixin, Estimator):
    """Features of the words of sentences: shapes, affixes, windows, lexicons, clusters, conjunctions.

    X is a list of sentences; a sentence is a list of words, or of rows (word, part of speech, …) of equal width.

    Parameters
    ----------
    columns : sequence of str, or mapping of str to int, optional
        Names of the columns of a row; by default "word", "tag", and then "column2", … . One of them is "word". A
        mapping says which columns are read: ``{"word": 0, "tag": 2}`` leaves column 1 alone.
    word, lower, shape, short_shape, length, flags : int, sequence of int or None
        Where to look at the word, at it in lower case, at its shape ("Xxxx"), at its shape without repetitions
        ("Xx"), at its length (in classes), at its capitals, digits and marks: a radius, places, or None.
    prefixes, suffixes : sequence of int
        Lengths of beginnings and endings; ``affixes`` is where to look at them.
    other : int, sequence of int or None
        Where to look at the columns beside the word.
    lexicons : mapping of name to entries or Lexicon, optional
        Lists of entries of one or more words, the longest marked B, I. A large one that meets one sentence at a time
        is better handed over built: `crfield.features.text.lexicon.Lexicon`.
    ignore_case : bool
        Whether entries of lists are found whatever their case.
    clusters : mapping of word to bit string, optional
        Classes of words; ``cluster_bits`` are the lengths of the prefixes of bits to use.
    lexicon_window, cluster_window : int, sequence of int or None
        Where to look at those.
    conjunctions : sequence of sequences of str
        What is looked at together, such as ``("word[-1]", "word")`` or ``("tag", "short_shape[+1]")``.
    borders : int
        How many steps beyond the ends are told: ``start[-1]``, ``end[+2]``.
    min_count : int
        Words that ``fit`` saw less often are called "<rare>"; 1 needs no ``fit``.

    Attributes
    ----------
    vocabulary_ : frozenset of str
        Words known by name; only if ``min_count`` is above 1.
    n_columns_ : int
        Columns of the rows that ``fit`` saw, 1 for plain words.

    Examples
    --------
    >>> features = TextFeatures(word=(-1, 0), lower=None, short_shape=None, prefixes=(), suffixes=(3,))
    >>> features.set_params(conjunctions=[("word", "shape[+1]")], borders=1, lexicons={"place": ["La Coruña"]})
    TextFeatures(...)
    >>> for step in features.transform([["en", "La", "Coruña"]])[0]:
    ...     print(step)
    ['word=en', 'shape=xx', 'capital[+1]', 'lexicon.place[+1]=B', 'word|shape[+1]=en|Xx', 'start[-1]']
    ['word[-1]=en', 'word=La', 'shape=Xx', 'capital', 'capital[+1]', 'lexicon.place=B', 'lexicon.place[+1]=I', ...]
    ['word[-1]=La', 'word=Coruña', 'shape=Xxxxx', 'suffix3=uña', 'capital[-1]', 'capital', ..., 'end[+1]']
    """

    kind = "text_features"  # the word for them in a file

    def __init__(
        self,
        *,
        columns: Sequence[str] | Mapping[str, int] | None = None,
        word: Window = 2,
        lower: Window = 0,
        shape: Window = 0,
        short_shape: Window = 2,
        length: Window = None,
        flags: Window = 1,
        prefixes: Sequence[int] = (2, 3, 4),
        suffixes: Sequence[int] = (2, 3, 4),
        affixes: Window = 0,
        other: Window = 2,
        lexicons: Mapping[str, Iterable[Any] | Lexicon] | None = None,
        ignore_case: bool = False,
        lexicon_window: Window = 1,
        clusters: Mapping[str, str] | None = None,
        cluster_bits: Sequence[int] = (4, 6, 10, 20),
        cluster_window: Window = 1,
        conjunctions: Sequence[Sequence[str]] = (("word[-1]", "word"), ("word", "word[+1]")),
        borders: int = 2,
        min_count: int = 1,
    ) -> None:
        self.columns = columns
        self.word = word
        self.lower = lower
        self.shape = shape
        self.short_shape = short_shape
        self.length = length
        self.flags = flags
        self.prefixes = prefixes
        self.suffixes = suffixes
        self.affixes = affixes
        self.other = other
        self.lexicons = lexicons
        self.ignore_case = ignore_case
        self.lexicon_window = lexicon_window
        self.clusters = clusters
        self.cluster_bits = cluster_bits
        self.cluster_window = cluster_window
        self.conjunctions = conjunctions
        self.borders = borders
        self.min_count = min_count

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the options; with ``min_count`` above 1 learn which words are known by name."""
        self._check()
        topology, read = read_tokens(X)
        if not topology.n_nodes:
            read = [(np.zeros(0, np.int64), [])] * len(self.columns or "w")
        places = self._columns(len(read))
        if topology.n_nodes:
            self.n_columns_ = len(read)
        if self.min_count > 1:
            codes, values = read[places["word"]] if topology.n_nodes else read[0]
            counts = np.bincount(codes, minlength=len(values))
            self.vocabulary_ = frozenset(word for word, n in zip(values, counts.tolist()) if n >= self.min_count)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self.min_count == 1 or hasattr(self, "vocabulary_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = bool(self.min_count != 1)
        return tags

    def _check(self) -> None:
        integer(1)("min_count", self.min_count)
        integer(0, most=FAR)("borders", self.borders)
        for name in ("prefixes", "suffixes", "cluster_bits"):
            sizes = getattr(self, name)
            if isinstance(sizes, str) or not isinstance(sizes, Iterable) or not all(_counts(n) for n in sizes):
                raise InputError(f"{name} must be lengths of 1 … {FAR}, such as (2, 3), got {sizes!r:.60}.")
        for name in _WINDOWS:
            _places(name, getattr(self, name))
        if isinstance(self.conjunctions, str) or not isinstance(self.conjunctions, Sequence):
            raise InputError(f"conjunctions must be lists of names, got {self.conjunctions!r:.40}.")
        if len(self.conjunctions) > FAR:
            raise InputError(f"there can be at most {FAR} conjunctions, got {len(self.conjunctions)}.")
        for terms in self.conjunctions:
            _terms(terms)
        flag("ignore_case", self.ignore_case)
        if self.lexicons is not None and not isinstance(self.lexicons, Mapping):
            raise InputError(f"lexicons must map names to entries, got {self.lexicons!r:.40}.")
        if self.clusters is not None and not isinstance(self.clusters, Mapping):
            cluster_of(self.clusters, "")

    def _columns(self, width: int) -> dict[str, int]:
        """Which column of a row each name is."""
        if self.columns is None:
            names = (["word", "tag"] + [f"column{k}" for k in range(2, width)])[: max(width, 1)]
            return {name: k for k, name in enumerate(names)}
        if isinstance(self.columns, str) or not isinstance(self.columns, Iterable):
            raise InputError(f"columns must be names such as ('word', 'tag'), got {self.columns!r:.40}.")
        names = [str(name) for name in self.columns]
        if isinstance(self.columns, Mapping):
            numbers = list(self.columns.values())
            if not all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= 0 for n in numbers):
                raise InputError(
                    f"columns must map names to column numbers, counted from 0, got {self.columns!r:.60}."
                )
            if width and max(numbers, default=0) >= width:
                raise ShapeError(f"columns= reads column {max(numbers)}, but tokens have {width} (0 … {width - 1}).")
        else:
            numbers = list(range(len(names)))
            if width and len(names) != width:
                raise ShapeError(f"tokens have {width} columns, but columns= names {len(names)}: {names}.")
        if "word" not in names or len(set(names)) < len(names):
            raise InputError(f"columns must be different names, one of them 'word', got {names}.")
        taken = sorted({"lower", "shape", "short_shape", "length", *FLAGS} & set(names))
        if taken:
            raise InputError(f"columns cannot be called {taken}, which are features of the word. Choose other names.")
        return {name: int(number) for name, number in zip(names, numbers)}

    @property
    def column_numbers(self) -> dict[str, int]:
        """Which column of a row each name is; as far as ``columns`` or ``fit`` say.

        >>> TextFeatures(columns={"word": 0, "tag": 2}).column_numbers
        {'word': 0, 'tag': 2}
        """
        return self._columns(getattr(self, "n_columns_", 0) if self.columns is None else 0)

    # ----------------------------------------------------------------- features

    def transform(self, X: Any) -> AttributeSequences:
        """The features of every token: a list of sentences of lists of names, held in flat tables."""
        self._check()
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this TextFeatures has min_count above 1: call fit(X) first, or set min_count=1.")
        topology, read = read_tokens(X)
        table = FeatureTable(topology)
        if not topology.n_nodes:  # not even the columns can be told
            return table.rows()
        if self.columns is None and getattr(self, "n_columns_", len(read)) != len(read):
            raise ShapeError(f"tokens have {len(read)} columns, and fit saw {self.n_columns_}.")
        given = {name: TextColumn(name, *read[number]) for name, number in self._columns(len(read)).items()}
        known = _Kinds(self, given, topology.offsets)
        for kind in _KINDS:
            window = _places(kind, getattr(self, kind))
            if window:
                table.add(known[kind], window)
        for part, sizes in (("prefix", self.prefixes), ("suffix", self.suffixes)):
            for size in sizes:
                table.add(known[f"{part}{size}"], _places("affixes", self.affixes))
        for name in FLAGS if _places("flags", self.flags) else ():
            table.add(known[name], _places("flags", self.flags))
        for name in given:
            if name != "word":
                table.add(known[name], _places("other", self.other))
        for name in self.lexicons or ():
            table.add(known[f"lexicon.{name}"], _places("lexicon_window", self.lexicon_window))
        for size in self.cluster_bits if self.clusters is not None else ():
            table.add(known[f"cluster{size}"], _places("cluster_window", self.cluster_window))
        for terms in self.conjunctions:
            table.add_conjunction([known.term(term) for term in _terms(terms)])
        table.add_borders(int(self.borders))
        return table.rows()

    @property
    def reach(self) -> tuple[int, int]:
        """How many steps back and ahead the features of a step look.

        >>> TextFeatures(word=3).reach
        (3, 3)
        """
        looked = [0, -int(self.borders), int(self.borders)]
        used = {"affixes": self.prefixes or self.suffixes, "lexicon_window": self.lexicons}
        used["cluster_window"] = self.clusters
        for name in _WINDOWS:
            if name not in used or used[name]:
                looked += _places(name, getattr(self, name))
        for terms in self.conjunctions:
            looked += [int(found[2] or 0) for term in _terms(terms) if (found := TERM.fullmatch(term))]
        most = max((lexicon.longest - 1 for lexicon in self._built_lexicons().values()), default=0)
        return most - min(looked), max(looked) + most

    # ------------------------------------------------------------------ storage

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and the arrays from which `from_state` makes the same features again.

        >>> features = TextFeatures(lexicons={"place": ["La Paz"]}, clusters={"Paz": "01"})
        >>> again = TextFeatures.from_state(*features.state())
        >>> again.transform([["La", "Paz"]])[0] == features.transform([["La", "Paz"]])[0]
        True
        """
        self._check()
        options = {name: value for name, value in self.get_params(deep=False).items() if name not in _APART}
        header: dict[str, Any] = {"kind": self.kind, "options": _listed(options), "lexicons": []}
        if hasattr(self, "n_columns_"):
            header["width"] = int(self.n_columns_)
        if self.columns is not None:
            ordered = self._columns(0)
            mapped = isinstance(self.columns, Mapping)
            header["columns"] = [list(ordered), list(ordered.values()) if mapped else None]
        arrays: dict[str, np.ndarray] = {}
        for k, (name, lexicon) in enumerate(self._built_lexicons().items()):
            header["lexicons"].append([name, bool(lexicon.ignore_case)])
            arrays |= {f"lexicon{k}/{part}": array for part, array in lexicon.to_arrays().items()}
        if self.clusters is not None:
            arrays |= {f"clusters/{part}": array for part, array in clusters_to_arrays(self.clusters).items()}
        if hasattr(self, "vocabulary_"):
            pool, offsets = Alphabet(sorted(self.vocabulary_)).to_arrays()
            arrays |= {"vocabulary/pool": pool, "vocabulary/offsets": offsets}
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> TextFeatures:
        """The features whose `state` this is; ModelFileError where it cannot be one."""

        def under(prefix: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}

        known = set(cls().get_params(deep=False)) - set(_APART)
        try:
            options, lists, columns = header["options"], header["lexicons"], header.get("columns")
            if header["kind"] != cls.kind or not isinstance(options, dict) or not set(options) <= known:
                raise ModelFileError(f"the file's text features must have the options {', '.join(sorted(known))}.")
            names = [name for name, _ in lists]
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise ModelFileError(f"the file's text features have lexicons called {names!r:.60}.")
            made = cls(**{name: _tupled(value) for name, value in options.items()})
            if columns is not None:
                called, numbers = columns
                made.columns = _tupled(called) if numbers is None else dict(zip(called, numbers, strict=True))
            made.lexicons = {
                name: Lexicon.from_arrays(under(f"lexicon{k}/"), ignore_case=bool(folded), name=name)
                for k, (name, folded) in enumerate(lists)
            } or None
            if any(name.startswith("clusters/") for name in arrays):
                made.clusters = clusters_from_arrays(under("clusters/"))
            if any(name.startswith("vocabulary/") for name in arrays):
                made.vocabulary_ = frozenset(stored_texts(under("vocabulary/"), "", "the vocabulary"))
            if "width" in header:
                if type(header["width"]) is not int or not 1 <= header["width"] <= FAR * FAR:
                    raise ModelFileError("the file's text features were made for no width: the file is damaged.")
                made.n_columns_ = header["width"]
            made._check()
            made._columns(0)
        except ModelFileError:
            raise
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the file's text features cannot be used: {error}. Was the file edited?") from None
        return made

    def _built_lexicons(self) -> dict[str, Lexicon]:
        return {
            str(name): given
            if isinstance(given, Lexicon)
            else Lexicon(given, ignore_case=self.ignore_case, name=str(name))
            for name, given in (self.lexicons or {}).items()
        }


class _Kinds(dict[str, TextColumn]):
    """Columns by name; those derived from the word are made when first asked for."""

    def __init__(self, options: TextFeatures, given: Mapping[str, TextColumn], offsets: np.ndarray) -> None:
        super().__init__((name, column) for name, column in given.items() if name != "word")
        self.options, self.raw, self.offsets = options, given["word"], offsets
        self._flags: dict[str, list[str]] = {}

    def __missing__(self, name: str) -> TextColumn:
        made = self._derived(name)
        if made is None:
            raise InputError(
                f"conjunctions name {name!r}, which is no feature here. There are word, lower, shape, short_shape, "
                f"length, prefixN, suffixN, clusterN, lexicon.NAME, the columns {[*self]} and {', '.join(FLAGS)}."
            )
        self[name] = made
        return made

    def term(self, text: str) -> tuple[TextColumn, int]:
        """The column and the place of a part of a conjunction."""
        matched = TERM.fullmatch(text)
        assert matched is not None  # any text but an empty one, which `_terms` refuses
        return self[matched[1]], int(matched[2] or 0)

    def _derived(self, name: str) -> TextColumn | None:
        raw = self.raw
        if name in ("word", "lower"):
            return raw.derived(name, self._spelling(str.lower if name == "lower" else str))
        if name in ("shape", "short_shape", "length"):
            return raw.derived(name, {"shape": shape, "short_shape": short_shape, "length": length_bucket}[name])
        if name in FLAGS:
            return raw.derived(name, lambda word: "" if name in self._flags_of(word) else None, flag=True)
        if name.startswith("lexicon."):
            return self._marked(name)
        matched = re.fullmatch(r"(prefix|suffix|cluster)(\d{1,9})", name)
        if matched is None or int(matched[2]) == 0 or (matched[1] == "cluster" and self.options.clusters is None):
            return None
        size = int(matched[2])
        if matched[1] == "cluster":
            clusters = self.options.clusters
            return raw.derived(name, lambda word: cluster_prefix(cluster_of(clusters, word), size))
        cut = slice(None, size) if matched[1] == "prefix" else slice(-size, None)
        return raw.derived(name, lambda word: word[cut] if len(word) >= size else None)

    def _spelling(self, form: Any) -> Any:
        if self.options.min_count == 1:
            return form
        known = self.options.vocabulary_
        return lambda word: form(word) if word in known else RARE

    def _flags_of(self, word: str) -> list[str]:
        if word not in self._flags:
            self._flags[word] = word_flags(word)
        return self._flags[word]

    def _marked(self, name: str) -> TextColumn | None:
        lexicons, key = self.options.lexicons or {}, name.removeprefix("lexicon.")
        if key not in lexicons:
            return None
        given: Any = lexicons[key]
        built = isinstance(given, Lexicon)
        lexicon: Lexicon = given if built else Lexicon(given, ignore_case=self.options.ignore_case, name=key)
        texts = np.array([*self.raw.values, ""], dtype=object)[self.raw.codes].tolist()
        numbers = {None: -1, "B": 0, "I": 1}
        codes = np.full(len(texts), -1, dtype=np.int64)
        for first, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist()):
            codes[first:stop] = [numbers[mark] for mark in lexicon.mark(texts[first:stop])]
        return TextColumn(name, codes, ["B", "I"])


def _counts(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= FAR


def _listed(value: Any) -> Any:
    """Numbers, words and lists of them, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(name): _listed(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_listed(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _places(name: str, window: Window) -> tuple[int, ...]:
    """The places of a window: a radius, places, or None."""
    if window is None:
        return ()
    if isinstance(window, Integral) and not isinstance(window, bool) and 0 <= int(window) <= FAR:
        return tuple(range(-int(window), int(window) + 1))
    if isinstance(window, Iterable) and not isinstance(window, str):
        places = tuple(window)
        if all(isinstance(p, Integral) and not isinstance(p, bool) and abs(int(p)) <= FAR for p in places):
            return tuple(int(place) for place in dict.fromkeys(places))
    raise InputError(
        f"{name} must be a radius ≥ 0, places such as (-1, 0, 1), or None, got {window!r:.60}. Places lie "
        f"within ±{FAR} steps."
    )


def _terms(terms: Any) -> list[str]:
    listed = list(terms) if isinstance(terms, Iterable) and not isinstance(terms, str) else [terms]
    if len(listed) < 2 or not all(isinstance(term, str) and term for term in listed):
        raise InputError(f"a conjunction needs two or more names such as ('word[-1]', 'word'), got {terms!r:.60}.")
    for term in listed:
        found = TERM.fullmatch(term)
        if found and abs(int(found[2] or 0)) > FAR:
            raise InputError(f"the conjunction {terms!r:.60} looks farther than {FAR} steps.")
    return listed
