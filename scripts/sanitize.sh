#!/usr/bin/env bash
# The tests of the compiled core under the address and undefined-behaviour sanitizers.
# Usage: scripts/sanitize.sh [python]; exit status 0 if neither finds anything.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
gcc -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined \
  -fno-strict-aliasing -shared -fPIC -Wall -Wextra -Wno-cast-function-type -I"$include" fast/tallystick_fast.c \
  -o "$folder/tallystick_fast.abi3.so"
# One test counts syncs in a race that a slower program loses. The interpreter itself is not instrumented and frees nothing at its end: leaks are not counted.
env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONMALLOC=malloc \
  PYTHONPATH="$folder:src" TALLYSTICK_PURE= TALLYSTICK_REQUIRE=core \
  "$python" -m pytest -q -p no:cacheprovider -m "not soak" \
  tests/storage/group tests/systems/tally/live/test_appender.py \
  --deselect tests/storage/group/test_tasks.py::test_a_thousand_tasks_share_a_handful_of_syncs
