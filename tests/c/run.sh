#!/bin/bash
# The C and C++ tests: compiles each program against our header and libraries, starts a daemon of
# its own for it, runs it, and looks whether anything is left behind.
#
#   tests/c/run.sh [WORD]...     all programs, or those whose name contains a WORD
#
# DLM_LIB_DIR, DLM_INCLUDE_DIR, DLM_BIN_DIR say where the product is (default: this tree's release
# build). DLM_TEST_SCALE=100 makes the full counts of the storms, DLM_TEST_SEED another random run,
# DLM_TEST_JOBS other parallelism, DLM_TEST_NO_VALGRIND=1 leaves the slow runs out. DLM_TEST_LIMIT
# multiplies the hang guards. Failed programs leave their daemon's log in the output.
#
# A source says in its head what it wants:
#   @test libs=dlm,lt|none [timeout=SECONDS] [daemon=none] [plain] [valgrind]
# plain: it has a main of its own and is one test; valgrind: it runs under valgrind a second time.
#
# Exit code: 0 all passed, 1 something failed, 3 cannot run here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$(realpath "${DLM_BIN_DIR:-$root/target/release}")
include=$(realpath "${DLM_INCLUDE_DIR:-$root/include}")
libs=$(realpath "${DLM_LIB_DIR:-$bin}")
jobs=${DLM_TEST_JOBS:-2}
limits=${DLM_TEST_LIMIT:-1}

work=$(mktemp -d "${TMPDIR:-/tmp}/dlm-c.XXXXXX") || exit 3
# Ends by its id what this run started; everything it started dies with it (see below).
finish() {
    local pid
    for pid in $(cat "$work"/*/dlmd.pid 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 3' INT TERM HUP

cannot() { echo "tests/c: $*" >&2; exit 3; }
command -v cc >/dev/null || cannot "no C compiler; install gcc and libc6-dev"
[ -x "$bin/dlmd" ] || cannot "$bin/dlmd is not there; build it with cargo build --release -p dlmd"
[ -f "$include/libdlm.h" ] || cannot "$include/libdlm.h is not there"

# The libraries under the names that programs load.
if [ ! -e "$libs/libdlm.so.3" ] || [ ! -e "$libs/libdlm_lt.so.3" ]; then
    for name in libdlm libdlm_lt; do
        [ -f "$libs/$name.so" ] || cannot "$libs/$name.so is not there; build package $name"
        mkdir -p "$work/lib"
        ln -sf "$libs/$name.so" "$work/lib/$name.so.3"
        ln -sf "$name.so.3" "$work/lib/$name.so"
    done
    libs=$work/lib
fi

option() { # FILE WORD: the value of WORD= in the source's @test line, or WORD itself
    sed -n 's/^.*@test //p' "$1" | head -n 1 | tr ' ' '\n' |
        sed -n "s/^$2=//p; s/^$2\$/$2/p" | head -n 1
}

# ---------------------------------------------------------------- compiling
warnings="-Wall -Wextra -Werror -O1 -g -I$include -I$here"
build_harness() { # LIB
    local lib=$1 define file
    [ "$lib" = lt ] && define="-DLT" || define=""
    mkdir -p "$work/$lib.o"
    for file in t lock proc tool; do
        cc -std=gnu11 $warnings -pthread $define -c "$here/$file.c" -o "$work/$lib.o/$file.o" ||
            return 1
    done
}

# SOURCE LIB: everything in one program.
build() {
    local source=$1 lib=$2 out harness compiler std link define=""
    out=$work/bin/$(basename "${source%.*}").$lib
    harness="$work/$lib.o/*.o"
    [ -n "$(option "$source" plain)" ] && harness=""
    case $lib in
        dlm) link="-L$libs -ldlm -pthread" ;;
        lt) link="-L$libs -ldlm_lt -pthread"; define="-DLT" ;;
        none) link="-L$libs -ldlm -ldl -pthread"; harness="$work/dlm.o/*.o" ;;
    esac
    case $source in
        *.cc) compiler=g++ std=-std=c++17 ;;
        *) compiler=cc std=-std=gnu11 ;;
    esac
    $compiler $std $warnings $define "$source" $harness $link -o "$out" >"$out.log" 2>&1
}

# ---------------------------------------------------------------- running
start_daemon() { # DIR
    local dir=$1 pid begin=$SECONDS
    mkfifo "$dir/stop"
    # The daemon ends when the last writer of this pipe is gone: it cannot outlive this script.
    env -u NOTIFY_SOCKET -u JOURNAL_STREAM "$bin/dlmd" --foreground --until-stdin-closes \
        --override-kernel-dlm --socket "$dir/dlmd.sock" <"$dir/stop" >"$dir/dlmd.log" 2>&1 &
    pid=$!
    echo $pid >"$dir/dlmd.pid"
    exec 9>"$dir/stop"
    while kill -0 "$pid" && [ $((SECONDS - begin)) -lt 60 ]; do
        [ -S "$dir/dlmd.sock" ] && return 0
        sleep 0.05
    done
    echo "not ok daemon: dlmd does not serve after $((SECONDS - begin)) s:" \
        "$(tail -n 3 "$dir/dlmd.log" | tr '\n' ' ')"
    return 1
}

stop_daemon() { # DIR
    local dir=$1 pid i
    pid=$(cat "$dir/dlmd.pid")
    kill -0 "$pid" 2>/dev/null || echo "not ok daemon: dlmd ended by itself during the tests"
    exec 9>&-
    for i in $(seq 600); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    grep -a -A1 'panicked at' "$dir/dlmd.log" >"$dir/panic" &&
        echo "not ok daemon: dlmd panicked: $(head -n 2 "$dir/panic")"
}

# No lockspace, no lock, no client may be left.
leak_check() {
    local dir=$1 out
    [ -x "$bin/dlm_tool" ] || { echo "skip leaks leak check: dlm_tool is not there"; return; }
    for _ in $(seq 600); do
        out=$(timeout 10 "$bin/dlm_tool" status --json 2>&1)
        if tr -d ' \n' <<<"$out" | grep -q '"clients":0' &&
            ! timeout 10 "$bin/dlm_tool" ls --json | grep -q '"name"'; then
            echo "ok leaks no lockspace and no client is left"
            return
        fi
        sleep 0.05
    done
    echo "not ok leaks left behind: $(tr -d '\n' <<<"$out" | cut -c 1-300)" \
        "$("$bin/dlm_tool" ls 2>&1 | tr '\n' ' ' | cut -c 1-300)"
}

# SOURCE LIB HOW: one program; its lines go to a file of its own.
run() {
    local source=$1 lib=$2 how=$3 name dir code limit prefix=()
    name=$(basename "${source%.*}").$lib
    dir=$work/run.$name.$how
    mkdir -p "$dir"
    chmod 755 "$work" "$dir"
    limit=$(option "$source" timeout)
    limit=$(((${limit:-600}) * limits))
    if [ "$how" = valgrind ]; then
        limit=$((limit * 4))
        export DLM_TEST_LIMIT=$((limits * 4))
        prefix=(valgrind --quiet --error-exitcode=99 --leak-check=full --vgdb=no
            --errors-for-leak-kinds=definite --show-leak-kinds=definite
            "--log-file=$dir/valgrind.%p")
    fi
    export DLM_BIN_DIR=$bin DLM_LIB_DIR=$libs LD_LIBRARY_PATH=$libs DLM_TEST_DIR=$dir
    export DLM_SOCKET=$dir/dlmd.sock
    if [ "$(option "$source" daemon)" = none ]; then
        export DLM_TEST_OWN_DAEMON=1
    else
        start_daemon "$dir" || return
        DLM_TEST_DAEMON_PID=$(cat "$dir/dlmd.pid")
        export DLM_TEST_DAEMON_PID
    fi
    timeout -k 10 "$limit" "${prefix[@]}" "$work/bin/$name" >"$dir/out" 2>&1 9>&- </dev/null
    code=$?
    grep -aE '^(ok|not ok|skip) ' "$dir/out"
    if [ -n "$(option "$source" plain)" ]; then
        [ $code = 0 ] && echo "ok $(basename "${source%.*}") exit code 0" ||
            echo "not ok $(basename "${source%.*}") exit code $code: $(tail -n 2 "$dir/out")"
    elif [ $code = 124 ] || [ $code = 137 ]; then
        echo "not ok program stuck: ended after $limit s"
    elif [ $code != 0 ] && ! grep -aq '^not ok ' "$dir/out"; then
        echo "not ok program exit code $code: $(tail -n 2 "$dir/out")"
    fi
    if [ "$how" = valgrind ] && [ -n "$(cat "$dir"/valgrind.* 2>/dev/null)" ]; then
        echo "not ok valgrind: $(cat "$dir"/valgrind.* | head -n 40 | tr '\n' '~')"
    fi
    [ -n "${DLM_TEST_OWN_DAEMON:-}" ] && return
    leak_check "$dir"
    stop_daemon "$dir"
}

# A job prints when it is complete, so that lines of two never mix.
job() {
    local name dir
    name=$(basename "${1%.*}").$2
    dir=$work/run.$name.$3
    [ "$3" = valgrind ] && name=$name.valgrind
    (run "$@") 2>&1 | sed -E "s/^(ok|not ok|skip) /\1 - $name: /" >"$work/lines.$name"
    if grep -q '^not ok' "$work/lines.$name" && [ -s "$dir/dlmd.log" ]; then
        tail -n 15 "$dir/dlmd.log" | sed 's/^/    dlmd: /' >>"$work/lines.$name"
    fi
    cat "$work/lines.$name"
    cat "$work/lines.$name" >>"$work/lines"
    rm -rf "$dir"
}

bounded() { # COMMAND...: at most $jobs of them at once
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    "$@" &
}

chosen() {
    [ ${#words[@]} = 0 ] && return 0
    local word
    for word in "${words[@]}"; do [[ $1 == *$word* ]] && return 0; done
    return 1
}

main() {
    words=("$@")
    mkdir -p "$work/bin"
    : >"$work/lines"
    build_harness dlm && build_harness lt || cannot "the harness does not compile"
    todo=()
    for source in "$here"/*.c "$here"/*.cc; do
        wanted=$(option "$source" libs)
        [ -n "$wanted" ] && chosen "$(basename "$source")" || continue
        for lib in ${wanted//,/ }; do todo+=("$source $lib"); done
    done
    for item in "${todo[@]}"; do bounded build $item; done
    wait
    for item in "${todo[@]}"; do
        set -- $item
        name=$(basename "${1%.*}").$2
        if [ ! -x "$work/bin/$name" ]; then
            echo "not ok - $name: does not compile" | tee -a "$work/lines"
            head -n 20 "$work/bin/$name.log"
            continue
        fi
        bounded job "$1" "$2" plain
        [ -n "$(option "$1" valgrind)" ] && [ -z "${DLM_TEST_NO_VALGRIND:-}" ] || continue
        if command -v valgrind >/dev/null; then
            bounded job "$1" "$2" valgrind
        else
            echo "skip - $name.valgrind: valgrind is not installed" | tee -a "$work/lines"
        fi
    done
    wait

    passed=$(grep -ac '^ok - ' "$work/lines")
    failed=$(grep -ac '^not ok - ' "$work/lines")
    echo
    grep -a '^not ok - ' "$work/lines"
    echo "$(grep -ac '^skip - ' "$work/lines") skipped:"
    grep -a '^skip - ' "$work/lines" | sed 's/^skip - /    /'
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# Read as a whole before it runs, so that an editor's save does not disturb a run.
main "$@"
exit $?
