#!/usr/bin/env bash
# Mutants of the layouts and decision tables ([tool.mutmut] in pyproject.toml), and which of them
# their tests let live. One process, at the lowest priority; a run that is ended goes on at the next.
# Usage: scripts/mutants.sh [PATTERN...] of mutants' names. mutmut stands in .mutmut, beside the
# packages of .venv, which are pinned and have only what the project itself needs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
version=3.8.1
if [ ! -e ".mutmut/.$version" ]; then
  rm -rf .mutmut
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target .mutmut \
    "mutmut==$version" "libcst==1.9.0" "setproctitle==1.3.8"
  touch ".mutmut/.$version"
fi
mutmut() {
  nice -n 19 "$python" -c \
    'import sys; sys.path.append(".mutmut"); from mutmut.__main__ import cli; cli()' "$@"
}
mutmut run --max-children 1 "$@"
mutmut export-cicd-stats >/dev/null
echo "mutants: what tests let live (mutmut show NAME has the change):"
mutmut results | grep -v ': not checked$' || true
cat mutants/mutmut-cicd-stats.json
