"""Labels of a semi-Markov model: tags or segments in, a segmentation out, and back.

    scheme "runs"             y says a label at every step; a segment is a longest run of one label, or a piece of a
                              run that is longer than its label may last
    scheme "iob2", "iob1", …  y says tags (`crfield.metrics.schemes`); a segment is a span, and every step outside all
                              spans is a segment of one step with the label "O"
    segments                  under any scheme y may instead say (start, stop, label) of each segment; stop is not in
                              it. Under a tag scheme steps between segments are outside, under "runs" the segments
                              must cover everything, and neighbours of one label stay apart

The labels of the model are those of segments: kinds such as "PER", not tags such as "B-PER". Every label must be
known.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ShapeError
from crfield.metrics import chunks, coding, schemes

OUTSIDE = "O"
RUNS = "runs"
Segment = tuple[int, int, Hashable]  # first step, step after the last, label


def check_segment_scheme(scheme: str) -> str:
    """The usual spelling of a scheme's name.

    >>> check_segment_scheme("BIO"), check_segment_scheme("runs")
    ('iob2', 'runs')
    """
    return RUNS if scheme == RUNS else schemes.check_scheme_name(scheme)


def segment_scheme(name: str, value: object) -> None:
    """InputError unless it is "runs" or the name of a tag scheme."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be 'runs' or the name of a tag scheme such as 'iob2', got {value!r}.")
    check_segment_scheme(value)


def says_segments(y: Any) -> bool:
    """Whether y holds segments (start, stop, label) rather than labels of steps.

    >>> says_segments([[], [(0, 2, "PER")]]), says_segments([["PER", "PER"]])
    (True, False)
    """
    try:
        first = next((labels for labels in y if len(labels)), None)
    except TypeError:
        return False
    return isinstance(first, list | tuple) and all(
        isinstance(item, list | tuple)
        and len(item) == 3
        and all(isinstance(end, int | np.integer) and not isinstance(end, bool) for end in item[:2])
        for item in first
    )


def read_segments(y: Any, chains: Chains, scheme: str) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
    """First node, node after the last, and label of all segments of all sequences.

    >>> read_segments([["B-X", "I-X", "O"]], Chains.from_lengths([3]), "iob2")
    (array([0, 2]), array([2, 3]), ['X', 'O'])
    >>> read_segments([[(1, 3, "X")]], Chains.from_lengths([3]), "iob2")
    (array([0, 1]), array([1, 3]), ['O', 'X'])
    """
    scheme = check_segment_scheme(scheme)
    if says_segments(y):
        start, stop, label = _listed(y, chains)
    elif scheme == RUNS:
        coder = LabelCoder().fit(y)
        codes, allowed = coder.encode(y, chains.lengths)
        if allowed is not None:
            node = int(np.argmin(codes))
            s, t = coding.place(chains, node)
            raise LabelError(
                f"every step must have one label, but sequence {s}, step {t} has not: where segments begin and end "
                "cannot be told past it. Leave such sequences out, or use ChainCRF, which sums over what is missing."
            )
        cut = Segmentation.of_runs(chains, codes)
        return cut.start, cut.stop, [coder.labels[k] for k in cut.label.tolist()]
    else:
        start, stop, label = _spans(y, chains, scheme)
    if scheme == RUNS:
        covered = int((stop - start).sum())
        if covered != chains.n_nodes:
            free = np.ones(chains.n_nodes, dtype=bool)
            free[np.concatenate([np.arange(a, b) for a, b in zip(start, stop)] or [np.zeros(0, np.int64)])] = False
            s, t = coding.place(chains, int(np.argmax(free)))
            raise LabelError(
                f"segments must cover every step, but none covers sequence {s}, step {t}. Name it, or choose a tag "
                "scheme such as 'iob2', under which such steps are outside."
            )
        return start, stop, label
    if OUTSIDE in label:
        raise LabelError(f"a segment is called {OUTSIDE!r}, the label of steps outside all segments. Rename it.")
    free = np.ones(chains.n_nodes, dtype=bool)
    lengths = stop - start
    free[np.arange(lengths.sum()) + np.repeat(start - (np.cumsum(lengths) - lengths), lengths)] = False
    outside = np.flatnonzero(free)
    order = np.argsort(np.concatenate([start, outside]), kind="stable")
    names = np.empty(len(order), dtype=object)
    names[: len(label)] = label
    names[len(label) :] = OUTSIDE
    return (
        np.concatenate([start, outside])[order],
        np.concatenate([stop, outside + 1])[order],
        names[order].tolist(),
    )


def _spans(y: Any, chains: Chains, scheme: str) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
    coded = coding.code_sequences(y, name="y")
    _same_lengths(coded.topology.lengths, chains)
    unknown = np.flatnonzero(coded.codes == coding.UNKNOWN)
    if len(unknown):
        s, t = coding.place(chains, int(unknown[0]))
        raise LabelError(f"every step must have one tag, but that of sequence {s}, step {t} is None.")
    parts = chunks.split_tags(coded.labels, bilou=schemes.reads_bilou(scheme))
    reading = chunks.read_tags(coded.codes, chains, parts)
    first, after = chunks.spans_of(reading)
    node_of = np.zeros(chains.n_nodes + chains.n_sequences, np.int64)
    node_of[chunks.slots_of(chains)] = np.arange(chains.n_nodes)
    return node_of[first], node_of[after - 1] + 1, [parts.kinds[k] for k in reading.kind[first].tolist()]


def _listed(y: Any, chains: Chains) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
    if len(y) != chains.n_sequences:
        raise ShapeError(
            f"X has {chains.n_sequences} sequences and y has {len(y)}: give both one entry per sequence."
        )
    starts, stops, labels = [], [], []
    for s, given in enumerate(y):
        first, steps, done = int(chains.offsets[s]), int(chains.lengths[s]), 0
        for item in given:
            if not isinstance(item, list | tuple) or len(item) != 3:
                raise LabelError(f"y[{s}] must hold segments (start, stop, label), got {item!r:.60}.")
            begin, end, label = item
            if not done <= begin < end <= steps:
                raise ShapeError(
                    f"y[{s}] holds the segment {tuple(item)!r:.60}: segments must be in order, not overlap, and lie "
                    f"within the {steps} steps; stop is the step after the last."
                )
            done = int(end)
            starts.append(first + int(begin))
            stops.append(first + int(end))
            labels.append(label.item() if isinstance(label, np.generic) else label)
    return np.array(starts, np.int64), np.array(stops, np.int64), labels


def _same_lengths(lengths: np.ndarray, chains: Chains) -> None:
    if len(lengths) != chains.n_sequences:
        raise ShapeError(
            f"X has {chains.n_sequences} sequences and y has {len(lengths)}: give both one entry per sequence."
        )
    wrong = np.flatnonzero(lengths != chains.lengths)
    if len(wrong):
        s = int(wrong[0])
        raise ShapeError(f"sequence {s}: X has {chains.lengths[s]} steps and y has {lengths[s]} tags.")


def segmentation_of(y: Any, chains: Chains, scheme: str, coder: LabelCoder) -> Segmentation:
    """The segmentation that y says, labels coded by a fitted coder."""
    start, stop, label = read_segments(y, chains, scheme)
    codes = coder.encode([label], [len(label)])[0]
    return Segmentation(chains, start, stop, codes)


def written_tags(cut: Segmentation, scheme: str, coder: LabelCoder) -> np.ndarray:
    """(B,) object array of tag arrays: labels of steps under "runs", else tags of the scheme.

    >>> coder = LabelCoder.from_classes(["O", "X"])
    >>> cut = Segmentation(Chains.from_lengths([3]), [0, 2], [2, 3], [1, 0])
    >>> written_tags(cut, "iob2", coder)[0].tolist(), written_tags(cut, "runs", coder)[0].tolist()
    (['B-X', 'I-X', 'O'], ['X', 'X', 'O'])
    """
    scheme = check_segment_scheme(scheme)
    if scheme == RUNS:
        return coder.decode(cut.node_labels, cut.topology.offsets)
    out = np.empty(cut.topology.n_sequences, dtype=object)
    for s, spans in enumerate(written_segments(cut, scheme, coder)):
        tags = schemes.tags_from_spans(spans, int(cut.topology.lengths[s]), scheme)  # type: ignore[arg-type]
        out[s] = np.array(tags, dtype=np.str_ if tags else "<U1")
    return out


def written_segments(cut: Segmentation, scheme: str, coder: LabelCoder) -> list[list[Segment]]:
    """Segments (start, stop, label) of every sequence, steps counted from its first; those outside are left out."""
    outside = check_segment_scheme(scheme) != RUNS
    labels, offsets = coder.labels, cut.topology.offsets
    out: list[list[Segment]] = [[] for _ in range(cut.topology.n_sequences)]
    base = offsets[cut.sequence]
    for s, a, b, k in zip(
        cut.sequence.tolist(), (cut.start - base).tolist(), (cut.stop - base).tolist(), cut.label.tolist()
    ):
        if not (outside and labels[k] == OUTSIDE):
            out[s].append((a, b, labels[k]))
    return out
