#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dependency rule: which folder may include which, and which files must have the same name. And that every source
# file has a licence line.
#   check.sh ROOT      prints one line per violation; exit code 1 when there is any
set -euo pipefail
cd "${1:?usage: check.sh ROOT}"
violations=0

violation() {
  echo "$*"
  violations=$((violations + 1))
}

# A "room" is a folder of docs/overview.md. Room -> the rooms that its files may include; `api` is plugins_api/include.
# A room may always include itself. The rooms of core are listed from the bottom up: nothing includes upwards.
declare -A may_include=(
  [plugins_api]="api"
  [core/base]="api"
  [core/hub]="api core/base"
  [core/program]="api core/base"
  [core/sampling]="api core/base"
  [core/text]="api core/base core/program"
  [core/constrain]="api core/base core/text"
  [core/plugin]="api core/base core/program"
  [core/plan]="api core/base core/program core/plugin"
  [core/draft]="api core/base"
  [core/engine]="api core/base core/program core/plugin core/plan core/sampling core/draft"
  [core/models]="api core/base core/program"
  [core/import]="api core/base core/program core/text core/models"
  [core/generate]="api core/base core/program core/sampling core/text core/constrain core/plugin core/plan core/draft core/engine core/models core/import"
  [core/serve]="api core/base core/program core/sampling core/text core/constrain core/plugin core/plan core/draft core/engine core/models core/import core/generate"
  [core/include]="api"
  [bench]="api core"
  [server/protocol]="api core"
  [server/http]="api core server/protocol"
  [server/page]="api"
  [server/app]="api core server/protocol server/http server/page"
  [cli]="api core bench server"
)

# The files to read, as options of grep.
sources=()
for ending in h hpp c cpp cu cuh comp glsl; do sources+=("--include=*.$ending"); done

# room_of PATH: sets `room` to the room that a path from the root lies in; empty when it lies in none of ours.
room_of() {
  local rest=${1#*/}
  case $1 in
    switchyard/* | plugins_api/include/*) room=api ;;
    core/*/* | server/*/* | backends/*/*) room=${1%%/*}/${rest%%/*} ;;
    plugins_api/* | core/* | backends/* | bench/* | cli/* | server/* | tests/* | tools/*) room=${1%%/*} ;;
    *) room= ;;
  esac
}

# allowed FROM TO: may room FROM include room TO?
allowed() {
  local from=$1 to=$2 room
  [[ $from == "$to" || $from == tests || $from == tools ]] && return 0
  local rooms=${may_include[$from]-}
  [[ $from == backends/* ]] && rooms=api
  for room in $rooms; do
    [[ $to == "$room" || $to == "$room"/* ]] && return 0
  done
  return 1
}

check_includes() {
  local hit file target from to
  while IFS= read -r hit; do
    file=${hit%%:*}
    [[ $hit =~ include[[:space:]]*[\"\<]([^\"\>]+) ]]
    target=${BASH_REMATCH[1]}
    room_of "$file" && from=$room
    room_of "$target" && to=$room
    if [[ $target == ../* || $target == */../* ]]; then
      violation "$file: includes \"$target\"; write the path from the root of the repository"
    elif [[ -n $to ]] && ! allowed "$from" "$to"; then
      violation "$file: $from may not include \"$target\" (it may include: ${may_include[$from]-api})"
    fi
  done < <(grep -rHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]+/' \
    "${sources[@]}" plugins_api core backends bench server cli 2>/dev/null)
}

# An include without a folder names a neighbour. Where the neighbour is missing and another folder has such a file, an
# include path of CMake leads there, past the rule above.
check_plain_includes() {
  local hit file target where
  declare -A known
  while IFS= read -r file; do known[${file##*/}]+="$file "; done < <(
    find plugins_api core backends bench server cli -type f 2>/dev/null
  )
  while IFS= read -r hit; do
    file=${hit%%:*}
    [[ $hit =~ include[[:space:]]*[\"\<]([^\"\>]+) ]]
    target=${BASH_REMATCH[1]}
    where=${known[$target]-}
    if [[ -n $where && ! -e ${file%/*}/$target ]]; then
      violation "$file: includes \"$target\", which is ${where% }; write the path from the root of the repository"
    fi
  done < <(grep -rHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">/]+\.[a-z]+[">]' \
    "${sources[@]}" plugins_api core backends bench server cli 2>/dev/null)
}

# Backends, and what the plugin API gives to them, are built without the runtime: by target, by library or by path.
check_links() {
  local hit
  while IFS= read -r hit; do
    violation "${hit%%:*}: uses \"${hit#*:}\"; of ours a backend sees switchyard::plugin_api and row_sampling, no more"
  done < <(grep -rhoHE '^[^#]*(switchyard(::|_)(core|engine|bench|server|cli)|-lswitchyard|(DIR\}|\.\.)/(core|bench|server|cli))\b' \
    --include=CMakeLists.txt --include='*.cmake' backends plugins_api 2>/dev/null)
}

# How a kernel says which op it runs: `.op = SWY_OP_X`, or SWY_OP_X after the kernel's name in a table.
kernel='(\.op = |"[a-z0-9_]+\.[a-z0-9_]+",[[:space:]]*)SWY_OP_[A-Z_]+'

# Files that may hold kernels of an op beside those named as in backends/reference.
declare -A also=(
  [SWY_OP_LM_HEAD]="linear"  # the head is a product
  [SWY_OP_LM_HEAD_SAMPLE]="lm_head linear"
  [SWY_OP_ROUTER_TOPK]="router"
  [SWY_OP_TOP_CANDIDATES]="candidates"
)

# The kernels of an op are in files of the same name in every backend: NAME.* or NAME_*.*, as reference has it. A piece of
# a composite may also have a file of its own, named after the piece. A backend may have folders; their names say nothing
# about operations.
check_names() {
  local file op stem name folder fits
  declare -A home found
  while IFS=: read -r file op; do
    stem=${file##*/} stem=${stem%%.*} op=SWY_OP_${op##*SWY_OP_}
    folder=${file#backends/} folder=backends/${folder%%/*}
    found[$folder]=1
    if [[ $file == backends/reference/* ]]; then
      home[$op]=$stem
      continue
    fi
    fits=
    name=${op#SWY_OP_}
    for name in "${name,,}" ${home[$op]-} ${also[$op]-}; do
      [[ $stem == "$name" || $stem == "$name"_* ]] && fits=yes
    done
    if [[ -n ${home[$op]-} && -z $fits ]]; then
      violation "$file: holds a kernel of $op, which backends/reference has in ${home[$op]}.cpp; use the same file name, or ${op#SWY_OP_}'s own in lower case"
    fi
  done < <(for folder in backends/reference backends/*; do
    grep -roHE "$kernel" "$folder" 2>/dev/null || true
  done)
  for file in backends/*/plugin.cpp; do
    if [[ -e $file && -z ${found[${file%/*}]-} ]]; then
      violation "${file%/*}: no kernel is found in it; check.sh must know how it names their operations"
    fi
  done
}

# Nothing outside of backends computes: no kernel, and no language or header of a device. bench/kernels has measurements
# of a device by themselves, which nothing includes or links.
check_kernels() {
  local hit
  while IFS= read -r hit; do
    violation "${hit%%:*}: holds a kernel (${hit#*:}); kernels live in backends"
  done < <(grep -roHE "$kernel" "${sources[@]}" core bench server cli 2>/dev/null)
  while IFS= read -r hit; do
    violation "$hit: is code for a device; kernels live in backends"
  done < <(find core bench server cli -path bench/kernels -prune -o \
    \( -name '*.cu' -o -name '*.cuh' -o -name '*.comp' -o -name '*.glsl' \) -print 2>/dev/null)
  while IFS= read -r hit; do
    violation "${hit%%:*}: includes a header of kernels: ${hit#*:}"
  done < <(grep -roHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<](hwy/|immintrin|x86intrin|arm_neon|cuda|vulkan/)' \
    "${sources[@]}" core cli 2>/dev/null)
}

# JSON is read by core/base/json.h, which bounds it; and headers name its types without defining them.
check_json() {
  local hit
  while IFS= read -r hit; do
    [[ ${hit%%:*} == core/base/json.cpp ]] ||
      violation "${hit%%:*}: parses JSON by itself (${hit#*:}); core/base/json.h has the one reader"
  done < <(grep -roHE '[jJ]son::(parse|accept|sax_parse|from_[a-z]+)[[:space:]]*\(|"_json\b' "${sources[@]}" core bench server cli \
    2>/dev/null)
  while IFS= read -r hit; do
    violation "$hit: includes <nlohmann/json.hpp>; a header of core or bench includes <nlohmann/json_fwd.hpp>"
  done < <(grep -rlE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]nlohmann/json\.hpp' --include='*.h' core bench \
    2>/dev/null)
}

# Every source file has a licence line. Data has none.
check_licences() {
  local file
  while IFS= read -r file; do
    violation "$file: lacks the line \"SPDX-License-Identifier: Apache-2.0\""
  done < <(find plugins_api core backends bench server cli tests tools cmake docs models dev .ci CMakeLists.txt -type f \
    \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.comp' \
    -o -name '*.glsl' -o -name '*.fbs' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name '*.cmake.in' \
    -o -name '*.faults' -o -name CMakeLists.txt -o -path dev -o -path .ci/run \) \
    -not -path 'tests/data/*' -not -path 'tests/fuzz/corpus/*' -print0 2>/dev/null |
    xargs -0 -r grep -L '^\(//\|#\|/\*\) SPDX-License-Identifier: Apache-2.0')
}

check_includes
check_plain_includes
check_links
check_names
check_kernels
check_json
check_licences
if ((violations > 0)); then
  echo "dependency rule: $violations violation(s); docs/overview.md says which folder may include which" >&2
  exit 1
fi
