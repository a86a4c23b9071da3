# Ends an agent whose connection was lost and removes what is left of it. Nothing is executed but in the very directory that was made
# for it. Called as: leave MARK SHA256 SUDO INODE PARENT BOOT PLACE, the last four empty if no place came to be on record.
leave() {
    LC_ALL=C
    export LC_ALL
    mark=$1 hash=$2 sudo=$3 expected=$4 parent=$5 boot=$6 place=$7
    said=$($sudo true 2>&1) || {
        echo $said >&2
        exit 3
    }
    cache=${XDG_CACHE_HOME:-$HOME/.cache}
    rm -f "$cache/iotax/$mark"
    [ -n "$place" ] || sweep
    set -f
    cd "$place" 2>/dev/null || absent
    is_private "$place" && [ "$inode" = "$expected" ] || left "$NOT_OURS"
    # Where another has just removed it there is no path, and nothing may match.
    $sudo sh -c 'dir=$(pwd -P) && [ -n "$dir" ] || exit
        for process in /proc/[0-9]*; do
            case $(readlink "$process/exe") in "$dir"/*) kill -9 "${process#/proc/}" ;; esac
        done' 2>/dev/null
    # Another who does the same removes both at once.
    [ ! -d state ] || is_program || [ ! -d state ] || left 'its program is not the one that was sent and is not executed'
    remove
}

NOT_OURS='this is not the directory that was made there for the agent, or others may write to it; left alone'

# There is nothing at its path: it is gone if it is not elsewhere in the directory that it was made in.
absent() {
    { [ -e "$place" ] || [ -h "$place" ]; } && left "$NOT_OURS"
    case $boot in
    - | "$(this_life)") ;;
    *) left 'it was in memory or in a container that was started anew since: what the agent made may be left' ;;
    esac
    cd "${place%/*}/" 2>/dev/null && set -- $(ls -di .) && [ "$1" = "$parent" ] ||
        left 'it is not there any more, nor is the directory that it was made in'
    # Another file may have its inode by now.
    name=$(ls -Ai . | while read -r number name; do
        [ "$number" = "$expected" ] && cd "./$name" 2>/dev/null && is_private "$(pwd -P)" && is_program && echo "$name"
    done)
    [ -z "$name" ] || left "it is called $name there now"
    exit 0
}

# A place that was made and not yet put on record: nothing of an agent's has run in it.
sweep() {
    for base in "$cache" "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
        base=$(cd "$base" 2>/dev/null && pwd -P) || continue
        for place in "$base/iotax-$mark-"*; do
            cd "$place" 2>/dev/null && is_private "$place" && rm -f try && cd / && rmdir "$place"
        done
    done
    exit 0
}
