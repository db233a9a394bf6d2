#!/bin/sh
# systemd reads the units of a package that came, changed or went.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
