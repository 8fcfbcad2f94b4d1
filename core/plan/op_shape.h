// SPDX-License-Identifier: Apache-2.0
// The shape of an operation: what its cost depends on besides the size of the step.
#pragma once

#include <cstdint>
#include <string>

#include "core/plan/graph.h"

namespace switchyard {

// Equal for operations of one shape: the same id, attributes, widths and encodings. With `dtypes`, of the same types of
// activations, too, which casts may change.
std::string shape_key(const Graph& graph, const GraphOp& op, bool dtypes);

// The same with types, as bytes that mean nothing outside of this process: quick to make and to compare.
std::string shape_bytes(const Graph& graph, const GraphOp& op);

// The same for files: a number that stays as it is from one build to the next. Activations' types do not count.
uint64_t shape_hash(const Graph& graph, const GraphOp& op);

// For people: "2048 -> 8192+4096, i4/32".
std::string shape_text(const Graph& graph, const GraphOp& op);

// Rows that an operation has in a step of this bucket: those of its outputs; without outputs, of its inputs.
uint64_t op_rows(const Graph& graph, const GraphOp& op, const swy_bucket& bucket);

}  // namespace switchyard
