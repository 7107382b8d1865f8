#!/bin/sh
# A folder with Python, NumPy and SciPy of 64-bit ARM, for test_arm.py: arm64.sh FOLDER. Debian's packages are unpacked and
# not configured: nothing of them runs here but under qemu-aarch64. Needs mmdebstrap, and a Debian or Ubuntu with Debian's keys.
set -eu
mmdebstrap --arch=arm64 --variant=extract --include=python3-numpy,python3-scipy,libpython3.13-dev trixie "$1"
for folder in bin lib sbin; do
    [ -e "$1/$folder" ] || ln -s "usr/$folder" "$1/$folder"
done
