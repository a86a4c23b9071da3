# Makes a place on this machine for the agent's program, takes the program from stdin unless it is here already, and has it serve
# stdin and stdout. For any POSIX shell. Called as: enter TAG MARK SHA256 LENGTH LEAVE SUDO ROLE FLEETING
enter() {
    LC_ALL=C
    export LC_ALL
    umask 077
    set -f
    tag=$1 mark=$2 hash=$3 length=$4 leave=$5 sudo=$6 role=$7 fleeting=$8
    place= why=
    cache=${XDG_CACHE_HOME:-$HOME/.cache}
    kept=$cache/iotax/$hash

    # Lines of this conversation begin with the tag: a login's greetings do not.
    say() { printf '%s\n' "$tag $*"; }
    # Nothing of the agent's has run yet.
    abandon() {
        [ -z "$place" ] || { rm -f iotax try && cd / && rmdir "$place"; }
        exit 1
    }
    refuse() {
        say refused "$@"
        abandon
    }
    # Has the other side write down what is about to be done or was done.
    await_go() { read -r go || abandon; }

    machine=$(uname -sm 2>&1)
    [ "$machine" = 'Linux x86_64' ] || refuse machine $machine
    said=$($sudo true 2>&1) || refuse sudo $said
    say here
    await_go

    # Where a program can be executed and there is room for it.
    for base in "$cache" "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
        case $base in /*) cd "$base" 2>/dev/null || continue ;; *) continue ;; esac
        # A filesystem without blocks of its own has no answer.
        free=$(df -Pk . 2>/dev/null | {
            read -r heading
            read -r device blocks used free rest
            [ "${blocks:-0}" -gt 0 ] 2>/dev/null && echo "$free"
        })
        if [ -n "$free" ] && [ $((free * 1024)) -lt "$length" ]; then
            why="$why $base: $free KiB are free;"
            continue
        fi
        set -- $(ls -di .)
        parent=$1
        # Of mode 0700 from the start, by a name that is its own choice.
        said=$(mktemp -d "$(pwd -P)/iotax-$mark-XXXXXXXXXX" 2>&1) || {
            why="$why $base: $said;"
            continue
        }
        place=$said
        said="what is made there is not this user's alone"
        if cd "$place" && is_private "$place"; then
            said=$({ printf '#!/bin/sh\n' >try && chmod 700 try && ./try && rm try; } 2>&1) && break
            rm -f try
        fi
        why="$why $base: $said;"
        cd / && rmdir "$place"
        place=
    done
    [ -n "$place" ] || refuse place $why
    # What is in memory is lost with its kernel or container, and so may be what is in a container.
    boot=
    case $fleeting$(stat -f -c %T . 2>/dev/null) in yes* | tmpfs | ramfs) boot=$(this_life) ;; esac
    say place "$inode" "$parent" "${boot:--}" "$place"
    await_go

    [ -f "$kept" ] && said=$(cp "$kept" iotax 2>&1) && is_program && leave= || {
        say want
        # A kept one that cannot be written over is in the way.
        rm -f iotax
        said=$(head -c "$length" 2>&1 >iotax)
        [ "$(($(wc -c <iotax)))" -eq "$length" ] || refuse copy $said
        # What cannot be compared here came over this very connection.
        said=$(sha256sum </dev/null 2>&1) && { is_program || refuse copy "it is not what was sent"; }
    }
    chmod 700 iotax
    if [ -n "$leave" ]; then
        said=$( (
            mkdir -p "$cache/iotax" && (cd "$cache/iotax" && is_private "$(pwd -P)" || {
                echo "$cache/iotax is not this user's alone"
                exit 1
            }) && cp iotax "$cache/iotax/$mark" && mv -f "$cache/iotax/$mark" "$kept"
        ) 2>&1) || refuse leave $said
    fi

    say agent
    # A shell that a lost connection killed would leave its directory behind.
    trap : HUP INT TERM PIPE
    $sudo sh -c 'export XDG_STATE_HOME="$PWD/state" IOTAX_PLACE_OWNER="$1"; shift; exec ./iotax "$@"' sh "$(id -u)" $role
    remove
}
