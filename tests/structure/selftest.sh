#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that check.sh accepts a tree that keeps the rule, and refuses each way of breaking it.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0
licence="// SPDX-License-Identifier: Apache-2.0"
unlicensed="// no licence"  # expect adds no licence line to a text that begins with this

# expect CODE FILE TEXT: check.sh, on a tree that holds TEXT in FILE and one kernel of reference, ends with CODE.
expect() {
  local want=$1 file=$2 text=$3 got=0 other
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/backends/reference" "$tree/$(dirname "$file")"
  printf '%s\n' "$licence" '{.op = SWY_OP_MOE},' > "$tree/backends/reference/moe.cpp"
  for other in core/base/status.h core/engine/engine.h backends/cpu/simd.h backends/vulkan/common.glsl; do
    mkdir -p "$tree/${other%/*}" && echo "$licence" > "$tree/$other"
  done
  [[ $file == *CMakeLists.txt ]] && text="# SPDX-License-Identifier: Apache-2.0"$'\n'$text
  [[ $file == *CMakeLists.txt || $text == "$unlicensed"* ]] || text="$licence"$'\n'$text
  printf '%s\n' "$text" > "$tree/$file"
  "$check" "$tree" > "$tree/said" 2>&1 || got=$?
  if [[ $got != "$want" ]]; then
    echo "expected exit code $want, got $got, for $file holding: $text"
    cat "$tree/said"
    failures=$((failures + 1))
  fi
}

expect 0 backends/cpu/linear.cpp '#include "switchyard/plugin.h"'
expect 0 backends/cpu/linear.cpp '#include "backends/cpu/simd.h"'
expect 0 backends/cpu/linear.cpp '#include <sys/mman.h>'
expect 1 backends/cpu/linear.cpp '#include "core/base/status.h"'
expect 1 backends/cpu/linear.cpp '# include <core/base/status.h>'
expect 1 backends/cpu/linear.cpp '#include "backends/reference/linear.h"'
expect 1 backends/cpu/linear.cpp '#include "../reference/linear.h"'
expect 1 backends/cpu/CMakeLists.txt 'target_link_libraries(switchyard_backend_cpu PRIVATE switchyard::core)'
expect 1 plugins_api/include/switchyard/plugin.h '#include "core/base/status.h"'
expect 0 core/engine/engine.cpp '#include "core/plan/plan.h"'
expect 1 core/plan/plan.cpp '#include "core/engine/engine.h"'
expect 1 core/plugin/host.cpp '#include "core/plan/plan.h"'
expect 1 core/engine/engine.cpp '#include "core/text/tokenizer.h"'
expect 1 core/base/os.cpp '#include "cli/main.h"'
expect 0 cli/run.cpp '#include "core/engine/engine.h"'
expect 0 tests/ops/linear_test.cpp '#include "backends/reference/linear.h"'
expect 0 backends/cpu/moe.cpp '{.op = SWY_OP_MOE},'
expect 0 backends/cpu/moe_avx512.cpp '{.op = SWY_OP_MOE},'
expect 1 backends/cpu/experts.cpp '{.op = SWY_OP_MOE},'
expect 1 backends/cuda/experts.cu '    {"moe.tiles", SWY_OP_MOE, kAlways, SWY_BF16, supports, cost, workspace, record}};'
expect 1 backends/cuda/moe/experts.cu '    {"moe.tiles", SWY_OP_MOE, kAlways, SWY_BF16, supports, cost, workspace, record}};'
expect 0 backends/cuda/moe/moe_tiles.cu '    {"moe.tiles", SWY_OP_MOE, kAlways, SWY_BF16, supports, cost, workspace, record}};'
expect 1 backends/cuda/moe/moe_tiles.cu '#include "core/base/status.h"'
expect 1 backends/vulkan/experts.cpp 'kernel("moe.tiles", SWY_OP_MOE),'
expect 0 backends/vulkan/moe_tiles.cpp 'kernel("moe.tiles", SWY_OP_MOE),'
expect 1 backends/new/plugin.cpp 'kernel(moe_tiles, EXPERTS)'  # names its operations in an unknown way
expect 1 backends/cpu/linear.cpp '#include "status.h"'
expect 1 backends/cpu/linear.cpp '#include <status.h>'
expect 1 core/plan/plan.cpp '#include "engine.h"'
expect 0 backends/cpu/linear.cpp '#include "simd.h"'
expect 0 backends/cpu/linear.cpp '#include <cpuid.h>'
expect 0 backends/vulkan/linear.comp '#include "common.glsl"'
expect 1 backends/vulkan/linear.comp '#include "../../core/base/status.h"'
expect 1 backends/vulkan/linear.glsl '#include "core/base/status.h"'
expect 1 backends/vulkan/linear.comp '#include "status.h"'
expect 1 backends/cpu/CMakeLists.txt 'target_link_libraries(switchyard_backend_cpu PRIVATE switchyard::engine)'
expect 1 backends/cpu/CMakeLists.txt 'target_link_libraries(switchyard_backend_cpu PRIVATE switchyard_engine)'
expect 1 backends/cpu/CMakeLists.txt 'target_link_options(switchyard_backend_cpu PRIVATE -lswitchyard)'
expect 1 backends/cpu/CMakeLists.txt 'target_sources(switchyard_backend_cpu PRIVATE ${PROJECT_SOURCE_DIR}/core/base/os.cpp)'
expect 0 backends/cpu/CMakeLists.txt 'target_link_libraries(switchyard_backend_cpu PRIVATE switchyard::row_sampling)'
expect 1 core/engine/fast.cpp '{.name = "moe.fast", .op = SWY_OP_MOE},'
expect 1 cli/fast.cpp 'kernel("moe.fast", SWY_OP_MOE),'
expect 1 core/engine/fast.cu '__global__ void fast() {}'
expect 1 core/engine/fast.cpp '#include <immintrin.h>'
expect 0 core/base/json.cpp 'json::sax_parse(begin, end, &builder)'
expect 1 core/models/config.cpp 'const auto all = json::parse(text, nullptr, false);'
expect 1 core/plan/tuning.cpp 'const auto all = nlohmann::ordered_json::parse (text);'
expect 1 cli/run.cpp 'const auto all = Json::from_cbor(bytes);'
expect 1 core/text/chat_template.h '#include <nlohmann/json.hpp>'
expect 0 core/text/chat_template.h '#include <nlohmann/json_fwd.hpp>'
expect 1 core/base/os.cpp "$unlicensed"
expect 1 tests/ops/run.sh "$unlicensed"
expect 0 tests/data/tiny/make.py "$unlicensed"
exit $((failures > 0))
