#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# support.sh BUILD [--check]: asks the backends of a build what they support, records it in docs/support/ID.json (one line
# per kernel), and writes docs/support.md from these files. The recorded file of a backend is kept if this machine lacks its
# device, or cannot run all of its kernels. --check writes nothing, and fails if a file or the page would change.
set -euo pipefail
build=$(cd "${1:?usage: support.sh BUILD [--check]}" && pwd)
docs=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)
judge=$build/bin/switchyard-plugin-check
backends=$build/lib/switchyard/backends
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$docs/support"

# less_machine NEW OLD: does this machine prevent more kernels in NEW than in OLD?
less_machine() {
  [[ -f $2 && $(grep -c '"by_machine":true' "$1") -gt $(grep -c '"by_machine":true' "$2") ]]
}

for id in reference cpu cuda vulkan template; do
  file=$backends/switchyard_$id.so recorded=$docs/support/$id.json
  [[ $id == template ]] && file=$build/tests/ops/fixtures/switchyard_template.so
  [[ -f $recorded ]] && cp "$recorded" "$work/$id.json"
  [[ -f $file ]] || continue
  code=0
  "$judge" "$file" --oracle "$backends/switchyard_reference.so" --suite ops --list --seed 1 \
    --claims "$work/new" >"$work/said" || code=$?
  if [[ $code == 77 ]]; then
    echo "$id: $(head -n 1 "$work/said"); docs/support/$id.json is kept"
    continue
  elif [[ $code != 0 ]]; then
    cat "$work/said"
    echo "$id: $file could not be asked (exit code $code); nothing is written"
    exit 1
  fi
  if less_machine "$work/new" "$recorded"; then
    echo "$id: this machine cannot run all kernels; docs/support/$id.json is kept"
    continue
  fi
  mv "$work/new" "$work/$id.json"
done

claims=()
for id in reference cpu cuda vulkan template; do
  [[ -f $work/$id.json ]] && claims+=("$work/$id.json")
done
"$judge" --support "${claims[@]}" >"$work/support.md"
if [[ ${2:-} == --check ]]; then
  same=0
  diff -u "$docs/support.md" "$work/support.md" || same=1
  for file in "${claims[@]}"; do diff -u "$docs/support/${file##*/}" "$file" || same=1; done
  ((same == 0)) || {
    echo "docs/support.md and docs/support/ differ from what the backends claim; run ./dev support and commit the result"
    exit 1
  }
else
  cp "${claims[@]}" "$docs/support/"
  cp "$work/support.md" "$docs/support.md"
fi
