#!/bin/sh
# All tests, the fast ones first, so that a plain mistake shows within seconds.
set -eu
bin=$1
export MUDKIT_SPARK_MEMORY="${MUDKIT_SPARK_MEMORY:-1g}"
"$bin/python" -m pytest -q -n 2 tests/unit tests/property
"$bin/python" -m pytest -q tests/spark tests/faults
"$bin/python" -m pytest -q tests/notebooks tests/browser
