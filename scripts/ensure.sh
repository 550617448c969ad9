#!/usr/bin/env bash
# What a fresh machine may lack. Usage: scripts/ensure.sh python|compiler|java|postgres|pgbouncer|mariadb|browser|sail|zsh|fish ...
# Installs it where that is possible (Debian, root or password-less sudo) and otherwise says what
# to type. Only java and python are needed to run; without the others their tests are skipped,
# loudly, unless TALLYSTICK_REQUIRE names them.
set -u

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install() { # install PACKAGES...: quietly, without starting any service
  command -v apt-get >/dev/null 2>&1 || return 1
  [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || return 1
  echo "installing $* ..." >&2
  [ -n "${updated:-}" ] || { as_root apt-get update -qq >/dev/null 2>&1; updated=1; }
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

java_is_new() {
  local version
  version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ "${version:-0}" -ge 17 ]
}

python_is_new() {
  python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

compiler_works() { # for extensions of the python3 that is in use
  local headers
  headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))') &&
    printf '#include <Python.h>\n' | ${CC:-cc} -x c -fsyntax-only -I"$headers" - 2>/dev/null
}

have() {
  case $1 in
    python) python_is_new ;;
    java) java_is_new ;;
    maven) command -v mvn >/dev/null ;;
    postgres) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null ;;
    pgbouncer) command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] ;;
    mariadb) command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] ;;
    compiler) compiler_works ;;
    sail) .venv-sail/bin/python -c 'import pysail, pyspark, tallystick' 2>/dev/null ;;
    zsh | fish) command -v "$1" >/dev/null ;;
    browser) command -v chromium >/dev/null && command -v chromedriver >/dev/null ;;
    *) echo "ensure: unknown: $1" >&2; exit 2 ;;
  esac
}

packages() {
  case $1 in
    python) echo python3 python3-venv ;;
    java) echo openjdk-17-jdk-headless ;;
    maven) echo maven ;;
    postgres) echo postgresql ;;
    pgbouncer) echo pgbouncer ;;
    mariadb) echo mariadb-server ;;
    compiler) echo gcc libc6-dev python3-dev ;;
    zsh | fish) echo "$1" ;;
    browser) echo chromium chromium-driver ;;
  esac
}

make_sail() { # the extra `sail` in an environment of its own: it needs another PySpark
  cd "$(dirname "$0")/.." && python3 -m venv .venv-sail &&
    .venv-sail/bin/pip install --quiet --disable-pip-version-check -e '.[cli,sail]'
}

status=0
for thing in "$@"; do
  have "$thing" && continue
  if [ "$thing" = sail ]; then
    make_sail && have sail || echo "missing: sail. Type: pip install 'tallystick[cli,sail]'" >&2
    continue
  fi
  # shellcheck disable=SC2046 # several package names are meant to be several words
  install $(packages "$thing") && have "$thing" && continue
  echo "missing: $thing. On Debian type: sudo apt-get install $(packages "$thing")" >&2
  case $thing in python | java) status=1 ;; esac
done
exit $status
