#!/bin/sh
# The processes of a package that is removed stop. $1 is then remove (dpkg), or the number of versions that are left (rpm).
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
  systemctl stop 'orderclose@*' orderclose-payments.service orderclose-setup.service
fi
