"""Which items a report shows, when it cannot show all of them.

A page of two thousand sentences is read by nobody and too large to send. So items are drawn by kind of error: each
confusion, the commonest first, gives the item in which the model was surest of it, then each gives its next one, and
so on, until three quarters of the places are taken. The rest are right: half of them those the model doubted most,
half spread over the data. Nothing is random, so that a report can be made again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.report.page.judged import Judged

ERRORS = 0.75  # of the places


@dataclass(frozen=True)
class Sample:
    """Numbers of the items that are shown, in the order in which they were drawn, and how many there are of each
    sort.

    >>> Sample((0, 4), 1, 2, 1, 8, "sequence").words
    '2 of 10 sequences are shown: 1 of the 2 with errors, drawn by kind of error, and 1 of the 8 without.'
    """

    numbers: tuple[int, ...]
    wrong_shown: int
    wrong: int
    right_shown: int
    right: int
    item: str

    @property
    def words(self) -> str:
        """How many are shown and how many were left out."""
        total, shown = self.wrong + self.right, len(self.numbers)
        items = plural(self.item, total)
        if shown == total:
            return f"All {total:,} {items} are shown, {self.wrong:,} of them with errors."
        if not self.right:
            return f"{shown:,} of {total:,} {items}, all with errors, are shown, drawn by kind of error."
        return (
            f"{shown:,} of {total:,} {items} are shown: {self.wrong_shown:,} of the {self.wrong:,} "
            f"with errors, drawn by kind of error, and {self.right_shown:,} of the {self.right:,} without."
        )


def plural(word: str, count: int) -> str:
    """The word for so many.

    >>> plural("sequence", 2), plural("image", 1)
    ('sequences', 'image')
    """
    return word if count == 1 else f"{word}s"


def sampled(judged: Judged, *, most: int, most_steps: int) -> Sample:
    """At most so many items, with at most so many steps together (but one in any case).

    >>> from crfield.report.page.judged import Item
    >>> pairs = [([0, 1], [0, 0]), ([0, 0], [0, 0]), ([1, 1], [0, 0]), ([0, 0], [1, 0]), ([1, 0], [1, 0])]
    >>> items = tuple(Item(str(k), np.array(a), np.array(b)) for k, (a, b) in enumerate(pairs))
    >>> sampled(Judged(("a", "b"), items), most=3, most_steps=100).numbers
    (0, 3, 1)
    """
    taken: dict[int, None] = {}
    steps = 0
    sizes = [len(item) for item in judged.items]
    wrong = [k for k, item in enumerate(judged.items) if item.wrong.any()]
    erring = set(wrong)
    right = [k for k in range(len(sizes)) if k not in erring and sizes[k]]

    def take(number: int, until: int) -> None:
        nonlocal steps
        if number not in taken and len(taken) < until and (not taken or steps + sizes[number] <= most_steps):
            taken[number] = None
            steps += sizes[number]

    limit = most if not right else max(round(ERRORS * most), most - len(right), 1)
    queues = [list(dict.fromkeys(places[:, 0].tolist())) for places in judged.errors().values()]
    depth = 0
    while queues and len(taken) < limit and depth < max(map(len, queues)):
        for queue in queues:
            if depth < len(queue):
                take(queue[depth], limit)
        depth += 1
    shown_wrong = len(taken)
    doubted = sorted(right, key=lambda k: (judged.items[k].sure.min(), k))
    for number in doubted[: (most - shown_wrong + 1) // 2]:
        take(number, most)
    rest = [k for k in right if k not in taken]
    left = max(most - len(taken), 0)
    for place in np.linspace(0, max(len(rest) - 1, 0), min(left, len(rest))).astype(int).tolist():
        take(rest[place], most)
    return Sample(
        tuple(taken), shown_wrong, len(wrong), len(taken) - shown_wrong, len(sizes) - len(wrong), judged.item
    )
