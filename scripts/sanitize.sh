#!/usr/bin/env bash
# The tests of the compiled core under the sanitizers for addresses and undefined behaviour, then for
# races of threads, both at once. Usage: scripts/sanitize.sh [python]; exit status 0 if none finds
# anything.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')

# One test counts syncs in a race that a slower program loses.
run() {  # the name of the libraries, the sanitizers, and what goes before python
  local libraries="" library sanitizers=$2 folder=$folder/$2
  mkdir -p "$folder"
  for library in $1; do libraries+="$(gcc -print-file-name="lib$library.so") "; done
  shift 2
  gcc -g -O1 -fno-omit-frame-pointer -fsanitize="$sanitizers" -fno-strict-aliasing -shared -fPIC -Wall \
    -Wextra -Wno-cast-function-type -I"$include" fast/*.c -o "$folder/tallystick_fast.abi3.so"
  env LD_PRELOAD="$libraries" PYTHONMALLOC=malloc PYTHONPATH="$folder:src" TALLYSTICK_PURE= \
    TALLYSTICK_REQUIRE=core "$@" "$python" -m pytest -q --capture=sys -p no:cacheprovider -m "not soak" \
    tests/storage/group tests/storage/test_signals.py tests/systems/tally/live/test_appender.py \
    --deselect tests/storage/group/test_tasks.py::test_a_thousand_tasks_share_a_handful_of_syncs
}

# The interpreter itself is not instrumented and frees nothing at its end: leaks are not counted. Of jobs
# in the background a shell has SIGINT ignored, which tests send.
UBSAN_OPTIONS=halt_on_error=1 ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
  run "asan ubsan" address,undefined env --default-signal=INT >"$folder/addresses" 2>&1 &
addresses=$!
# Threads: fixed addresses, which the sanitizer needs. It sees the interpreter's locks, as they are those
# of the C library. Reports are of the core alone: what the interpreter does by itself is not judged. So
# is its module of sockets, which the core never calls: a loop that is woken by call_soon_threadsafe may
# run the call, end and close its wake-up socket before the other thread has returned from sending to it.
echo "race:_socket.cpython" >"$folder/suppressions"
export TSAN_OPTIONS=exitcode=66:report_signal_unsafe=0:die_after_fork=0:suppressions=$folder/suppressions
threads=0
run tsan thread setarch -R || threads=$?
wait $addresses && found=0 || found=$?
cat "$folder/addresses"
exit $((found | threads))
