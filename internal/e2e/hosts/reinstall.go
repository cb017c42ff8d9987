package hosts

import "maps"

// Reinstall makes another machine of a host on which nothing runs: one with this name and address, and with these files of /etc, such as
// "hosts" and "resolv.conf", in place of its own. No other host hears of it.
func (h *Host) Reinstall(name, addr string, etc map[string]string) {
	h.lab.t.Helper()
	if running := h.Processes(); len(running) > 0 {
		h.lab.t.Fatalf("cannot reinstall %s, where there is %s", h.Name, running[0])
	}
	files := map[string]string{"hostname": name + "\n"}
	maps.Copy(files, etc)
	if err := h.write(files); err != nil {
		h.lab.t.Fatal(err)
	}
	h.lab.ip(h.namespace, "addr flush dev eth0", "addr add "+addr+"/24 dev eth0")
	h.Name, h.Addr = name, addr
}
