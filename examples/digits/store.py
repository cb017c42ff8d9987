"""A client of the worker store: the part of torch's TCPStore protocol that training needs.

A connection carries one request at a time. All integers are little-endian. A key or value is an 8-byte length
followed by that many bytes. The launcher hosts the store at MASTER_ADDR:MASTER_PORT, new and empty in each attempt.
"""

import socket
import struct

MAGIC = 0x3C85F7CE
VALIDATE, SET, GET, ADD, WAIT, DELETE_KEY, MULTI_GET = 0x00, 0x01, 0x03, 0x04, 0x06, 0x08, 0x0A
STOP_WAITING = 0


class Store:
    """One connection to the store. Threads must not use it concurrently.

    timeout is the limit for each answer, in seconds. After a TimeoutError or a ConnectionError the connection is
    unusable.
    """

    def __init__(self, host, port, timeout=300.0):
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._send(struct.pack("<BI", VALIDATE, MAGIC))

    def close(self):
        self._answers.close()
        self._socket.close()

    def set(self, key, value):
        """Stores value, which is bytes. The store does not answer a SET, so this returns at once."""
        self._send(bytes([SET]), _key(key), _text(value))

    def get(self, key):
        """Waits until key exists and returns its value, which is bytes."""
        self._wait([key])
        self._send(bytes([GET]), _key(key))
        return self._read_text()

    def multi_get(self, keys):
        """Waits until all keys exist and returns their values in that order."""
        self._wait(keys)
        self._send(bytes([MULTI_GET]), _keys(keys))
        return [self._read_text() for _ in keys]

    def add(self, key, delta):
        """Adds delta to the number at key (0 if key is missing) and returns the sum."""
        self._send(bytes([ADD]), _key(key), struct.pack("<q", delta))
        return self._read_number("<q")

    def delete(self, key):
        """Deletes key and returns whether it existed."""
        self._send(bytes([DELETE_KEY]), _key(key))
        return self._read_number("<q") == 1

    def _wait(self, keys):
        # The next request must wait for this answer: torch's own server would process it at once.
        self._send(bytes([WAIT]), _keys(keys))
        answer = self._read_number("<B")
        if answer != STOP_WAITING:
            raise ConnectionError(f"the store answered {answer} to WAIT, want {STOP_WAITING}")

    def _send(self, *parts):
        self._socket.sendall(b"".join(parts))

    def _read(self, size):
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionError("the store closed the connection")
        return data

    def _read_number(self, layout):
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    def _read_text(self):
        return self._read(self._read_number("<Q"))


def _text(data):
    return struct.pack("<Q", len(data)) + data


def _key(key):
    # torch's own clients put a slash before every key. This client does the same, so that they find its keys.
    return _text(b"/" + key.encode())


def _keys(keys):
    return struct.pack("<Q", len(keys)) + b"".join(map(_key, keys))
