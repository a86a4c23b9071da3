# Removes the directory `$dir` of an agent that has ended and what the agent made. Its own undo ledger knows what that is; it may
# be locked by another who does the same.
remove() {
    if [ -d "$dir/state" ]; then
        for attempt in 1 2 3 4 5; do
            said=$($sudo env XDG_STATE_HOME="$dir/state" "$dir/iotax" clean 2>&1 </dev/null)
            $sudo rmdir "$dir/state/iotax/undo" 2>/dev/null && break
            $sudo test -d "$dir/state/iotax/undo" || break
            sleep 1
        done
        if $sudo test -d "$dir/state/iotax/undo"; then
            echo "left $dir:" $said >&2
            exit 1
        fi
    fi
    said=$($sudo rm -rf "$dir" 2>&1)
    [ ! -d "$dir" ] && exit 0
    echo "left $dir:" $said >&2
    exit 1
}
