#!/bin/sh
# All tests, the fast ones first, so that a plain mistake shows within seconds.
set -eu
bin=$1
"$bin/python" -m pytest -q -n 2 tests/unit tests/property
# Those that start processes of their own: a file at a time on each of two workers, the longest files first
# (tests/conftest.py), so that both end at about the same time.
"$bin/python" -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests/spark tests/faults tests/notebooks tests/browser
