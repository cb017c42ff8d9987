#!/bin/sh
# Installs a Debian package in a copy of a Debian root with torch, trains there, removes the package and purges it.
#
#   unshare --mount --pid --mount-proc --fork install-deb.sh ROOT PACKAGE
#
# The root itself does not change: the copy is an overlay in memory, in the caller's mount namespace.
set -eu
root=$1
package=$2
new=/mnt/root

fail() {
	echo "install-deb.sh: $*" >&2
	exit 1
}
inside() {
	chroot "$new" env -i PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive USE_LIBUV=0 \
		OMP_NUM_THREADS=1 "$@"
}
# Names of everything but dpkg's own records.
list() {
	(cd "$new" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache -o -path ./tmp \) -prune -o -print) | sort
}

mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work "$new"
mount -t overlay overlay -o "lowerdir=$root,upperdir=/mnt/upper,workdir=/mnt/work" "$new"
mount -t proc proc "$new/proc"
mount --rbind /dev "$new/dev"
cp "$package" "$new/tmp/elasticrun.deb"
list >/mnt/before

inside dpkg -i /tmp/elasticrun.deb
inside dpkg --verify elasticrun
[ -z "$(inside dpkg --audit)" ] || fail "dpkg --audit finds a mistake"
inside elasticrun --version
inside dpkg -S /usr/bin/torchrun | grep '^python3-torch:' || fail "/usr/bin/torchrun is not that of python3-torch"
for file in usr/share/man/man1/elasticrun.1.gz usr/share/bash-completion/completions/elasticrun \
	usr/share/zsh/vendor-completions/_elasticrun usr/share/fish/vendor_completions.d/elasticrun.fish \
	usr/lib/systemd/system/elasticrun-store.service usr/share/doc/elasticrun/copyright; do
	[ -s "$new/$file" ] || fail "/$file is missing"
done
[ -z "$(find "$new/etc/systemd" -name 'elasticrun*')" ] || fail "the package enables its service"

cat >"$new/tmp/train.py" <<'END'
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total.item()), flush=True)
dist.destroy_process_group()
END
[ "$(inside elasticrun --nproc-per-node 2 /tmp/train.py | grep -c '^sum 2$')" -eq 2 ] || fail "two workers did not train"

mkdir "$new/var/lib/private/elasticrun-store" # of the service
touch "$new/var/lib/private/elasticrun-store/data"
inside dpkg --remove elasticrun
[ ! -e "$new/usr/bin/elasticrun" ] || fail "removing leaves /usr/bin/elasticrun"
[ -e "$new/var/lib/private/elasticrun-store/data" ] || fail "removing, which is not purging, removes the data of the store"
inside dpkg --purge elasticrun
list >/mnt/after
diff /mnt/before /mnt/after || fail "purging leaves files, or removes too many"
echo installed, removed and purged
