// One sequence from columns to label objects: what the modules that read sequences share.
//
// The readers (records/, columns/) and the weights (chain/) are compiled modules of their own. They meet in one
// virtual call: a tagger of chain/ hands out a capsule with its `SequenceDecoder`, which whoever has the columns of a
// sequence asks for the best path. No array of Python's is made on the way; a short sequence keeps the GIL, since
// giving it back and taking it again costs more than the path.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "arrays.hpp"
#include "memory.hpp"

namespace crfield {

// Columns of the steps of one sequence, and of the edges between them where the model has some.
struct SequenceRows {
  int64_t steps = 0;
  const int64_t* indptr = nullptr;       // (steps + 1)
  const int32_t* indices = nullptr;
  const double* values = nullptr;        // null: all one
  const double* dense = nullptr;         // (steps, D)
  const int64_t* edge_indptr = nullptr;  // (steps), where there are edge columns
  const int32_t* edge_indices = nullptr;
};

class SequenceDecoder {
 public:
  struct Scratch {
    Buffer<double> score, table;
  };
  virtual ~SequenceDecoder() = default;
  virtual int labels() const = 0;
  virtual int64_t columns() const = 0;
  virtual int64_t n_dense() const = 0;
  virtual int64_t edge_columns() const = 0;
  // The best path of a sequence of one step or more and its score, -inf where there is none. Indices are checked.
  virtual double decode(const SequenceRows& rows, Scratch& scratch, int32_t* path) const = 0;
};

constexpr const char* DECODER_CAPSULE = "crfield.SequenceDecoder";
constexpr int64_t RELEASE_FROM = 100000;  // additions of the best path from which on other threads may run

// A chain's decoder with the labels that its codes stand for.
class SequenceLabels {
 public:
  // tagger: a Tagger of the module _chain, whose method `decoder` gives the capsule; labels: a tuple of L objects.
  SequenceLabels(nb::object tagger, nb::tuple labels) : tagger_(std::move(tagger)), labels_(std::move(labels)) {
    const nb::object capsule = tagger_.attr("decoder")();
    decoder_ = static_cast<const SequenceDecoder*>(PyCapsule_GetPointer(capsule.ptr(), DECODER_CAPSULE));
    if (!decoder_) throw nb::python_error();
    require((int64_t)labels_.size() == decoder_->labels(), "there must be one label for each code");
  }

  const SequenceDecoder& decoder() const { return *decoder_; }

  // The labels of the best path as a list, None where there is no path.
  nb::object along(const SequenceRows& rows, SequenceDecoder::Scratch& scratch, std::vector<int32_t>& path) const {
    path.resize((size_t)rows.steps);
    double total = 0;
    if (rows.steps) {
      const int64_t labels = decoder_->labels();
      if (rows.steps * labels * labels >= RELEASE_FROM) {
        nb::gil_scoped_release unlocked;
        total = decoder_->decode(rows, scratch, path.data());
      } else {
        total = decoder_->decode(rows, scratch, path.data());
      }
    }
    if (!(total > -std::numeric_limits<double>::infinity())) return nb::none();
    nb::object list = nb::steal(PyList_New((Py_ssize_t)rows.steps));
    if (!list.is_valid()) throw nb::python_error();
    for (int64_t t = 0; t < rows.steps; t++)
      if (PyList_SetItem(list.ptr(), (Py_ssize_t)t, Py_NewRef(PyTuple_GetItem(labels_.ptr(), path[(size_t)t]))))
        throw nb::python_error();
    return list;
  }

 private:
  nb::object tagger_;  // keeps the decoder alive
  nb::tuple labels_;
  const SequenceDecoder* decoder_ = nullptr;
};

// Working memory for calls that may overlap: each takes what lies idle, or makes some, and lays it back.
template <class Work>
class WorkShelf {
 public:
  template <class Make>
  std::unique_ptr<Work> take(Make make) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return make();
    std::unique_ptr<Work> work = std::move(idle_.back());
    idle_.pop_back();
    return work;
  }
  void put(std::unique_ptr<Work> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < 16) idle_.push_back(std::move(work));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Work>> idle_;
};

}  // namespace crfield
