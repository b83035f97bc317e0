"""What a header costs the robot: bytes of its state and operations of a step, found before it is compiled.

Bytes are those of the struct as C lays it out, read off its text. Operations are sums, products, comparisons,
choices, roots and logarithms, at most, in a step; copies and indices are not counted.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

SIZES = {"double": 8, "long long": 8, "int": 4, "float": 4, "unsigned short": 2, "short": 2}
SIZES |= {"unsigned char": 1, "signed char": 1, "char": 1}
_STRUCT = re.compile(r"typedef struct \{(.*?)\} (\w+);", re.DOTALL)
_ALIAS = re.compile(r"typedef ([a-z ]+) (\w+);")
_DEFINE = re.compile(r"^[ \t]*#define (\w+) (.+)$", re.MULTILINE)
_NOTE = re.compile(r"/\*.*?\*/", re.DOTALL)
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}


def struct_bytes(text: str, name: str, known: Mapping[str, int] | None = None) -> int:
    r"""``sizeof name`` where int has 4 bytes, double and long long 8, and all are aligned to their size.

    ``known`` are sizes of structs that hold doubles, which are then not read.

    >>> struct_bytes("#define N 3\ntypedef struct {\n  double a[N + 1];\n  int b, c[2][N];\n} point;", "point")
    64
    """
    text = _NOTE.sub("", re.sub(r'"[^"\n]*"', '""', text))  # without words of the user
    values: dict[str, int] = {}
    for word, told in _DEFINE.findall(text):
        value = _value(told, values)
        if value is not None:
            values.setdefault(word, value)
    sizes = SIZES | {own: SIZES[kind] for kind, own in _ALIAS.findall(text) if kind in SIZES}
    laid: dict[str, tuple[int, int]] = {word: (size, size) for word, size in sizes.items()}
    laid |= {word: (size, SIZES["double"]) for word, size in (known or {}).items()}
    for body, own in _STRUCT.findall(text):
        if own in laid:
            continue
        size, strictest = 0, 1
        for member in filter(str.strip, body.split(";")):
            kind = max((word for word in laid if re.match(rf"\s*{word}\b", member)), key=len)
            each, aligned = laid[kind]
            strictest = max(strictest, aligned)
            for part in member.strip()[len(kind) :].split(","):
                count = 1
                for extent in re.findall(r"\[([^\]]*)\]", part):
                    value = _value(extent, values)
                    if value is None:
                        raise ValueError(f"the size of {part.strip()} in {own} cannot be read")
                    count *= value
                size = -(-size // aligned) * aligned + each * count
        laid[own] = -(-size // strictest) * strictest, strictest
    return laid[name][0]


def _value(told: str, values: Mapping[str, int]) -> int | None:
    """The value of arithmetic with numbers and names; None where it is no number."""

    def found(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            return _ARITHMETIC[type(node.op)](found(node.left), found(node.right))
        return values[node.id] if isinstance(node, ast.Name) else int(ast.literal_eval(node))

    try:
        return found(ast.parse(told.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, TypeError):
        return None


def model_bytes(model: str) -> int | None:
    """What the first lines of a model's own header say of its state; None where they say nothing.

    >>> model_bytes("/* tag: a model. State: 1,234 bytes. */")
    1234
    """
    found = re.search(r"State: ([\d,]+) bytes", model)
    return None if found is None else int(found[1].replace(",", ""))


def model_operations(model: str) -> str:
    """What the first lines of a model's own header say of its operations.

    >>> model_operations("/* tag: a model. A step: at most 1,234 operations with doubles. */")
    '1,234 for the model'
    """
    found = re.search(r"A step: at most ([\d,]+) operations", model)
    return "those of the model" if found is None else f"{found[1]} for the model"
