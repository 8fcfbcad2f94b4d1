#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The steps of a backend's author: install, build the template backend outside the tree, drop it into a folder, list it, use it.
#   run.sh BUILD
set -euo pipefail
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp -r "$work/prefix/share/switchyard/template" "$work/source"
cmake -S "$work/source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
mkdir "$work/drop"
cp "$work/build/switchyard_template.so" "$work/drop"

# The pages that say how are installed, too, and their links lead somewhere.
pages=$work/prefix/share/doc/switchyard
[[ -f $pages/docs/write-a-backend.md ]] || { echo "docs/write-a-backend.md is not installed"; exit 1; }
while IFS=: read -r page link; do
  target=$(dirname "$page")/${link%%#*}
  [[ -e $target ]] || { echo "$page: the link to $link leads nowhere"; exit 1; }
done < <(grep -oHE '\]\([^)#][^)]*\)' "$pages"/docs/{write-a-backend,check-a-plugin,discovery,overview}.md |
  sed -E 's/\]\(([^)]*)\)/\1/' | grep -v '://')

# What they name in these folders is not installed, and the page says so.
for page in "$pages"/docs/{write-a-backend,check-a-plugin,discovery,overview}.md; do
  if grep -qE '`(backends|core|plugins_api|tests)/' "$page" && ! grep -qF 'source repository' "$page"; then
    echo "$page: names files that are not installed, and does not say so"
    exit 1
  fi
done

switchyard=$work/prefix/bin/switchyard
unset SWITCHYARD_BACKEND
"$work/prefix/bin/switchyard-plugin-check" "$work/drop/switchyard_template.so"
"$switchyard" backends --backend-path "$work/drop" --explain | grep -F "switchyard_template.so: accepted as template"
export SWITCHYARD_BACKEND_PATH=$work/drop
"$switchyard" backends --json | grep -F '"id": "template"' >/dev/null  # not -q, which would end the pipe early
"$switchyard" plan --backend template,reference --explain >"$work/plan"
[[ $(grep -cF 'template:0 add.template (composite; ' "$work/plan") == 16 ]] || {
  echo "the plan does not run its 16 additions on the template:"
  cat "$work/plan"
  exit 1
}
alone=$("$switchyard" run --backend reference --temp 0 -n 48 "The ship had been at sea" 2>/dev/null)
mixed=$("$switchyard" run --backend template,reference --temp 0 -n 48 "The ship had been at sea" 2>/dev/null)
[[ -n $alone && $alone == "$mixed" ]] || {
  printf 'template,reference says\n%s\nand reference alone\n%s\n' "$mixed" "$alone"
  exit 1
}
echo "the template backend was built outside the tree, found, planned for, and gives the reference's tokens"
