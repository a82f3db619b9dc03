#!/usr/bin/env bash
# Sets everything up, then runs linters, type checks and all tests. Arguments go to pytest.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up
cd "$ROOT"
say "ruff and mypy"
ruff check . && ruff format --check . && mypy
say "tests"
exec python -m pytest -n 2 "$@"
