#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tables of docs/add-an-operation.md against the code:
#   operations.sh ROOT      prints one line per fault; exit code 1 if there is any
# - every operation of ops.h is named in each file, or one of the files, that the page marks "each"
# - no file of plugins_api, core, bench and cli names operations if the page does not list it
# - every file of the page exists
set -euo pipefail
cd "${1:?usage: operations.sh ROOT}"
readonly PAGE=docs/add-an-operation.md HEADER=plugins_api/include/switchyard/ops.h
faults=0

fault() {
  echo "$*"
  faults=$((faults + 1))
}

mapfile -t ids < <(sed -nE 's/^ *SWY_OP_([A-Z_]+) = [0-9]+,.*/\1/p' "$HEADER")
((${#ids[@]} > 0)) || fault "$HEADER has no operations"

# The rows: files in `code`, then whether each operation is named there.
listed=()
while IFS='|' read -r _ files named _; do
  while IFS= read -r pattern; do
    listed+=("$pattern")
    # shellcheck disable=SC2206  # a pattern of the page: it is meant to be expanded
    matching=($pattern)
    if [[ ! -e ${matching[0]} ]]; then
      fault "$PAGE: $pattern does not exist"
      continue
    fi
    [[ $named == " each"* ]] || continue
    for id in "${ids[@]}"; do
      [[ " $named " == *" but $id "* ]] && continue
      grep -qE "\b(SWY_OP_$id|${id,,})\b" "${matching[@]}" || fault "$pattern does not name $id; $PAGE says that it names each operation"
    done
  done < <(grep -oE '`[^`]+`' <<<"$files" | tr -d '`')
done < <(grep -E '^\| `' "$PAGE" || true)
((${#listed[@]} > 0)) || fault "$PAGE lists no files"

any=$(IFS='|' && echo "${ids[*]}")
while IFS= read -r file; do
  for pattern in "${listed[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    [[ $file == $pattern ]] && continue 2
  done
  fault "$file names an operation and is not listed in $PAGE; read the operation's entry in op_table.h, or list the file"
done < <(grep -rlE "\bSWY_OP_($any)\b" --include='*.cpp' --include='*.h' --include='*.hpp' --include='*.cu' --include='*.cuh' \
  plugins_api core bench cli backends 2>/dev/null | sort)

exit $((faults > 0))
