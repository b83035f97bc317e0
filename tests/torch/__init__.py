"""Tests of the layers for PyTorch; all of them are skipped where it is not installed."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'crfield[torch]'")
