"""The names of pydensecrf (Beyer 2015, around the code of Krähenbühl & Koltun): ``densecrf`` and ``utils``.

    import crfield.compat.pydensecrf.densecrf as dcrf
    from crfield.compat.pydensecrf.utils import unary_from_labels, unary_from_softmax

and a script written for that package runs, with the same marginals to 1e-4 and several times faster. What it refuses,
arrays that are not contiguous, not float32, read-only, or of shape (labels, H, W), is taken here; what it takes and
should not, a compatibility of the wrong length, is refused.
"""

from crfield.compat.pydensecrf import densecrf, utils

__all__ = ["densecrf", "utils"]
