"""The text of a model as one C99 header.

The header holds the tables and the same recursion as `crfield.kernels.stream`: the filter and the incremental
Viterbi, in logs. It allocates nothing, keeps no state but the user's struct, and needs only ``<math.h>``. Tables are
written with as many digits as bring back the same double.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crfield.estimators.export.step_scores import DenseSteps
from crfield.estimators.markov.steps import GaussianSteps

_HEAD = """\
/* NAME: a chain model written by crfield as one C99 header. Needs libm (-lm) and nothing else; no -ffast-math.
 *
 *   NAME_stream s;
 *   NAME_begin(&s);
 *   for (;;) {
 *     int label = NAME_push(&s, x);   x: NAME_COLUMNS doubles, raw as in training
 *     s.probabilities                  filtered distribution of this step
 *     s.committed[0 .. s.n_committed)  labels of the next steps that became final, s.n_forced of them by force
 *   }
 *   NAME_finish(&s);                   the same for the end of the sequence; then begins anew
 *
 * NAME_push returns the most probable label, -1 where nothing is possible, -2 where a number is not finite or too
 * large for the model (the stream then stands where it stood). A label is a place in NAME_label_names.
 */
#ifndef NAME_CRFIELD_H
#define NAME_CRFIELD_H
#include <math.h>
#include <string.h>

#define NAME_LABELS @labels@
#define NAME_COLUMNS @columns@
#define NAME_LINKED @linked@
#ifndef NAME_MAX_LAG
#define NAME_MAX_LAG @max_lag@ /* a label is committed after so many steps at the latest */
#endif
"""

_BODY = """
typedef struct {
  long long steps, oldest;
  double alpha[NAME_LABELS], delta[NAME_LABELS];
  int origin[NAME_LABELS], back[NAME_MAX_LAG + 1][NAME_LABELS];
  double probabilities[NAME_LABELS];
  int committed[NAME_MAX_LAG + 1], n_committed, n_forced;
} NAME_stream;

static inline void NAME_begin(NAME_stream *s) { memset(s, 0, sizeof *s); }

/* exp(x - log sum exp x) in place; the log of the sum, or -INFINITY. */
static inline double NAME_normalise(double *x) {
  double top = -INFINITY, sum = 0.0;
  for (int j = 0; j < NAME_LABELS; j++) top = x[j] > top ? x[j] : top;
  if (top == -INFINITY) return top;
  for (int j = 0; j < NAME_LABELS; j++) sum += exp(x[j] - top);
  sum = top + log(sum);
  for (int j = 0; j < NAME_LABELS; j++) x[j] -= sum;
  return sum;
}

static inline int NAME_answer(NAME_stream *s, const double *logs) {
  int best = 0;
  for (int j = 0; j < NAME_LABELS; j++) {
    s->probabilities[j] = exp(logs[j]);
    if (s->probabilities[j] > s->probabilities[best]) best = j;
  }
  return s->probabilities[best] > 0.0 ? best : -1;
}

static inline void NAME_look_back(NAME_stream *s) {
  for (int j = 0; j < NAME_LABELS; j++) {
    int label = j;
    for (long long t = s->steps; t > s->oldest; t--) label = s->back[t % (NAME_MAX_LAG + 1)][label];
    s->origin[j] = label;
  }
}

static inline void NAME_agree(NAME_stream *s) {
  unsigned char alive[NAME_LABELS], before[NAME_LABELS];
  int count = 0, label = 0, origin = -1;
  if (s->oldest > s->steps) return;
  for (int j = 0; j < NAME_LABELS; j++) count += alive[j] = s->delta[j] > -INFINITY;
  if (!count) count = alive[0] = 1;
  for (int j = 0; j < NAME_LABELS; j++)
    if (alive[j]) {
      if (origin >= 0 && s->origin[j] != origin) return;
      origin = s->origin[j];
    }
  long long step = s->steps;
  while (count > 1) {
    memset(before, 0, sizeof before);
    for (int j = 0; j < NAME_LABELS; j++)
      if (alive[j]) before[s->back[step % (NAME_MAX_LAG + 1)][j]] = 1;
    memcpy(alive, before, sizeof alive);
    count = 0;
    for (int j = 0; j < NAME_LABELS; j++) count += alive[j];
    step--;
  }
  while (!alive[label]) label++;
  for (long long t = step; t >= s->oldest; t--) {
    s->committed[s->n_committed + (int)(t - s->oldest)] = label;
    label = s->back[t % (NAME_MAX_LAG + 1)][label];
  }
  s->n_committed += (int)(step + 1 - s->oldest);
  s->oldest = step + 1;
  NAME_look_back(s);
}

static inline int NAME_push(NAME_stream *s, const double *x) {
  double node[NAME_LABELS], next[NAME_LABELS];
  const double *edge = NAME_transitions;
  for (int d = 0; d < NAME_COLUMNS; d++)
    if (!isfinite(x[d])) return -2;
@score@
  double highest = -INFINITY;
  for (int j = 0; j < NAME_LABELS; j++) {
    if (!(node[j] <= 1e300)) return -2;
    highest = node[j] > highest ? node[j] : highest;
  }
  if (highest < -1e300) return -2;
  for (int p = 0; p < NAME_LABELS * NAME_LABELS; p++)
    if (!(edge[p] <= 1e300)) return -2;
  for (int j = 0; j < NAME_LABELS; j++) {
    double top = -INFINITY, sum = 0.0;
    if (s->steps == 0) {
      next[j] = NAME_start[j] + node[j];
      continue;
    }
    for (int i = 0; i < NAME_LABELS; i++) {
      double path = s->alpha[i] + edge[i * NAME_LABELS + j];
      top = path > top ? path : top;
    }
    if (top > -INFINITY)
      for (int i = 0; i < NAME_LABELS; i++) sum += exp(s->alpha[i] + edge[i * NAME_LABELS + j] - top);
    next[j] = top > -INFINITY ? top + log(sum) + node[j] : -INFINITY;
  }
  NAME_normalise(next);
  memcpy(s->alpha, next, sizeof next);
  int now = NAME_answer(s, next);

  int *came = s->back[s->steps % (NAME_MAX_LAG + 1)], moved[NAME_LABELS];
  double most = -INFINITY;
  for (int j = 0; j < NAME_LABELS; j++) {
    came[j] = j;
    next[j] = NAME_start[j] + node[j];
    if (s->steps > 0) {
      double top = s->delta[0] + edge[j];
      came[j] = 0;
      for (int i = 1; i < NAME_LABELS; i++)
        if (s->delta[i] + edge[i * NAME_LABELS + j] > top) {
          top = s->delta[i] + edge[i * NAME_LABELS + j];
          came[j] = i;
        }
      next[j] = top + node[j];
    }
    most = next[j] > most ? next[j] : most;
    moved[j] = s->oldest == s->steps ? j : s->origin[came[j]];
  }
  for (int j = 0; j < NAME_LABELS; j++) s->delta[j] = most > -INFINITY ? next[j] - most : next[j];
  memcpy(s->origin, moved, sizeof moved);
  s->n_committed = s->n_forced = 0;
  NAME_agree(s);
  if (most == -INFINITY) s->n_forced = s->n_committed;
  if (s->steps - s->oldest + 1 > NAME_MAX_LAG) {
    int best = 0;
    for (int j = 1; j < NAME_LABELS; j++)
      if (s->delta[j] > s->delta[best]) best = j;
    int label = s->origin[best];
    for (int j = 0; j < NAME_LABELS; j++)
      if (s->origin[j] != label) s->delta[j] = -INFINITY;
    s->committed[s->n_committed++] = label;
    s->n_forced++;
    s->oldest++;
    NAME_look_back(s);
    NAME_agree(s);
  }
  s->steps++;
  return now;
}

static inline int NAME_finish(NAME_stream *s) {
  double last[NAME_LABELS];
  int best = 0, now = -1;
  s->n_committed = s->n_forced = 0;
  if (s->steps == 0) return now;
  for (int j = 0; j < NAME_LABELS; j++) last[j] = s->alpha[j] + NAME_end[j];
  NAME_normalise(last);
  now = NAME_answer(s, last);
  for (int j = 1; j < NAME_LABELS; j++)
    if (s->delta[j] + NAME_end[j] > s->delta[best] + NAME_end[best]) best = j;
  for (long long t = s->steps - 1; t >= s->oldest; t--) {
    s->committed[t - s->oldest] = best;
    best = s->back[t % (NAME_MAX_LAG + 1)][best];
  }
  s->n_committed = (int)(s->steps - s->oldest);
  s->steps = s->oldest = 0;
  return now;
}
#endif
"""

_LINEAR = """\
  for (int j = 0; j < NAME_LABELS; j++) node[j] = NAME_bias[j];
  for (int d = 0; d < NAME_COLUMNS; d++) {
    double z = (x[d] - NAME_mean[d]) / NAME_deviation[d];
    for (int j = 0; j < NAME_LABELS; j++) node[j] += z * NAME_weights[d * NAME_LABELS + j];
  }"""

_LINKED = """
  double table[NAME_LABELS * NAME_LABELS];
  memcpy(table, NAME_transitions, sizeof table);
  for (int g = 0; g < NAME_LINKED; g++) {
    int d = NAME_linked[g];
    double z = (x[d] - NAME_mean[d]) / NAME_deviation[d];
    for (int p = 0; p < NAME_LABELS * NAME_LABELS; p++)
      table[p] += z * NAME_link_weights[g * NAME_LABELS * NAME_LABELS + p];
  }
  edge = table;"""

_GAUSSIAN = """\
  for (int j = 0; j < NAME_LABELS; j++) {
    node[j] = NAME_bias[j];
    for (int d = 0; d < NAME_COLUMNS; d++) {
      double z = (x[d] - NAME_mean[d * NAME_LABELS + j]) / NAME_deviation[d * NAME_LABELS + j];
      node[j] -= 0.5 * z * z;
    }
  }"""


def c_header(
    steps: DenseSteps | GaussianSteps, *, name: str, labels: Sequence[str], columns: Sequence[str], max_lag: int
) -> str:
    """The header's text; every name in it begins with ``name``."""
    linked = len(steps.linked) if isinstance(steps, DenseSteps) else 0
    head = _HEAD.replace("@labels@", str(len(labels))).replace("@columns@", str(len(columns)))
    parts = [head.replace("@linked@", str(linked)).replace("@max_lag@", str(max_lag))]
    for what, texts in (("label", labels), ("column", columns)):
        listed = ", ".join(map(_string, texts)) or '""'
        parts.append(f"static const char *const NAME_{what}_names[] = {{{listed}}};\n")
    for key, table in steps.tables().items():
        whole = table.dtype.kind in "iu"
        numbers = ", ".join(map(str if whole else _number, table.ravel().tolist())) or "0"
        parts.append(f"static const {'int' if whole else 'double'} NAME_{key}[] = {{{numbers}}};\n")
    score = _GAUSSIAN if isinstance(steps, GaussianSteps) else _LINEAR + (_LINKED if linked else "")
    text = "".join(parts) + _BODY.replace("@score@", score)
    # names and labels of the user are strings by now and may hold the word as well
    return _renamed(text, name)


def _renamed(text: str, name: str) -> str:
    lines = []
    for line in text.split("\n"):
        if line.startswith("static const char"):
            before, _, after = line.partition(" = ")
            lines.append(before.replace("NAME", name) + " = " + after)
        else:
            lines.append(line.replace("NAME", name))
    return "\n".join(lines)


def _number(value: float) -> str:
    return "-INFINITY" if value == -np.inf else repr(value)


def _string(text: str) -> str:
    """A C string of the bytes in UTF-8, safe whatever they are."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;<>=()[]&|~!*/'")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode("utf-8", "replace")) + '"'
