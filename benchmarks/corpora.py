"""What the contestants work on: real text where there is some, made-up text elsewhere.

``CRFIELD_DATA`` names a folder with CoNLL-2000 and the English Web Treebank; the figures that the project
promises are for these. Without it the generator's ingredient phrases serve, so that the benchmark runs
anywhere: ratios are then shown but not judged.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import crfield

Rows = list[list[tuple[str, ...]]]
Tags = list[list[str]]
Strings = list[list[list[str]]]

# CRF++'s example for chunking: words and parts of speech within two steps, and pairs of labels.
WINDOWS = (
    "-2,0 -1,0 0,0 1,0 2,0 -1,0/0,0 0,0/1,0 -2,1 -1,1 0,1 1,1 2,1 -2,1/-1,1 -1,1/0,1 0,1/1,1 1,1/2,1 "
    "-2,1/-1,1/0,1 -1,1/0,1/1,1 0,1/1,1/2,1"
)


def template_of(windows: str) -> str:
    r"""A template file's text from its windows.

    >>> template_of("0,0 -1,0/0,0")
    'U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\nB\n'
    """
    lines = [
        f"U{i:02d}:" + "/".join(f"%x[{place}]" for place in window.split("/"))
        for i, window in enumerate(windows.split())
    ]
    return "\n".join([*lines, "B", ""])


@dataclass(frozen=True, eq=False)
class Labelled:
    """Sequences of token rows, as Python lists, and a label for each token."""

    rows: Rows
    tags: Tags

    def first(self, n: int) -> Labelled:
        """The first n sequences."""
        return Labelled(self.rows[:n], self.tags[:n])

    @property
    def n_tokens(self) -> int:
        """N."""
        return sum(map(len, self.rows))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Training and test data with the template that fits them."""

    name: str
    train: Labelled
    test: Labelled
    template: str
    real: bool

    def __str__(self) -> str:
        return f"{self.name} ({len(self.train.rows):,} / {len(self.test.rows):,} sequences)"


class Bench:
    """One run of the benchmark: its options, its data (read when first asked for) and its scratch folder."""

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        data = os.environ.get("CRFIELD_DATA")
        self.data = Path(data) if data else None
        self._scratch = tempfile.TemporaryDirectory(prefix="crfield-bench-")
        self.scratch = Path(self._scratch.name)

    @cached_property
    def chunks(self) -> Corpus:
        """CoNLL-2000, or phrases in its place."""
        if self.data is not None and (self.data / "conll2000").is_dir():
            return conll2000(self.data)
        return phrases(4_000 if self.quick else 20_000)

    def judged(self, required: float) -> float | None:
        """The bound on a figure, where the data are those that it is meant for."""
        return required if self.chunks.real else None

    def path(self, name: str) -> str:
        """A file in the scratch folder."""
        return str(self.scratch / name)

    def close(self) -> None:
        """Remove the scratch folder."""
        self._scratch.cleanup()


def conll2000(data: Path) -> Corpus:
    """Chunking: word, part of speech, chunk tag (Tjong Kim Sang & Buchholz 2000)."""
    parts = []
    for part in ("train", "test"):
        X, y = crfield.read_columns(data / "conll2000" / f"{part}.txt.gz").split_column(-1)
        parts.append(Labelled(list(X), [tags.tolist() for tags in y]))
    return Corpus("CoNLL-2000", parts[0], parts[1], template_of(WINDOWS), real=True)


def phrases(n: int) -> Corpus:
    """Ingredient phrases with the columns word and shape, a tenth of them for testing."""
    made = crfield.make_phrases(n + n // 10)
    rows: Rows = [
        [(row["word"], row["shape"] or "-") for row in crfield.phrase_features(tokens)] for tokens in made.tokens
    ]
    train, test = Labelled(rows[:n], made.labels[:n]), Labelled(rows[n:], made.labels[n:])
    return Corpus("generated phrases", train, test, template_of(WINDOWS), real=False)


# Forms only: the word and its neighbours, endings and beginning, and how it is written. No pairs: a form may hold
# the slash that would separate them, and two columns of ours would have one name at the rival's.
FORM_TEMPLATE = template_of("0,0 -2,0 -1,0 1,0 2,0 0,1 0,2 0,3 0,4 0,5 -1,1 1,1 -1,5 1,5")


def treebank(data: Path, part: str = "train") -> Labelled:
    """English Web Treebank: columns made from the form, labels UPOS + FEATS (Silveira et al. 2014)."""
    return forms(data / "ewt" / f"en_ewt-{part}.conllu.gz", "upos+feats")


def forms(path: Path, label: str) -> Labelled:
    """The words of a CoNLL-U file as columns of their own, and labels."""
    X, y, _ = crfield.read_conllu(path, label=label)
    rows: Rows = [[form_columns(form) for (form,) in sentence] for sentence in X]
    return Labelled(rows, [labels.tolist() for labels in y or ()])


def form_columns(form: str) -> tuple[str, ...]:
    """Lower case, last three, two and one letters, first three, shape.

    >>> form_columns("Running")
    ('running', 'ing', 'ng', 'g', 'run', 'Xx')
    """
    form = form.replace(" ", "_")
    word = form.lower()
    shape = re.sub(r"[a-z]+", "x", re.sub(r"[A-Z]+", "X", re.sub(r"\d+", "d", form)))
    return (word, word[-3:], word[-2:], word[-1:], word[:3], shape if len(shape) < 6 else "long")


def with_all_labels(data: Labelled, n: int) -> Labelled:
    """The first n sequences, and for every label missing there the first sequence that has it."""
    seen = {tag for tags in data.tags[:n] for tag in tags}
    chosen = list(range(min(n, len(data.tags))))
    for s in range(len(chosen), len(data.tags)):
        if not seen.issuperset(data.tags[s]):
            seen.update(data.tags[s])
            chosen.append(s)
    return Labelled([data.rows[s] for s in chosen], [data.tags[s] for s in chosen])


def beyond(i: int, last: int) -> str:
    """CRF++'s mark of a step before the first or behind the last.

    >>> beyond(-2, 9), beyond(10, 9)
    ('_B-2', '_B+1')
    """
    return f"_B{i}" if i < 0 else f"_B+{i - last}"


def chunk_features(rows: Sequence[tuple[str, ...]], t: int) -> list[str]:
    """The features of one token as strings, by hand, as users of python-crfsuite write them."""
    last = len(rows) - 1
    near = [rows[i] if 0 <= i <= last else (beyond(i, last),) * 2 for i in range(t - 2, t + 3)]
    (a, p), (b, q), (c, r), (d, s), (e, u) = near
    return [
        f"U00:{a}",
        f"U01:{b}",
        f"U02:{c}",
        f"U03:{d}",
        f"U04:{e}",
        f"U05:{b}/{c}",
        f"U06:{c}/{d}",
        f"U07:{p}",
        f"U08:{q}",
        f"U09:{r}",
        f"U10:{s}",
        f"U11:{u}",
        f"U12:{p}/{q}",
        f"U13:{q}/{r}",
        f"U14:{r}/{s}",
        f"U15:{s}/{u}",
        f"U16:{p}/{q}/{r}",
        f"U17:{q}/{r}/{s}",
        f"U18:{r}/{s}/{u}",
    ]


def chunk_strings(sequences: Rows) -> Strings:
    """`chunk_features` of every token: what the chunking template gives, spelt out."""
    return [[chunk_features(rows, t) for t in range(len(rows))] for rows in sequences]


def template_strings(template: str, sequences: Rows) -> Strings:
    """Features of any template as strings: the lines are read once, then filled token by token."""
    patterns = []
    for line in template.splitlines():
        if line.startswith("U"):
            name, _, macros = line.partition(":")
            places = [tuple(map(int, place)) for place in re.findall(r"%x\[(-?\d+),(\d+)\]", macros)]
            patterns.append((f"{name}:", places))
    made = []
    for rows in sequences:
        last, sequence = len(rows) - 1, []
        for t in range(len(rows)):
            features = []
            for name, places in patterns:
                parts = [
                    rows[t + row][column] if 0 <= t + row <= last else beyond(t + row, last) for row, column in places
                ]
                features.append(name + "/".join(parts))
            sequence.append(features)
        made.append(sequence)
    return made


def spanish_names(bench: Bench) -> Labelled | None:
    """Spanish names of CoNLL-2002 (Tjong Kim Sang 2002), some of them in a quick run; None where they are not."""
    path = None if bench.data is None else bench.data / "conll2002" / "esp.train.gz"
    if path is None or not path.exists():
        return None
    X, y = crfield.read_columns(path).split_column(-1)
    names = Labelled(list(X), [tags.tolist() for tags in y])
    return names.first(1_000) if bench.quick else names


def entity_strings(sequences: Rows) -> Strings:
    """Features of names as strings, by hand: words and tags within two steps, affixes, capitals, digits."""
    made = []
    for rows in sequences:
        sequence = []
        for t, (word, *_) in enumerate(rows):
            near = [k for k in range(t - 2, t + 3) if 0 <= k < len(rows)]
            features = [f"w{k - t}={rows[k][0].lower()}" for k in near] + [f"p{k - t}={rows[k][1]}" for k in near]
            features += [f"s3={word[-3:]}", f"p3={word[:3]}", f"cap={word[:1].isupper()}"]
            sequence.append(["b", *features, f"dig={any(c.isdigit() for c in word)}"])
        made.append(sequence)
    return made
