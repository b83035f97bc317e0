// Operation by operation as the readable body, so that both give the same bits (no fused multiplications here).
#include "worlds/tag.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "worlds/draws.hpp"

namespace crfield {
namespace worlds {
namespace {

struct Robot {
  double px = 0.0, py = 0.0, vx = 0.0, vy = 0.0, tx = 0.0, ty = 0.0;
  int corner = 0;
};

class Game {
 public:
  Game(const TagRules& rules, int n)
      : rules_(rules),
        draws_(rules.seed),
        n_(n),
        near_(rules.diameter + rules.gap),
        dt_(1.0 / rules.rate),
        kick_(rules.top_acceleration * dt_),
        robots_((size_t)n),
        order_((size_t)n) {
    for (int r = 0; r < n; r++) {
      robots_[r].corner = r % 4;
      for (int k = 0; k < kTries; k++) {
        robots_[r].px = (2.0 * draws_.uniform() - 1.0) * (rules.half_x - rules.diameter);
        robots_[r].py = (2.0 * draws_.uniform() - 1.0) * (rules.half_y - rules.diameter);
        if (nearest(r, r).second >= near_) break;
      }
    }
    seeker_ = (int)(draws_.uniform() * n);
    for (int r = 0; r < n; r++) aim(r);
  }

  int seeker() const { return seeker_; }
  int64_t tags() const { return tags_; }
  const Robot& robot(int r) const { return robots_[r]; }

  void step() {
    if (heir_ >= 0) {
      hand_over(heir_);
      heir_ = -1;
    }
    for (int k = 0; k < n_; k++) order_[k] = k;
    for (int k = n_ - 1; k > 0; k--) std::swap(order_[k], order_[(int)(draws_.uniform() * (k + 1))]);
    const bool halted = left_ > 0;
    if (halted) left_--;
    for (int k = 0; k < n_; k++) move(order_[k], halted);
    if (rules_.contact) {
      const int still = halted ? seeker_ : -1;
      for (int i = 0; i < n_; i++)
        for (int j = i + 1; j < n_; j++) touch(i, j, still);
    }
    const auto [prey, d] = nearest(seeker_, n_);
    if (d >= near_) return;
    if (halted) {
      if (left_ == 0 && patience_ > 0) left_ = 1, patience_--;
      return;
    }
    int first = 0;
    while (order_[first] != seeker_ && order_[first] != prey) first++;
    if (order_[first] == seeker_)
      hand_over(prey);
    else
      heir_ = prey;
  }

 private:
  std::pair<int, double> nearest(int r, int among) const {
    double best = 1e300;
    int who = -1;
    for (int k = 0; k < among; k++) {
      if (k == r) continue;
      const double dx = robots_[k].px - robots_[r].px, dy = robots_[k].py - robots_[r].py;
      const double d = dx * dx + dy * dy;
      if (d < best) best = d, who = k;
    }
    return {who, std::sqrt(best)};
  }

  void aim(int r) {
    Robot& me = robots_[r];
    const double sx = robots_[seeker_].px, sy = robots_[seeker_].py;
    if (!rules_.hourglass) {
      for (int k = 0; k < kTries; k++) {
        me.tx = (2.0 * draws_.uniform() - 1.0) * (rules_.half_x - 0.5 * rules_.diameter);
        me.ty = (2.0 * draws_.uniform() - 1.0) * (rules_.half_y - 0.5 * rules_.diameter);
        const double dx = me.tx - sx, dy = me.ty - sy;
        if (dx * dx + dy * dy >= rules_.away * rules_.away) break;
      }
      return;
    }
    me.corner = (me.corner + 1) % 4;
    const double cx = me.corner % 2 ? 1.0 : -1.0, cy = me.corner >= 2 ? 1.0 : -1.0;
    const double inner = 0.75 * rules_.diameter;
    const double far_x = rules_.half_x - 1.5 * rules_.diameter, far_y = rules_.half_y - 1.5 * rules_.diameter;
    me.tx = cx * far_x, me.ty = cy * far_y;
    if (!(sx * cx > 0.0 && sy * cy > 0.0)) return;
    double best = -1.0;
    for (double ax : {inner, far_x})
      for (double ay : {inner, far_y}) {
        const double dx = cx * ax - sx, dy = cy * ay - sy;
        const double d = dx * dx + dy * dy;
        if (d > best) best = d, me.tx = cx * ax, me.ty = cy * ay;
      }
  }

  void hand_over(int heir) {
    const int old = seeker_;
    seeker_ = heir;
    left_ = rules_.pause_steps, patience_ = (int64_t)(2.0 * rules_.rate);
    tags_++;
    aim(old);
  }

  void move(int r, bool halted) {
    Robot& me = robots_[r];
    double wx = 0.0, wy = 0.0;
    if (!(halted && r == seeker_)) {
      if (r == seeker_) {
        const Robot& prey = robots_[nearest(r, n_).first];
        me.tx = prey.px, me.ty = prey.py;
      }
      double dx = me.tx - me.px, dy = me.ty - me.py;
      double d = std::sqrt(dx * dx + dy * dy);
      if (r != seeker_ && d < rules_.reach) {
        aim(r);
        dx = me.tx - me.px, dy = me.ty - me.py;
        d = std::sqrt(dx * dx + dy * dy);
      }
      double speed = rules_.top_speed;
      if (r != seeker_) {
        const double brake = std::sqrt(1.6 * rules_.top_acceleration * d);
        if (brake < speed) speed = brake;
      }
      if (d > 1e-9) wx = dx / d * speed, wy = dy / d * speed;
    }
    double ax = wx - me.vx, ay = wy - me.vy;
    const double a = std::sqrt(ax * ax + ay * ay);
    if (a > kick_) ax = ax * (kick_ / a), ay = ay * (kick_ / a);
    me.vx += ax, me.vy += ay;
    me.px += me.vx * dt_, me.py += me.vy * dt_;
    stay_inside(me);
  }

  void stay_inside(Robot& me) const {
    if (me.px > rules_.half_x || me.px < -rules_.half_x)
      me.px = me.px > 0.0 ? rules_.half_x : -rules_.half_x, me.vx = 0.0;
    if (me.py > rules_.half_y || me.py < -rules_.half_y)
      me.py = me.py > 0.0 ? rules_.half_y : -rules_.half_y, me.vy = 0.0;
  }

  void touch(int i, int j, int still) {
    Robot &a = robots_[i], &b = robots_[j];
    const double dx = b.px - a.px, dy = b.py - a.py;
    const double d = std::sqrt(dx * dx + dy * dy);
    if (d >= rules_.diameter) return;
    const double nx = d > 1e-9 ? dx / d : 1.0, ny = d > 1e-9 ? dy / d : 0.0;
    const double share_a = i == still ? 0.0 : j == still ? 1.0 : 0.5, share_b = 1.0 - share_a;
    const double over = rules_.diameter - d;
    const double mx = (nx - 0.1 * ny) * over, my = (ny + 0.1 * nx) * over;
    a.px -= mx * share_a, a.py -= my * share_a;
    b.px += mx * share_b, b.py += my * share_b;
    const double closing = (b.vx - a.vx) * nx + (b.vy - a.vy) * ny;
    if (closing < 0.0) {
      const double ux = (nx - 0.5 * ny) * closing, uy = (ny + 0.5 * nx) * closing;
      a.vx += ux * share_a, a.vy += uy * share_a;
      b.vx -= ux * share_b, b.vy -= uy * share_b;
    }
    for (Robot* r : {&a, &b}) {
      const double speed = std::sqrt(r->vx * r->vx + r->vy * r->vy);
      if (speed > rules_.top_speed) r->vx *= rules_.top_speed / speed, r->vy *= rules_.top_speed / speed;
      stay_inside(*r);
    }
    if (i == still || j == still) give_up(i == still ? j : i, still);
  }

  void give_up(int r, int still) {
    const double dx = robots_[r].tx - robots_[still].px, dy = robots_[r].ty - robots_[still].py;
    if (dx * dx + dy * dy < near_ * near_) aim(r);
  }

  const TagRules rules_;
  Draws draws_;
  const int n_;
  const double near_, dt_, kick_;
  std::vector<Robot> robots_;
  std::vector<int> order_;
  int seeker_ = 0, heir_ = -1;
  int64_t left_ = 0, patience_ = 0, tags_ = 0;
};

}  // namespace

int64_t tag_steps(const TagRules& rules, int64_t steps, int robots, double* positions, int64_t* labels) {
  Game game(rules, robots);
  for (int64_t t = 0; t < steps; t++) {
    game.step();
    labels[t] = game.seeker();
    for (int r = 0; r < robots; r++) {
      *positions++ = game.robot(r).px;
      *positions++ = game.robot(r).py;
    }
  }
  return game.tags();
}

}  // namespace worlds
}  // namespace crfield
