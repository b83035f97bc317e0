"""All features that a specification stands for, counted and named before there are data.

`Specification.parse` reads the text and `Specification.expand` lets its variables run. What comes out is a
`Catalogue` of *blocks*: one ground expression seen through one window and one lag, with all its tests or powers and
all labels it is linked to, so that millions of features are a few thousand blocks. Columns are numbered block by
block, the tests of a block by sign and then by threshold; the candidates of a column lie side by side, one for each
label or pair of labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.errors import InputError, ModelFileError, TemplateError
from crfield.features.lazy_columns import STATE, TRANSITION, Places, check_columns
from crfield.features.relational.binding import Bound, Graph, Grounder, bindings, holds, mentions
from crfield.features.relational.columns import RelationalColumns
from crfield.features.relational.functions import STANDARD, Functions
from crfield.features.relational.parser import parse
from crfield.features.relational.recordings import Recordings
from crfield.features.relational.stream import FeatureStream
from crfield.features.relational.syntax import Template
from crfield.features.relational.tokens import fault
from crfield.features.relational.vocabulary import Thing, Vocabulary


@dataclass(frozen=True, eq=False)
class Block:
    """One expression, window and lag with all tests or powers. ``links`` (n, 2) are (previous or −1, label)."""

    template: Template
    node: int
    who: str
    window: str
    width: int
    lag: int
    links: np.ndarray

    @property
    def n_columns(self) -> int:
        """Tests times thresholds, or powers."""
        template = self.template
        return len(template.tests) * len(template.grid) if template.tests else len(template.powers)

    @property
    def n_candidates(self) -> int:
        """Columns times links."""
        return self.n_columns * len(self.links)

    def column_name(self, column: int) -> str:
        """Such as ``near(a,b) all30 lag10 <200`` or ``speed(a)^2``."""
        template = self.template
        name = template.name + (f"({self.who})" if self.who else "")
        name += f" {self.window}{self.width}" if self.window else ""
        name += f" lag{self.lag}" if self.lag else ""
        if template.tests:
            sign, threshold = divmod(column, len(template.grid))
            return f"{name} {template.tests[sign]}{template.grid[threshold]:g}"
        power = template.powers[column]
        return name if power == 1 else f"{name}^{power:g}"


@dataclass(frozen=True)
class Specification:
    """A specification of relational features: templates, parsed but not yet expanded.

    >>> spec = Specification.parse('''
    ... chasing state : cosang(rel(a,b), vel(a)) | for a in robots, b in robots | where a != b | pow 1,2
    ... near    trans : dist(a,b)                | for a in robots, b in robots | where a < b  | test <,> 200:400:100
    ... mine    state : speed(a)                 | for a in robots | where Y == a
    ... ''')
    >>> catalogue = spec.expand(labels=3, agents=3)
    >>> catalogue.counts
    {'chasing': 36, 'near': 162, 'mine': 3}
    >>> catalogue.n_candidates, catalogue.name(36), catalogue.name(200)
    (201, 'near(0,1) <200 | 0→0', 'mine(2) | 2')
    """

    text: str
    templates: tuple[Template, ...]

    @classmethod
    def parse(cls, text: str) -> Specification:
        """Read a text; see `crfield.features.relational.parser` for the grammar."""
        return cls(text, parse(text))

    def expand(
        self,
        *,
        labels: int | Sequence[Any],
        agents: int | Sequence[Any] = 0,
        teams: Mapping[str, Sequence[Any]] | None = None,
        objects: Sequence[Any] = (),
        axes: str | Sequence[str] = "xy",
        channels: Iterable[str] = (),
        agent_channels: Iterable[str] = (),
        functions: Functions = STANDARD,
    ) -> Catalogue:
        """Let all variables run; the words are those of `Vocabulary.of`."""
        words = Vocabulary.of(
            labels=labels,
            agents=agents,
            teams=teams,
            objects=objects,
            axes=axes,
            channels=channels,
            agent_channels=agent_channels,
            functions=functions,
        )
        return self.over(words)

    def over(self, words: Vocabulary) -> Catalogue:
        """Let all variables run over a vocabulary."""
        grounder = Grounder(words)
        blocks = [block for template in self.templates for block in _expand(template, grounder)]
        return Catalogue(self, words, grounder.graph, tuple(blocks))


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Every feature of a specification; see `Specification`."""

    specification: Specification
    words: Vocabulary
    graph: Graph
    blocks: tuple[Block, ...]

    def __repr__(self) -> str:
        return f"Catalogue({self.n_candidates} features of {self.n_columns} columns from {len(self.blocks)} blocks)"

    def __len__(self) -> int:
        return self.n_candidates

    @cached_property
    def column_starts(self) -> np.ndarray:
        """(blocks + 1,) first column of each block."""
        return np.cumsum([0, *(block.n_columns for block in self.blocks)], dtype=np.int64)

    @cached_property
    def candidate_starts(self) -> np.ndarray:
        """(blocks + 1,) first candidate of each block."""
        return np.cumsum([0, *(block.n_candidates for block in self.blocks)], dtype=np.int64)

    @property
    def n_labels(self) -> int:
        """L."""
        return self.words.n_labels

    @property
    def n_columns(self) -> int:
        """Columns of all templates."""
        return int(self.column_starts[-1])

    @property
    def n_candidates(self) -> int:
        """Columns with their labels."""
        return int(self.candidate_starts[-1])

    @cached_property
    def link(self) -> np.ndarray:
        """(n_columns,) 0 for state-linked, 1 for transition-linked."""
        kinds = np.array([TRANSITION if block.template.transition else STATE for block in self.blocks], np.int8)
        return np.repeat(kinds, np.diff(self.column_starts))

    @property
    def counts(self) -> dict[str, int]:
        """Candidates of each template."""
        found = {template.name: 0 for template in self.specification.templates}
        for block in self.blocks:
            found[block.template.name] += block.n_candidates
        return found

    @property
    def n_expressions(self) -> int:
        """Different expressions that stand behind the columns."""
        return len({block.node for block in self.blocks})

    def moving(self, operations: Iterable[str] = ("vel", "rate")) -> list[str]:
        """Names of the templates that speak of velocities or accelerations, so that a step must have a length.

        >>> spec = Specification.parse('''
        ... near state : dist(a,b) | for a in robots, b in robots | where a < b
        ... slow state : speed(a)  | for a in robots | test < 300
        ... ''')
        >>> spec.expand(labels=2, agents=2).moving()
        ['slow']
        """
        reached: list[bool] = []
        wanted = set(operations)
        for node in self.graph.nodes:  # inputs come before
            reached.append(node.operation in wanted or any(reached[k] for k in node.inputs))
        return list(dict.fromkeys(block.template.name for block in self.blocks if reached[block.node]))

    def column_name(self, column: int) -> str:
        """Name of a column, without labels."""
        (column,) = check_columns(np.array([column]), self.n_columns).tolist()
        at = int(np.searchsorted(self.column_starts, column, side="right")) - 1
        return self.blocks[at].column_name(column - int(self.column_starts[at]))

    def name(self, candidate: int) -> str:
        """Name of a candidate: that of its column, then ``| label`` or ``| previous→label``."""
        place = self.places(np.array([candidate]))
        label, previous = self.words.labels[int(place.label[0])], int(place.previous[0])
        link = label if previous < 0 else f"{self.words.labels[previous]}→{label}"
        return f"{self.column_name(int(place.column[0]))} | {link}"

    def places(self, candidates: np.ndarray | None = None) -> Places:
        """Column and labels of some candidates, or of all."""
        if candidates is None:
            candidates = np.arange(self.n_candidates)
        candidates = check_columns(candidates, self.n_candidates, what="candidates")
        at = np.searchsorted(self.candidate_starts, candidates, side="right") - 1
        links, starts, widths = self._links
        rest = candidates - self.candidate_starts[at]
        link = links[starts[at] + rest % widths[at]] if len(candidates) else np.zeros((0, 2), np.int64)
        return Places(self.column_starts[at] + rest // widths[at], link[:, 0], link[:, 1])

    @cached_property
    def _links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Links of all blocks end to end, where each block's begin, and how many there are."""
        widths = np.array([len(block.links) for block in self.blocks], np.int64)
        links = np.concatenate([np.zeros((0, 2), np.int64), *(block.links for block in self.blocks)])
        return links, np.cumsum(widths) - widths, widths

    def state(self) -> dict[str, Any]:
        """A JSON-able header from which `from_state` makes the same catalogue; of users' functions the names."""
        words = self.words
        return {
            "text": self.specification.text,
            "labels": list(words.labels),
            "agents": list(words.agents),
            "axes": list(words.axes),
            "domains": {name: [list(thing) for thing in things] for name, things in words.domains.items()},
            "channels": sorted(words.channels),
            "agent_channels": sorted(words.agent_channels),
            "functions": [name for name in words.functions.names if name not in STANDARD],
        }

    @classmethod
    def from_state(cls, header: Mapping[str, Any], *, functions: Functions = STANDARD) -> Catalogue:
        """The catalogue whose ``state`` this is; a file holds no code, so users' functions are given again."""
        missing = [name for name in _texts(header, "functions") if name not in functions]
        if missing:
            raise InputError(
                f"the features call {missing}, which are not in a file: pass functions=STANDARD.adding(…)."
            )
        lists = {key: _texts(header, key) for key in ("labels", "agents", "axes", "channels", "agent_channels")}
        sizes = {"agent": len(lists["agents"]), "axis": len(lists["axes"])}
        domains = header.get("domains")
        if not isinstance(domains, dict) or not isinstance(header.get("text"), str) or not lists["labels"]:
            raise ModelFileError("the header of a catalogue lacks its text, labels or domains. Was the file edited?")
        found: dict[str, tuple[Thing, ...]] = {}
        for name, things in domains.items():
            try:
                found[name] = tuple(Thing(str(kind), int(number)) for kind, number in things)
            except (TypeError, ValueError):
                found[name] = (Thing("", 0),)
            if any(not 0 <= thing.number < sizes.get(thing.kind, 0) for thing in found[name]):
                raise ModelFileError(f"the domain {name!r} of a catalogue names what is not there.")
        words = Vocabulary(
            tuple(lists["labels"]),
            tuple(lists["agents"]),
            tuple(lists["axes"]),
            found,
            frozenset(lists["channels"]),
            frozenset(lists["agent_channels"]),
            functions,
        )
        try:
            return Specification.parse(header["text"]).over(words)
        except TemplateError as error:
            raise ModelFileError(f"the specification of a catalogue cannot be read: {error}") from None

    def on(
        self, recordings: Recordings | Any, *, rate: float | None = None, memory: float = 256e6
    ) -> RelationalColumns:
        """The features as lazy columns of recordings, or of arrays (T, R, D) at ``rate`` steps a second.

        ``memory`` bounds what is kept.
        """
        return RelationalColumns(self, recordings, rate=rate, memory=memory)

    def stream(self, columns: Sequence[int] | np.ndarray, *, rate: float | None = None) -> FeatureStream:
        """Some columns, one step at a time; ``rate`` (steps a second) is needed where they speak of velocities."""
        return FeatureStream(self, columns, rate=rate)


def _texts(header: Mapping[str, Any], key: str) -> list[str]:
    found = header.get(key)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ModelFileError(f"the header of a catalogue must list its {key}. Was the file edited?")
    return found


def _expand(template: Template, grounder: Grounder) -> Iterable[Block]:
    words = grounder.words
    found = False
    for bound in bindings(template.loops, words):
        links = _links(template, bound, words)
        if not len(links):
            continue
        found = True
        node = grounder.scalar(template.expression, bound)
        who = ",".join(words.word(thing) for thing in bound.values())
        for window, width in template.windows:
            for lag in template.lags:
                yield Block(template, node, who, window, width, lag, links)
    if not found:
        raise fault("no agents and labels are left by 'for' and 'where': this stands for nothing.", template.place)


def _links(template: Template, bound: Bound, words: Vocabulary) -> np.ndarray:
    """(n, 2) pairs (previous or −1, label) that the condition allows to this binding."""
    labels = [Thing("label", k) for k in range(words.n_labels)]
    speaks, remembers = (mentions(template.condition, name) for name in ("Y", "Yp"))
    if not speaks and not remembers:
        allowed = holds(template.condition, bound, words)
        pairs = [(p, k) for p in (labels if template.transition else [None]) for k in labels] if allowed else []
    elif not template.transition:
        pairs = [(None, k) for k in labels if holds(template.condition, {**bound, "Y": k}, words)]
    else:
        pairs = [
            (p, k) for p in labels for k in labels if holds(template.condition, {**bound, "Y": k, "Yp": p}, words)
        ]
    found = [(-1 if p is None else p.number, k.number) for p, k in pairs]
    return np.array(found, np.int64).reshape(-1, 2)
