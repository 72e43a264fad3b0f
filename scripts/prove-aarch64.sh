#!/usr/bin/env bash
# Prove that the board's worker installs and runs on Arm: a Debian user land of that architecture
# under qemu, PoCL and Python's packages from Debian in it, and a small cut of a VGG-16 layer
# tuned end to end against `nestmap serve` on loopback. Takes a quarter of an hour, most of it
# emulated package scripts; a second run finds the user land and takes two minutes.
#
#   sudo scripts/prove-aarch64.sh [arm64|armhf]     (root: it makes a file system of others' files)
#
# From the environment: FOLDER for the user land (/var/tmp/nestmap-<architecture>), MIRROR,
# CANDIDATES, DEVICE (pocl), PYTHON with nestmap installed (.venv/bin/python).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
architecture=${1:-arm64}
case $architecture in
    arm64) qemu=aarch64 machine=aarch64 ;;
    armhf) qemu=arm machine=armv7l ;;
    *) echo "usage: $0 [arm64|armhf]" >&2; exit 2 ;;
esac
folder=${FOLDER:-/var/tmp/nestmap-$architecture}
root=$folder/root
python=${PYTHON:-$here/.venv/bin/python}
packages=python3,python3-numpy,python3-pyopencl,pocl-opencl-icd,ca-certificates,binutils,libc6-dev

say() { printf '%s %s\n' "$(date +%T)" "$*"; }

(($(id -u) == 0)) || { echo "$0: run it as root" >&2; exit 2; }
for tool in debootstrap "qemu-$qemu-static"; do
    command -v "$tool" >/dev/null || {
        echo "$0: apt-get install debootstrap qemu-user-static" >&2; exit 2; }
done

# How the kernel learns to run the other architecture's programs. Where it cannot, proot
# starts each of them with qemu, several times slower.
registered=
enter=(chroot "$root")
if [[ ! -e /proc/sys/fs/binfmt_misc/qemu-$qemu ]]; then
    [[ -e /proc/sys/fs/binfmt_misc/register ]] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || true
    if cat "/usr/lib/binfmt.d/qemu-$qemu.conf" > /proc/sys/fs/binfmt_misc/register 2>/dev/null; then
        registered=/proc/sys/fs/binfmt_misc/qemu-$qemu
    else
        command -v proot >/dev/null || { echo "$0: apt-get install proot" >&2; exit 2; }
        say "no binfmt_misc: proot starts each program with qemu"
        enter=(proot -0 -q "qemu-$qemu-static" -r "$root" -b /dev -b /proc -b /sys -w /)
    fi
fi
run() { "${enter[@]}" "$@"; }
mounted=()
clean() {
    for place in "${mounted[@]}"; do umount "$place" || true; done
    [[ -z $registered ]] || echo -1 > "$registered"
}
trap clean EXIT
mount_in() { # type-and-options source place
    mountpoint -q "$root/$3" && return
    mount $1 "$2" "$root/$3"
    mounted=("$root/$3" "${mounted[@]}")
}

if [[ ! -e $folder/complete ]]; then
    mkdir -p "$folder"
    rm -rf --one-file-system "$root"
    say "fetching Debian bookworm for $architecture"
    debootstrap --arch="$architecture" --variant=minbase --foreign --include="$packages" \
        bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" > "$folder/debootstrap.log"
    say "setting its packages up under qemu"
    run /debootstrap/debootstrap --second-stage >> "$folder/debootstrap.log"
    touch "$folder/complete"
fi
# PoCL asks the topology of the machine; the agent asks for its processes.
mount_in "-t proc" proc proc
mount_in "-t sysfs -o ro" sysfs sys
mount_in "--bind" /dev dev

say "user land: $(run uname -m), Debian $(cat "$root/etc/debian_version"), $(run python3 --version)"
[[ $(run uname -m) == "$machine" ]]
"$here/scripts/pack-board-worker.sh" "$root/usr/local/bin/nestmap-worker.pyz"
say "the worker in one file: $(stat -c %s "$root/usr/local/bin/nestmap-worker.pyz") bytes"
run python3 /usr/local/bin/nestmap-worker.pyz --version

rm -rf "$folder/farm" "$root/var/lib/nestmap-worker"
mkdir -p "$folder/farm"
"$python" "$here/scripts/board_proof.py" --machine "$machine" --folder "$folder/farm" \
    --candidates "${CANDIDATES:-4}" -- \
    "${enter[@]}" python3 /usr/local/bin/nestmap-worker.pyz \
    --device "${DEVICE:-pocl}" --state /var/lib/nestmap-worker --cache-mb 64
