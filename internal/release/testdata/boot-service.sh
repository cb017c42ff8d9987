#!/bin/sh
# Boots a copy of a Debian root with systemd, runs the service of a Debian package there, and powers it off.
#
#   unshare --mount --pid --mount-proc --fork boot-service.sh ROOT PACKAGE
#
# The root itself does not change: the copy is an overlay in memory, in the caller's mount namespace. The record of what
# happened inside is printed.
set -eu
new=/mnt/root
mount -t tmpfs tmpfs /mnt
mount -t tmpfs tmpfs /run # systemd-nspawn leaves folders there
mkdir /mnt/upper /mnt/work "$new"
mount -t overlay overlay -o "lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work" "$new"
cp "$2" "$new/root/elasticrun.deb"
chroot "$new" dpkg -i /root/elasticrun.deb >/dev/null
mkdir "$new/etc/systemd/system/elasticrun-store.service.d"
printf '[Service]\nWatchdogSec=1s\nRestartSec=0\n' >"$new/etc/systemd/system/elasticrun-store.service.d/watchdog.conf"
cat >"$new/etc/systemd/system/inside.service" <<'END'
[Unit]
After=multi-user.target
[Service]
ExecStart=/root/inside.sh
ExecStopPost=/bin/systemctl poweroff
[Install]
WantedBy=multi-user.target
END
mkdir -p "$new/etc/systemd/system/multi-user.target.wants"
ln -s ../inside.service "$new/etc/systemd/system/multi-user.target.wants/inside.service"
cat >"$new/root/inside.sh" <<'END'
#!/bin/sh
exec >/root/record 2>&1
show() { systemctl show -P "$1" elasticrun-store; }
# restarted PID waits until the service runs in another process than PID.
restarted() {
	for _ in $(seq 300); do
		now=$(show MainPID)
		if [ "$now" != "$1" ] && [ "$now" != 0 ] && [ "$(show ActiveState)" = active ]; then
			echo restarted
			return
		fi
		sleep 0.1
	done
	echo "not restarted: ActiveState=$(show ActiveState) NRestarts=$(show NRestarts)"
}
add() {
	python3 -c 'import socket
s = socket.create_connection(("127.0.0.1", 29400), 5)
s.sendall(b"\x03" + (1).to_bytes(8, "little") + b"n" + (5).to_bytes(8, "little"))
print("added", s.recv(8)[0])'
}
# fed waits until the service has fed the watchdog.
fed() {
	last=$(show WatchdogTimestampMonotonic)
	for _ in $(seq 100); do
		[ "$(show WatchdogTimestampMonotonic)" = "$last" ] || return 0
		sleep 0.1
	done
	echo the watchdog is not fed
}
systemctl is-enabled elasticrun-store
echo "ActiveState=$(show ActiveState)"
systemctl start elasticrun-store
echo "StatusText=$(show StatusText)"
add
pid=$(show MainPID)
grep -E '^(CapEff|NoNewPrivs|Seccomp):' "/proc/$pid/status"
[ "$(stat -c %u "/proc/$pid")" -ge 61184 ] && echo its own user
fed
fed
fed
[ "$(show MainPID)" = "$pid" ] && echo still the first
kill -STOP "$pid"
restarted "$pid"
add
pid=$(show MainPID)
kill -ABRT "$pid"
restarted "$pid"
systemctl stop elasticrun-store
echo "Result=$(show Result)"
echo 'STORE_FLAGS=--no-such-flag' >/etc/default/elasticrun-store
systemctl start elasticrun-store 2>/dev/null || echo "refused: ExecMainStatus=$(show ExecMainStatus) NRestarts=$(show NRestarts)"
rm /etc/default/elasticrun-store
systemctl reset-failed elasticrun-store
systemctl enable --now --quiet elasticrun-store
dpkg --remove elasticrun >/dev/null
systemctl is-active elasticrun-store
dpkg --purge elasticrun >/dev/null 2>&1
ls -A /var/lib/private
ls /etc/systemd/system/multi-user.target.wants | grep elasticrun
echo end
END
chmod +x "$new/root/inside.sh"
systemd-nspawn --quiet --register=no --keep-unit --private-network --boot --directory "$new" </dev/null >/mnt/console 2>&1 || cat /mnt/console >&2
cat "$new/root/record"
