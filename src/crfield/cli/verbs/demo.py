"""``crfield demo``: the whole job on generated data, in half a minute.

Ingredient phrases (quantity, unit, name, comment; see `simulate.phrases`) are made, split, learnt, scored, the model
saved, loaded again and used on lines that nobody generated. Everything shown is computed on the spot.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

import crfield
from crfield.cli.messages import listing, on_terminal, size_of, visible
from crfield.cli.options import Seed
from crfield.cli.paths import WRITES
from crfield.cli.scores import Scheme, judge
from crfield.estimators.base.facts import model_lines
from crfield.metrics import spans
from crfield.report.alignment import pad, printable, width
from crfield.report.marginals import SequenceMarginals
from crfield.simulate.phrases import split_phrase

LINES = (
    "2 1/2 cups finely chopped red onions, plus more for serving",
    "1 (14 oz) can crushed tomatoes, drained",
    "3 cloves garlic, minced",
    "1/2 teaspoon ground cloves",
    "juice of 1 lemon",
    "200g dark chocolate broken into small pieces",
)
COLOURS = {"QTY": "cyan", "UNIT": "magenta", "NAME": "bold green", "COMMENT": "yellow"}
_TEST_SHARE = 5  # one phrase in five


def demo(
    *,
    phrases: Annotated[int, typer.Option(min=20, metavar="N", help="How many phrases to generate.")] = 20_000,
    seed: Seed = 0,
    keep: Annotated[str | None, typer.Option(metavar="PATH", help="Keep the model in this file."), WRITES] = None,
    lines: Annotated[
        list[str] | None,
        typer.Option("--lines", metavar="TEXT", help='A line to label, such as "2 cups flour"; may be repeated.'),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Ask for lines to label at the end.")
    ] = False,
) -> None:
    """Train on generated ingredient phrases, and show what comes of it.

    Takes about a quarter of a minute on two processors.
    """
    stage = _Stage()
    began = time.perf_counter()

    stage.heading("Data")
    made = crfield.make_phrases(phrases, random_state=seed)
    order = np.random.default_rng(seed).permutation(len(made)).tolist()
    test, learn = order[: len(order) // _TEST_SHARE], order[len(order) // _TEST_SHARE :]
    tokens = sum(map(len, made.tokens))
    stage.say(
        f"{len(made):,} ingredient phrases, {tokens:,} tokens, made in {time.perf_counter() - began:.1f} s; "
        f"{len(learn):,} to learn from, {len(test):,} to test on. Three of them:"
    )
    for k in learn[:3]:
        stage.labelled(made.tokens[k], made.labels[k])

    stage.heading("Training")
    X = [crfield.phrase_features(row) for row in made.tokens]
    start = time.perf_counter()
    model = crfield.ChainCRF(n_jobs=-1, random_state=seed, verbose=int(on_terminal()))
    model.fit([X[k] for k in learn], [made.labels[k] for k in learn])
    stage.say(listing({**model_lines(model), "time": f"{time.perf_counter() - start:.1f} s"}))

    stage.heading("Scores on the test phrases")
    gold, held_out = [made.labels[k] for k in test], [X[k] for k in test]
    judgement = judge(gold, model.predict(held_out), scheme=Scheme.iob2)
    stage.say(f"{judgement.summary()}\n\n{judgement.spans}")

    stage.heading("Saved and loaded again")
    with _place(keep) as path:
        model.save(path)
        size = os.stat(path).st_size
        loaded = crfield.load(path)
    same = all((a == b).all() for a, b in zip(model.predict(held_out), loaded.predict(held_out)))
    stage.say(f"{size_of(size)}{f' in {keep}' if keep else ''}; the same labels as before: {'yes' if same else 'NO'}")

    stage.heading("Lines that nobody generated")
    typed = [split_phrase(line) for line in lines or LINES]
    typed = [row for row in typed if row]
    for row in typed:
        stage.labelled(row, _labels(loaded, row))

    stage.heading("Transitions")
    stage.say(str(loaded.transitions_))
    stage.heading("Strongest features")
    stage.say(str(loaded.top_features(12)))
    if typed:
        stage.heading("How sure it is: the line with the least certain step")
        stage.marginals(loaded, typed)
    stage.say(f"\ndone in {time.perf_counter() - began:.1f} s")
    if interactive:
        _answer(loaded, stage)


@contextmanager
def _place(keep: str | None) -> Iterator[str]:
    """Where the model goes: the user's path, or a folder that vanishes."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "phrases.crfield")


def _labels(model: Any, tokens: Sequence[str]) -> list[str]:
    return model.predict([crfield.phrase_features(tokens)])[0].tolist()


def _answer(model: Any, stage: _Stage) -> None:
    stage.heading("Your lines (an empty one ends)")
    while True:
        try:
            row = split_phrase(stage.ask())
        except EOFError:
            return
        if not row:
            return
        stage.labelled(row, _labels(model, row))


class _Stage:
    """Headings, text and labelled phrases, in colour on a terminal and plain elsewhere."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False, emoji=False)

    def heading(self, title: str) -> None:
        """A part begins."""
        if self.console.is_terminal:
            self.console.print()
            self.console.rule(Text(title, style="bold"), align="left", style="dim")
        else:
            self.say(f"\n== {title} ==")

    def say(self, text: str) -> None:
        """Text as it is; tables are not broken."""
        self.console.print(Text(visible(text)), soft_wrap=True)
        sys.stdout.flush()

    def ask(self) -> str:
        """A line from the keyboard."""
        return self.console.input("> ")

    def labelled(self, tokens: Sequence[str], labels: Sequence[str]) -> None:
        """The phrase, and below each part of it what it is."""
        room = max(self.console.width, 40) - 4
        upper, lower = Text("  "), Text("  ")
        for part, kind in _parts(tokens, labels, room):
            wide = max(width(part), width(kind))
            if upper.cell_len > 2 and upper.cell_len + wide > room + 4:
                self._pair(upper, lower)
                upper, lower = Text("    "), Text("    ")
            upper.append(pad(part, wide), style=COLOURS.get(kind, ""))
            lower.append(pad(kind, wide), style="dim")
            upper.append("  ")
            lower.append("  ")
        self._pair(upper, lower)

    def _pair(self, upper: Text, lower: Text) -> None:
        for line in (upper, lower):
            line.rstrip()
            self.console.print(line, soft_wrap=True)

    def marginals(self, model: Any, rows: Sequence[Sequence[str]]) -> None:
        """The row with the least certain step, and how probable its labels are."""
        tables = model.predict_proba([crfield.phrase_features(row) for row in rows])
        least = int(np.argmin([table.max(axis=1).min() for table in tables]))
        plain = "utf" not in self.console.encoding.lower()
        steps = SequenceMarginals(rows[least], model.classes_, tables[least], _labels(model, rows[least]))
        self.say(steps.text(ascii_only=plain))


def _parts(tokens: Sequence[str], labels: Sequence[str], room: int) -> Iterator[tuple[str, str]]:
    """The spans of a phrase as text and kind, and each step outside any with an empty kind.

    A span that is wider than ``room`` comes in pieces.
    """
    begins = {start: (stop, kind) for start, stop, kind in spans(labels)}
    at = 0
    while at < len(tokens):
        stop, kind = begins.get(at, (at + 1, ""))
        words = [printable(token) for token in tokens[at:stop]]
        piece = words[0]
        for word in words[1:]:
            if width(piece) + 1 + width(word) > room:
                yield piece, kind
                piece = word
            else:
                piece += f" {word}"
        yield piece, kind
        at = stop
