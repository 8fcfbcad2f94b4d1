// SPDX-License-Identifier: Apache-2.0
// C++ SDK: a kernel of a backend that computes in host memory.
#pragma once

#include <cstdint>
#include <utility>

#include "switchyard/plugin.h"
#include "switchyard/sdk/operands.hpp"
#include "switchyard/step.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// The size of the teams that the device's lists run on, as its host's executor said; workspaces are sized for it. Set
// on every thread that a function of a kernel is called on: devices of one process may have different hosts.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local uint32_t team_width = 1;

// One operation of a running list, as one member of the team sees it. Every member runs the kernel; `split` returns
// each member's share, `barrier` waits for all. After the kernel the list waits for all members.
struct Call {
  const swy_op* op;
  const swy_step* step;
  int32_t* tokens;        // the device's token buffer
  uint32_t bucket_flags;  // SWY_BUCKET_* that the list was recorded for
  const swy_team* team;
  void* const* inputs;
  void* const* weights;
  void* const* states;
  void* const* outputs;
  void* workspace;

  template <class Attrs>
  const Attrs& attrs() const {
    return *static_cast<const Attrs*>(op->attrs);
  }
  template <class T = float>
  const T* input(uint32_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T = float>
  T* output(uint32_t i) const {
    return static_cast<T*>(outputs[i]);
  }
  // The same by name; nullptr where the operation has no such operand in that list, as operations with a name of their
  // own have none. Each call searches the table: loops take the pointer before, or a place from Operands.
  template <class T = float>
  const T* input(OperandName name) const {
    return static_cast<const T*>(operand(SWY_REF_INPUT, name, inputs));
  }
  template <class T = float>
  T* output(OperandName name) const {
    return static_cast<T*>(operand(SWY_REF_OUTPUT, name, outputs));
  }
  const void* weight(OperandName name) const { return operand(SWY_REF_WEIGHT, name, weights); }
  template <class T = float>
  T* state(OperandName name) const {
    return static_cast<T*>(operand(SWY_REF_STATE, name, states));
  }
  void* operand(uint32_t list, OperandName name, void* const* memory) const {
    const swy_ref ref = swy_operand(op, name.text());
    return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != list ? nullptr : memory[SWY_REF_INDEX(ref)];
  }
  template <class T = char>
  T* work(uint64_t offset_bytes) const {
    return reinterpret_cast<T*>(static_cast<char*>(workspace) + offset_bytes);
  }

  // Rows of this step in the domain of an activation.
  uint32_t rows(const swy_tensor& activation) const {
    return activation.rows == SWY_ROWS_LOGITS   ? step->logit_rows
           : activation.rows == SWY_ROWS_SAMPLE ? step->sample_rows
                                                : step->rows;
  }
  uint32_t members() const { return team->size; }
  uint32_t rank() const { return team->rank; }
  // This member's part [first, last) of n items.
  std::pair<uint64_t, uint64_t> split(uint64_t n) const {
    return {n * rank() / members(), n * (rank() + 1) / members()};
  }
  void barrier() const { team->barrier(team); }
};

// `name`, `op`, `cost` and `run` are mandatory; without them the plugin refuses to be loaded.
struct HostKernel {
  const char* name;
  uint32_t op;
  uint32_t input_dtypes = SWY_DTYPE_BIT(SWY_F32);
  uint32_t output_dtypes = SWY_DTYPE_BIT(SWY_F32);
  uint32_t weight_dtypes = 0;  // as in swy_kernel: all up to SWY_I4A
  uint32_t flags = SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT;
  double (*cost)(const swy_op& op, const swy_bucket& bucket) = nullptr;         // microseconds
  void (*run)(const Call& call) = nullptr;                                      // must not throw or allocate
  uint64_t (*workspace)(const swy_op& op, const swy_bucket& bucket) = nullptr;  // bytes
  swy_status (*supports)(const swy_op& op, const swy_bucket& bucket, swy_error* error) = nullptr;
  // The packed layout that it reads weight i in; nullptr: canonical.
  uint32_t (*layout)(const swy_op& op, uint32_t weight) = nullptr;
  // Whether this much work is too little for a team. The member that finishes the previous operation last then runs
  // the operation alone, without a barrier of its own.
  bool (*serial)(const swy_op& op, const swy_bucket& bucket) = nullptr;
  swy_dtype activations = SWY_F32;         // what products round activations to
  const char* op_name = nullptr;           // `op` is SWY_OP_NAMED: which
  const char* const* encodings = nullptr;  // as in swy_kernel
  uint32_t op_revision = 1;  // the newest of the operation's revisions that it implements, with all before
};

}  // namespace swy

#pragma GCC visibility pop
