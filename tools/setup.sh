#!/bin/sh
# Set up the environment: a virtual environment with everything locked, the package, files for offline maps.
set -eu
venv=$1
python=${PYTHON:-python3}

say() { printf '%s\n' "mudkit: $*" >&2; }

command -v "$python" >/dev/null 2>&1 || {
  say "there is no $python here. Needed: Python 3.11 or newer. Install it, or say make PYTHON=/path/to/python3."
  exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "$("$python" --version) is too old. Needed: Python 3.11 or newer. Say make PYTHON=/path/to/python3."
  exit 1
}
if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
  say "making $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv" || {
    rm -rf "$venv"
    say "no virtual environment could be made. On Debian: apt-get install python3-venv"
    exit 1
  }
fi

say "installing the packages of requirements.txt into $venv (a few minutes and 2 GB the first time)"
"$venv/bin/python" tools/install.py requirements.txt
say "installing mudkit itself"
"$venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-build-isolation --no-deps --editable .

say "fetching the files of maps and browser tests with npm"
fetched=0
"$venv/bin/python" tools/fetch_assets.py || fetched=$?
if [ "$fetched" = 3 ]; then
  say "no npm here: installing the one that PyPI has"
  "$venv/bin/python" tools/install.py requirements-node.txt
  "$venv/bin/python" tools/fetch_assets.py
elif [ "$fetched" != 0 ]; then
  exit "$fetched"
fi
say "ready"
