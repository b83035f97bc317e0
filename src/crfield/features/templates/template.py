"""CRF++ template files: parsed once into patterns over (row, column), then applied to integer codes.

    # word and part of speech in a window
    U00:%x[-1,0]
    U01:%x[0,0]/%x[0,1]
    B

A ``U`` line makes one column for every different filling of its macros; ``%x[row,col]`` reads column
``col`` of the token ``row`` steps away. Rows outside the sequence read the marks ``_B-1``, ``_B-2``, …
before its first token and ``_B+1``, … after its last; they are ordinary values. A ``B`` line without a
macro stands for plain label transitions; with macros it makes columns of the edge, read at its later token.
Lines that differ only in their macros share columns, so two lines ``U:%x[-1,0]`` and ``U:%x[1,0]`` are a
bag of words.

Here a feature is the pair (text around the holes, codes in the holes). CRF++ joins both into one string, so
it confuses ``a/b`` + ``c`` with ``a`` + ``b/c``; this does not. Reference: T. Kudo, *CRF++: Yet Another CRF
toolkit*.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from crfield.errors import TemplateError
from crfield.kernels import columns as kernel

_MACRO = re.compile(r"%x\[\s*([+-]?[0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\]")
_FAR = 1000  # rows; each step needs a mark in the alphabet
_WIDE = 100_000


@dataclass(frozen=True)
class Pattern:
    """One template line: text with holes, and where each hole is read.

    >>> Template("U05:%x[0,0]/%x[0,1]").unigrams[0].fill(["He", "PRP"])
    'U05:He/PRP'
    """

    line: int
    text: str
    literals: tuple[str, ...]  # one more than macros
    macros: tuple[tuple[int, int], ...]  # (row, col)

    def fill(self, values: list[str]) -> str:
        """The feature's name, as CRF++ writes it."""
        return self.literals[0] + "".join(v + text for v, text in zip(values, self.literals[1:]))


@dataclass(frozen=True)
class Template:
    """A parsed CRF++ feature template.

    >>> template = Template('''
    ... # words
    ... U00:%x[-1,0]
    ... U01:%x[0,0]/%x[0,1]
    ... B
    ... ''')
    >>> len(template.unigrams), template.bigrams, template.transitions, template.n_columns_needed
    (2, (), True, 2)
    >>> Template("U00:%x[0;1]")
    Traceback (most recent call last):
    crfield.errors.TemplateError: template line 1: expected a macro such as %x[-1,0], got '%x[0;1]'.
        U00:%x[0;1]
            ^
    """

    text: str
    unigrams: tuple[Pattern, ...] = field(init=False)
    bigrams: tuple[Pattern, ...] = field(init=False)
    transitions: bool = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TemplateError(f"a template is the text of a template file, got {type(self.text).__name__}.")
        unigrams, bigrams, transitions = [], [], False
        for number, line in enumerate(self.text.removeprefix("\ufeff").split("\n"), 1):
            line = line.strip(" \t\r")
            if not line or line.startswith("#"):
                continue
            pattern = _parse(number, line)
            if line[0] == "U":
                unigrams.append(pattern)
            elif pattern.macros:
                bigrams.append(pattern)
            else:
                transitions = True
        if not (unigrams or bigrams or transitions):
            raise TemplateError("the template has no U or B line. Write at least one, such as 'U00:%x[0,0]'.")
        object.__setattr__(self, "unigrams", tuple(unigrams))
        object.__setattr__(self, "bigrams", tuple(bigrams))
        object.__setattr__(self, "transitions", transitions)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """All lines that make columns."""
        return self.unigrams + self.bigrams

    @property
    def columns(self) -> tuple[int, ...]:
        """The token columns that are read, rising."""
        return tuple(sorted({col for pattern in self.patterns for _, col in pattern.macros}))

    @property
    def n_columns_needed(self) -> int:
        """How many columns every token must have."""
        return max(self.columns, default=-1) + 1

    @property
    def reach(self) -> int:
        """The farthest row that is read, either way."""
        return max((abs(row) for pattern in self.patterns for row, _ in pattern.macros), default=0)

    def check_width(self, width: int) -> None:
        """`TemplateError` unless tokens of ``width`` columns have all that the template reads."""
        for pattern in self.patterns:
            for row, col in pattern.macros:
                if col >= width:
                    have = "there is 1 column" if width == 1 else f"there are {width} columns"
                    raise TemplateError(
                        f"template line {pattern.line} ({pattern.text}): %x[{row},{col}] reads column {col}, "
                        f"but {have} (0 … {width - 1}). Was the label column taken away, or is the template "
                        "for other data?"
                    )

    def __repr__(self) -> str:
        lines = [pattern.text for pattern in self.patterns] + ["B"] * self.transitions
        shown = " ".join(lines[:3]) + (f" … {len(lines)} lines" if len(lines) > 3 else "")
        return f"Template({shown})"


def _parse(number: int, line: str) -> Pattern:
    if line[0] not in "UB":
        raise _error(number, line, 0, f"expected a line that begins with U, B or #, got {line[0]!r}.")
    literals, macros, at = [""], [], 0
    while (found := line.find("%", at)) >= 0:
        macro = _MACRO.match(line, found)
        if macro is None:
            got = line[found : found + 12].split(" ", 1)[0]
            raise _error(number, line, found, f"expected a macro such as %x[-1,0], got {got!r}.")
        row, col = int(macro[1]), int(macro[2])
        if abs(row) > _FAR or col >= _WIDE:
            raise _error(number, line, found, f"rows lie within ±{_FAR} and columns below {_WIDE}, got {macro[0]}.")
        literals[-1] += line[at:found]
        literals.append("")
        macros.append((row, col))
        at = macro.end()
    literals[-1] += line[at:]
    return Pattern(number, line, tuple(literals), tuple(macros))


def _error(number: int, line: str, at: int, message: str) -> TemplateError:
    return TemplateError(f"template line {number}: {message}\n    {line}\n    {' ' * at}^")


def compile_patterns(
    patterns: tuple[Pattern, ...], *, radix: int, marks: np.ndarray
) -> tuple[kernel.Templates, list[Pattern]]:
    """The kernel's table for the patterns, and one pattern of each skeleton, by which columns are named.

    ``radix`` is the alphabet's size; ``marks[:, d-1]`` holds the codes of ``_B-d`` and ``_B+d``.
    """
    skeletons: dict[tuple[str, ...], int] = {}
    numbers = [skeletons.setdefault(pattern.literals, len(skeletons)) for pattern in patterns]
    holes = np.cumsum([0] + [len(pattern.macros) for pattern in patterns])
    macros = np.array([macro for pattern in patterns for macro in pattern.macros], np.int32).reshape(-1, 2)
    table = kernel.templates(
        radix=max(radix, 1),
        skeleton=np.array(numbers, np.int32),
        holes=holes,
        macros=macros,
        marks=marks,
    )
    samples = [patterns[numbers.index(s)] for s in range(len(skeletons))]
    return table, samples
