"""A head on a real encoder of Hugging Face, of random weights: subtoken masks as the guide makes them."""

from __future__ import annotations

import pytest
import torch

from crfield.torch import CRFLayer

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def test_a_head_on_last_hidden_state() -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    encoder = transformers.BertModel(config, add_pooling_layer=False).eval()
    word_ids = [[None, 0, 1, 1, 2, None], [None, 0, 0, None, None, None]]
    first = [[w is not None and w not in row[:t] for t, w in enumerate(row)] for row in word_ids]
    mask = torch.tensor(first)
    tags = torch.full(mask.shape, -100)
    tags[mask] = torch.tensor([1, 2, 0, 0])
    attention = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]])
    head, crf = torch.nn.Linear(16, 3), CRFLayer(["O", "B-PER", "I-PER"], constraints="bio")
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters(), *crf.parameters()], lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        hidden = encoder(input_ids=torch.arange(12).reshape(2, 6), attention_mask=attention).last_hidden_state
        loss = crf.nll(head(hidden), tags, mask=mask)
        loss.backward()
        optimiser.step()
    assert crf.decode(head(hidden), mask=mask) == [[1, 2, 0], [0]]
