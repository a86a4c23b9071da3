# Finds a place on this machine for the agent's program, takes it from stdin unless it is here already, and has it serve stdin
# and stdout. For any POSIX shell. Called as: enter TAG SHA256 LENGTH LEAVE SUDO
enter() {
    LC_ALL=C
    export LC_ALL
    umask 077
    set -f
    tag=$1 hash=$2 length=$3 leave=$4 sudo=$5
    dir= why=
    cache=${XDG_CACHE_HOME:-$HOME/.cache}
    kept=$cache/iotax/$hash

    # Lines of this conversation begin with the tag: a login's greetings do not.
    say() { echo "$tag" "$@"; }
    refuse() {
        [ -z "$dir" ] || rm -rf "$dir"
        say refused "$@"
        exit 1
    }

    machine=$(uname -sm 2>&1)
    [ "$machine" = 'Linux x86_64' ] || refuse machine $machine
    said=$($sudo true 2>&1) || refuse sudo $said
    # Nothing is made before it is on record on the other side.
    say here
    read -r go || exit 1

    # Where a program can be executed and there is room for it.
    for base in "$cache" "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
        case $base in /*) [ -d "$base" ] || continue ;; *) continue ;; esac
        # A filesystem without blocks of its own has no answer.
        free=$(df -Pk "$base" 2>/dev/null | {
            read -r heading
            read -r device blocks used free rest
            [ "${blocks:-0}" -gt 0 ] 2>/dev/null && echo "$free"
        })
        if [ -n "$free" ] && [ $((free * 1024)) -lt "$length" ]; then
            why="$why $base: $free KiB are free;"
        elif said=$( (
            mkdir "$base/$tag" && cd "$base/$tag" && printf '#!/bin/sh\n' >try && chmod 700 try && ./try && rm try
        ) 2>&1); then
            dir=$base/$tag
            break
        else
            why="$why $base: $said;"
            rm -rf "${base:?}/$tag"
        fi
    done
    [ -n "$dir" ] || refuse place $why

    is_here() { [ "$(sha256sum 2>/dev/null <"$kept")" = "$hash  -" ]; }
    if [ -f "$kept" ] && is_here; then
        leave=
        said=$( (ln "$kept" "$dir/iotax" || cp "$kept" "$dir/iotax") 2>&1)
    else
        say want
        said=$(head -c "$length" 2>&1 >"$dir/iotax")
    fi
    [ "$(($(wc -c <"$dir/iotax")))" -eq "$length" ] || refuse copy $said
    chmod 700 "$dir/iotax"
    if [ -n "$leave" ]; then
        said=$( (
            mkdir -p "$cache/iotax" && cp "$dir/iotax" "$cache/iotax/$tag" && mv -f "$cache/iotax/$tag" "$kept"
        ) 2>&1) || refuse leave $said
    fi

    say agent
    # A shell that a lost connection killed would leave its directory behind.
    trap : HUP INT TERM PIPE
    $sudo env XDG_STATE_HOME="$dir/state" "$dir/iotax" agent
    remove
}
