#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that operations.sh accepts a tree whose page is right, and refuses each way of being wrong.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/operations.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0
api=plugins_api/include/switchyard

# expect CODE FILE TEXT: operations.sh ends with CODE, on a right tree whose FILE holds TEXT instead.
expect() {
  local want=$1 file=$2 text=$3 got=0
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{docs,core/plan,backends/cpu,plugins_api/check/cases,$api}
  printf '  SWY_OP_ADD = 7,\n  SWY_OP_MOE_ADD = 35,\n  SWY_OP_NAMED = 0x10000,\n' > "$tree/$api/ops.h"
  printf 'add\n' > "$tree/plugins_api/check/cases/add.cpp"
  printf 'SWY_OP_MOE_ADD\n' > "$tree/plugins_api/check/cases/moe.cpp"
  printf 'SWY_OP_ADD\n' > "$tree/plugins_api/check/naive.cpp"
  printf '%s\n' "| \`$api/ops.h\` | each |" '| `plugins_api/check/cases/*.cpp` | each | cases |' \
    '| `plugins_api/check/naive.cpp` | each but MOE_ADD | a line |' '| `backends/*/*` | some |' > "$tree/docs/add-an-operation.md"
  printf '%s\n' SWY_OP_ADD > "$tree/backends/cpu/add.cpp"
  printf '%s\n' "$text" > "$tree/$file"
  "$check" "$tree" > "$tree/said" 2>&1 || got=$?
  if [[ $got != "$want" ]]; then
    echo "expected exit code $want, got $got, for $file holding: $text"
    cat "$tree/said"
    failures=$((failures + 1))
  fi
}

expect 0 core/plan/plan.cpp 'find_op("add")'
expect 0 core/plan/plan.cpp 'case SWY_OP_NAMED:'
expect 0 backends/cpu/moe.cpp 'SWY_OP_MOE_ADD'
expect 1 core/plan/plan.cpp 'case SWY_OP_ADD:'
expect 1 plugins_api/check/kit.h 'SWY_OP_MOE_ADD'
expect 1 plugins_api/check/cases/moe.cpp 'SWY_OP_MOE_ADDS'
expect 1 plugins_api/check/naive.cpp 'SWY_OP_MOE'
expect 1 docs/add-an-operation.md '| `core/plan/none.cpp` | some |'
expect 1 docs/add-an-operation.md 'no table'
expect 1 $api/ops.h 'enum {};'
exit $((failures > 0))
