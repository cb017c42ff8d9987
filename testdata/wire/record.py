#!/usr/bin/env python3
"""Records the traffic between a TCPStore client and server of torch, and prints it as JSON (README.md here).

    python-official testdata/wire/record.py >testdata/wire/torch-2.15.0.json

A proxy between client and server keeps the bytes. It is a process of its own, because torch 1.13 makes Python objects
without holding the interpreter's lock. The server uses libuv if this torch has it. Calls that this torch lacks are
left out.
"""

import datetime
import json
import multiprocessing
import re
import select
import socket

QUIET = 0.2  # seconds without traffic after which a call is over


def proxy(listener, port, calls):
    """Copies bytes, and sends those of each call, (client to server, server to client), whenever it is asked."""
    peers, traffic = {}, {True: b"", False: b""}
    while True:
        ready = select.select([listener, calls, *peers], [], [], None)[0]
        if ready == [calls]:  # the call has returned: what it sent may still be on its way
            if select.select([listener, *peers], [], [], QUIET)[0]:
                continue
            if not calls.recv():
                return
            calls.send((traffic[True].hex(), traffic[False].hex()))
            traffic = {True: b"", False: b""}
        for sock in ready:
            if sock is listener:
                client, server = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[client], peers[server] = (server, True), (client, False)
            elif sock in peers:
                peer, from_client = peers[sock]
                data = sock.recv(65536)
                traffic[from_client] += data
                if data:
                    peer.sendall(data)
                    continue
                peer.shutdown(socket.SHUT_WR)
                del peers[sock]


def outcome(call):
    try:
        return repr(call())
    except Exception as error:  # noqa: BLE001
        return repr(f"{type(error).__name__}: {str(error).splitlines()[0]}")


def milliseconds(number):
    return datetime.timedelta(milliseconds=number)


CALLS = [
    ("set k=v1", lambda s: s.set("k", "v1")),
    ("get k", lambda s: s.get("k")),
    ("add n +5", lambda s: s.add("n", 5)),
    ("add n -2", lambda s: s.add("n", -2)),
    ("get n", lambda s: s.get("n")),
    ("check [k]", lambda s: s.check(["k"])),
    ("check [k,absent]", lambda s: s.check(["k", "absent"])),
    ("wait [k,n]", lambda s: s.wait(["k", "n"])),
    ("wait [absent] 300ms (times out)", lambda s: s.wait(["absent"], milliseconds(300))),
    ("get k after a timed-out wait", lambda s: s.get("k")),
    ("compare_set k v1->v2", lambda s: s.compare_set("k", "v1", "v2")),
    ("compare_set k wrong->v3", lambda s: s.compare_set("k", "wrong", "v3")),
    ("compare_set new ''->v (key absent, expected empty)", lambda s: s.compare_set("new", "", "v")),
    ("compare_set none exp->v (key absent, expected not empty)", lambda s: s.compare_set("none", "exp", "v")),
    ("num_keys", lambda s: s.num_keys()),
    ("delete_key k", lambda s: s.delete_key("k")),
    ("delete_key absent", lambda s: s.delete_key("absent")),
    ("append a xx", lambda s: s.append("a", "xx")),
    ("append a yy", lambda s: s.append("a", "yy")),
    ("multi_set [m1,m2]", lambda s: s.multi_set(["m1", "m2"], ["1", "22"])),
    ("multi_get [m1,m2]", lambda s: s.multi_get(["m1", "m2"])),
    ("set with binary value", lambda s: s.set("bin", bytes(range(16)))),
    ("clone then get m1", lambda s: s.clone().get("m1")),
    ("queue_push q one", lambda s: s.queue_push("q", "one")),
    ("queue_push q two", lambda s: s.queue_push("q", "two")),
    ("queue_len q", lambda s: s.queue_len("q")),
    ("queue_pop q, not blocking", lambda s: s.queue_pop("q", False)),
    ("queue_pop q, blocking", lambda s: s.queue_pop("q", True)),
    ("queue_len q, empty", lambda s: s.queue_len("q")),
    ("barrier alone", lambda s: s.barrier("alone", 1, milliseconds(10000))),
    ("barrier pair 300ms (times out)", lambda s: s.barrier("pair", 2, milliseconds(300))),
]


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = multiprocessing.Pipe()
    port = multiprocessing.Value("i")
    ready = multiprocessing.Event()

    def serve():
        ready.wait()
        proxy(listener, port.value, theirs)

    process = multiprocessing.get_context("fork").Process(target=serve)
    process.start()

    import torch
    from torch.distributed import TCPStore

    options = {}
    if not torch.__version__.startswith("1."):
        options["use_libuv"] = True
        try:
            TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
        except Exception:  # noqa: BLE001
            options["use_libuv"] = False
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, **options)
    port.value = server.port
    ready.set()

    transcript = []

    def record(op, call):
        result = outcome(call)
        ours.send(True)
        c2s, s2c = ours.recv()
        transcript.append({"op": op, "c2s": c2s, "s2c": s2c, "result": result})

    clients = []

    def connect():
        clients.append(
            TCPStore("127.0.0.1", listener.getsockname()[1], is_master=False, wait_for_workers=False, **options)
        )

    record("connect", connect)
    del transcript[0]["result"]
    if not transcript[0]["c2s"]:
        transcript.clear()
    for op, call in CALLS:
        if hasattr(TCPStore, op.split()[0]) and (options.get("use_libuv") or not op.startswith("queue")):
            record(op, lambda call=call: call(clients[0]))
    ours.send(False)
    process.join()
    version = re.match(r"\d+\.\d+\.\d+", torch.__version__).group()
    print(json.dumps({"torch": version, "transcript": transcript}, indent=1))


main()
