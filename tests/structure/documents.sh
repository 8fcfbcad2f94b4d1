#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the documents (*.md):
#   documents.sh ROOT [SWITCHYARD [PLUGIN_CHECK]]    prints one line per fault; exit code 1 if there is any
# - links lead to files, and to headings that exist
# - paths and file names in `code spans` exist
# - lines of prose have at most 120 columns; code blocks, tables and links alone on a line may be longer
# - files in docs/evidence have at most 150 lines, and its README.md lists them
# - no placeholder such as @THIS@ is left
# - outside docs/evidence, commands of `switchyard` and ./dev and their options exist (by --help of the programs given)
set -euo pipefail
export LC_ALL=C.UTF-8
cd "${1:?usage: documents.sh ROOT [SWITCHYARD [PLUGIN_CHECK]]}"
switchyard=${2:-} plugin_check=${3:-}
readonly COLUMNS_OF_PROSE=120 LINES_OF_EVIDENCE=150
faults=0

fault() {
  echo "$*"
  faults=$((faults + 1))
}

# documents: every Markdown file of ours, one per line.
documents() {
  find . -name '*.md' -not -path './build/*' -not -path './.git/*' -not -path './tests/data/*' | sed 's|^\./||' | sort
}

# Every file name in the tree, for names that documents give without a folder.
declare -A known
while IFS= read -r name; do known[$name]=1; done < <(
  find . -type f -not -path './build/*' -not -path './.git/*' -printf '%f\n' | sort -u)

# slugs FILE: the anchors of the headings in FILE, as they are written in links.
slugs() {
  sed -nE 's/^#+ +(.*)/\1/p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

check_link() {
  local file=$1 place=$2 link=$3 path anchor
  [[ $link =~ ^[a-z]+:// || $link == mailto:* ]] && return
  path=${link%%#*} anchor=
  [[ $link == *'#'* ]] && anchor=${link#*#}
  if [[ -z $path ]]; then path=$file; else path=$(dirname "$file")/$path; fi
  if [[ ! -e $path ]]; then
    fault "$place: the link leads to $link, which does not exist"
  elif [[ -n $anchor ]] && ! slugs "$path" | grep -qxF -- "$anchor"; then
    fault "$place: the link leads to $link, and $path has no such heading"
  fi
}

# A span is a path if it begins with a folder of ours; it is a file name if it ends as source files do.
check_span() {
  local place=$1 span=$2 folder
  [[ $span == *[' *<>{}$…']* || $span == *[A-Z]*.* && $span != *.md && $span != CMake* ]] && return
  for folder in .ci backends bench cli cmake core docs models plugins_api tests tools; do
    if [[ $span == "$folder"/* ]]; then
      [[ -e $span ]] || fault "$place: names $span, which does not exist"
      return
    fi
  done
  if [[ $span =~ ^[a-zA-Z0-9_]+\.(h|hpp|cpp|cu|cuh|comp|glsl|sh|py|md|fbs)$ && -z ${known[$span]-} ]]; then
    fault "$place: names $span, and no file has that name"
  fi
}

# The options of each command, from its --help: " --flag --other " by "run", "bench ops", ...
declare -A options
all_options=' '
read_options() {
  local command sub text
  [[ -n $switchyard ]] || return 0
  for command in $("$switchyard" --help | sed -n '/^Subcommands/,$s/^  \([a-z-]*\) .*/\1/p'); do
    text=$("$switchyard" "$command" --help)
    options[$command]=" $(grep -oE -- '--[a-z][a-z0-9-]*' <<<"$text" | tr '\n' ' ')"
    for sub in $(sed -n '/^Subcommands/,/^$/s/^  \([a-z-]*\) .*/\1/p' <<<"$text"); do
      options["$command $sub"]=" $("$switchyard" "$command" "$sub" --help | grep -oE -- '--[a-z][a-z0-9-]*' | tr '\n' ' ')"
    done
  done
  [[ -z $plugin_check ]] || options[plugin-check]=" $("$plugin_check" --help | grep -oE -- '--[a-z][a-z0-9-]*' | tr '\n' ' ')"
  all_options="${options[*]} --help --version $("$switchyard" --help | grep -oE -- '--[a-z][a-z0-9-]*' | tr '\n' ' ') "
}

# check_command PLACE TEXT: TEXT holds a command line of ours; its options exist.
check_command() {
  local place=$1 text=${2%% #*} words command flag i
  [[ $text == *"./dev "* ]] && check_dev "$place" "$text"
  [[ -n $switchyard ]] || return 0
  text=${text#\$ }
  while [[ $text =~ ^[A-Z_]+=[^\ ]*\ +(.*)$ ]]; do text=${BASH_REMATCH[1]}; done
  read -ra words <<<"$text" || true
  ((${#words[@]} > 0)) || return 0
  case ${words[0]} in
    switchyard | build/*/switchyard) command=${words[1]:-} ;;
    switchyard-plugin-check) command=plugin-check ;;
    *) return 0 ;;
  esac
  [[ $command =~ ^[a-z][a-z-]*$ ]] || return 0
  [[ -n ${options["$command ${words[2]:-}"]-} ]] && command="$command ${words[2]}"
  if [[ -z ${options[$command]-} ]]; then
    [[ $command == plugin-check ]] || fault "$place: there is no command: switchyard $command"
    return 0
  fi
  for ((i = 1; i < ${#words[@]}; i++)); do
    [[ ${words[i]} == [\|\;\&\>]* ]] && return 0
    [[ ${words[i]} =~ ^(--[a-z][a-z0-9-]*) ]] || continue
    flag=${BASH_REMATCH[1]}
    [[ ${options[$command]} == *" $flag "* || $flag == --help || $flag == --version ]] ||
      fault "$place: switchyard $command has no option $flag"
  done
}

check_dev() {
  local place=$1 text=$2 name
  [[ -f dev && $text =~ \./dev\ ([a-z][a-z-]*) ]] || return 0
  name=${BASH_REMATCH[1]}
  grep -qE "^cmd_$name\(\)|^\./dev $name( |$)" dev || fault "$place: ./dev has no command $name"
}

check_document() {
  local file=$1 line place number=0 code=0 rest span evidence=0 pending=
  [[ $file == docs/evidence/* ]] && evidence=1
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    place=$file:$number
    [[ ! $line =~ (^|[^[:alnum:]])@[A-Z]+@ ]] || fault "$place: a placeholder in place of text"
    if [[ $line =~ ^[[:space:]]*\`\`\` ]]; then
      code=$((1 - code))
      continue
    fi
    if ((code)); then
      ((evidence)) && continue  # recorded output, and commands that are meant to fail
      if [[ $line == *\\ ]]; then
        pending+="${line%\\} "
      else
        check_command "$place" "$pending$line"
        pending=
      fi
      continue
    fi
    if ((${#line} > COLUMNS_OF_PROSE)) && [[ $line != '|'* && $line != '    '* && ! $line =~ ^!?\[.*\]\(.*\)$ ]]; then
      fault "$place: ${#line} columns; prose has at most $COLUMNS_OF_PROSE"
    fi
    rest=$line
    while [[ $rest =~ \]\(([^\)\ ]+)\)(.*) ]]; do
      rest=${BASH_REMATCH[2]}
      check_link "$file" "$place" "${BASH_REMATCH[1]}"
    done
    rest=$line
    while [[ $rest =~ \`([^\`]+)\`(.*) ]]; do
      span=${BASH_REMATCH[1]} rest=${BASH_REMATCH[2]}
      check_span "$place" "$span"
      ((evidence)) && continue
      check_command "$place" "$span"
      if [[ -n $switchyard && $span =~ ^(--[a-z][a-z0-9-]*)([ =].*)?$ ]]; then
        span=${BASH_REMATCH[1]}
        [[ $all_options == *" $span "* ]] || grep -qF -- "$span" dev || fault "$place: no command has the option $span"
      fi
    done
  done <"$file"
  ((!evidence || number <= LINES_OF_EVIDENCE)) || fault "$file: $number lines; evidence has at most $LINES_OF_EVIDENCE"
  ((!evidence)) || [[ $file == docs/evidence/README.md ]] || grep -qF "](${file##*/})" docs/evidence/README.md ||
    fault "$file: docs/evidence/README.md does not list it"
}

read_options
while IFS= read -r document; do check_document "$document"; done < <(documents)
if ((faults > 0)); then
  echo "documents: $faults fault(s)" >&2
  exit 1
fi
