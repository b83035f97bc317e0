"""Layers for PyTorch against pytorch-crf 0.7.2 and flash-semicrf 0.2.0, one thread each, in turns.

    forward + backward   log-likelihood of a batch and its gradient in emissions and parameters, float32 as users have
                         it: 64 sequences of 50 steps, 22 and 100 tags, full and ragged (10 to 50 steps)
    decode               the best labellings of the same batches
    the same answers     values, gradients and paths in float64, every reduction; partial labels against enumeration
    segments             `SemiCRFLayer` against flash-semicrf's sums on the CPU, 8 sequences of 200 steps
    a whole epoch        a BiLSTM-CRF on CoNLL-2000, the same start values and batches, once with either layer: what
                         is left of the gain when the network takes its time, and whether both arrive at one loss

The extras ``bench-torch`` and ``bench-segments`` have the rivals.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.corpora import Bench, Labelled
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, interleaved, settled

MISSING = "{} is not installed: pip install 'crfield[{}]'"
SHAPE = (64, 50)
REQUIRED = {22: 15.0, 100: 20.0}
DECODING = 15.0
CALLS = 5  # of a turn: a single call of ours would measure the caches that the rival leaves behind
NAMES = ("transitions", "start_transitions", "end_transitions")


def pair(labels: int, *, double: bool = False) -> tuple[Any, Any]:
    """Ours and pytorch-crf's layer with the same parameters, brought over by its state dict."""
    torch, rival, ours = (import_module(name) for name in ("torch", "torchcrf", "crfield.torch"))
    torch.manual_seed(0)
    theirs, mine = rival.CRF(labels, batch_first=True), ours.CRFLayer(labels)
    mine.load_state_dict(theirs.state_dict())
    return (mine.double(), theirs.double()) if double else (mine, theirs)


def batch(labels: int, *, ragged: bool, dtype: Any = None) -> tuple[Any, Any, Any]:
    """Emissions that ask for a gradient, tags, and a mask."""
    torch = import_module("torch")
    torch.manual_seed(1)
    emissions = torch.randn(*SHAPE, labels, dtype=dtype, requires_grad=True)
    tags = torch.randint(labels, SHAPE)
    if not ragged:
        return emissions, tags, None
    lengths = torch.randint(10, SHAPE[1] + 1, SHAPE[:1])
    lengths[0] = SHAPE[1]
    return emissions, tags, torch.arange(SHAPE[1]) < lengths[:, None]


def stepped(layer: Any, emissions: Any, tags: Any, mask: Any) -> Callable[[], None]:
    """Losses and their gradients."""

    def run() -> None:
        for _ in range(CALLS):
            emissions.grad = None
            layer.zero_grad()
            (-layer(emissions, tags, mask=mask)).backward()

    return run


def decoded(layer: Any, emissions: Any, mask: Any) -> Callable[[], None]:
    """Best labellings."""

    def run() -> None:
        for _ in range(CALLS):
            layer.decode(emissions, mask)

    return run


def speed_rows(bench: Bench) -> list[Row]:
    """Training and decoding of a batch."""
    rows = []
    for labels, ragged in itertools.product(REQUIRED, (False, True)):
        mine, theirs = pair(labels)
        given = batch(labels, ragged=ragged)
        form = f"{SHAPE[0]} × {'10–' if ragged else ''}{SHAPE[1]} steps × {labels} tags / pytorch-crf"
        turns = 3 if bench.quick else 10
        fast, slow = interleaved(stepped(mine, *given), stepped(theirs, *given), turns=turns)
        rows.append(ratio(f"torch: forward + backward, {form}", fast, slow, required=REQUIRED[labels]))
        plain = given[0].detach(), given[2]
        fast, slow = interleaved(decoded(mine, *plain), decoded(theirs, *plain), turns=turns)
        rows.append(ratio(f"torch: decode, {form}", fast, slow, required=DECODING))
    return rows


def agreement_row() -> Row:
    """The largest difference of a value or a gradient in double precision; RuntimeError where paths differ."""
    torch = import_module("torch")
    worst = 0.0
    for labels, ragged in itertools.product((2, 22), (False, True)):
        mine, theirs = pair(labels, double=True)
        emissions, tags, mask = batch(labels, ragged=ragged, dtype=torch.float64)
        if mine.decode(emissions, mask) != theirs.decode(emissions, mask):
            raise RuntimeError("decoded paths differ from pytorch-crf's.")
        for reduction in ("none", "sum", "mean", "token_mean"):
            found = []
            for layer in (mine, theirs):
                value = layer(emissions, tags, mask=mask, reduction=reduction)
                weight = torch.linspace(0.5, 1.5, value.numel(), dtype=torch.float64).reshape(value.shape)
                inputs = emissions, *(getattr(layer, name) for name in NAMES)
                found.append([value, *torch.autograd.grad((value * weight).sum(), inputs)])
            for a, b in zip(*found):
                worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp_min(1.0)))
    note = "float64, every reduction, full and ragged; relative to the largest entry where that is above 1"
    return Row("torch: value and gradients / pytorch-crf", worst, "", 1e-12, better="less", note=note)


def partial_row() -> Row:
    """Unknown tags and sets of tags against every labelling written out."""
    torch, ours = import_module("torch"), import_module("crfield.torch")
    torch.manual_seed(2)
    labels, steps = 3, 6
    layer, emissions = ours.CRFLayer(labels).double(), torch.randn(4, steps, labels, dtype=torch.float64)
    tags = torch.where(torch.rand(4, steps) < 0.5, -100, torch.randint(labels, (4, steps)))
    allowed = (torch.rand(4, steps, labels) < 0.7) | (tags[..., None] == torch.arange(labels))
    allowed[..., 0] |= ~allowed.any(-1)
    found = layer(emissions, tags, allowed=allowed, reduction="none")
    worst = 0.0
    for b in range(4):
        every: list[Any] = []
        left: list[Any] = []
        for y in itertools.product(range(labels), repeat=steps):
            score = sum(emissions[b, t, j] for t, j in enumerate(y)) + layer.start_transitions[y[0]]
            score = score + layer.end_transitions[y[-1]] + sum(layer.transitions[p] for p in itertools.pairwise(y))
            every.append(score)
            if all(int(tags[b, t]) in (-100, j) and allowed[b, t, j] for t, j in enumerate(y)):
                left.append(score)
        truth = torch.logsumexp(torch.stack(left), 0) - torch.logsumexp(torch.stack(every), 0)
        worst = max(worst, abs(float((truth - found[b]).detach())))
    return Row("torch: partial labels / enumeration", worst, "", 1e-12, better="less")


def segment_row(bench: Bench) -> Row:
    """Sums over segmentations and their gradient, as layers."""
    name = "torch: segments, forward + backward, 8 × 200 steps × 30 × 10 tags / flash-semicrf"
    try:
        flash = import_module("flash_semicrf")
    except ImportError:
        return Row(name, None, required=5.0, note=MISSING.format("flash-semicrf", "bench-segments"))
    torch, ours = import_module("torch"), import_module("crfield.torch")
    torch.manual_seed(3)
    layer = ours.SemiCRFLayer(10, max_length=30).double()
    emissions = torch.randn(8, 200, 10, dtype=torch.float64)
    emissions = (emissions - emissions.mean(1, keepdim=True)).requires_grad_()
    edge, length, lengths = layer.transitions, layer.length_scores, torch.full((8,), 200)
    with torch.no_grad():  # flash-semicrf lets a label stand before the first segment
        layer.start_transitions.copy_(torch.logsumexp(edge, 0))
        layer.end_transitions.zero_()

    def mine() -> Any:
        total = layer.log_partition(emissions).sum()
        return total, torch.autograd.grad(total, (emissions, length))

    def theirs() -> Any:
        summed = torch.cat([torch.zeros_like(emissions[:, :1]), torch.cumsum(emissions, dim=1)], dim=1)
        total = flash.semi_crf_streaming_forward(summed, edge, length, lengths, 30, use_triton=False).sum()
        return total, torch.autograd.grad(total, (emissions, length))

    (one, mine_slopes), (two, their_slopes) = mine(), theirs()
    apart = abs(float(one.detach() / two.detach()) - 1.0)
    slopes = max(float((a - b).abs().max()) for a, b in zip(mine_slopes, their_slopes))
    if apart > 1e-10 or slopes > 1e-8:
        raise RuntimeError(f"{name}: totals differ by {apart:.1e}, gradients by {slopes:.1e}.")
    fast, slow = interleaved(mine, theirs, turns=2 if bench.quick else 5)
    note = f"totals agree to {apart:.0e}, gradients to {slopes:.0e}"
    return ratio(name, fast, slow, required=5.0, note=note)


# ------------------------------------------------------------------------------------------------- an epoch


class Sentences:
    """Sentences of a corpus as numbers, in batches of similar length."""

    def __init__(self, data: Labelled, size: int) -> None:
        torch = import_module("torch")
        words = sorted({row[0].lower() for rows in data.rows for row in rows})
        kinds = sorted({row[1] for rows in data.rows for row in rows})
        names = sorted({tag for tags in data.tags for tag in tags})
        coders = [{name: k for k, name in enumerate(one)} for one in (words, kinds, names)]
        self.n_words, self.n_kinds, self.n_tags = len(words), len(kinds), len(names)
        self.n_tokens = data.n_tokens
        order = sorted(range(len(data.rows)), key=lambda s: len(data.rows[s]))
        self.batches = []
        for first in range(0, len(order), size):
            chosen = order[first : first + size]
            longest = max(len(data.rows[s]) for s in chosen)
            table = np.zeros((3, len(chosen), longest), np.int64)
            mask = np.zeros((len(chosen), longest), bool)
            for b, s in enumerate(chosen):
                mask[b, : len(data.rows[s])] = True
                table[0, b, : len(data.rows[s])] = [coders[0][row[0].lower()] for row in data.rows[s]]
                table[1, b, : len(data.rows[s])] = [coders[1][row[1]] for row in data.rows[s]]
                table[2, b, : len(data.rows[s])] = [coders[2][tag] for tag in data.tags[s]]
            self.batches.append((*(torch.from_numpy(x) for x in table), torch.from_numpy(mask)))
        self.order = np.random.default_rng(0).permutation(len(self.batches))


class Tagger:
    """Embeddings of words and parts of speech, a BiLSTM, a linear layer and a CRF, with its optimiser."""

    def __init__(self, data: Sentences, layer: Any) -> None:
        torch = import_module("torch")
        nn = torch.nn
        torch.manual_seed(4)
        self.words, self.kinds = nn.Embedding(data.n_words, 50), nn.Embedding(data.n_kinds, 14)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.linear, self.layer = nn.Linear(128, data.n_tags), layer
        parts = (self.words, self.kinds, self.lstm, self.linear, self.layer)
        self.optimiser = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=0.01)
        self.cat = torch.cat

    def step(self, words: Any, kinds: Any, tags: Any, mask: Any) -> float:
        """One step of the optimiser; the loss of the batch, summed."""
        self.optimiser.zero_grad()
        hidden = self.lstm(self.cat([self.words(words), self.kinds(kinds)], -1))[0]
        loss = -self.layer(self.linear(hidden), tags, mask=mask)
        (loss / len(words)).backward()
        self.optimiser.step()
        return float(loss.detach())


def epoch_rows(bench: Bench) -> list[Row]:
    """Both layers take turns batch by batch."""
    data = Sentences(bench.chunks.train.first(600 if bench.quick else 10**9), 32)
    mine, theirs = pair(data.n_tags)
    taggers, timings, losses = [Tagger(data, layer) for layer in (mine, theirs)], [Timing(), Timing()], [0.0, 0.0]
    for tagger in taggers:  # what is made at the first use is nobody's cost
        tagger.layer(import_module("torch").zeros(1, 2, data.n_tags), data.batches[0][2][:1, :2] * 0)
    with settled():
        for number in data.order:
            for k, tagger in enumerate(taggers):
                with timings[k].turn():
                    losses[k] += tagger.step(*data.batches[number])
    spent = [sum(one.seconds) for one in timings]
    name = f"{bench.chunks.name}, {len(data.batches)} batches of 32 sentences, {data.n_tags} tags"
    per_token = [loss / data.n_tokens for loss in losses]
    whole = Row(
        f"torch: an epoch of a BiLSTM-CRF, {name} / with pytorch-crf",
        spent[1] / spent[0],
        ours=f"{spent[0]:.3g} s",
        rival=f"{spent[1]:.3g} s",
        note="embeddings 50 + 14, BiLSTM 2 × 64, Adam; all of training, the network included",
    )
    return [
        whole,
        Row(
            "torch: loss of that epoch / with pytorch-crf",
            abs(per_token[0] / per_token[1] - 1.0),
            "",
            1e-3,
            better="less",
            ours=f"{per_token[0]:.5f}",
            rival=f"{per_token[1]:.5f}",
            note="nats a token, mean over the epoch; float32, in which both sum in another order",
        ),
    ]


def run(bench: Bench) -> list[Row]:
    """All rows; those of a rival that is missing say so."""
    try:
        torch = import_module("torch")
        import_module("torchcrf")
    except ImportError:
        return [
            Row("torch: forward + backward / pytorch-crf", None, note=MISSING.format("pytorch-crf", "bench-torch"))
        ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # pytorch-crf's masks of bytes
            return [*speed_rows(bench), agreement_row(), partial_row(), segment_row(bench), *epoch_rows(bench)]
    finally:
        torch.set_num_threads(threads)
