"""Attaches to debugpy as VS Code does: python debugger.py PORT SCRIPT LINE. It prints where the worker stops, and continues it."""

import json
import socket
import sys


class Debugger:
    def __init__(self, port):
        self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        self.count = 0

    def send(self, command, **arguments):
        self.count += 1
        request = {"seq": self.count, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(request).encode()
        self.file.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.file.flush()

    def receive(self, **want):
        """Returns the next message with these fields."""
        while True:
            length = 0
            for line in iter(self.file.readline, b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            message = json.loads(self.file.read(length))
            if all(message.get(name) == value for name, value in want.items()):
                return message


def main(port, path, line):
    debugger = Debugger(port)
    debugger.send("initialize", adapterID="debugpy", pathFormat="path")
    debugger.receive(command="initialize")
    debugger.send("attach", justMyCode=True)
    debugger.receive(event="initialized")
    debugger.send("setBreakpoints", source={"path": path}, breakpoints=[{"line": line}])
    debugger.receive(command="setBreakpoints")
    debugger.send("configurationDone")
    thread = debugger.receive(event="stopped")["body"]["threadId"]
    debugger.send("stackTrace", threadId=thread)
    print("stopped at line", debugger.receive(command="stackTrace")["body"]["stackFrames"][0]["line"], flush=True)
    debugger.send("continue", threadId=thread)
    debugger.receive(command="continue")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
