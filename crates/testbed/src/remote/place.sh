# The directory on this machine that holds the agent's program, for any POSIX shell. Whatever is done in it is done from within it:
# its name is in nobody's command line, and what comes to stand at its path meanwhile does not matter.

# Programs ask for a home, and a container's user may have none.
[ -n "$HOME" ] || export HOME=/

# Whether the working directory is the one at this path and this user's alone: then nobody else put anything into it. Sets its inode.
is_private() {
    [ "$(pwd -P)" = "$1" ] || return 1
    set -- $(ls -ldin . 2>/dev/null)
    inode=$1
    case "$2 $4" in "drwx--"[-S]"---"*" $(id -u)") ;; *) return 1 ;; esac
}

# Whether the program in it is the one that was to come here.
is_program() { [ "$(sha256sum 2>/dev/null <iotax)" = "$hash  -" ]; }

left() {
    echo "left $place:" "$@" >&2
    exit 3
}

# The life of this kernel and of the first process, which in a container is the container's.
this_life() {
    read -r kernel </proc/sys/kernel/random/boot_id
    read -r first </proc/1/stat
    set -- ${first##*) }
    echo "$kernel.${20}"
}

# Removes the working directory, an agent's that has ended, and what the agent made. Its own undo log knows what that is; it may
# be locked by another who does the same. Under sudo root executes a program of this user, who may execute anything as root.
remove() {
    if [ -d state ]; then
        for attempt in 1 2 3 4 5; do
            said=$($sudo sh -c 'export XDG_STATE_HOME="$PWD/state" IOTAX_PLACE_OWNER="$1"; exec ./iotax clean' \
                sh "$(id -u)" 2>&1 </dev/null)
            $sudo rmdir state/iotax/undo 2>/dev/null && break
            $sudo test -d state/iotax/undo || break
            sleep 1
        done
        $sudo test -d state/iotax/undo && left $said
    fi
    # It is empty by then: that its name is seen does no harm.
    said=$({ $sudo rm -rf state iotax try && rmdir "$place"; } 2>&1)
    # A directory that was removed has no links; one that was renamed has.
    set -- $(ls -ldn . 2>/dev/null)
    [ "${2:-0}" = 0 ] && exit 0
    left $said
}
