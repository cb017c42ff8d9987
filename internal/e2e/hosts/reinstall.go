package hosts

import "maps"

// Reinstall turns an idle host into another machine, with a new name, a new address and new files in /etc, such as
// "hosts" and "resolv.conf". It does not change the hosts files of the other hosts.
func (h *Host) Reinstall(name, addr string, etc map[string]string) {
	h.lab.t.Helper()
	if running := h.Processes(); len(running) > 0 {
		h.lab.t.Fatalf("cannot reinstall %s while it runs %s", h.Name, running[0])
	}
	files := map[string]string{"hostname": name + "\n"}
	maps.Copy(files, etc)
	if err := h.write(files); err != nil {
		h.lab.t.Fatal(err)
	}
	h.lab.ip(h.namespace, "addr flush dev eth0", "addr add "+addr+"/24 dev eth0")
	h.Name, h.Addr = name, addr
}
