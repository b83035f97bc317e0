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
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import FeatureError, ShapeError
from crfield.features.lazy_columns import Places, check_columns, check_gradient
from crfield.features.relational.functions import AGGREGATES, SCALAR
from crfield.features.relational.recordings import Recordings, changes
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

    def __init__(self, catalogue: Catalogue, recordings: Recordings | Any, *, memory: float = 256e6) -> None:
        if not isinstance(recordings, Recordings):
            recordings = Recordings.of(recordings)
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
        self._memory, self._used = float(memory), 0
        self._kept: OrderedDict[tuple[Any, ...], np.ndarray] = OrderedDict()

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
        template, before = block.template, self._before(block.lag)
        if template.tests:
            sign, threshold = divmod(column, len(template.grid))
            test = template.tests[sign]
            series = self._series(block, test)
            return _TEST[test](series[before], template.grid[threshold]).astype(np.float64)
        return powered(self._series(block, None)[before], template.powers[column])

    def _series(self, block: Block, test: str | None) -> np.ndarray:
        """(N,) the expression seen through the window, as the test needs it."""
        kind = series_kind(block.window, block.width, test)
        if not kind:
            return self._base(block)
        key = ("slide", block.node, kind, block.width)
        if key not in self._kept:
            return self._keep(
                key, families.slide(self._base(block), self.chains.offsets, width=block.width, kind=kind)
            )
        return self._get(key)

    def _base(self, block: Block) -> np.ndarray:
        series = self._node(block.node)
        if not np.isfinite(series).all():
            step = int(np.flatnonzero(~np.isfinite(series))[0])
            raise FeatureError(
                f"{block.template.name}({block.who}) is {series[step]} at step {step}. Do its functions overflow?"
            )
        return series

    def _before(self, lag: int) -> np.ndarray:
        """(N,) the step that lies ``lag`` steps back, the first of the sequence where there is none."""
        if ("before", lag) in self._kept:
            return self._get(("before", lag))
        first = self.chains.offsets[self.chains.sequence_of_node]
        return self._keep(("before", lag), np.maximum(np.arange(self.chains.n_nodes) - lag, first))

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
        if node.operation == "const":
            made = np.full(self.chains.n_nodes, node.fixed[0])
        elif node.operation == "pos":
            made = world.positions[:, node.fixed[0]]
        elif node.operation == "vel":
            made = world.velocities[:, node.fixed[0]]
        elif node.operation == "channel":
            name, agent = node.fixed
            made = world.channels[name] if agent < 0 else world.agent_channels[name][:, agent]
        elif node.operation == "comp":
            made = np.ascontiguousarray(inputs[0][:, node.fixed[0]])
        elif node.operation == "rate":
            made = changes(inputs[0], self.chains) * world.rate
        elif node.operation == "lag":
            made = inputs[0][self._before(node.fixed[0])]
        elif node.operation == "slide":
            kind, width = node.fixed
            made = families.slide(inputs[0], self.chains.offsets, width=width, kind=kind)
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
            rows = np.stack([self._rows(lag, block.template.transition) for lag in block.template.lags])
            end = first + len(group)
            there = out[self.catalogue.candidate_starts[first] : self.catalogue.candidate_starts[end]]
            find = self._tested if block.template.tests else self._multiplied
            # windows are the outer, lags the inner order of the blocks of an expression
            windows = group[:: len(block.template.lags)]
            there.reshape(len(windows), len(rows), -1, len(wanted))[:] = find(windows, rows, gradient, n_jobs)
        return out

    def _groups(self) -> Iterator[tuple[int, list[Block]]]:
        """All blocks of one template and binding, with the number of the first."""
        first = 0
        for _, found in groupby(self.catalogue.blocks, key=lambda block: id(block.links)):
            group = list(found)
            yield first, group
            first += len(group)

    def _rows(self, lag: int, transition: bool) -> np.ndarray:
        before = self._before(lag)
        return before[self.chains.heads] if transition else before

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
        return families.slide(base, self.chains.offsets, width=block.width, kind=kind) if kind else base

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


def powered(series: np.ndarray, power: float) -> np.ndarray:
    """Powers of numbers; those that are not whole are of the absolute value with its sign, as are negative ones."""
    if power == 1:
        return series
    if power == int(power) and power >= 0:
        return series ** int(power)
    size = np.abs(series)
    return np.sign(series) * np.power(size, power, out=np.zeros_like(size), where=size > 0)


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
