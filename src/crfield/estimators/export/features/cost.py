"""What a header costs the robot: bytes of its state and operations of a step, found before it is compiled.

Bytes are those of the struct as C lays it out, read off its text. Operations are sums, products, comparisons,
choices, roots and logarithms, at most, in a step; copies and indices are not counted.
"""

from __future__ import annotations

import re

SIZES = {"double": 8, "long long": 8, "int": 4, "float": 4, "unsigned short": 2, "short": 2}
SIZES |= {"unsigned char": 1, "signed char": 1, "char": 1}
_STRUCT = re.compile(r"typedef struct \{(.*?)\} (\w+);", re.DOTALL)
_ALIAS = re.compile(r"typedef ([a-z ]+) (\w+);")
_DEFINE = re.compile(r"^#define (\w+) ([-\w+* ()]+?)(?: /\*.*)?$", re.MULTILINE)


def struct_bytes(text: str, name: str) -> int:
    r"""``sizeof name`` where int has 4 bytes, double and long long 8, and all are aligned to their size.

    >>> struct_bytes("#define N 3\ntypedef struct {\n  double a[N + 1];\n  int b, c[2][N];\n} point;", "point")
    64
    """
    text = re.sub(r'"[^"\n]*"', '""', text)  # words of the user
    values: dict[str, int] = {}
    for word, told in _DEFINE.findall(text):
        if re.fullmatch(r"[\w+* ()]+", told) and all(w.isdigit() or w in values for w in re.findall(r"\w+", told)):
            values[word] = _value(told, values)
    sizes = SIZES | {own: SIZES[kind] for kind, own in _ALIAS.findall(text)}
    laid: dict[str, tuple[int, int]] = {word: (size, size) for word, size in sizes.items()}
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


def model_operations(model: str) -> str:
    """What the first lines of a model's own header say of its operations.

    >>> model_operations("/* tag: a model. A step: at most 1,234 operations with doubles. */")
    '1,234 for the model'
    """
    found = re.search(r"A step: at most ([\d,]+) operations", model)
    return "those of the model" if found is None else f"{found[1]} for the model"
