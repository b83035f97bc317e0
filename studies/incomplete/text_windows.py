"""Tokens of a sentence as single decisions: windows of words, parts of speech that may be missing, a yes or no.

Is this word part of a noun phrase, or of a name? Each token is a case of its own, described by what stands around it
(Haffari, Wang, Wang, Mori & Jiao 2008, *Boosting with incomplete information*, table 2, after Carreras, Màrquez &
Padró 2003): word forms in a window of five with their places, prefixes and suffixes of up to four characters,
capitals, digits and marks. The part of speech is what may be missing. It is collapsed to five values (nouns with
personal pronouns, verbs, adjectives, adverbs, the rest), as the paper does; it does not give its table, this one is
ours.

Three tasks on two corpora, read from a folder, and one on made-up phrases that needs no file:

    np        words of noun phrases             CoNLL-2000
    bnp       first words of noun phrases       CoNLL-2000
    ner       words of names                    CoNLL-2002, Spanish
    phrases   first words of ingredients        `simulate.phrases`; which part of the phrase a token is in takes the
                                                place of the part of speech

Columns are those features that the training sentences have at least twice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from crfield.errors import InputError
from crfield.simulate.phrases import make_phrases
from crfield.storage.exchange import read_columns

WINDOW = (-2, -1, 0, 1, 2)
N_TAGS = 5
NOUN, VERB, ADJECTIVE, ADVERB, OTHER = range(N_TAGS)
_PARTS_OF_PHRASE = ("NAME", "QTY", "UNIT", "COMMENT", "O")
_AFFIX = 4
_LEAST = 2  # occurrences of a feature that make it a column


@dataclass(frozen=True, eq=False)
class Sentences:
    """Words, tags (0 … 4) and labels (0 or 1) of sentences.

    >>> made = phrase_sentences(3)
    >>> made, made.take([2, 0]).words[1] == made.words[0]
    (<Sentences: 3 sentences, ... tokens>, True)
    """

    words: list[list[str]]
    tags: list[np.ndarray]
    labels: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"<Sentences: {len(self):,} sentences, {sum(map(len, self.words)):,} tokens>"

    def take(self, rows: Iterable[int]) -> Sentences:
        """The sentences at these places."""
        chosen = list(rows)
        return Sentences(
            [self.words[i] for i in chosen], [self.tags[i] for i in chosen], [self.labels[i] for i in chosen]
        )

    @property
    def offsets(self) -> np.ndarray:
        """(sentences + 1,) where each sentence begins among all tokens."""
        return np.concatenate([[0], np.cumsum([len(words) for words in self.words], dtype=np.int64)])

    @property
    def tag_codes(self) -> np.ndarray:
        """(N,) tags of all tokens."""
        return np.concatenate([np.empty(0, np.int64), *self.tags])

    @property
    def label_codes(self) -> np.ndarray:
        """(N,) labels of all tokens."""
        return np.concatenate([np.empty(0, np.int64), *self.labels])

    def windowed_tags(self) -> np.ndarray:
        """(N, 5) tags of the window around each token, −1 beyond the sentence.

        >>> Sentences([["a", "b"]], [np.array([3, 4])], [np.array([0, 0])]).windowed_tags().tolist()
        [[-1, -1, 3, 4, -1], [-1, 3, 4, -1, -1]]
        """
        reach = WINDOW[-1]
        rows = []
        for tags in self.tags:
            padded = np.concatenate([np.full(reach, -1), tags, np.full(reach, -1)])
            rows.append(np.lib.stride_tricks.sliding_window_view(padded, len(WINDOW)))
        return np.concatenate([np.empty((0, len(WINDOW)), np.int64), *rows])


@dataclass(frozen=True)
class Task:
    """Files of a task, and how its tags and labels are read."""

    train: str
    test: str
    label: Callable[[str], bool]
    tag: Callable[[str], int]
    summary: str


def penn_tag(tag: str) -> int:
    """One of five for a tag of the Penn treebank.

    >>> [penn_tag(tag) for tag in ("NNS", "PRP", "MD", "JJR", "RB", "DT")]
    [0, 0, 1, 2, 3, 4]
    """
    if tag[:2] == "NN" or tag in ("PRP", "WP"):
        return NOUN
    if tag[:2] == "VB" or tag == "MD":
        return VERB
    return {"JJ": ADJECTIVE, "RB": ADVERB}.get(tag[:2], OTHER)


def spanish_tag(tag: str) -> int:
    """One of five for an EAGLES tag.

    >>> [spanish_tag(tag) for tag in ("NC", "VMI", "AQ", "RG", "Fpa")]
    [0, 1, 2, 3, 4]
    """
    return {"N": NOUN, "V": VERB, "A": ADJECTIVE, "R": ADVERB}.get(tag[:1], OTHER)


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        "np": Task(
            "conll2000/train.txt.gz",
            "conll2000/test.txt.gz",
            lambda tag: tag[-2:] == "NP",
            penn_tag,
            "words of noun phrases (CoNLL-2000)",
        ),
        "bnp": Task(
            "conll2000/train.txt.gz",
            "conll2000/test.txt.gz",
            lambda tag: tag == "B-NP",
            penn_tag,
            "first words of noun phrases (CoNLL-2000)",
        ),
        "ner": Task(
            "conll2002/esp.train.gz",
            "conll2002/esp.testb.gz",
            lambda tag: tag != "O",
            spanish_tag,
            "words of names (CoNLL-2002, Spanish)",
        ),
    }
)
PHRASES = "phrases"


def read_task(folder: str, name: str) -> tuple[Sentences, Sentences]:
    """Training and test sentences of a task; the files lie in ``folder`` under the names that they have there."""
    if name not in TASKS:
        raise InputError(f"there is no task {name!r} that is read from files; there are {', '.join(TASKS)}.")
    task = TASKS[name]
    return _read(os.path.join(folder, task.train), name), _read(os.path.join(folder, task.test), name)


@lru_cache(maxsize=6)
def _read(path: str, name: str) -> Sentences:
    task = TASKS[name]
    words, tags, labels = [], [], []
    for rows in read_columns(path):
        words.append([row[0] for row in rows])
        tags.append(np.array([task.tag(row[1]) for row in rows], np.int64))
        labels.append(np.array([task.label(row[2]) for row in rows], np.int64))
    return Sentences(words, tags, labels)


def phrase_sentences(n: int, *, random_state: int = 0) -> Sentences:
    """Made-up phrases: is a token the first word of an ingredient? Its part of the phrase may be missing.

    >>> made = phrase_sentences(50)
    >>> bool((made.tag_codes[made.label_codes == 1] == 0).all()), bool((made.tag_codes == 0).mean() > 0.2)
    (True, True)
    """
    made = make_phrases(n, random_state=random_state)
    part = {name: code for code, name in enumerate(_PARTS_OF_PHRASE)}
    tags = [
        np.array([part[label[-1:] if label == "O" else label[2:]] for label in row], np.int64) for row in made.labels
    ]
    labels = [np.array([label == "B-NAME" for label in row], np.int64) for row in made.labels]
    return Sentences(made.tokens, tags, labels)


def token_features(words: Sequence[str], t: int) -> list[str]:
    """Features of token t: its window, affixes and marks.

    >>> token_features(["At", "3M"], 1)[:6]
    ['bias', 'w-2=<>', 'w-1=At', 'w0=3M', 'w1=<>', 'w2=<>']
    >>> token_features(["At", "3M"], 1)[6:]
    ['p1=3', 's1=M', 'p2=3M', 's2=3M', 'all capitals', 'digit']
    """
    word = words[t]
    features = ["bias"]
    for step in WINDOW:
        features.append(f"w{step}={words[t + step] if 0 <= t + step < len(words) else '<>'}")
    for size in range(1, min(_AFFIX, len(word)) + 1):
        features += (f"p{size}={word[:size]}", f"s{size}={word[-size:]}")
    capital = word[:1].isupper()
    marks = {
        "capital": capital,
        "all capitals": word.isupper(),
        "capital inside": capital and t > 0,
        "digit": any(c.isdigit() for c in word),
        "hyphen": "-" in word,
        "mark": not word[:1].isalnum(),
    }
    return features + [name for name, holds in marks.items() if holds]


class TokenTable:
    """Features to columns: those that the sentences of ``fit`` have at least twice, sorted.

    >>> sentences = phrase_sentences(20)
    >>> table = TokenTable().fit(sentences)
    >>> columns = table.columns(sentences)
    >>> columns.shape[0] == len(sentences.label_codes), float(columns.max())
    (True, 1.0)
    """

    def __init__(self) -> None:
        self.code: dict[str, int] = {}

    def fit(self, sentences: Sentences) -> TokenTable:
        """Learn the columns."""
        counts = Counter(feature for row in _rows(sentences) for feature in row)
        kept = sorted(feature for feature, count in counts.items() if count >= _LEAST)
        self.code = {feature: k for k, feature in enumerate(kept)}
        return self

    def columns(self, sentences: Sentences) -> Any:
        """(N, columns) CSR of zeros and ones."""
        ends, indices = [0], []
        for row in _rows(sentences):
            indices += sorted({self.code[feature] for feature in row if feature in self.code})
            ends.append(len(indices))
        shape = (len(ends) - 1, len(self.code))
        return csr_matrix((np.ones(len(indices)), np.array(indices, np.int64), np.array(ends, np.int64)), shape)


def _rows(sentences: Sentences) -> Iterable[list[str]]:
    return (token_features(words, t) for words in sentences.words for t in range(len(words)))


@dataclass(frozen=True, eq=False)
class TextCase:
    """One draw of a task: sentences without and with tags to learn from, and sentences to test on.

    >>> case = text_case(PHRASES, 0, n_hidden=30, n_observed=10, n_test=20)
    >>> case.known.sum() == len(case.observed.label_codes), case.columns.shape[1] == case.test_columns.shape[1]
    (np.True_, True)
    """

    task: str
    seed: int
    hidden: Sentences  # tags are not looked at
    observed: Sentences
    test: Sentences
    columns: Any  # (N, columns) of hidden, then observed
    test_columns: Any

    @property
    def train(self) -> Sentences:
        """Sentences without tags, then those with."""
        one, other = self.hidden, self.observed
        return Sentences(one.words + other.words, one.tags + other.tags, one.labels + other.labels)

    @property
    def known(self) -> np.ndarray:
        """(N,) whether the tag of a training token may be seen."""
        return np.repeat([False, True], [len(self.hidden.label_codes), len(self.observed.label_codes)])


def text_case(
    task: str, seed: int, *, data: str | None = None, n_hidden: int = 300, n_observed: int = 80, n_test: int = 300
) -> TextCase:
    """Draw sentences for a seed: ``n_hidden`` without tags, ``n_observed`` with; the first ``n_test`` are the test.

    Made-up phrases of a seed do not meet those of another, neither in training nor in the test.
    """
    if task == PHRASES:
        everything = phrase_sentences(n_hidden + n_observed + n_test, random_state=seed)
        n_train = n_hidden + n_observed
        train, test = everything.take(range(n_train)), everything.take(range(n_train, len(everything)))
    elif not data:
        raise InputError(
            f"the task {task!r} reads {TASKS[task].train if task in TASKS else 'files'}: name the folder that has it "
            f"with --data FOLDER, or in the environment as CRFIELD_DATA. Without data there is the task {PHRASES!r}."
        )
    else:
        train, test = read_task(data, task)
        test = test.take(range(min(n_test, len(test))))
    if n_hidden < 1 or n_observed < 1 or n_hidden + n_observed > len(train) or not len(test):
        raise InputError(
            f"the task {task!r} has {len(train):,} training and {len(test):,} test sentences; asked for {n_hidden:,} "
            f"without tags, {n_observed:,} with, and {n_test:,} to test on, each at least one."
        )
    order = np.random.default_rng(seed).permutation(len(train))
    hidden = train.take(order[:n_hidden].tolist())
    observed = train.take(order[n_hidden : n_hidden + n_observed].tolist())
    both = train.take(order[: n_hidden + n_observed].tolist())
    table = TokenTable().fit(both)
    return TextCase(task, seed, hidden, observed, test, table.columns(both), table.columns(test))
