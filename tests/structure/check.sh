#!/usr/bin/env bash
# The dependency rule: who may include whom, and which files must bear the same name.
#   check.sh ROOT      prints one line per violation; exit code 1 when there is any
set -euo pipefail
cd "${1:?usage: check.sh ROOT}"
violations=0

violation() {
  echo "$*"
  violations=$((violations + 1))
}

# Room -> the rooms that its files may include, `api` being plugins_api/include. A room may always include itself.
# The rooms of core are listed from the bottom up: nothing includes upwards.
declare -A may_include=(
  [plugins_api]="api"
  [core/base]="api"
  [core/program]="api core/base"
  [core/sampling]="api core/base"
  [core/text]="api core/base core/program"
  [core/plugin]="api core/base core/program"
  [core/plan]="api core/base core/program core/plugin"
  [core/engine]="api core/base core/program core/plugin core/plan core/sampling"
  [core/import]="api core/base core/program core/text"
  [core/generate]="api core/base core/program core/sampling core/text core/plugin core/plan core/engine core/import"
  [core/include]="api"
  [bench]="api core"
  [cli]="api core bench"
)

# room_of PATH: sets `room` to the room that a path from the root lies in; empty when it lies in none of ours.
room_of() {
  local rest=${1#*/}
  case $1 in
    switchyard/* | plugins_api/include/*) room=api ;;
    core/*/* | backends/*/*) room=${1%%/*}/${rest%%/*} ;;
    plugins_api/* | core/* | backends/* | bench/* | cli/* | tests/* | tools/*) room=${1%%/*} ;;
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
  done < <(grep -rHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]+/' --include='*.h' --include='*.hpp' \
    --include='*.c' --include='*.cpp' --include='*.cu' --include='*.cuh' plugins_api core backends bench cli 2>/dev/null)
}

check_links() {
  local hit
  while IFS= read -r hit; do
    violation "${hit%%:*}: links switchyard::core; a backend sees switchyard::plugin_api, switchyard::row_sampling and nothing else of ours"
  done < <(grep -rE '^[^#]*switchyard(::|_)core' --include=CMakeLists.txt --include='*.cmake' backends plugins_api 2>/dev/null)
}

# The kernels of an op are in files of the same name in every backend: NAME.* or NAME_*.*, as reference has it.
check_names() {
  local file op stem
  declare -A home
  while IFS=: read -r file op; do
    stem=${file##*/} stem=${stem%%.*} op=${op#.op = }
    if [[ $file == backends/reference/* ]]; then
      home[$op]=$stem
    elif [[ -n ${home[$op]-} && $stem != "${home[$op]}" && $stem != "${home[$op]}"_* ]]; then
      violation "$file: holds a kernel of $op, which backends/reference has in ${home[$op]}.cpp; use the same file name"
    fi
  done < <(for folder in backends/reference backends/*; do
    grep -roHE '\.op = SWY_OP_[A-Z_]+' "$folder" 2>/dev/null || true
  done)
}

check_includes
check_links
check_names
if ((violations > 0)); then
  echo "dependency rule: $violations violation(s); docs/overview.md says who may include whom" >&2
  exit 1
fi
