// SPDX-License-Identifier: Apache-2.0
// C++ SDK: an operation's operands by their names in the op table. A name that no operation has does not compile.
#pragma once

#include <string_view>

#include "switchyard/op_table.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

class OperandName {
 public:
  consteval OperandName(const char* name) : text_(name) {  // NOLINT(google-explicit-constructor): call.input("x")
    for (const swy_op_spec& op : swy_op_table) {
      for (uint32_t i = 0; i < op.operand_count; ++i) {
        if (std::string_view(op.operands[i].name) == name) return;
      }
    }
    throw "no operation has an operand of this name";
  }
  const char* text() const { return text_; }

 private:
  const char* text_;
};

// Places of operands as constants, for kernels: Operands<SWY_OP_MOE, SWY_OP_MOE_ADD>::weight("router") is 0. It is
// their place in every revision of these operations. Does not compile where one of them has no operand of this name
// in this list, or where the place differs or depends on the attributes.
template <swy_op_id... kOps>
class Operands {
 public:
  static consteval uint32_t input(const char* name) { return common(SWY_REF_INPUT, name); }
  static consteval uint32_t weight(const char* name) { return common(SWY_REF_WEIGHT, name); }
  static consteval uint32_t state(const char* name) { return common(SWY_REF_STATE, name); }
  static consteval uint32_t output(const char* name) { return common(SWY_REF_OUTPUT, name); }

 private:
  static constexpr uint32_t common(uint32_t list, const char* name) {
    uint32_t place = UINT32_MAX;
    for (const swy_op_id id : {kOps...}) {
      const uint32_t here = place_in(id, list, name);
      if (place != UINT32_MAX && place != here) throw "its place differs between the operations";
      place = here;
    }
    return place;
  }
  static constexpr uint32_t place_in(swy_op_id id, uint32_t list, const char* name) {
    uint32_t place = UINT32_MAX;
    for (const swy_op_spec& op : swy_op_table) {
      for (uint32_t i = 0; op.id == id && i < op.operand_count; ++i) {
        if (op.operands[i].list != list || std::string_view(op.operands[i].name) != name) continue;
        const uint32_t here = before(op, op.operands[i]);
        if (place != UINT32_MAX && place != here) throw "its place differs between revisions";
        place = here;
      }
    }
    if (place == UINT32_MAX) throw "the operation has no operand of this name in this list";
    return place;
  }
  static constexpr uint32_t before(const swy_op_spec& op, const swy_operand_spec& operand) {
    uint32_t count = 0;
    for (const swy_operand_spec* o = op.operands; o != &operand; ++o) {
      if (o->list != operand.list) continue;
      if (o->most > 1 || (o->when != SWY_ALWAYS && o->when != operand.when)) throw "its place depends on others";
      ++count;
    }
    return count;
  }
};

// The place of an operand in its list, found at run time: in the revision of this operation, with its attributes.
// UINT32_MAX where the operand is absent, and for operations that have a name.
inline uint32_t at(const swy_op& op, OperandName name) {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE ? UINT32_MAX : SWY_REF_INDEX(ref);
}

inline bool has(const swy_op& op, OperandName name) { return swy_operand(&op, name.text()) != SWY_REF_NONE; }

// The description of an operand that is there.
inline const swy_tensor& tensor(const swy_op& op, OperandName name) { return *swy_operand_tensor(&op, name.text()); }

}  // namespace swy

#pragma GCC visibility pop
