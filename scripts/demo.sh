#!/usr/bin/env bash
# Sets everything up and runs episodes of the committed policy through the ROS graph; see README.md.
# Arguments go to `vla-sd demo`, e.g.  bash scripts/demo.sh --mode realtime --episodes 5
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up
cd "$ROOT"
exec vla-sd demo "$@"
