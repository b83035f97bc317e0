"""Columns of a catalogue, computed when asked for, and all of its features scored at once.

A column is a ground expression, seen through a window and a lag, and then tested or raised to a power. Nodes of the
graph are computed once and kept while there is room (the oldest go first), so that templates share what they have in
common. Scores of tests come from histograms (`crfield.kernels.families`): for each expression and window one series,
one pass to code it against the whole grid, and one pass for each lag, whatever the number of thresholds; other
columns are multiplied with the gradient, those of one expression at a time. So N steps, T thresholds and L² pairs
cost O(N L² + T L²) for each expression, window and lag, and the memory is that of the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import FeatureError, ShapeError
from crfield.features.lazy_columns import Places, check_columns, check_gradient
from crfield.features.powers import powered
from crfield.features.relational.functions import AGGREGATES, SCALAR, gather_present
from crfield.features.relational.recordings import Recordings, changes, no_rate
from crfield.kernels import families

if TYPE_CHECKING:
    from crfield.features.relational.catalogue import Block, Catalogue

_TEST = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def series_kind(window: str, width: int, sign: str | None) -> str:
    """Which statistic of a window a test looks at: all(g < k) is max(g) < k, any(g < k) is min(g) < k.

    >>> series_kind("all", 6, "<"), series_kind("any", 6, "<"), series_kind("mean", 6, ">")
    ('max', 'min', 'mean')
    """
    if not window or width == 1:
        return ""
    if window in ("all", "any"):
        # without a test, all of a truth is its least value
        below = sign in ("<", "<=")
        return "max" if below == (window == "all") else "min"
    return window


class ConstantTests(NamedTuple):
    """A template whose thresholds mostly lie outside of what its expression is on the data."""

    template: str
    constant: int
    thresholds: int
    values: tuple[float, float]
    grid: tuple[float, float]

    def __str__(self) -> str:
        (low, high), (first, last) = self.values, self.grid
        return (
            f"{self.template}: {self.constant} of {self.thresholds} thresholds are constant, being {first:g} … "
            f"{last:g} where values are {low:.3g} … {high:.3g}"
        )


class RelationalColumns:
    """The features of a catalogue over recordings, as `crfield.features.lazy_columns.LazyColumns`.

    >>> from crfield.features.relational import Specification
    >>> spec = Specification.parse("near state : dist(a,b) | for a in robots, b in robots | where a < b | test < 1,3")
    >>> moving = np.array([[[0.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    >>> columns = spec.expand(labels=2, agents=2).on(moving)
    >>> columns.chunk(np.array([0, 1])).T.tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    >>> columns.scores(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), None).tolist()
    [0.0, 0.0, 8.0, 10.0]
    """

    def __init__(
        self,
        catalogue: Catalogue,
        recordings: Recordings | Any,
        *,
        rate: float | None = None,
        memory: float = 256e6,
    ) -> None:
        if not isinstance(recordings, Recordings):
            recordings = Recordings.of(recordings, rate=rate)
        elif rate is not None and rate != recordings.rate:
            raise FeatureError(f"these Recordings have the rate {recordings.rate}; leave rate={rate!r} out.")
        self.catalogue, self.recordings = catalogue, recordings
        words = catalogue.words
        expected = len(words.agents), len(words.axes)
        if recordings.positions.shape[1:] != expected and recordings.chains.n_nodes:
            raise ShapeError(
                f"positions must be (steps, {expected[0]}, {expected[1]}) for the agents {list(words.agents)}, got "
                f"{recordings.positions.shape}. Objects such as a ball stand behind the agents."
            )
        for what, wanted, given in (
            ("channels", words.channels, recordings.channels),
            ("agent_channels", words.agent_channels, recordings.agent_channels),
        ):
            missing = sorted(wanted - set(given))
            if missing:
                raise FeatureError(f"the recordings lack the {what} {missing}. Give them to Recordings.of.")
        if recordings.rate is None:
            lost = catalogue.moving(["rate"] if recordings.velocities is not None else ["vel", "rate"])
            if lost:
                raise no_rate(lost)
        self._memory, self._used = float(memory), 0
        self._kept: OrderedDict[tuple[Any, ...], np.ndarray] = OrderedDict()
        self._needed: dict[int, frozenset[int]] = {}

    def __repr__(self) -> str:
        return f"RelationalColumns({self.catalogue!r}, {self.chains.n_nodes} steps)"

    @property
    def chains(self) -> Chains:
        """The recordings as sequences."""
        return self.recordings.chains

    @property
    def n_labels(self) -> int:
        """L."""
        return self.catalogue.n_labels

    @property
    def n_columns(self) -> int:
        """Columns of the catalogue."""
        return self.catalogue.n_columns

    @property
    def n_candidates(self) -> int:
        """Features of the catalogue."""
        return self.catalogue.n_candidates

    @property
    def link(self) -> np.ndarray:
        """(n_columns,) 0 for state-linked, 1 for transition-linked."""
        return self.catalogue.link

    def name(self, candidate: int) -> str:
        """Name of a feature."""
        return self.catalogue.name(candidate)

    def column_name(self, column: int) -> str:
        """Name of a column."""
        return self.catalogue.column_name(column)

    def places(self, candidates: np.ndarray | None = None) -> Places:
        """Column and labels of some features, or of all."""
        return self.catalogue.places(candidates)

    def constant_tests(self) -> list[ConstantTests]:
        """Templates more than half of whose thresholds hold at every step or at none, whatever the window.

        Mostly it means that units differ: millimetres and metres, or a rate that is not that of the recordings.

        >>> from crfield.features.relational import Specification
        >>> spec = Specification.parse("slow state : speed(a) | for a in robots | test < 5:100:5")
        >>> walk = np.cumsum(np.ones((9, 2, 2)), axis=0)
        >>> print(*spec.expand(labels=2, agents=2).on(walk, rate=1.0).constant_tests())
        slow: 40 of 40 thresholds are constant, being 5 … 100 where values are 0 … 1.41
        >>> spec.expand(labels=2, agents=2).on(walk, rate=60.0).constant_tests()
        []
        """
        found: dict[int, list[Any]] = {}
        for block in {(id(block.template), block.node): block for block in self.catalogue.blocks}.values():
            if not block.template.tests or not self.chains.n_nodes:
                continue
            series, there = self._base(block), self._there(block.node)
            series = series if there is None else series[there]
            if not len(series):
                continue
            low, high = float(series.min()), float(series.max())
            same = sum(
                bool(_TEST[test](low, k) == _TEST[test](high, k))
                for test in block.template.tests
                for k in block.template.grid
            )
            told = found.setdefault(id(block.template), [block.template, 0, 0, low, high])
            told[1:] = [told[1] + same, told[2] + block.n_columns, min(told[3], low), max(told[4], high)]
        return [
            ConstantTests(template.name, same, count, (low, high), (min(template.grid), max(template.grid)))
            for template, same, count, low, high in found.values()
            if 2 * same > count
        ]

    def chunk(self, columns: np.ndarray) -> np.ndarray:
        """(N, len(columns)) values of all steps."""
        columns = check_columns(columns, self.n_columns)
        out = np.empty((self.chains.n_nodes, len(columns)))
        at = np.searchsorted(self.catalogue.column_starts, columns, side="right") - 1
        # by block, so that neighbours share their series whatever the order they are asked in
        for k in np.argsort(at, kind="stable"):
            block = self.catalogue.blocks[at[k]]
            out[:, k] = self._column(block, int(columns[k] - self.catalogue.column_starts[at[k]]))
        return out

    def _column(self, block: Block, column: int) -> np.ndarray:
        template, before = block.template, self._before(block.lag, block.node)
        if template.tests:
            sign, threshold = divmod(column, len(template.grid))
            test = template.tests[sign]
            series = self._series(block, test)
            made = _TEST[test](series[before], template.grid[threshold]).astype(np.float64)
        else:
            made = powered(self._series(block, None)[before], template.powers[column])
        return self._filled(block.node, made)

    def _series(self, block: Block, test: str | None) -> np.ndarray:
        """(N,) the expression seen through the window, as the test needs it."""
        kind = series_kind(block.window, block.width, test)
        if not kind:
            return self._base(block)
        key = ("slide", block.node, kind, block.width)
        if key not in self._kept:
            return self._keep(
                key, families.slide(self._base(block), self._offsets(block.node), width=block.width, kind=kind)
            )
        return self._get(key)

    def _base(self, block: Block) -> np.ndarray:
        series = self._filled(block.node, self._node(block.node))
        if not np.isfinite(series).all():
            step = int(np.flatnonzero(~np.isfinite(series))[0])
            raise FeatureError(
                f"{block.template.name}({block.who}) is {series[step]} at step {step}. Do its functions overflow?"
            )
        return series

    def _before(self, lag: int, number: int) -> np.ndarray:
        """(N,) the step that lies ``lag`` steps back, the first of the sequence or of the run where there is none."""
        key = ("before", lag, self._needs(number))
        if key in self._kept:
            return self._get(key)
        offsets = self._offsets(number)
        first = np.repeat(offsets[:-1], np.diff(offsets))
        return self._keep(key, np.maximum(np.arange(self.chains.n_nodes) - lag, first))

    # ------------------------------------------------------------------------------------------- who is there

    def _needs(self, number: int) -> frozenset[int]:
        """What a node has a value by: agents, and gatherings (as −1 − number) that may find nobody."""
        if self.recordings.present is None:
            return frozenset()
        if number not in self._needed:
            node = self.catalogue.graph.nodes[number]
            if node.operation in ("pos", "vel"):
                found = frozenset(node.fixed)
            elif node.operation == "channel" and node.fixed[1] >= 0:
                found = frozenset([node.fixed[1]])
            elif node.operation == "gather":
                found = frozenset([-1 - number])
            else:
                found = frozenset().union(*(self._needs(k) for k in node.inputs))
            self._needed[number] = found
        return self._needed[number]

    def _there(self, number: int) -> np.ndarray | None:
        """(N,) whether a node has a value; None where it always has."""
        needs = self._needs(number)
        if not needs:
            return None
        key = ("there", needs)
        if key in self._kept:
            return self._get(key)
        masks = [self._gathers(-1 - need) if need < 0 else self._present((need,)) for need in sorted(needs)]
        return self._keep(key, np.logical_and.reduce(masks))

    def _present(self, agents: Iterable[int]) -> np.ndarray:
        """(N,) whether all of these agents are there."""
        assert self.recordings.present is not None
        return np.asarray(self.recordings.present[:, list(agents)].all(axis=1))

    def _gathers(self, number: int) -> np.ndarray:
        """(N,) whether every present agent's part of a gathering has a value, and somebody is present if need be."""
        node = self.catalogue.graph.nodes[number]
        name, who, besides = node.fixed
        each, found, anybody = (
            len(node.inputs) // len(who),
            self._present(besides),
            np.zeros(self.chains.n_nodes, bool),
        )
        for k, agents in enumerate(who):
            here = self._present(agents)
            anybody |= here
            for part in node.inputs[k * each : (k + 1) * each]:
                there = self._there(part)
                if there is not None:
                    found &= there | ~here
        return found & anybody if AGGREGATES[name][2] is None else found

    def _offsets(self, number: int) -> np.ndarray:
        """Where sequences begin, and within them the runs of steps in which a node has a value, or has none."""
        there = self._there(number)
        if there is None:
            return self.chains.offsets
        return np.union1d(self.chains.offsets, np.flatnonzero(np.diff(there)) + 1)

    def _filled(self, number: int, series: np.ndarray) -> np.ndarray:
        """The series with 0 where the node has no value."""
        there = self._there(number)
        return series if there is None else np.where(there, series, 0.0)

    def _get(self, key: tuple[Any, ...]) -> np.ndarray:
        self._kept.move_to_end(key)
        return self._kept[key]

    def _keep(self, key: tuple[Any, ...], array: np.ndarray) -> np.ndarray:
        array.flags.writeable = False
        self._kept[key] = array
        self._used += array.nbytes
        while self._used > self._memory and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._used -= gone.nbytes
        return array

    def _node(self, number: int) -> np.ndarray:
        """The series of a node: (N,), or (N, D) for a vector."""
        key = ("node", number)
        if key in self._kept:
            return self._get(key)
        node, world = self.catalogue.graph.nodes[number], self.recordings
        inputs = [self._node(k) for k in node.inputs]
        if node.operation == "present":
            made = np.ones(self.chains.n_nodes) if world.present is None else self._present(node.fixed).astype(float)
        elif node.operation == "const":
            made = np.full(self.chains.n_nodes, node.fixed[0])
        elif node.operation == "pos":
            made = world.positions[:, node.fixed[0]]
        elif node.operation == "vel" and world.velocities is not None:
            made = world.velocities[:, node.fixed[0]]
        elif node.operation == "channel":
            name, agent = node.fixed
            made = world.channels[name] if agent < 0 else world.agent_channels[name][:, agent]
        elif node.operation == "comp":
            made = np.ascontiguousarray(inputs[0][:, node.fixed[0]])
        elif node.operation == "rate" and world.rate is not None:
            made = changes(inputs[0], self.chains) * world.rate
            there = self._there(number)
            if there is not None:
                made[1:][there[1:] & ~there[:-1]] = 0.0
        elif node.operation == "lag":
            made = inputs[0][self._before(node.fixed[0], number)]
        elif node.operation == "slide":
            kind, width = node.fixed
            made = families.slide(inputs[0], self._offsets(number), width=width, kind=kind)
        elif node.operation == "gather" and world.present is not None:
            here = [self._present(agents) for agents in node.fixed[1]]
            made = self._filled(number, gather_present(node.fixed[0], inputs, here))
        elif node.operation == "gather":
            made = AGGREGATES[node.fixed[0]][0](*inputs)
        else:
            made = self._apply(node.fixed[0], node.fixed[1], inputs)
        return self._keep(key, made)

    def _apply(self, name: str, k: int, inputs: list[np.ndarray]) -> np.ndarray:
        form = self.catalogue.words.functions[name][k]
        with np.errstate(over="ignore", invalid="ignore"):
            made = form.series(*inputs)
        return checked_answer(name, made, form.gives, self.recordings.positions) if form.checked else made

    def scores(self, node: np.ndarray | None, edge: np.ndarray | None = None, *, n_jobs: int = 1) -> np.ndarray:
        """(n_candidates,) inner products of every feature with a gradient (N, L) and (E, L, L)."""
        kinds = {block.template.transition for block in self.catalogue.blocks}
        node, edge = check_gradient(
            self.chains, self.n_labels, node, edge, states=False in kinds, transitions=True in kinds
        )
        by_pair = edge.reshape(len(edge), self.n_labels**2)
        out = np.empty(self.n_candidates)
        for first, group in self._groups():
            block = group[0]
            gradient = by_pair if block.template.transition else node
            wanted = block.links[:, 1] + np.maximum(block.links[:, 0], 0) * self.n_labels
            if len(wanted) < gradient.shape[1]:
                gradient = np.ascontiguousarray(gradient[:, wanted])
            there = self._there(block.node)
            if there is not None:
                seen = there[self.chains.heads] if block.template.transition else there
                gradient = gradient * seen[:, None]
            rows = np.stack([self._rows(block, lag) for lag in block.template.lags])
            end = first + len(group)
            place = out[self.catalogue.candidate_starts[first] : self.catalogue.candidate_starts[end]]
            find = self._tested if block.template.tests else self._multiplied
            # windows are the outer, lags the inner order of the blocks of an expression
            windows = group[:: len(block.template.lags)]
            place.reshape(len(windows), len(rows), -1, len(wanted))[:] = find(windows, rows, gradient, n_jobs)
        return out

    def _groups(self) -> Iterator[tuple[int, list[Block]]]:
        """All blocks of one template and binding, with the number of the first."""
        first = 0
        for _, found in groupby(self.catalogue.blocks, key=lambda block: id(block.links)):
            group = list(found)
            yield first, group
            first += len(group)

    def _rows(self, block: Block, lag: int) -> np.ndarray:
        before = self._before(lag, block.node)
        return before[self.chains.heads] if block.template.transition else before

    def _tested(self, windows: list[Block], rows: np.ndarray, gradient: np.ndarray, n_jobs: int) -> np.ndarray:
        """(windows, lags, tests · thresholds, links) by histograms."""
        template = windows[0].template
        grid = np.array(template.grid)
        kinds: dict[tuple[str, int], int] = {}
        place = np.empty((len(windows), len(template.tests)), np.int64)
        coded: list[np.ndarray] = []
        for w, block in enumerate(windows):
            for s, test in enumerate(template.tests):
                kind = series_kind(block.window, block.width, test)
                key = (kind, block.width if kind else 1)
                if key not in kinds:
                    kinds[key] = len(coded)
                    coded.append(families.codes(self._window(block, kind), grid))
                place[w, s] = kinds[key]
        found = families.histograms(np.stack(coded), rows, gradient, n_bins=2 * len(grid) + 1, n_jobs=n_jobs)
        upward = np.cumsum(found, axis=2)  # codes up to b
        downward = np.cumsum(found[:, :, ::-1], axis=2)[:, :, ::-1]  # codes from b on
        parts = []
        for s, test in enumerate(template.tests):
            if test in ("<", "<="):
                picked = upward[:, :, 1 if test == "<=" else 0 : -1 if test == "<" else None : 2]
            else:
                picked = downward[:, :, 2 if test == ">" else 1 :: 2]
            parts.append(picked[place[:, s]])
        return np.concatenate(parts, axis=2)

    def _window(self, block: Block, kind: str) -> np.ndarray:
        """The windowed series without keeping it: it is coded at once and not needed again."""
        base = self._base(block)
        return families.slide(base, self._offsets(block.node), width=block.width, kind=kind) if kind else base

    def _multiplied(self, windows: list[Block], rows: np.ndarray, gradient: np.ndarray, n_jobs: int) -> np.ndarray:
        """(windows, lags, powers, links) by products."""
        powers = windows[0].template.powers
        found = np.empty((len(windows), len(rows), len(powers), gradient.shape[1]))
        for w, block in enumerate(windows):
            series = self._window(block, series_kind(block.window, block.width, None))
            for q, row in enumerate(rows):
                here = series[row]
                for p, power in enumerate(powers):
                    found[w, q, p] = powered(here, power) @ gradient
        return found


def checked_answer(name: str, made: Any, gives: str, positions: np.ndarray) -> np.ndarray:
    """What a user's function returned, if it has the form that was promised."""
    shape = (len(positions),) if gives == SCALAR else (len(positions), positions.shape[2])
    try:
        made = np.asarray(made, dtype=np.float64)
    except (TypeError, ValueError):
        raise FeatureError(f"{name} must return numbers, got {type(made).__name__}.") from None
    if made.shape != shape:
        raise ShapeError(f"{name} must return a {gives} {shape} for every step, got {made.shape}.")
    return made
