# Ends an agent whose connection was lost and removes what is left of it. Called as: leave TAG SUDO
leave() {
    LC_ALL=C
    export LC_ALL
    tag=$1 sudo=$2
    said=$($sudo true 2>&1) || {
        echo $said >&2
        exit 1
    }
    cache=${XDG_CACHE_HOME:-$HOME/.cache}
    rm -f "$cache/iotax/$tag"
    for base in "$cache" "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
        dir=$base/$tag
        [ -d "$dir" ] || continue
        $sudo sh -c 'for process in /proc/[0-9]*; do
            case $(readlink "$process/exe") in "$1"/*) kill -9 "${process#/proc/}" ;; esac
        done' sh "$dir" 2>/dev/null
        remove
    done
    exit 0
}
