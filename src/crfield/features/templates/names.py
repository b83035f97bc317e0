"""Which template line made a feature, and of which values: names such as ``U05:He/PRP`` taken apart again.

CRF++ and Wapiti store a feature as the string that its line became. Here a column is (line, values in its holes), so
a model of theirs is read by matching every name with every line. A name may be cut in several ways: ``U05:a/b/c`` of
``U05:%x[0,0]/%x[0,1]`` is (a, b/c) or (a/b, c). There, both are this one feature; so each way becomes a column of
its own with the same weights, and the scores are the same whatever the data hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from crfield.data.alphabet import Alphabet
from crfield.errors import ModelFileError
from crfield.features.templates.encoder import mark_names
from crfield.features.templates.template import Pattern, Template

_WAYS = 256  # of cutting one name
_SOME = 3


def template_state(
    template: Template,
    node_names: Sequence[str],
    edge_names: Sequence[str],
    *,
    marks: str,
    free: frozenset[str] = frozenset(),
) -> tuple[dict[str, object], dict[str, np.ndarray], np.ndarray, np.ndarray]:
    r"""State of the `TemplateEncoder` whose columns have these names, and the name that each column came from.

    Names in ``free`` need not belong to a line with macros; others must.

    >>> template = Template("U0:%x[0,0]/%x[0,1]\nB")
    >>> header, arrays, node, edge = template_state(template, ["U0:a/b/c"], [], marks="crfpp")
    >>> node.tolist(), arrays["node_codes"].tolist()  # a and b/c, a/b and c
    ([0, 0], [0, 1, 2, 3])
    """
    alphabet = Alphabet()
    header: dict[str, object] = {"kind": "template", "template": template.text, "marks": marks}
    arrays: dict[str, np.ndarray] = {}
    origins = []
    for side, patterns, names in (("node", template.unigrams, node_names), ("edge", template.bigrams, edge_names)):
        skeleton, values, origin = _taken_apart(patterns, names, free)
        arrays[f"{side}_skeleton"] = np.array(skeleton, np.int32)
        arrays[f"{side}_codes"] = alphabet.encode(values, add=True)
        origins.append(np.array(origin, np.int64))
    alphabet.encode(mark_names(marks, template.reach), add=True)
    arrays["alphabet_pool"], arrays["alphabet_offsets"] = alphabet.to_arrays()
    return header, arrays, origins[0], origins[1]


def _taken_apart(
    patterns: tuple[Pattern, ...], names: Sequence[str], free: frozenset[str]
) -> tuple[list[int], list[str], list[int]]:
    """Skeleton of each column, the values of all end to end, and the number of the name it came from."""
    literals = list(dict.fromkeys(pattern.literals for pattern in patterns))
    lines: dict[str, list[int]] = {}
    for number, parts in enumerate(literals):
        lines.setdefault(parts[0], []).append(number)
    widths = sorted({len(start) for start in lines})
    skeleton: list[int] = []
    values: list[str] = []
    origin: list[int] = []
    for k, name in enumerate(names):
        before = len(skeleton)
        for width in widths:
            for number in lines.get(name[:width], ()):
                for filling in _fillings(literals[number], name):
                    if len(skeleton) - before == _WAYS:
                        raise ModelFileError(
                            f"the feature {name[:60]!r} fits its template in more than {_WAYS} ways, which cannot be "
                            "read. Put a rarer sign between the macros of the line, and train again."
                        )
                    skeleton.append(number)
                    values += filling
                    origin.append(k)
        if len(skeleton) == before and name not in free:
            some = ", ".join(pattern.text for pattern in patterns[:_SOME])
            raise ModelFileError(
                f"the feature {name[:60]!r} belongs to no line of the model's template ({some}, …). Was the file "
                "edited?"
            )
    return skeleton, values, origin


def _fillings(literals: tuple[str, ...], text: str) -> Iterator[tuple[str, ...]]:
    """All values, none of them empty, with which the text between the holes gives the whole text."""
    if not _fits(literals, text):  # without a look ahead, a hostile name could be tried for ever
        return
    if len(literals) == 1:
        yield ()
        return
    rest, after = text[len(literals[0]) :], literals[1]
    if len(literals) == 2:
        yield (rest[: len(rest) - len(after)],)
        return
    at = rest.find(after, 1)
    while 0 < at <= len(rest):
        for others in _fillings(literals[1:], rest[at:]):
            yield (rest[:at], *others)
        at = rest.find(after, at + 1)


def _fits(literals: tuple[str, ...], text: str) -> bool:
    """Whether there is a filling at all; taking each piece of text where it first comes finds one if there is."""
    if len(literals) == 1:
        return text == literals[0]
    at = len(literals[0])
    for piece in literals[1:-1]:
        at = text.find(piece, at + 1)
        if at < 0:
            return False
        at += len(piece)
    return text.startswith(literals[0]) and text.endswith(literals[-1]) and len(text) - len(literals[-1]) > at
