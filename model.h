/* model: a chain model written by crfield as one header, C99 or C++17. Needs libm (-lm), no -ffast-math.
 * State: 7,112 bytes (sizeof model_stream with 8-byte double, 4-byte int, MAX_LAG 1000).
 * Tables: 224 bytes that never change.
 * A step: at most 255 operations with doubles (+ - * / compare exp log sqrt), and 14,014 look-ups in the
 * state where labels are committed.
 *
 *   model_stream s;
 *   model_begin(&s);
 *   for (;;) {
 *     int label = model_push(&s, x);   x: model_COLUMNS doubles, raw as in training
 *     s.probabilities                  filtered distribution of this step
 *     s.committed[0 .. s.n_committed)  labels of the next steps that became final, s.n_forced of them by force
 *   }
 *   model_finish(&s);                   the same for the end of the sequence; then begins anew
 *
 * model_push returns the most probable label, -1 where nothing is possible, -2 where a number is not finite or too large for the model
 * (the stream then stands where it stood). A label is a place in model_label_names.
 */
#ifndef model_CRFIELD_H
#define model_CRFIELD_H
#include <math.h>
#include <string.h>

#define model_LABELS 3
#define model_STATES 3 /* of the recursion: labels, or what a label is made of */
#define model_SCORES 3 /* that a step gets from its columns */
#define model_COLUMNS 2
#ifndef model_MAX_LAG
#define model_MAX_LAG 1000 /* a label is committed after so many steps at the latest */
#endif
#define model_LABEL_OF(state) (state)
static const char *const model_label_names[] = {"A", "B", "C"};
static const char *const model_column_names[] = {"x[0]", "x[1]"};
static const double model_weights[] = {-1.0288941309444715, 0.2558553865414087, 0.7730387444030602, 0.4014703788156522, 0.21408475734081697, -0.6155551361564698};
static const double model_transitions[] = {0.8948911014962039, -0.2643169666521655, -0.6305741348440375, -0.3657642519016322, 1.0915571890001654, -0.7257929370985335, 0.3332589314492072, -0.44510952480948135, 0.11185059336027434};
static const double model_bias[] = {0.7518015616512186, 0.3483091631143834, -1.1001107247656032};
static const double model_start[] = {-0.10945837384510922, -0.032447479517685285, 0.14190585336279063};
static const double model_end[] = {0.0, 0.0, 0.0};
static const double model_mean[] = {0.0, 0.0};
static const double model_deviation[] = {1.0, 1.0};
static const signed char model_linked[] = {0};
static const double model_link_weights[] = {0};

typedef unsigned char model_state;
typedef struct {
  double alpha[model_STATES], delta[model_STATES];
  double probabilities[model_LABELS];
  long long steps, oldest;
  int n_committed, n_forced;
  int committed[model_MAX_LAG + 1];
  model_state origin[model_STATES], back[model_MAX_LAG + 1][model_STATES];
} model_stream;

static inline void model_begin(model_stream *s) { memset(s, 0, sizeof *s); }

/* x - log sum exp x in place; left alone where all are -INFINITY. */
static inline void model_normalise(double *x) {
  double top = -INFINITY, sum = 0.0;
  for (int j = 0; j < model_STATES; j++) top = x[j] > top ? x[j] : top;
  if (top == -INFINITY) return;
  for (int j = 0; j < model_STATES; j++) sum += exp(x[j] - top);
  sum = top + log(sum);
  for (int j = 0; j < model_STATES; j++) x[j] -= sum;
}

static inline int model_answer(model_stream *s, const double *logs) {
  int best = 0;
  for (int j = 0; j < model_LABELS; j++) s->probabilities[j] = exp(logs[j]);
  for (int j = 1; j < model_LABELS; j++)
    if (s->probabilities[j] > s->probabilities[best]) best = j;
  return s->probabilities[best] > 0.0 ? best : -1;
}

static inline void model_look_back(model_stream *s) {
  for (int j = 0; j < model_STATES; j++) {
    int state = j;
    for (long long t = s->steps; t > s->oldest; t--) state = s->back[t % (model_MAX_LAG + 1)][state];
    s->origin[j] = (model_state)state;
  }
}

static inline void model_agree(model_stream *s) {
  unsigned char alive[model_STATES], before[model_STATES];
  int count = 0, state = 0, origin = -1;
  if (s->oldest > s->steps) return;
  for (int j = 0; j < model_STATES; j++) count += alive[j] = s->delta[j] > -INFINITY;
  if (!count) count = alive[0] = 1;
  for (int j = 0; j < model_STATES; j++)
    if (alive[j]) {
      if (origin >= 0 && s->origin[j] != origin) return;
      origin = s->origin[j];
    }
  long long step = s->steps;
  while (count > 1) {
    memset(before, 0, sizeof before);
    for (int j = 0; j < model_STATES; j++)
      if (alive[j]) before[s->back[step % (model_MAX_LAG + 1)][j]] = 1;
    memcpy(alive, before, sizeof alive);
    count = 0;
    for (int j = 0; j < model_STATES; j++) count += alive[j];
    step--;
  }
  while (!alive[state]) state++;
  for (long long t = step; t >= s->oldest; t--) {
    s->committed[s->n_committed + (int)(t - s->oldest)] = model_LABEL_OF(state);
    state = s->back[t % (model_MAX_LAG + 1)][state];
  }
  s->n_committed += (int)(step + 1 - s->oldest);
  s->oldest = step + 1;
  model_look_back(s);
}

static inline int model_push(model_stream *s, const double *x) {
  double score[model_SCORES], next[model_STATES];
  const double *edge = model_transitions;
  for (int d = 0; d < model_COLUMNS; d++)
    if (!isfinite(x[d])) return -2;
  for (int j = 0; j < model_SCORES; j++) score[j] = model_bias[j];
  for (int d = 0; d < model_COLUMNS; d++) {
    double z = (x[d] - model_mean[d]) / model_deviation[d];
    for (int j = 0; j < model_SCORES; j++) score[j] += z * model_weights[d * model_SCORES + j];
  }
  double local[model_STATES * model_STATES];
  for (int i = 0; i < model_STATES; i++) { /* each label before has a distribution of its own over those that follow */
    const double *row = edge + i * model_STATES;
    double top = -INFINITY, sum = 0.0;
    for (int j = 0; j < model_STATES; j++) top = score[j] + row[j] > top ? score[j] + row[j] : top;
    for (int j = 0; j < model_STATES; j++) sum += exp(score[j] + row[j] - top);
    sum = top > -INFINITY ? top + log(sum) : 0.0;
    for (int j = 0; j < model_STATES; j++) local[i * model_STATES + j] = row[j] - sum;
  }
  edge = local;
  const double *node = score;
  double highest = -INFINITY;
  for (int j = 0; j < model_STATES; j++) {
    if (!(node[j] <= 1e300)) return -2;
    highest = node[j] > highest ? node[j] : highest;
  }
  if (highest < -1e300) return -2;
  for (int p = 0; p < model_STATES * model_STATES; p++)
    if (!(edge[p] <= 1e300)) return -2;
  for (int j = 0; j < model_STATES; j++) {
    double top = -INFINITY, sum = 0.0;
    if (s->steps == 0) {
      next[j] = model_start[j] + node[j];
      continue;
    }
    for (int i = 0; i < model_STATES; i++) {
      double path = s->alpha[i] + edge[i * model_STATES + j];
      top = path > top ? path : top;
    }
    if (top > -INFINITY)
      for (int i = 0; i < model_STATES; i++) sum += exp(s->alpha[i] + edge[i * model_STATES + j] - top);
    next[j] = top > -INFINITY ? top + log(sum) + node[j] : -INFINITY;
  }
  model_normalise(next);
  memcpy(s->alpha, next, sizeof next);
  int now = model_answer(s, next);

  model_state *came = s->back[s->steps % (model_MAX_LAG + 1)], moved[model_STATES];
  double most = -INFINITY;
  for (int j = 0; j < model_STATES; j++) {
    came[j] = (model_state)j;
    next[j] = model_start[j] + node[j];
    if (s->steps > 0) {
      double top = s->delta[0] + edge[j];
      came[j] = 0;
      for (int i = 1; i < model_STATES; i++) {
        double path = s->delta[i] + edge[i * model_STATES + j];
        if (path > top) {
          top = path;
          came[j] = (model_state)i;
        }
      }
      next[j] = top + node[j];
    }
    most = next[j] > most ? next[j] : most;
    moved[j] = s->oldest == s->steps ? (model_state)j : s->origin[came[j]];
  }
  for (int j = 0; j < model_STATES; j++) s->delta[j] = most > -INFINITY ? next[j] - most : next[j];
  memcpy(s->origin, moved, sizeof moved);
  s->n_committed = s->n_forced = 0;
  model_agree(s);
  if (most == -INFINITY) s->n_forced = s->n_committed;
  if (s->steps - s->oldest + 1 > model_MAX_LAG) {
    int best = 0;
    for (int j = 1; j < model_STATES; j++)
      if (s->delta[j] > s->delta[best]) best = j;
    int state = s->origin[best];
    for (int j = 0; j < model_STATES; j++)
      if (s->origin[j] != state) s->delta[j] = -INFINITY;
    s->committed[s->n_committed++] = model_LABEL_OF(state);
    s->n_forced++;
    s->oldest++;
    model_look_back(s);
    model_agree(s);
  }
  s->steps++;
  return now;
}

static inline int model_finish(model_stream *s) {
  double last[model_STATES];
  int best = 0, now = -1;
  s->n_committed = s->n_forced = 0;
  if (s->steps == 0) return now;
  for (int j = 0; j < model_STATES; j++) last[j] = s->alpha[j] + model_end[j];
  model_normalise(last);
  now = model_answer(s, last);
  for (int j = 1; j < model_STATES; j++)
    if (s->delta[j] + model_end[j] > s->delta[best] + model_end[best]) best = j;
  for (long long t = s->steps - 1; t >= s->oldest; t--) {
    s->committed[t - s->oldest] = model_LABEL_OF(best);
    best = s->back[t % (model_MAX_LAG + 1)][best];
  }
  s->n_committed = (int)(s->steps - s->oldest);
  s->steps = s->oldest = 0;
  return now;
}
#endif
