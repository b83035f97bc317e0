"""`ChainCRF` as a layer and back: the same answers, also through a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crfield
from crfield.errors import InputError, ShapeError
from crfield.torch import CRFLayer, chain_emissions

X = [[["a"], ["b"], ["c"]], [["b"], ["a"]], [["c"], ["a"], ["a"], ["b"]], [["a"]]]
Y = [["O", "B-X", "I-X"], ["B-X", "O"], ["B-X", "I-X", "O", "B-X"], ["O"]]


@pytest.mark.parametrize("options", [{}, {"constraints": "bio"}, {"boundaries": False}, {"transition_pairs": "all"}])
def test_a_layer_of_a_chain_gives_its_answers(options: dict[str, Any]) -> None:
    model = crfield.ChainCRF(**options).fit(X, Y)
    layer = CRFLayer.from_chain(model)
    emissions, mask = chain_emissions(model, X)
    names = np.array(layer.labels)
    assert [names[path].tolist() for path in layer.decode(emissions, mask)] == [y.tolist() for y in model.predict(X)]
    code = {name: k for k, name in enumerate(layer.labels)}
    tags = torch.full(mask.shape, -100)
    for b, y in enumerate(Y):
        tags[b, : len(y)] = torch.tensor([code[label] for label in y])
    found = layer(emissions, tags, mask=mask, reduction="none")
    np.testing.assert_allclose(found.detach().numpy(), model.log_prob(X, Y), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("rules", [None, "bio"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_chain_of_a_layer_gives_its_answers(tmp_path: Path, bias: bool, rules: Any) -> None:
    torch.manual_seed(0)
    linear, layer = (
        torch.nn.Linear(5, 3, bias=bias).double(),
        CRFLayer(["O", "B-X", "I-X"], constraints=rules).double(),
    )
    rows = [torch.randn(steps, 5, dtype=torch.float64) for steps in (4, 1, 6)]
    model = layer.to_chain(linear)
    model.save(tmp_path / "model.crf")
    for one in (model, crfield.load(tmp_path / "model.crf")):
        paths = one.predict([x.numpy() for x in rows])
        chances = one.predict_proba([x.numpy() for x in rows])
        for x, path, chance in zip(rows, paths, chances):
            emissions = linear(x)[None]
            assert [layer.labels[j] for j in layer.decode(emissions)[0]] == path.tolist()
            np.testing.assert_allclose(np.asarray(chance), layer.marginals(emissions)[0].detach().numpy(), atol=1e-12)
    again = CRFLayer.from_chain(model)
    for name, value in layer.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)


def test_without_a_linear_layer_columns_are_emissions() -> None:
    layer = CRFLayer(["a", "b"])
    emissions = torch.randn(1, 5, 2)
    path = layer.to_chain().predict([emissions[0].double().numpy()])[0].tolist()
    assert path == [layer.labels[j] for j in layer.decode(emissions)[0]]


def test_refusals() -> None:
    with pytest.raises(InputError, match="order 1"):
        CRFLayer.from_chain(crfield.ChainCRF(order=2).fit(X, Y))
    with pytest.raises(InputError, match="fitted ChainCRF"):
        CRFLayer.from_chain("model")
    with pytest.raises(crfield.errors.NotFittedError):
        CRFLayer.from_chain(crfield.ChainCRF())
    with pytest.raises(ShapeError, match="makes 2 scores"):
        CRFLayer(2).to_chain(torch.nn.Linear(4, 3))
