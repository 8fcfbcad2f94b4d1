#!/usr/bin/env bash
# support.sh BUILD [--check]: lists what the backends of a build claim, in docs/support/ID.json, and writes docs/support.md
# from that. A backend that this machine lacks the hardware for keeps what is recorded; so does one with kernels that this machine
# cannot run. --check writes nothing: it fails when the page is not what would be written.
set -euo pipefail
build=$(cd "${1:?usage: support.sh BUILD [--check]}" && pwd)
docs=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)
judge=$build/bin/switchyard-plugin-check
backends=$build/lib/switchyard/backends
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$docs/support"

# less_machine NEW OLD: does NEW have more kernels than OLD that the machine stands against?
less_machine() {
  [[ -f $2 && $(grep -c '"by_machine": true' "$1") -gt $(grep -c '"by_machine": true' "$2") ]]
}

for id in reference cpu cuda vulkan template; do
  file=$backends/switchyard_$id.so recorded=$docs/support/$id.json
  [[ $id == template ]] && file=$build/tests/ops/fixtures/switchyard_template.so
  [[ -f $recorded ]] && cp "$recorded" "$work/$id.json"
  [[ -f $file ]] || continue
  code=0
  "$judge" "$file" --oracle "$backends/switchyard_reference.so" --suite ops --list --seed 1 \
    --summary "$work/new" >"$work/said" || code=$?
  if [[ $code == 77 ]]; then
    echo "$id: $(head -n 1 "$work/said"); docs/support/$id.json stays as it is recorded"
    continue
  elif [[ $code != 0 ]]; then
    cat "$work/said"
    echo "$id: $file was not listed (exit code $code); nothing is written"
    exit 1
  fi
  if less_machine "$work/new" "$recorded"; then
    echo "$id: this machine cannot run all that is recorded in docs/support/$id.json, which stays"
    continue
  fi
  mv "$work/new" "$work/$id.json"
done

summaries=()
for id in reference cpu cuda vulkan template; do
  [[ -f $work/$id.json ]] && summaries+=("$work/$id.json")
done
"$judge" --support "${summaries[@]}" >"$work/support.md"
if [[ ${2:-} == --check ]]; then
  diff -u "$docs/support.md" "$work/support.md" || {
    echo "docs/support.md does not say what the backends claim; run ./dev support and commit what it writes"
    exit 1
  }
else
  cp "${summaries[@]}" "$docs/support/"
  cp "$work/support.md" "$docs/support.md"
fi
