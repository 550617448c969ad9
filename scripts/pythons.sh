#!/usr/bin/env bash
# The tests of storage, native log, journal and command line on the other Pythons that are found.
# Usage: scripts/pythons.sh [pytest options]. Says which it found; fails if a test fails on one.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

find_python() { # find_python VERSION: a path, where there is one that runs
  local path
  for path in "$(command -v "python$1" || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if [ -x "$path" ] && "$path" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$path"
      return
    fi
  done
}

for version in 3.11 3.12 3.13; do
  if [ "$version" = "$own" ]; then continue; fi
  path=$(find_python "$version")
  if [ -z "$path" ]; then
    echo "pythons: SKIPPED $version: not found on this machine" >&2
    continue
  fi
  home=.venv-$version
  echo "pythons: $version ($path)" >&2
  if [ requirements.lock -nt "$home/.ready" ]; then
    "$path" -m venv --clear "$home"
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.lock
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --editable .
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check ./fast || true
    touch "$home/.ready"
  fi
  "$home/bin/python" -m pytest -n 2 --dist loadscope -m "not soak and not interop and not long and not spark" \
    tests/storage tests/systems/tally tests/services/journal tests/testing tests/cli "$@"
done
