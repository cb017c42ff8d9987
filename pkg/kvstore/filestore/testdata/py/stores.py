"""Serves torch's stores: one JSON request per line on stdin, one JSON reply per line on stdout.

Keys are text, values base64. The reply to a failed request is {"err": type and text}.
"""

import base64
import datetime
import json
import os
import sys

import torch.distributed as dist

stores = {}


def enc(value):
    return base64.b64encode(value).decode()


def serve(req):
    op, name = req["op"], req["store"]
    keys, values = req.get("keys") or [], [base64.b64decode(v) for v in req.get("values") or []]
    if op == "open_file":
        stores[name] = dist.FileStore(req["path"], req["n"])
        return {}
    if op == "open_tcp":
        libuv = os.environ.get("USE_LIBUV") != "0"
        stores[name] = dist.TCPStore("127.0.0.1", req["n"], is_master=False, wait_for_workers=False, use_libuv=libuv)
        return {}
    if op == "prefix":
        stores[name] = dist.PrefixStore(keys[0], stores[req["path"]])
        return {}
    if op == "close":
        del stores[name]
        return {}
    s = stores[name]
    if op == "set":
        s.set(keys[0], values[0])
    elif op == "get":
        return {"values": [enc(s.get(keys[0]))]}
    elif op == "add":
        return {"n": s.add(keys[0], req["n"])}
    elif op == "add_many":
        for _ in range(req["n"]):
            s.add(keys[0], 1)
    elif op == "compare_set":
        return {"values": [enc(s.compare_set(keys[0], values[0], values[1]))]}
    elif op == "check":
        return {"n": int(s.check(keys))}
    elif op == "num_keys":
        return {"n": s.num_keys()}
    elif op == "list_keys":
        return {"values": [enc(k.encode()) for k in sorted(s.list_keys())]}
    elif op == "delete":
        return {"n": int(s.delete_key(keys[0]))}
    elif op == "append":
        s.append(keys[0], values[0])
    elif op == "multi_get":
        return {"values": [enc(v) for v in s.multi_get(keys)]}
    elif op == "multi_set":
        s.multi_set(keys, values)
    elif op == "wait":
        s.wait(keys, datetime.timedelta(milliseconds=req["n"]))
    elif op == "write_until_killed":
        n = 0
        while True:
            s.set("k%d" % (n % 50), values[0])
            n += 1
    else:
        raise SystemExit("unknown op " + op)
    return {}


for line in sys.stdin:
    try:
        answer = serve(json.loads(line))
    except Exception as e:
        answer = {"err": type(e).__name__ + ": " + str(e)}
    print(json.dumps(answer), flush=True)
