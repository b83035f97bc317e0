"""A header of features and model: raw observations in, label out.

The model's own header (`crfield.estimators.export.c_code`) reads columns. It is put whole into this one, under the
name ``NAME_model``; before it stands the function that computes the columns, after it the one that the robot calls.

The same bits as here need the same operations in the same order. Compilers keep that order, but may join a product
and a sum to one rounding (fused multiply-add) where the processor can; the header forbids it to clang by a pragma of
the language and to gcc, which ignores that one, by its own. What remains are logarithms, exponentials and angles of
the robot's libm: with the same library they are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crfield.estimators.export.features.cost import model_bytes, model_operations, struct_bytes


@dataclass(frozen=True)
class FeatureCode:
    """Features in C: what stands where in the header. ``NAME`` is the name of the model."""

    given: str  # what goes in: "positions"
    arguments: Sequence[tuple[str, str]]  # type and name
    about: Sequence[str]  # lines on the arguments
    constants: str  # defines and tables
    fields: str  # of the struct that is remembered
    helpers: str
    body: str  # of a function with s, f and x at hand that returns 0 when x is ready
    operations: int
    answers: Sequence[str] = ()  # what else push returns


_HEAD = """\
/* NAME: @given@ in, label out: features and model in one header, written by crfield. No allocation; needs libm (-lm).
 * State: @bytes@ bytes (sizeof (NAME_stream), with int of 4 and double of 8 bytes).
 * A step: at most @operations@ (+ - * / sqrt log, comparisons, choices).
 *
 *   NAME_stream s;
 *   NAME_begin(&s);
 *   for (;;) {
 *     int label = NAME_push(&s@names@);
 *     s.x                                    the columns of this step, NAME_model_column_names
 *     s.model.probabilities                  filtered distribution of this step
 *     s.model.committed[0 .. s.model.n_committed)  labels that became final, s.model.n_forced of them by force
 *   }
 *   NAME_finish(&s);                         the same for the end of the sequence; then begins anew
 *
@about@
 * NAME_push returns the most probable label, a place in NAME_label_names; -1 where nothing is possible; -2 where a
 * number that was given is not finite (then nothing has changed), or a column is not or is too large for the model
 * (then the model stands where it stood)@answers@.
 *
 * C99 or C++17. Columns have the bits that they have in crfield; not with -ffast-math, nor on processors that keep
 * more digits than a double has (FLT_EVAL_METHOD other than 0).
 */
#ifndef NAME_CRFIELD_FEATURES_H
#define NAME_CRFIELD_FEATURES_H
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && defined(__FP_FAST_FMA)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
"""

_MIDDLE = """
#define NAME_LABELS NAME_model_LABELS
#define NAME_COLUMNS NAME_model_COLUMNS
#define NAME_label_names NAME_model_label_names
@constants@
typedef struct {
@fields@} NAME_features;

typedef struct {
  NAME_model_stream model;
  NAME_features features;
  double x[NAME_model_COLUMNS + @spare@];
} NAME_stream;

static inline void NAME_begin(NAME_stream *s) {
  memset(s, 0, sizeof *s);
  NAME_model_begin(&s->model);
}
@helpers@
/* The columns of a step, into s->x. */
static inline int NAME_measure(NAME_stream *s@typed@) {
  NAME_features *f = &s->features;
  double *x = s->x;
@body@
  return 0;
}

static inline int NAME_push(NAME_stream *s@typed@) {
  int said = NAME_measure(s@names@);
  return said ? said : NAME_model_push(&s->model, s->x);
}

static inline int NAME_finish(NAME_stream *s) {
  memset(&s->features, 0, sizeof s->features);
  return NAME_model_finish(&s->model);
}
#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__) && defined(__FP_FAST_FMA)
#pragma GCC pop_options
#endif
#endif
"""


def feature_header(model: str, code: FeatureCode, *, name: str, n_columns: int) -> str:
    """The text; ``model`` is the header of the model of so many columns, called ``name_model``."""
    typed = "".join(f", {kind}{own}" for kind, own in code.arguments)
    names = "".join(f", {own}" for _, own in code.arguments)
    filled = {
        "given": code.given,
        "typed": typed,
        "names": names,
        "about": "\n".join(f" * {line}" if line else " *" for line in code.about),
        "answers": "".join(f"; {line}" for line in code.answers),
        "operations": f"{code.operations:,} operations for the features and {model_operations(model)}",
        "spare": str(int(not n_columns)),  # C has no empty arrays
    }
    head, middle = (_filled(text, filled).replace("NAME", name) for text in (_HEAD, _MIDDLE))
    own = {key: getattr(code, key).replace("NAME", name) for key in ("constants", "fields", "helpers", "body")}
    whole = model + _filled(middle, own)
    told = model_bytes(model)
    size = struct_bytes(whole, f"{name}_stream", {} if told is None else {f"{name}_model_stream": told})
    return _filled(head, {"bytes": f"{size:,}"}) + whole


def _filled(text: str, parts: dict[str, str]) -> str:
    for key, part in parts.items():
        text = text.replace(f"@{key}@", part)
    return text


def comment(text: str) -> str:
    """Words of the user within a comment of C, whatever they are.

    >>> comment("near(a*/,b)")
    'near(a* /,b)'
    """
    plain = re.sub(r"[^ -~]|\\\\", ".", text)
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("@", ".").replace("NAME", "N.")
