// One sequence of token rows to its labels: alphabet, templates and best path in one call.
//
// The contract is in src/crfield/kernels/tagging.py. Only lists and tuples of rows of str are read here, whose reading
// runs no code of theirs; all that is not usual is answered by None, and the general way says why or does better.
#pragma once
#include <memory>
#include <vector>

#include "sequence_tagger.hpp"
#include "strings.hpp"
#include "templates.hpp"

namespace crfield {

class ColumnsTagger {
 public:
  // width: columns that the templates need; telling: (K,) which node columns say more than where a sequence ends, and
  // from how many steps without any of these on the general way has to look at them.
  ColumnsTagger(nb::object alphabet, nb::object node, nb::object edge, nb::object tagger, nb::tuple labels,
                int64_t width, Array1<const bool> telling, int64_t many)
      : holders_{std::move(alphabet), std::move(node), std::move(edge)},
        alphabet_(nb::cast<Interner&>(holders_[0])),
        node_(nb::cast<Templates&>(holders_[1])),
        edge_(holders_[2].is_none() ? nullptr : &nb::cast<Templates&>(holders_[2])),
        labels_(std::move(tagger), std::move(labels)),
        width_(width),
        telling_(telling.data(), telling.data() + telling.shape(0)),
        many_(many) {
    const SequenceDecoder& decoder = labels_.decoder();
    require(decoder.columns() == node_.size() && decoder.columns() == (int64_t)telling_.size() &&
                decoder.n_dense() == 0 && decoder.edge_columns() == (edge_ ? edge_->size() : 0) &&
                width_ >= node_.width() && (!edge_ || width_ >= edge_->width()) &&
                (int64_t)node_.radix() >= alphabet_.size() && (!edge_ || (int64_t)edge_->radix() >= alphabet_.size()),
            "alphabet, templates and weights do not fit together");
  }

  nb::object tag(nb::handle steps) {
    std::unique_ptr<Work> work = shelf_.take([] { return std::make_unique<Work>(); });
    nb::object found = answer(*work, steps);
    shelf_.put(std::move(work));
    return found;
  }

 private:
  struct Work {
    std::vector<int32_t> codes, path;
    SequenceDecoder::Scratch scratch;
  };

  // The codes of all rows; false where they are not rows of str, all as wide and wide enough.
  bool read(PyObject* steps, std::vector<int32_t>& codes, Py_ssize_t& width) const {
    if (!is_list(steps)) return false;
    codes.clear();
    width = 0;
    if (plain_rows(alphabet_, steps, false, width, codes)) return !width || width >= width_;
    for (Py_ssize_t t = 0; t < length(steps); t++) {
      const nb::object held = nb::borrow(item(steps, t));
      PyObject* row = held.ptr();
      if (!is_list(row)) return false;
      const Py_ssize_t fields = length(row);
      if (!t) width = fields;
      if (fields != width || fields < width_ || !fields) return false;
      for (Py_ssize_t c = 0; c < fields; c++) {
        PyObject* field = item(row, c);
        if (!is_text(field)) return false;
        codes.push_back(code_of(alphabet_, field, false));
      }
    }
    return true;
  }

  bool strange(const Csr& x, int64_t steps) const {
    if (steps < many_) return false;
    int64_t empty = 0;
    for (int64_t t = 0; t < steps; t++) {
      bool told = false;
      for (int64_t p = x.indptr[(size_t)t]; !told && p < x.indptr[(size_t)t + 1]; p++)
        told = (size_t)x.indices[(size_t)p] >= telling_.size() || telling_[(size_t)x.indices[(size_t)p]];
      empty += !told;
    }
    return empty >= many_ && 2 * empty > steps;
  }

  nb::object answer(Work& work, nb::handle steps) const {
    Py_ssize_t width = 0;
    if (!read(steps.ptr(), work.codes, width)) return nb::none();
    SequenceRows rows;
    rows.steps = width ? (int64_t)work.codes.size() / width : 0;
    const int64_t offsets[2] = {0, rows.steps};
    const Csr node = node_.apply(work.codes.data(), width, offsets, 1, false, false, 1);
    if (strange(node, rows.steps)) return nb::none();
    rows.indptr = node.indptr.data();
    rows.indices = node.indices.get();
    Csr edge;
    if (edge_) {
      edge = edge_->apply(work.codes.data(), width, offsets, 1, true, false, 1);
      rows.edge_indptr = edge.indptr.data();
      rows.edge_indices = edge.indices.get();
    }
    return labels_.along(rows, work.scratch, work.path);
  }

  const nb::object holders_[3];
  Interner& alphabet_;
  Templates& node_;
  Templates* edge_;
  const SequenceLabels labels_;
  const int64_t width_;
  const std::vector<bool> telling_;
  const int64_t many_;
  WorkShelf<Work> shelf_;
};

}  // namespace crfield
