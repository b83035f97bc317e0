#include "vectors/history.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "vectors/blocks.hpp"

namespace crfield {
namespace vectors {
namespace {

template <class T>
class PairHistory final : public History {
 public:
  PairHistory(size_t n, int memory, const double* diagonal, int n_jobs, bool trusted)
      : n_(n), memory_(memory), diagonal_(diagonal), n_jobs_(n_jobs), trusted_(trusted), s_(memory), y_(memory),
        s_y_((size_t)memory * memory), y_dy_((size_t)memory * memory) {}

  size_t size() const override { return order_.size(); }
  void clear() override { order_.clear(); }

  bool push(const Move& move) override {
    return accept(take_products(&move, nullptr));
  }

  double direction(const Course& course) override {
    return combine(course, take_products(nullptr, course.steepest));
  }

  std::pair<bool, double> advance(const Move& move, const Course& course) override {
    Products products = take_products(&move, course.steepest);
    const bool kept = accept(products);
    if (kept) {
      products.s_g.push_back(products.fresh[S_G]);
      products.y_dg.push_back(products.fresh[Y_DG]);
    }
    return {kept, combine(course, products)};
  }

  size_t width() const override { return sizeof(T); }

  void write(uint8_t* s, uint8_t* y, double* s_y, double* y_dy) const override {
    const size_t count = order_.size(), bytes = n_ * sizeof(T);
    for (size_t i = 0; i < count; i++) {
      if (bytes) {
        std::memcpy(s + i * bytes, s_[order_[i]].get(), bytes);
        std::memcpy(y + i * bytes, y_[order_[i]].get(), bytes);
      }
      for (size_t j = 0; j < count; j++) {
        const size_t from = (size_t)order_[i] * memory_ + order_[j];
        s_y[i * count + j] = i <= j ? s_y_[from] : 0.0;
        y_dy[i * count + j] = y_dy_[from];
      }
    }
  }

  void read(size_t count, const uint8_t* s, const uint8_t* y, const double* s_y, const double* y_dy) override {
    const size_t bytes = n_ * sizeof(T);
    order_.clear();
    for (size_t i = 0; i < count; i++) {
      if (!s_[i]) s_[i].reset(new T[n_]);
      if (!y_[i]) y_[i].reset(new T[n_]);
      if (bytes) {
        std::memcpy(s_[i].get(), s + i * bytes, bytes);
        std::memcpy(y_[i].get(), y + i * bytes, bytes);
      }
      for (size_t j = 0; j < count; j++) {
        at(s_y_, (int)i, (int)j) = s_y[i * count + j];
        at(y_dy_, (int)i, (int)j) = y_dy[i * count + j];
      }
    }
    for (size_t i = 0; i < count; i++) order_.push_back((int)i);
  }

 private:
  // What one pass over the pairs found, for the pairs in order_ (without the new one) and the new pair.
  struct Products {
    int slot;                             // where the new pair lies
    double fresh[NEW_SUMS];
    std::vector<double> s_y, y_dy;        // with the new y
    std::vector<double> s_g, y_dg;        // with the steepest direction
  };

  // Pointers to the kept pairs at entry `begin`, oldest first.
  struct View {
    std::vector<const T*> s, y;
    Pairs<T> pairs() const { return {s.data(), y.data(), (int)s.size()}; }
  };
  View view(size_t begin) const {
    View found;
    for (int slot : order_) {
      found.s.push_back(s_[slot].get() + begin);
      found.y.push_back(y_[slot].get() + begin);
    }
    return found;
  }

  // The slot of the next pair: a free one, or that of the oldest pair, which is dropped.
  int free_slot() {
    int slot = 0;
    if ((int)order_.size() == memory_) {
      slot = order_.front();
      order_.erase(order_.begin());
    } else {
      std::vector<bool> used(memory_, false);
      for (int taken : order_) used[taken] = true;
      while (used[slot]) slot++;
    }
    if (!s_[slot]) s_[slot].reset(new T[n_]);
    if (!y_[slot]) y_[slot].reset(new T[n_]);
    return slot;
  }

  Products take_products(const Move* move, const double* steepest) {
    Products found;
    found.slot = move ? free_slot() : -1;
    T* s = move ? s_[found.slot].get() : nullptr;
    T* y = move ? y_[found.slot].get() : nullptr;
    const size_t count = order_.size();
    const auto& pass = passes().history<T>();
    const std::vector<double> sums =
        over_blocks(n_, NEW_SUMS + PAIR_SUMS * count, n_jobs_, [&](size_t at, size_t m, double* part) {
          const View kept = view(at);
          NewPair<T> fresh{};
          if (move)
            fresh = {move->weights + at, move->old_weights + at, move->gradient + at, move->old_gradient + at,
                     s + at, y + at};
          pass.products(m, kept.pairs(), move ? &fresh : nullptr, steepest ? steepest + at : nullptr,
                        diagonal_ ? diagonal_ + at : nullptr, part);
        });
    std::copy(sums.begin(), sums.begin() + NEW_SUMS, found.fresh);
    for (size_t i = 0; i < count; i++) {
      const double* mine = sums.data() + NEW_SUMS + PAIR_SUMS * i;
      found.s_y.push_back(mine[SI_Y]);
      found.y_dy.push_back(mine[YI_DY]);
      found.s_g.push_back(mine[SI_G]);
      found.y_dg.push_back(mine[YI_DG]);
    }
    return found;
  }

  bool accept(const Products& found) {
    const double curvature = found.fresh[S_Y], square = found.fresh[Y_Y];
    const bool good = curvature > std::numeric_limits<double>::epsilon() * square && std::isfinite(curvature) &&
                      square > 0 && std::isfinite(found.fresh[Y_DY]);
    if (!good) return false;
    const int slot = found.slot;
    for (size_t i = 0; i < order_.size(); i++) {
      at(s_y_, order_[i], slot) = found.s_y[i];
      at(y_dy_, order_[i], slot) = at(y_dy_, slot, order_[i]) = found.y_dy[i];
    }
    at(s_y_, slot, slot) = curvature;
    at(y_dy_, slot, slot) = found.fresh[Y_DY];
    order_.push_back(slot);
    return true;
  }

  double& at(std::vector<double>& table, int i, int j) const { return table[(size_t)i * memory_ + j]; }

  // The two loops on coefficients: H g = gamma D (g + sum a_i y_i) + sum b_i s_i.
  double combine(const Course& course, const Products& found) {
    const int count = (int)order_.size();
    std::vector<double> a(count), b(count);
    double gamma = 1;
    for (int i = count - 1; i >= 0; i--) {
      double along = found.s_g[i];
      for (int j = i + 1; j < count; j++) along += a[j] * at(s_y_, order_[i], order_[j]);
      a[i] = -along / at(s_y_, order_[i], order_[i]);
    }
    if (count && !trusted_) {
      const int newest = order_.back();
      gamma = at(s_y_, newest, newest) / at(y_dy_, newest, newest);
    }
    for (int i = 0; i < count; i++) {
      double along = found.y_dg[i];
      for (int j = 0; j < count; j++) along += a[j] * at(y_dy_, order_[i], order_[j]);
      along *= gamma;
      for (int j = 0; j < i; j++) along += b[j] * at(s_y_, order_[j], order_[i]);
      b[i] = -a[i] - along / at(s_y_, order_[i], order_[i]);
    }
    const auto& pass = passes().history<T>();
    return over_blocks(n_, 1, n_jobs_, [&](size_t at, size_t m, double* part) {
      const View kept = view(at);
      pass.combine(m, kept.pairs(), a.data(), b.data(), gamma, course.steepest + at,
                   diagonal_ ? diagonal_ + at : nullptr, course.orthant ? course.orthant + at : nullptr,
                   course.penalised ? course.penalised + at : nullptr, course.out + at, part);
    })[0];
  }

  size_t n_;
  int memory_;
  const double* diagonal_;
  int n_jobs_;
  bool trusted_;
  std::vector<std::unique_ptr<T[]>> s_, y_;  // by slot; made when first used
  std::vector<double> s_y_, y_dy_;           // (memory, memory) by slot: s_i·y_j, i not newer than j; y_i·D y_j
  std::vector<int> order_;                   // slots in use, the oldest pair first
};

}  // namespace

std::unique_ptr<History> make_history(size_t n, int memory, bool single, const double* diagonal, int n_jobs,
                                      bool trusted) {
  if (single) return std::make_unique<PairHistory<float>>(n, memory, diagonal, n_jobs, trusted);
  return std::make_unique<PairHistory<double>>(n, memory, diagonal, n_jobs, trusted);
}

}  // namespace vectors
}  // namespace crfield
