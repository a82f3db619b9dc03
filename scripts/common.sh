# Sourced by demo.sh and test.sh: makes the environment in .venv and installs the package into it, once.
# Needs Debian 12 or Ubuntu 24.04 (x86_64) with Python 3.10 to 3.13 and the right to install system packages.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
SYSTEM_PACKAGES="python3-venv python3-dev build-essential cmake git libegl1 libgl1 libgl1-mesa-dri libosmesa6"

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

install_system_packages() {
    local missing=() package
    for package in $SYSTEM_PACKAGES; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "system packages: ${missing[*]}"
    local sudo=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "run as root: apt-get install ${missing[*]}" >&2; return 1; }
        sudo=sudo
    fi
    $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${missing[@]}" >/dev/null
}

# The interpreter that ROS wheels exist for; Debian 12 has 3.11, Ubuntu 24.04 has 3.12.
find_python() {
    local candidate
    for candidate in python3 python3.12 python3.11 python3.10 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"; return
        fi
    done
    echo "no Python 3.10 to 3.13 found" >&2; return 1
}

# What the installed state depends on: where it has not changed, nothing is installed again.
fingerprint() {
    (cd "$ROOT" && cat requirements*.txt constraints.txt setup.py CMakeLists.txt package.xml msg/* srv/* | sha256sum)
}

set_up() {
    unset _ROS_WHEELS_BOOTSTRAP_COMPLETE LD_LIBRARY_PATH PYTHONPATH AMENT_PREFIX_PATH
    local stamp=$VENV/.vla_sd_ros
    if [ "$(cat "$stamp" 2>/dev/null)" != "$(fingerprint)" ]; then
        install_system_packages
        if [ ! -x "$VENV/bin/python" ]; then
            say "Python environment in $VENV"
            "$(find_python)" -m venv "$VENV"
        fi
        say "Python packages: PyTorch, ROS 2 Jazzy, LIBERO (about 4 GB of disk; takes minutes)"
        # PyTorch first and by itself: everything else then finds it there.
        "$VENV/bin/pip" install -qq --disable-pip-version-check -c "$ROOT/constraints.txt" torch
        "$VENV/bin/pip" install -qq --disable-pip-version-check -c "$ROOT/constraints.txt" \
            -r "$ROOT/requirements-ros.txt" -r "$ROOT/requirements.txt"
        say "messages and package"
        PATH="$VENV/bin:$PATH" "$VENV/bin/pip" install -qq --disable-pip-version-check --no-deps --no-build-isolation \
            -e "$ROOT"
        # An editable install hides a failed message build: look from elsewhere.
        (cd / && "$VENV/bin/python" -c 'import vla_sd_ros.msg, vla_sd_ros.srv')
        fingerprint > "$stamp"
    fi
    # The vla_sd_ros environment's programs come first; ROS finds its packages in it.
    export PATH="$VENV/bin:$PATH" AMENT_PREFIX_PATH="$VENV"
}
