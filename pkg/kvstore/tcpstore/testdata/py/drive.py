#!/usr/bin/env python3
"""Plays sequences of store calls through torch's TCPStore, for the tests of this package (torchdriver_test.go).

It prints a port and serves it until its stdin ends. Each connection is a lane: it gets a process with a TCPStore
server of its own, whose port is the first line of JSON sent back. Every line that arrives after that is a sequence to
play against some server, {"address": ..., "calls": [...]}. The reply is {"outcomes": [...]}. See Call and Outcome in
pkg/kvstore/internal/storetest for their fields; keys and values are base64. A line can also be {"script": ...}, Python
that runs with the functions reply and receive for JSON, and the function connect(port), which opens a client. The
argument is true if clients and servers use libuv, else false.
"""

import base64
import datetime
import json
import select
import socketserver
import sys
import threading
import traceback

import torch
from torch.distributed import TCPStore

CLIENTS = 3
BACKEND = {} if torch.__version__.startswith("1.") else {"use_libuv": sys.argv[1] == "true"}


def open_store(host, port, master):
    return TCPStore(host, port, None, master, datetime.timedelta(seconds=60), False, **BACKEND)


def connect(port):
    return open_store("127.0.0.1", port, False)


def call_get(get, store, key, timeout):
    store.set_timeout(timeout)
    return get(key)


# Each call takes a store, keys, values, the number to add and the timeout.
CALLS = {
    "set": lambda s, k, v, n, t: s.set(k[0], v[0]),
    "get": lambda s, k, v, n, t: [call_get(s.get, s, k[0], t)],
    "add": lambda s, k, v, n, t: s.add(k[0], n),
    "compare_set": lambda s, k, v, n, t: [s.compare_set(k[0], v[0], v[1])],
    "check": lambda s, k, v, n, t: s.check(k),
    "wait": lambda s, k, v, n, t: s.wait(k, t),
    "num_keys": lambda s, k, v, n, t: s.num_keys(),
    "delete_key": lambda s, k, v, n, t: s.delete_key(k[0]),
    "append": lambda s, k, v, n, t: s.append(k[0], v[0]),
    "multi_get": lambda s, k, v, n, t: call_get(s.multi_get, s, k, t),
    "multi_set": lambda s, k, v, n, t: s.multi_set(k, v),
}
WITHOUT_REPLY = {"set", "append", "multi_set"}


def error_class(error):
    text = str(error).lower()
    if "timeout" in text:
        return "timeout"
    if "connection" in text or "broken pipe" in text:
        return "refused"
    return f"{type(error).__name__}: {str(error)[:200]}"


def perform(store, call):
    keys = [base64.b64decode(key) for key in call["keys"] or []]
    values = [base64.b64decode(value) for value in call["values"] or []]
    timeout = datetime.timedelta(milliseconds=call["timeout"])
    try:
        got = CALLS[call["op"]](store, keys, values, call["delta"], timeout)
    except Exception as error:
        if error_class(error) == "timeout" and not BACKEND:
            # torch 1.13 uses the timeout of a wait for all later replies too.
            store.wait([], datetime.timedelta(seconds=60))
        return {"error": error_class(error)}
    if isinstance(got, list):
        return {"values": [base64.b64encode(value).decode() for value in got]}
    return {"number": int(got or 0)}


class Players:
    """Clients of one server. All sequences share them, because a connection is expensive."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.open = lambda: open_store(host, int(port), False)
        self.stores = [self.open() for _ in range(CLIENTS)]
        self.no_reply = None  # the client whose last call had no reply

    def settle(self, client=None):
        """Makes sure that the server has carried out the calls of other clients."""
        if self.no_reply not in (None, client):
            self.stores[self.no_reply].num_keys()
            self.no_reply = None

    def play(self, calls):
        before = self.stores[0].num_keys()
        outcomes = [None] * len(calls)
        threads = []
        for i, call in enumerate(calls):
            client = call["client"]
            self.settle(None if call["later"] else client)
            store = self.stores[client]
            if call["later"]:

                def later(i=i, store=store, call=call):
                    outcomes[i] = perform(store, call)

                threads.append(threading.Thread(target=later))
                threads[-1].start()
                continue
            outcomes[i] = perform(store, call)
            if call["op"] == "num_keys":
                outcomes[i]["number"] -= before
            if outcomes[i].get("error") == "refused":
                self.stores[client] = self.open()
            self.no_reply = client if call["op"] in WITHOUT_REPLY else None
        self.settle()
        for thread in threads:
            thread.join()
        return outcomes


class Lane(socketserver.StreamRequestHandler):
    def handle(self):
        server = open_store("127.0.0.1", 0, True)
        self.reply({"port": server.port})
        players = {}
        for line in self.rfile:
            sequence = json.loads(line)
            try:
                if "script" in sequence:
                    exec(sequence["script"], {"reply": self.reply, "receive": self.receive, "connect": connect})
                    continue
                address = sequence["address"]
                if address not in players:
                    players[address] = Players(address)
                self.reply({"outcomes": players[address].play(sequence["calls"])})
            except Exception:
                self.reply({"failure": traceback.format_exc()})

    def reply(self, message):
        self.wfile.write(json.dumps(message).encode() + b"\n")

    def receive(self):
        return json.loads(self.rfile.readline())


class Lanes(socketserver.ForkingTCPServer):
    """One process per lane: torch 1.13 makes its results without holding the GIL."""

    request_queue_size = 64


with Lanes(("127.0.0.1", 0), Lane) as lanes:
    print(lanes.server_address[1], flush=True)
    while sys.stdin not in select.select([sys.stdin, lanes], [], [])[0]:
        lanes.handle_request()
