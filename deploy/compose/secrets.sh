#!/usr/bin/env sh
# Creates the passwords that compose.yaml mounts, in the folder secrets beside this
# script, or in DIR. It does not change existing files, and refuses a folder that other
# users can enter.
#
# usage: secrets.sh [DIR]
set -eu
umask 077
dir=${1:-$(dirname -- "$0")/secrets}
mkdir -p "$dir"
case $(ls -ld "$dir") in
d???------*) ;;
*)
  echo "secrets.sh: other users can enter $dir, and could read the secrets: name a folder of their own, or run chmod 700 on it" >&2
  exit 1
  ;;
esac

# fresh FILE creates FILE with a random password, unless it exists.
fresh() {
  if [ ! -s "$dir/$1" ]; then head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/$1"; fi
}

fresh db_root_password
fresh db_password
fresh redis_password
if [ ! -s "$dir/payment_secret" ]; then printf 'whsec_%s' "$(head -c 32 /dev/urandom | base64)" >"$dir/payment_secret"; fi
# Replace these: your mail server's password, and your key of Stripe.
fresh smtp_password
fresh stripe_key

printf 'orderclose:%s@tcp(mariadb:3306)/shop' "$(cat "$dir/db_password")" >"$dir/db_dsn"
printf 'postgres://orderclose:%s@postgres:5432/shop?sslmode=disable' "$(cat "$dir/db_password")" >"$dir/postgres_dsn"
printf 'redis://:%s@redis:6379/0' "$(cat "$dir/redis_password")" >"$dir/redis_url"
# Containers read them as users of their own; the folder's mode keeps all other users
# out.
for name in db_root_password db_password redis_password payment_secret smtp_password stripe_key db_dsn redis_url; do
  chmod 644 "$dir/$name"
done
