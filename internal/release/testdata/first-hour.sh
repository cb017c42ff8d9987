#!/bin/sh
# Runs two scripts in a copy of a Debian root, in the home of a new user: one as root, then one as that user.
#
#   unshare --mount --pid --mount-proc --fork first-hour.sh ROOT PACKAGE AS-ROOT AS-USER
#
# PACKAGE is put into the home. The root itself does not change: the copy is an overlay in memory, in the caller's
# mount namespace.
set -eu
new=/mnt/root
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work "$new"
mount -t overlay overlay -o "lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work" "$new"
mount -t proc proc "$new/proc"
mount --rbind /dev "$new/dev"
# scripts/torch-root.sh has patched torch, which the user has not.
for file in "$new"/usr/lib/python3/dist-packages/torch/distributed/rendezvous.py \
	"$new"/usr/lib/python3/dist-packages/torch/distributed/elastic/rendezvous/*.py; do
	! grep -q 'use_libuv=False' "$file" || sed -i 's/, use_libuv=False//' "$file"
done
chroot "$new" useradd --create-home --shell /bin/bash newcomer
home=$new/home/newcomer
cp "$2" "$home/"
cp "$3" "$home/.as-root"
cp "$4" "$home/.as-user"
chmod -R a+rX "$home"
mount -t tmpfs -o mode=1777 tmpfs "$new/tmp"
chroot "$new" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
	bash -c 'cd /home/newcomer && . ./.as-root'
chroot "$new" su - newcomer -c '. ./.as-user'
