"""Names that would be scripts if a page did not escape them, and a model made of them."""

from __future__ import annotations

from typing import Any

from crfield import ChainCRF

NASTY = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
SIGNS = "{{data}}&lt;b&gt;'\"`${window.hacked=3}\u2028\u202e"


def hostile_report(n: int = 12) -> Any:
    """A report in which tokens, labels, features, names and the title are hostile."""
    words = [f"{NASTY}{k}" for k in range(3)]
    X = [[{"word": words[(k + t) % 3], SIGNS: NASTY} for t in range(4)] for k in range(n)]
    y = [[f"{'B' if (k + t) % 3 else 'I'}-{NASTY}" for t in range(4)] for k in range(n)]
    model = ChainCRF(l2=0.1).fit(X, y)
    truth = [row[:] for row in y]
    truth[0][1] = f"I-{SIGNS}"
    truth[3][2] = f"B-{SIGNS}"
    return model.report(X, truth, title=NASTY, names=[f"{NASTY} {k}" for k in range(n)])
