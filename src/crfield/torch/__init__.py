"""CRF layers for neural networks in PyTorch: exact sums of crfield's compiled kernels behind ``torch.nn.Module``.

    CRFLayer        a linear chain on the scores of any encoder, with the parameters of pytorch-crf
    SemiCRFLayer    segments instead of steps
    chain_emissions scores of a fitted `ChainCRF` as padded tensors

The sums are registered operators (`torch.library`), one opaque node of a graph each:
``torch.compile(fullgraph=True)`` takes them, second derivatives go through them. Everything runs on the CPU, where
scores of another device make a round trip; ``backend="torch"`` says the same in plain torch on any device. PyTorch
itself comes with the extra ``torch``.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401  (the real one: imports are absolute)
except ImportError as error:
    raise ImportError(
        "crfield.torch needs PyTorch 2.4 or later, which is not installed: pip install 'crfield[torch]'."
    ) from error

from crfield.torch.exchange import chain_emissions
from crfield.torch.layer import CRFLayer
from crfield.torch.semi_layer import SemiCRFLayer

__all__ = ["CRFLayer", "SemiCRFLayer", "chain_emissions"]
