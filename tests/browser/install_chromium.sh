#!/bin/sh
# Chromium and its driver, which the console's tests need. Debian's packages: both of one version.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

if have chromium && have chromedriver; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! have apt-get; then
    echo "The tests of the console need Chromium and its driver, and they are not here." >&2
    echo "On Debian: sudo apt-get install chromium chromium-driver fonts-liberation" >&2
    exit 1
fi
echo "installing Chromium and its driver"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    chromium chromium-driver fonts-liberation >/dev/null
