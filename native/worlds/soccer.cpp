// Operation by operation as the readable body, so that both give the same bits (no fused multiplications here).
#include "worlds/soccer.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "worlds/draws.hpp"

namespace crfield {
namespace worlds {
namespace {

enum Role { kKeeper, kCarrier, kChaser, kReceiver, kSupporter, kMarker };
constexpr int kLoose = 2;

struct Player {
  double px = 0.0, py = 0.0, vx = 0.0, vy = 0.0, tx = 0.0, ty = 0.0;
  int role = kMarker;
};

struct Wish {
  double x, y, speed;
};

class Match {
 public:
  Match(const SoccerRules& rules, int n)
      : rules_(rules),
        draws_(rules.seed),
        n_(n),
        all_(2 * n),
        dt_(1.0 / rules.rate),
        gain_(rules.top_acceleration * dt_),
        hold_(std::max<int64_t>(1, (int64_t)(rules.rate / 4.0))),
        cooling_((int64_t)(0.4 * rules.rate)),
        players_((size_t)all_) {
    for (int r = 0; r < all_; r++) {
      Player& me = players_[r];
      for (int k = 0; k < kTries; k++) {
        me.px = -side(r) * draws_.uniform() * (rules.half_x - rules.diameter);
        me.py = (2.0 * draws_.uniform() - 1.0) * (rules.half_y - rules.diameter);
        bool free = true;
        for (int j = 0; j < r && free; j++) free = apart(r, j) >= rules.diameter;
        if (free) break;
      }
      support(r);
    }
  }

  void step() {
    assign();
    for (int r = 0; r < all_; r++) move(r);
    for (int i = 0; i < all_; i++)
      for (int j = i + 1; j < all_; j++) touch(i, j);
    if (carrier_ >= 0)
      carry();
    else
      roll();
    if (possession_ == kLoose) receiver_ = -1;
    if (cool_ > 0) cool_--;
    clock_++;
  }

  void write(int64_t t, const SoccerTable& table) const {
    double* place = table.positions + t * (all_ + 1) * 2;
    for (int r = 0; r < all_; r++) {
      *place++ = players_[r].px;
      *place++ = players_[r].py;
      table.roles[t * all_ + r] = players_[r].role;
    }
    *place++ = bx_;
    *place = by_;
    table.possession[t] = possession_, table.carrier[t] = carrier_;
  }

  int64_t goals(int team) const { return goals_[team]; }

 private:
  double side(int r) const { return r < n_ ? 1.0 : -1.0; }

  double apart(int i, int j) const {
    const double dx = players_[j].px - players_[i].px, dy = players_[j].py - players_[i].py;
    return std::sqrt(dx * dx + dy * dy);
  }

  double from_ball(int r) const {
    const double dx = players_[r].px - bx_, dy = players_[r].py - by_;
    return std::sqrt(dx * dx + dy * dy);
  }

  void support(int r) {
    players_[r].tx = side(r) * draws_.uniform() * 0.9 * rules_.half_x;
    players_[r].ty = (2.0 * draws_.uniform() - 1.0) * 0.9 * rules_.half_y;
  }

  void assign() {
    for (int team = 0; team < 2; team++) {
      const int first = team * n_;
      const bool owns = possession_ == team;
      if (clock_ % hold_ == 0) {
        chaser_[team] = first + 1;
        double best = 1e300;
        for (int r = first + 1; r < first + n_; r++) {
          const double d = from_ball(r);
          if (d < best) chaser_[team] = r, best = d;
        }
      }
      for (int r = first; r < first + n_; r++) {
        int& role = players_[r].role;
        if (r == carrier_)
          role = kCarrier;
        else if (r == receiver_ && owns)
          role = kReceiver;
        else if (r == first)
          role = kKeeper;
        else if (r == chaser_[team] && !owns)
          role = kChaser;
        else if (owns)
          role = kSupporter;
        else if (possession_ != kLoose)
          role = kMarker;
        else if (role != kSupporter && role != kMarker)
          role = bx_ * side(r) > 0.0 ? kSupporter : kMarker;
      }
    }
  }

  Wish wish(int r) {
    const Player& me = players_[r];
    const double ahead = side(r);
    switch (me.role) {
      case kKeeper: {
        double y = by_ < rules_.half_goal ? by_ : rules_.half_goal;
        y = y > -rules_.half_goal ? y : -rules_.half_goal;
        return {-ahead * (rules_.half_x - rules_.diameter), y, rules_.top_speed};
      }
      case kCarrier:
        return {ahead * rules_.half_x, 0.0, 0.7 * rules_.top_speed};
      case kChaser:
      case kReceiver:
        return {bx_ + 0.3 * bvx_, by_ + 0.3 * bvy_, rules_.top_speed};
      case kSupporter: {
        const double dx = me.tx - me.px, dy = me.ty - me.py;
        if (dx * dx + dy * dy < 150.0 * 150.0) support(r);
        return {me.tx, me.ty, 0.8 * rules_.top_speed};
      }
      default: {
        const Player& other = players_[r < n_ ? r + n_ : r - n_];
        const double x = other.px + 0.3 * other.vx, y = other.py + 0.3 * other.vy;
        const double dx = -ahead * rules_.half_x - x, dy = -y;
        const double d = std::sqrt(dx * dx + dy * dy);
        const double back = d > 1e-9 ? 2.0 * rules_.diameter / d : 0.0;
        return {x + back * dx, y + back * dy, rules_.top_speed};
      }
    }
  }

  void move(int r) {
    const Wish want = wish(r);
    Player& me = players_[r];
    const double dx = want.x - me.px, dy = want.y - me.py;
    const double d = std::sqrt(dx * dx + dy * dy);
    const double brake = std::sqrt(1.6 * rules_.top_acceleration * d);
    const double speed = brake < want.speed ? brake : want.speed;
    double wx = 0.0, wy = 0.0;
    if (d > 1e-9) wx = dx / d * speed, wy = dy / d * speed;
    double ax = wx - me.vx, ay = wy - me.vy;
    const double a = std::sqrt(ax * ax + ay * ay);
    if (a > gain_) ax = ax * (gain_ / a), ay = ay * (gain_ / a);
    me.vx += ax, me.vy += ay;
    me.px += me.vx * dt_, me.py += me.vy * dt_;
    stay_inside(me);
  }

  void stay_inside(Player& me) const {
    if (me.px > rules_.half_x || me.px < -rules_.half_x)
      me.px = me.px > 0.0 ? rules_.half_x : -rules_.half_x, me.vx = 0.0;
    if (me.py > rules_.half_y || me.py < -rules_.half_y)
      me.py = me.py > 0.0 ? rules_.half_y : -rules_.half_y, me.vy = 0.0;
  }

  void touch(int i, int j) {
    const double d = apart(i, j);
    if (d >= rules_.diameter) return;
    Player &a = players_[i], &b = players_[j];
    double nx = 1.0, ny = 0.0;
    if (d > 1e-9) nx = (b.px - a.px) / d, ny = (b.py - a.py) / d;
    const double over = 0.5 * (rules_.diameter - d);
    const double mx = (nx - 0.1 * ny) * over, my = (ny + 0.1 * nx) * over;
    a.px -= mx, a.py -= my;
    b.px += mx, b.py += my;
    stay_inside(a);
    stay_inside(b);
  }

  void kick(double dx, double dy, double speed) {
    const double d = std::sqrt(dx * dx + dy * dy);
    if (d > 1e-9) bvx_ = dx / d * speed, bvy_ = dy / d * speed;
    kicker_ = carrier_, cool_ = cooling_, carrier_ = -1;
  }

  double nearest_opponent(int r, double x, double y) const {
    const int first = r < n_ ? n_ : 0;
    double best = 1e300;
    for (int k = first; k < first + n_; k++) {
      const double dx = players_[k].px - x, dy = players_[k].py - y;
      const double d = dx * dx + dy * dy;
      if (d < best) best = d;
    }
    return std::sqrt(best);
  }

  void carry() {
    const int r = carrier_;
    const Player& me = players_[r];
    const double ahead = side(r);
    const double hx = ahead * rules_.half_x - me.px, hy = -me.py;
    const double d = std::sqrt(hx * hx + hy * hy);
    const double front = 0.5 * rules_.diameter + 20.0;
    bx_ = me.px + (d > 1e-9 ? hx / d * front : 0.0);
    by_ = me.py + (d > 1e-9 ? hy / d * front : 0.0);
    bx_ = bx_ > rules_.half_x ? rules_.half_x : bx_ < -rules_.half_x ? -rules_.half_x : bx_;
    bvx_ = me.vx, bvy_ = me.vy;
    const bool keeper = r == 0 || r == n_;
    const bool pressed = !keeper && nearest_opponent(r, bx_, by_) < 0.5 * rules_.diameter + 60.0;
    if (draws_.uniform() < 0.4 * dt_ && pressed) {
      double dx = 0.0, dy = 0.0;
      for (int k = 0; k < kTries; k++) {
        dx = 2.0 * draws_.uniform() - 1.0;
        dy = 2.0 * draws_.uniform() - 1.0;
        const double square = dx * dx + dy * dy;
        if (0.01 < square && square < 1.0) break;
      }
      kick(dx, dy, 0.3 * rules_.kick_speed);
      possession_ = kLoose;
      return;
    }
    if (bx_ * ahead > 0.33 * rules_.half_x && draws_.uniform() < 1.5 * dt_) {
      const double y = (2.0 * draws_.uniform() - 1.0) * 1.2 * rules_.half_goal;
      kick(ahead * rules_.half_x - bx_, y - by_, rules_.kick_speed);
      possession_ = kLoose;
      return;
    }
    const bool hurried = keeper || nearest_opponent(r, me.px, me.py) < 600.0;
    if (draws_.uniform() < (hurried ? 1.2 : 0.4) * dt_) give(r);
  }

  void give(int r) {
    const int first = r < n_ ? 0 : n_;
    double best = -1.0;
    int mate = -1;
    for (int k = first + 1; k < first + n_; k++) {
      if (k == r) continue;
      double free = nearest_opponent(k, players_[k].px, players_[k].py);
      free = (free < 1000.0 ? free : 1000.0) + 500.0 * draws_.uniform();
      if (free > best) best = free, mate = k;
    }
    if (mate < 0) return;
    const double dx = players_[mate].px - bx_, dy = players_[mate].py - by_;
    const double error = 0.16 * draws_.uniform() - 0.08;
    const double d = std::sqrt(dx * dx + dy * dy);
    double speed = std::sqrt(800.0 * 800.0 + 2.0 * rules_.friction * d);
    if (!(speed < rules_.kick_speed)) speed = rules_.kick_speed;
    kick(dx - error * dy, dy + error * dx, speed);
    receiver_ = mate;
  }

  void roll() {
    const double speed = std::sqrt(bvx_ * bvx_ + bvy_ * bvy_);
    const double slower = speed - rules_.friction * dt_;
    const double factor = slower > 0.0 ? slower / speed : 0.0;
    bvx_ *= factor, bvy_ *= factor;
    bx_ += bvx_ * dt_, by_ += bvy_ * dt_;
    if (by_ > rules_.half_y || by_ < -rules_.half_y)
      by_ = by_ > 0.0 ? rules_.half_y : -rules_.half_y, bvy_ = -0.6 * bvy_;
    if (bx_ > rules_.half_x || bx_ < -rules_.half_x) {
      if (-rules_.half_goal < by_ && by_ < rules_.half_goal) {
        goals_[bx_ > 0.0 ? 0 : 1]++;
        bx_ = 0.0, by_ = (draws_.uniform() - 0.5) * rules_.half_y;
        bvx_ = bvy_ = 0.0;
        possession_ = kLoose, receiver_ = -1;
        return;
      }
      bx_ = bx_ > 0.0 ? rules_.half_x : -rules_.half_x, bvx_ = -0.6 * bvx_;
    }
    if (slower < 50.0) possession_ = kLoose, receiver_ = -1;
    double best = 0.5 * rules_.diameter + 40.0;
    int who = -1;
    for (int r = 0; r < all_; r++) {
      if (2 * cool_ > cooling_ || (r == kicker_ && cool_ != 0)) continue;
      const double d = from_ball(r);
      if (d < best) best = d, who = r;
    }
    if (who >= 0) {
      carrier_ = who, receiver_ = -1, kicker_ = -1;
      possession_ = who < n_ ? 0 : 1;
    }
  }

  const SoccerRules rules_;
  Draws draws_;
  const int n_, all_;
  const double dt_, gain_;
  const int64_t hold_, cooling_;
  std::vector<Player> players_;
  double bx_ = 0.0, by_ = 0.0, bvx_ = 0.0, bvy_ = 0.0;
  int carrier_ = -1, receiver_ = -1, kicker_ = -1, possession_ = kLoose;
  int chaser_[2] = {0, 0};
  int64_t goals_[2] = {0, 0}, cool_ = 0, clock_ = 0;
};

}  // namespace

void soccer_steps(const SoccerRules& rules, int64_t steps, int players, const SoccerTable& table) {
  Match match(rules, players);
  for (int64_t t = 0; t < steps; t++) {
    match.step();
    match.write(t, table);
  }
  for (int team = 0; team < 2; team++) table.goals[team] = match.goals(team);
}

}  // namespace worlds
}  // namespace crfield
