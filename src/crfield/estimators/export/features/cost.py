"""What a header costs the robot: bytes of its state and operations of a step, found before it is compiled.

Bytes are those of the struct as C lays it out, read off its text. Operations are sums, products, comparisons,
choices, roots and logarithms, at most, in a step; copies and indices are not counted.
"""

from __future__ import annotations

import re

from crfield.estimators.export.step_scores import DenseSteps, StepScorer
from crfield.estimators.markov.steps import GaussianSteps

SIZES = {"double": 8, "long long": 8, "int": 4, "float": 4, "unsigned char": 1, "signed char": 1, "char": 1}
_STRUCT = re.compile(r"typedef struct \{(.*?)\} (\w+);", re.DOTALL)
_DEFINE = re.compile(r"^#define (\w+) ([-\w+* ()]+?)(?: /\*.*)?$", re.MULTILINE)


def struct_bytes(text: str, name: str) -> int:
    r"""``sizeof name`` where int has 4 bytes, double and long long 8, and all are aligned to their size.

    >>> struct_bytes("#define N 3\ntypedef struct {\n  double a[N + 1];\n  int b, c[2][N];\n} point;", "point")
    64
    """
    values: dict[str, int] = {}
    for word, told in _DEFINE.findall(text):
        if re.fullmatch(r"[\w+* ()]+", told) and all(w.isdigit() or w in values for w in re.findall(r"\w+", told)):
            values[word] = _value(told, values)
    laid: dict[str, tuple[int, int]] = {word: (size, size) for word, size in SIZES.items()}
    for body, own in _STRUCT.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)):
        size, strictest = 0, 1
        for member in filter(str.strip, body.split(";")):
            kind = max((word for word in laid if re.match(rf"\s*{word}\b", member)), key=len)
            each, aligned = laid[kind]
            strictest = max(strictest, aligned)
            for part in member.strip()[len(kind) :].split(","):
                count = 1
                for extent in re.findall(r"\[([^\]]*)\]", part):
                    count *= _value(extent, values)
                size = -(-size // aligned) * aligned + each * count
        laid[own] = -(-size // strictest) * strictest, strictest
    return laid[name][0]


def _value(told: str, values: dict[str, int]) -> int:
    """The value of sums and products of numbers and names."""
    spelt = re.sub(r"[A-Za-z_]\w*", lambda word: str(values[word[0]]), told.replace("(", "").replace(")", ""))
    total = 0
    for term in spelt.split("+"):
        product = 1
        for factor in term.split("*"):
            product *= int(factor)
        total += product
    return total


def model_operations(scorer: StepScorer, n_labels: int) -> int | None:
    """Of a step of the model: scores, the filter and Viterbi; None for scores of another kind.

    Looking back through at most ``max_lag`` labels comes on top where labels are committed; it is no arithmetic.

    >>> import numpy as np
    >>> model_operations(DenseSteps(np.zeros((10, 2)), np.zeros((2, 2))), 2)
    124
    """
    own = getattr(scorer, "operations", None)
    if isinstance(own, int):
        scores = own
    elif isinstance(scorer, DenseSteps):
        scores = scorer.n_columns * (2 + 2 * n_labels) + len(scorer.linked) * (2 + 2 * n_labels**2)
    elif isinstance(scorer, GaussianSteps):
        scores = scorer.n_columns * n_labels * 5
    else:
        return None
    pairs, each = 2 + 4 + 2, 3 + 2 + 5 + 2 + 4  # filter and best paths; checks, logarithms, shares
    return scores + pairs * n_labels**2 + each * n_labels
