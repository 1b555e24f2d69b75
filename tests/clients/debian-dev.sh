#!/bin/bash
# debian-dev.sh -- a program built with Debian's libdlm-dev runs with the library under test.
#   LIBDIR=... [LIBENV="VAR=VALUE ..."] debian-dev.sh
# Built twice: for libdlm.so.3 and for libdlm_lt.so.3. No path of ours is known to compiler or linker.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LIBDIR:?}" "${LIBENV:=}"
LIBDIR=$(cd "$LIBDIR" && pwd -P)
D=$(mktemp -d /tmp/deb.XXXXXX); trap 'rm -rf "$D"' EXIT
pass=0 fail=0
for lib in dlm dlm_lt; do
  if ! env -u C_INCLUDE_PATH -u CPATH -u LIBRARY_PATH cc -Wall -O1 -o "$D/$lib" "$here/debian-dev.c" "-l$lib" >"$D/out" 2>&1; then
    echo "not ok - $lib: compiles with Debian's header"; sed 's/^/#  /' "$D/out"; fail=$((fail+1)); continue
  fi
  env LD_LIBRARY_PATH="$LIBDIR" $LIBENV timeout 60 "$D/$lib" "$LIBDIR" >"$D/out" 2>&1; rc=$?
  grep -E '^(ok|not ok) - ' "$D/out" | sed "s/ - / - $lib: /"
  p=$(grep -c '^ok - ' "$D/out") f=$(grep -c '^not ok - ' "$D/out")
  if ! grep -qE '^[0-9]+ passed, [0-9]+ failed$' "$D/out"; then
    f=$((f+1)); echo "not ok - $lib: comes to its end (exit code $rc)"; tail -5 "$D/out" | sed 's/^/#  /'
  fi
  pass=$((pass+p)) fail=$((fail+f))
done
echo "$pass passed, $fail failed"; [ "$fail" = 0 ]
