#!/usr/bin/env bash
# The tests of the pipeline on the PySparks that are supported beside the one of .venv: the oldest,
# and the newest that Delta has been released for. Each is put into .sparks/VERSION beside the
# packages of .venv, and pandas and gRPC for Spark Connect into .sparks/connect.
# Usage: scripts/sparks.sh [--fetch-only] [pytest options]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}  # PYTHON: another one
versions="4.1.0 4.2.0"
for version in $versions; do
  if [ ! -e ".sparks/$version/.ready" ]; then
    rm -rf ".sparks/$version"
    if "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
      --target ".sparks/$version" "pyspark==$version"; then
      touch ".sparks/$version/.ready"
    else
      echo "sparks: MISSING $version: it cannot be installed here" >&2
    fi
  fi
done
if [ ! -e .sparks/connect/.ready ]; then  # what Spark Connect and pandas on Spark need
  rm -rf .sparks/connect
  if "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    --target .sparks/connect "pandas>=2.2,<3" python-dateutil six tzdata pytz \
    "grpcio>=1.76" "grpcio-status>=1.76" "googleapis-common-protos>=1.71" protobuf; then
    touch .sparks/connect/.ready
  else
    echo "sparks: MISSING connect: pandas and gRPC cannot be installed here" >&2
  fi
fi
if [ "${1:-}" = --fetch-only ]; then exit; fi
# PySpark 4.1 leaves the socket of a collect() to the garbage collector, and warnings are errors here.
status=0
for version in $versions; do
  if [ ! -e ".sparks/$version/.ready" ]; then status=1; continue; fi  # it was said above
  echo "sparks: $version" >&2
  PYTHONPATH="$PWD/.sparks/$version:${PYTHONPATH:-}" "$python" -m pytest \
    -W "ignore:unclosed <socket.socket:ResourceWarning" \
    -m "spark and not soak and not interop" tests/pipeline "$@" || status=$?
done
exit $status
