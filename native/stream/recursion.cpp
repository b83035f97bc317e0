#include "stream/recursion.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace crfield {
namespace stream {
namespace {

const double NEVER = -std::numeric_limits<double>::infinity();

// Survivors: the labels whose best path is possible, or label 0 where none is.
void living(const Memory& m, Room& room) {
  room.alive.clear();
  for (int64_t j = 0; j < m.labels; j++)
    if (m.delta[j] > NEVER) room.alive.push_back((int32_t)j);
  if (room.alive.empty()) room.alive.push_back(0);
}

void look_back(Memory& m) {
  for (int64_t j = 0; j < m.labels; j++) {
    int32_t label = (int32_t)j;
    for (int64_t s = m.steps; s > m.oldest; s--) label = m.back[(s % m.slots) * m.labels + label];
    m.origin[j] = label;
  }
}

int64_t agree(Memory& m, int32_t* committed, int64_t count, Room& room) {
  if (m.oldest > m.steps) return count;
  living(m, room);
  for (int32_t j : room.alive)
    if (m.origin[j] != m.origin[room.alive[0]]) return count;
  int64_t step = m.steps;
  while (room.alive.size() > 1) {
    std::fill(room.seen.begin(), room.seen.end(), (uint8_t)0);
    room.found.clear();
    const int32_t* came = m.back + (step % m.slots) * m.labels;
    for (int32_t j : room.alive)
      if (!room.seen[(size_t)came[j]]) {
        room.seen[(size_t)came[j]] = 1;
        room.found.push_back(came[j]);
      }
    room.alive.swap(room.found);
    // All survivors have one origin, so the walk ends at the oldest step at the latest.
    if (--step <= m.oldest) break;
  }
  int32_t label = room.alive[0];
  const int64_t from = m.oldest;
  for (int64_t s = step; s >= from; s--) {
    committed[count + s - from] = label;
    label = m.back[(s % m.slots) * m.labels + label];
  }
  m.oldest = step + 1;
  look_back(m);
  return count + step - from + 1;
}

}  // namespace

Room::Room(int64_t labels) : first((size_t)labels), second((size_t)labels), seen((size_t)labels) {
  alive.reserve((size_t)labels);
  found.reserve((size_t)labels);
}

double filter(const Memory& m, const double* node, const double* edge, double* probabilities, Room& room) {
  const int64_t L = m.labels, slot = m.steps % m.window;
  double* found = room.first.data();
  if (m.steps == 0) {
    for (int64_t j = 0; j < L; j++) found[j] = m.start[j] + node[j];
  } else {
    const double* before = m.alpha + ((m.steps - 1) % m.window) * L;
    double* top = room.second.data();
    std::fill(top, top + L, NEVER);
    for (int64_t i = 0; i < L; i++) {
      if (before[i] == NEVER) continue;
      for (int64_t j = 0; j < L; j++) top[j] = std::max(top[j], before[i] + edge[i * L + j]);
    }
    std::fill(found, found + L, 0.0);
    for (int64_t i = 0; i < L; i++) {
      if (before[i] == NEVER) continue;
      for (int64_t j = 0; j < L; j++)
        if (top[j] > NEVER) found[j] += std::exp(before[i] + edge[i * L + j] - top[j]);
    }
    for (int64_t j = 0; j < L; j++) found[j] = top[j] > NEVER ? std::log(found[j]) + top[j] + node[j] : NEVER;
  }
  double most = NEVER, sum = 0.0;
  for (int64_t j = 0; j < L; j++) most = std::max(most, found[j]);
  double* kept = m.alpha + slot * L;
  double total = NEVER;
  if (most > NEVER) {
    for (int64_t j = 0; j < L; j++) sum += std::exp(found[j] - most);
    total = most + std::log(sum);
    for (int64_t j = 0; j < L; j++) kept[j] = found[j] - total;
  } else {
    std::fill(kept, kept + L, NEVER);
  }
  for (int64_t j = 0; j < L; j++) probabilities[j] = std::exp(kept[j]);
  std::copy(node, node + L, m.nodes + slot * L);
  if (m.edges) std::copy(edge, edge + L * L, m.edges + slot * L * L);
  return total;
}

void smooth(const Memory& m, double* out, Room& room) {
  const int64_t L = m.labels;
  if (m.steps < m.window - 1) {
    std::fill(out, out + L, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  double *later = room.first.data(), *ahead = room.second.data();
  std::fill(later, later + L, 0.0);
  for (int64_t s = m.steps; s > m.steps - (m.window - 1); s--) {
    const int64_t slot = s % m.window;
    const double *node = m.nodes + slot * L, *table = m.edges ? m.edges + slot * L * L : m.transitions;
    for (int64_t j = 0; j < L; j++) ahead[j] = node[j] + later[j];
    double most = NEVER;
    for (int64_t i = 0; i < L; i++) {
      double top = NEVER, sum = 0.0;
      for (int64_t j = 0; j < L; j++) top = std::max(top, table[i * L + j] + ahead[j]);
      if (top > NEVER)
        for (int64_t j = 0; j < L; j++) sum += std::exp(table[i * L + j] + ahead[j] - top);
      later[i] = top > NEVER ? top + std::log(sum) : NEVER;
      most = std::max(most, later[i]);
    }
    if (most > NEVER)
      for (int64_t i = 0; i < L; i++) later[i] -= most;
  }
  const double* then = m.alpha + ((m.steps - (m.window - 1)) % m.window) * L;
  double most = NEVER, sum = 0.0;
  for (int64_t j = 0; j < L; j++) most = std::max(most, then[j] + later[j]);
  if (most == NEVER) {
    std::fill(out, out + L, 0.0);
    return;
  }
  for (int64_t j = 0; j < L; j++) sum += out[j] = std::exp(then[j] + later[j] - most);
  for (int64_t j = 0; j < L; j++) out[j] /= sum;
}

Commit survive(Memory& m, const double* node, const double* table, int32_t* committed, Room& room) {
  const int64_t L = m.labels;
  int32_t* came = m.back + (m.steps % m.slots) * L;
  double *best = room.first.data(), most = NEVER;
  for (int64_t j = 0; j < L; j++) {
    if (m.steps == 0) {
      best[j] = m.start[j] + node[j];
      came[j] = (int32_t)j;
    } else {
      double top = m.delta[0] + table[j];
      int32_t from = 0;
      for (int64_t i = 1; i < L; i++) {
        const double path = m.delta[i] + table[i * L + j];
        if (path > top) top = path, from = (int32_t)i;
      }
      best[j] = top + node[j];
      came[j] = from;
    }
    most = std::max(most, best[j]);
  }
  for (int64_t j = 0; j < L; j++) m.delta[j] = most > NEVER ? best[j] - most : best[j];
  std::vector<int32_t>& moved = room.found;
  moved.resize((size_t)L);
  for (int64_t j = 0; j < L; j++) moved[(size_t)j] = m.oldest == m.steps ? (int32_t)j : m.origin[came[j]];
  std::copy(moved.begin(), moved.end(), m.origin);
  int64_t count = agree(m, committed, 0, room), forced = most == NEVER ? count : 0;
  if (m.steps - m.oldest + 1 >= m.slots) {
    int64_t winner = 0;
    for (int64_t j = 1; j < L; j++)
      if (m.delta[j] > m.delta[winner]) winner = j;
    const int32_t label = m.origin[winner];
    for (int64_t j = 0; j < L; j++)
      if (m.origin[j] != label) m.delta[j] = NEVER;
    committed[count] = label;
    m.oldest++;
    look_back(m);
    forced++;
    count = agree(m, committed, count + 1, room);
  }
  return {count, forced};
}

}  // namespace stream
}  // namespace crfield
