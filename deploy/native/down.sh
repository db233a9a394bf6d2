#!/usr/bin/env bash
# Stops every server below DIR (default: the folder of up.sh), each by its process id
# or container, and removes DIR. Servers that the environment names are not touched.
#
# usage: down.sh [DIR]
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

dir=${1:-$(default_dir)}
if [[ ! -d $dir ]]; then
  note "nothing in $dir"
  exit
fi
[[ -e $dir/.orderclose ]] || die "$dir is not a folder of up.sh"
dir=$(own_dir "$dir")
lock_dir "$dir"
while IFS= read -r -d '' file; do
  stop_server "$(dirname -- "$file")" &
done < <(find "$dir" \( -name pid -o -name container \) -type f -print0)
wait
rm -rf -- "$dir"
