"""`CRFLayer` against enumeration and against pytorch-crf: values, gradients, every reduction, awkward masks."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import crfield
from crfield.errors import InputError, LabelError, ShapeError, SpeedWarning
from crfield.torch import CRFLayer, steps
from tests.torch.cases import NAMES, batch, gradients, labellings, log_total

BACKENDS = ("kernels", "torch")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def made(n: Any, backend: str = "kernels", **options: Any) -> CRFLayer:
    torch.manual_seed(1)
    layer = CRFLayer(n, backend=backend, **options).double()
    for name in NAMES:
        torch.nn.init.normal_(getattr(layer, name))
    return layer


# ---------------------------------------------------------------------------------------------- pytorch-crf


@each_backend
@pytest.mark.parametrize("labels", [1, 2, 5, 22])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_values_and_gradients_are_those_of_pytorch_crf(
    backend: str, labels: int, reduction: str, batch_first: bool
) -> None:
    """To 1e-12 in double precision; its state dict loads, its decoded paths are the same."""
    rival = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    other = rival.CRF(labels, batch_first=batch_first).double()
    layer = CRFLayer(labels, backend=backend, batch_first=batch_first).double()
    layer.load_state_dict(other.state_dict())
    assert layer.state_dict().keys() == other.state_dict().keys()
    emissions, tags, mask = batch((6, 11, labels), seed=labels, mask="lengths")
    tags = tags.clamp_min(0)  # pytorch-crf reads tags outside the mask, too
    if not batch_first:
        emissions, tags, mask = (x.transpose(0, 1) for x in (emissions, tags, mask))
    emissions = emissions.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a byte mask that it makes itself
        theirs = other(emissions, tags, mask=mask, reduction=reduction)
        assert other.decode(emissions, mask) == layer.decode(emissions, mask)
    mine = layer(emissions, tags, mask=mask, reduction=reduction)
    weight = torch.randn_like(theirs)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        gradients((mine * weight).sum(), layer, emissions), gradients((theirs * weight).sum(), other, emissions)
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------- enumeration


@each_backend
@pytest.mark.parametrize("mask", ["holes", "lengths", "none"])
@pytest.mark.parametrize("rules", [None, [(0, 1), (None, 2)]])
def test_every_answer_equals_enumeration(backend: str, mask: str, rules: Any) -> None:
    layer = made(3, backend, constraints=rules)
    emissions, _, kept = batch((4, 5, 3), seed=3, mask=mask)
    every = torch.ones(4, 5, dtype=torch.bool) if kept is None else kept
    total, entropy = layer.log_partition(emissions, kept), layer.entropy(emissions, kept)
    node, pairs = layer.marginals(emissions, kept), layer.pair_marginals(emissions, kept)
    best, padded, few = (
        layer.decode(emissions, kept),
        layer.decode_padded(emissions, kept),
        layer.decode_n_best(emissions, 4, kept),
    )
    for b in range(4):
        found = labellings(layer, emissions[b], every[b])
        own = log_total([score for _, score in found])
        torch.testing.assert_close(total[b], own, rtol=1e-12, atol=1e-12)
        chances = [(y, (score - own).exp().item()) for y, score in found]
        places = every[b].nonzero()[:, 0].tolist()
        expected, joint = torch.zeros(5, 3), torch.zeros(4, 3, 3)
        for y, chance in chances:
            for k, t in enumerate(places):
                expected[t, y[k]] += chance
                if k:
                    joint[t - 1, y[k - 1], y[k]] += chance
        torch.testing.assert_close(node[b].float(), expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(pairs[b].float(), joint, rtol=0, atol=1e-6)
        plain = -sum(p * torch.log(torch.tensor(p, dtype=torch.float64)) for _, p in chances if p > 0)
        torch.testing.assert_close(entropy[b], plain + torch.zeros((), dtype=torch.float64), rtol=1e-9, atol=1e-9)
        order = sorted((p for p in chances if p[1] > 0), key=lambda one: -one[1])[:4]
        assert best[b] == list(order[0][0]) == padded[b][every[b]].tolist()
        assert [path for path, _ in few[b]] == [list(y) for y, _ in order]
        assert [log for _, log in few[b]] == pytest.approx([torch.tensor(p).log().item() for _, p in order], abs=1e-5)
    assert (padded[~every] == -100).all()


@each_backend
def test_partial_labels_equal_enumeration(backend: str) -> None:
    """Unknown tags, sets of allowed tags, and both: the likelihood of all labellings that agree."""
    layer = made(3, backend)
    emissions, tags, kept = batch((4, 5, 3), seed=5)
    assert kept is not None
    tags = torch.where(torch.rand(tags.shape) < 0.4, -100, tags)
    allowed = torch.rand(4, 5, 3) < 0.6
    allowed |= (tags[..., None] == torch.arange(3)) | (torch.arange(3) == 1)
    for given in ({"tags": tags}, {"tags": None, "allowed": allowed}, {"tags": tags, "allowed": allowed}):
        found = layer(emissions, mask=kept, reduction="none", **given)
        for b in range(4):
            every = labellings(layer, emissions[b], kept[b])
            left = []
            for y, score in every:
                steps_of = list(zip(kept[b].nonzero()[:, 0].tolist(), y))
                fits = given["tags"] is None or all(tags[b, t] in (-100, j) for t, j in steps_of)
                if fits and ("allowed" not in given or all(allowed[b, t, j] for t, j in steps_of)):
                    left.append(score)
            expected = log_total(left) - log_total([score for _, score in every])
            torch.testing.assert_close(found[b], expected, rtol=1e-12, atol=1e-12)


def test_a_mask_is_the_same_as_cutting_steps_out() -> None:
    layer = made(4)
    emissions, tags, kept = batch((5, 9, 4), seed=7)
    assert kept is not None
    each = layer(emissions, tags, mask=kept, reduction="none")
    for b in range(5):
        alone = layer(emissions[b][kept[b]][None], tags[b][kept[b]][None])
        torch.testing.assert_close(each[b], alone, rtol=1e-13, atol=1e-13)
    assert each[2] == 0.0  # an empty row


def test_lengths_are_a_mask() -> None:
    layer = made(3)
    emissions, tags, kept = batch((5, 6, 3), mask="lengths")
    assert kept is not None
    same = layer(emissions, tags, lengths=kept.sum(1))
    assert torch.equal(layer(emissions, tags, mask=kept), same)
    assert torch.equal(layer(emissions, tags, mask=kept.to(torch.uint8)), same)


@each_backend
def test_a_weight_is_that_many_copies(backend: str) -> None:
    layer = made(3, backend)
    emissions, tags, kept = batch((3, 6, 3), mask="lengths")
    assert kept is not None
    copies = torch.tensor([2, 0, 3])
    more = [x.repeat_interleave(copies, 0) for x in (emissions, tags, kept)]
    emissions, more[0] = emissions.requires_grad_(), more[0].detach().requires_grad_()
    for reduction in ("sum", "mean", "token_mean"):
        one = layer(emissions, tags, mask=kept, reduction=reduction, sequence_weight=copies.double())
        two = layer(*more[:2], mask=more[2], reduction=reduction)
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
        for a, b in zip(gradients(one, layer, emissions)[1:], gradients(two, layer, more[0])[1:]):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    each = layer(emissions, tags, mask=kept, reduction="none", sequence_weight=copies.double())
    assert each[1] == 0.0


@each_backend
def test_known_and_allowed_tags_hold_in_answers(backend: str) -> None:
    layer = made(3, backend)
    emissions, _, kept = batch((3, 6, 3), mask="lengths")
    known = torch.full((3, 6), -100)
    known[:, 1] = 2
    assert all(path[1] == 2 for path in layer.decode(emissions, kept, known=known) if len(path) > 1)
    assert torch.allclose(layer.marginals(emissions, kept, known=known)[0, 1, 2], torch.ones((), dtype=torch.float64))
    allowed = torch.ones(3, 6, 3, dtype=torch.bool)
    allowed[..., 0] = False
    assert not any(0 in path for path in layer.decode(emissions, kept, allowed=allowed))
    assert not layer.marginals(emissions, kept, allowed=allowed)[..., 0].any()
    assert not (layer.sample(emissions, 20, kept, allowed=allowed) == 0).any()
    assert not any(0 in path for one in layer.decode_n_best(emissions, 3, kept, allowed=allowed) for path, _ in one)


# ---------------------------------------------------------------------------------------------- constraints


@each_backend
def test_constraints_hold_in_training_and_decoding(backend: str) -> None:
    names = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    layer = made(names, backend, constraints="bio")
    emissions, _, kept = batch((6, 7, 5), seed=2)
    emissions = emissions.requires_grad_()
    scheme = crfield.Constraints(scheme="bio").scores(names)
    for path in layer.decode(10 * emissions, kept):
        assert scheme.of_path(path) == 0.0
    tags = torch.zeros(6, 7, dtype=torch.int64)
    tags[:, 3] = -100
    grads = gradients(layer(emissions, tags, mask=kept), layer, emissions)
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[1][0, 2] == 0.0
    assert layer.state_dict().keys() == set(NAMES)


def test_tags_against_the_constraints_are_told() -> None:
    layer = made(["O", "B-X", "I-X"], constraints="bio")
    tags = torch.tensor([[0, 0], [0, 2]])
    with pytest.raises(LabelError, match="sequence 1 has no labelling"):
        layer(torch.zeros(2, 2, 3), tags)


# ---------------------------------------------------------------------------------------------- other losses


@each_backend
def test_class_weight_is_a_softmax_margin(backend: str) -> None:
    """Each wrong tag is helped by what missing the true one costs: enumeration."""
    cost = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    layer = made(3, backend, class_weight=cost.tolist())
    emissions, tags, kept = batch((3, 4, 3), mask="lengths")
    assert kept is not None
    found = layer(emissions, tags, mask=kept, reduction="none")
    for b in range(3):
        gold = tuple(tags[b][kept[b]].tolist())
        scores = dict(labellings(layer, emissions[b], kept[b]))
        helped = [s + sum(cost[g] for g, j in zip(gold, y) if g != j) for y, s in scores.items()]
        torch.testing.assert_close(found[b], scores[gold] - log_total(helped), rtol=1e-12, atol=1e-12)


@each_backend
def test_label_weight_is_the_likelihood_of_single_labels(backend: str) -> None:
    weight = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    layer = made(3, backend, label_weight=weight)
    plain = made(3, backend)
    emissions, tags, kept = batch((3, 4, 3), mask="lengths")
    tags[0, 1] = -100  # says nothing, costs nothing
    p = plain.marginals(emissions, kept)
    found = layer(emissions, tags, mask=kept, reduction="none")
    known = tags >= 0
    own = torch.where(known, weight[tags.clamp_min(0)] * p.gather(2, tags.clamp_min(0)[..., None])[..., 0].log(), 0.0)
    torch.testing.assert_close(found, own.sum(1), rtol=1e-10, atol=1e-12)


@each_backend
@pytest.mark.parametrize("rules", [None, [(0, 1)]])
def test_label_smoothing_mixes_with_all_possible_labellings(backend: str, rules: Any) -> None:
    layer, plain = made(3, backend, label_smoothing=0.2, constraints=rules), made(3, backend, constraints=rules)
    emissions, _, kept = batch((3, 4, 3), seed=4)
    assert kept is not None
    tags = torch.full((3, 4), 2)
    found, sharp = (one(emissions, tags, mask=kept, reduction="none") for one in (layer, plain))
    for b in range(3):
        scores = torch.stack([score for _, score in labellings(layer, emissions[b], kept[b])])
        possible = scores[scores > -torch.inf]
        spread = possible.mean() - torch.logsumexp(possible, 0)
        torch.testing.assert_close(found[b], 0.8 * sharp[b] + 0.2 * spread, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"class_weight": [1, 2, 3]}, {"label_weight": [1, 2, 3]}, {"label_smoothing": 0.1}]
)
def test_gradients_of_the_other_losses(options: dict[str, Any]) -> None:
    layer = made(3, **options)
    emissions, tags, kept = batch((3, 4, 3), seed=8)
    tags[0, :2] = -100
    assert torch.autograd.gradcheck(lambda x: layer(x, tags, mask=kept), (emissions.requires_grad_(),))


# ---------------------------------------------------------------------------------------------- samples


def test_samples_follow_the_marginals() -> None:
    layer = made(3)
    emissions, _, kept = batch((3, 5, 3), seed=9)
    assert kept is not None
    drawn = layer.sample(emissions, 4000, kept, generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn, layer.sample(emissions, 4000, kept, generator=torch.Generator().manual_seed(0)))
    assert (drawn[:, ~kept] == -100).all()
    share = torch.stack([(drawn == j).double().mean(0) for j in range(3)], -1)
    torch.testing.assert_close(share, layer.marginals(emissions, kept), rtol=0, atol=0.04)


# ---------------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_in_doubles_whatever_comes(dtype: torch.dtype) -> None:
    """A long sequence of 16 bits: the value is that of doubles to 32 bits, the gradient comes back in 16."""
    layer = made(3).float()
    emissions, tags, _ = batch((2, 3000, 3), mask="none", dtype=dtype)
    emissions = emissions.requires_grad_()
    value = layer(emissions, tags)
    value.backward()
    assert value.dtype == torch.float32
    assert emissions.grad is not None
    assert emissions.grad.dtype == dtype
    wide = made(3).float().double()
    again = emissions.detach().double().requires_grad_()
    exact = wide(again, tags)
    exact.backward()
    torch.testing.assert_close(value.double(), exact, rtol=1e-7, atol=0)
    torch.testing.assert_close(
        emissions.grad.double(), again.grad, rtol=0, atol=1e-2 if dtype != torch.float32 else 1e-6
    )


def test_autocast_and_a_step_of_training() -> None:
    torch.manual_seed(0)
    encoder, layer = torch.nn.Linear(4, 3), CRFLayer(3)
    x, tags = torch.randn(8, 6, 4), torch.randint(3, (8, 6))
    optimiser = torch.optim.Adam([*encoder.parameters(), *layer.parameters()], lr=0.1)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = layer.nll(encoder(x), tags)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


# ---------------------------------------------------------------------------------------------- devices


def test_another_device_makes_one_round_trip_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other device is needed: what the layer takes for its name decides."""
    layer = made(3)
    emissions, tags, kept = batch((3, 5, 3))
    expected = layer(emissions, tags, mask=kept)
    monkeypatch.setattr(steps, "device_of", lambda x: "elsewhere")
    monkeypatch.setattr(steps, "_told", set())
    with pytest.warns(SpeedWarning, match="'elsewhere' are copied to the CPU"):
        assert torch.equal(layer(emissions, tags, mask=kept), expected)
    layer.decode(emissions, kept)  # a second notice would be an error


# ---------------------------------------------------------------------------------------------- refusals


def test_refusals() -> None:
    layer = CRFLayer(3)
    emissions, tags = torch.zeros(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64)
    for message, call in (
        (r"emissions must be \(batch, steps, tags\) with 3 tags", lambda: layer(emissions[..., :2], tags)),
        ("emissions must be a torch.Tensor", lambda: layer(emissions.numpy(), tags)),
        ("floating-point", lambda: layer(emissions.long(), tags)),
        (r"tags must be \(2, 4\)", lambda: layer(emissions, tags[:1])),
        ("whole numbers", lambda: layer(emissions, tags.float())),
        (r"mask must be \(2, 4\)", lambda: layer(emissions, tags, mask=torch.ones(2, 5))),
        ("either mask or lengths", lambda: layer(emissions, tags, mask=tags == 0, lengths=tags[:, 0])),
        (r"lengths must lie in 0 … 4, got 2 … 9", lambda: layer(emissions, tags, lengths=torch.tensor([2, 9]))),
        ("lengths must be 2 whole", lambda: layer(emissions, tags, lengths=torch.tensor([2]))),
        ("reduction must be one of", lambda: layer(emissions, tags, reduction="average")),
        ("needs tags or allowed", lambda: layer(emissions, None)),
        (r"allowed must be \(2, 4, 3\)", lambda: layer(emissions, None, allowed=torch.ones(2, 4, dtype=torch.bool))),
        ("sequence_weight must have 2", lambda: layer(emissions, tags, sequence_weight=torch.ones(3))),
        ("got 7 at sequence 0, step 0", lambda: layer(emissions, tags + 7)),
        ("got nan at sequence 0, step 0", lambda: layer(emissions * torch.nan, tags)),
        ("k must be a whole number", lambda: layer.decode_n_best(emissions, 0)),
        ("n must be a whole number", lambda: layer.sample(emissions, 0)),
        ("no labelling that is allowed", lambda: layer.decode(emissions - torch.inf)),
        ("no labelling that is allowed", lambda: layer.sample(emissions - torch.inf)),
        ("num_tags must be at least 1", lambda: CRFLayer(0)),
        ("num_tags must be a number", lambda: CRFLayer("bio")),
        ("names of tags must differ", lambda: CRFLayer(["a", "a"])),
        ("ignore_index must be no tag", lambda: CRFLayer(3, ignore_index=1)),
        ("backend must be one of", lambda: CRFLayer(3, backend="cuda")),
        ("n_jobs must be", lambda: CRFLayer(3, n_jobs=0)),
        ("label_smoothing must lie", lambda: CRFLayer(3, label_smoothing=1.0)),
        ("Choose one", lambda: CRFLayer(3, class_weight=[1, 1, 1], label_weight=[1, 1, 1])),
        ("class_weight must have", lambda: CRFLayer(3, class_weight=[1, 1])),
        ("begin with one of B I O", lambda: CRFLayer(3, constraints="bio")),
    ):
        with pytest.raises((InputError, LabelError, ShapeError), match=message):
            call()


def test_time_first_is_the_transpose() -> None:
    one, two = made(3), made(3, batch_first=False)
    emissions, tags, kept = batch((3, 5, 3))
    assert kept is not None
    turned = emissions.transpose(0, 1), tags.transpose(0, 1), kept.transpose(0, 1)
    assert torch.equal(one(emissions, tags, mask=kept), two(turned[0], turned[1], mask=turned[2]))
    assert torch.equal(one.marginals(emissions, kept).transpose(0, 1), two.marginals(turned[0], turned[2]))
    assert torch.equal(one.decode_padded(emissions, kept).T, two.decode_padded(turned[0], turned[2]))
    assert one.decode(emissions, kept) == two.decode(turned[0], turned[2])
    assert two.sample(turned[0], 2, turned[2]).shape == (2, 5, 3)
    with pytest.raises(ShapeError, match=r"mask must be \(5, 3\)"):
        two(turned[0], turned[1], mask=kept)
