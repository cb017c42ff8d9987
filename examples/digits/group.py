"""Collective operations of all workers, made of the worker store's SET, WAIT, GET, ADD and DELETE_KEY."""

import array


class Group:
    """All workers of a job, seen by one of them.

    Every worker must call the same operations in the same order. Values are lists of floats; they travel as 8-byte
    doubles, so nothing is lost on the way.
    """

    def __init__(self, store, rank, world_size):
        self.rank = rank
        self.world_size = world_size
        self._store = store
        self._operations = 0
        self._mine = []  # keys this worker wrote and others may still read

    def broadcast(self, values=None):
        """Returns rank 0's values on every rank; the others pass none."""
        key = f"{self._next()}/broadcast"
        if self.rank == 0:
            self._publish(key, values)
            return values
        return _unpack(self._store.get(key))

    def all_reduce(self, values):
        """Returns the element-wise sum over all workers, added in rank order, so it is the same to the last bit on each."""
        operation = self._next()
        stale, self._mine = self._mine, []
        self._publish(f"{operation}/{self.rank}", values)
        parts = self._store.multi_get([f"{operation}/{rank}" for rank in range(self.world_size)])
        # All have entered this operation, so all are done with the ones before: the store does not grow.
        self._delete(stale)
        return list(map(sum, zip(*map(_unpack, parts))))

    def finish(self):
        """Waits until every worker is here, then removes what the last operation left in the store."""
        if self._store.add("finish/arrived", 1) == self.world_size:
            self._store.set("finish/all", b"")
        self._store.get("finish/all")
        self._delete(self._mine)
        self._mine = []

    def _next(self):
        self._operations += 1
        return self._operations

    def _publish(self, key, values):
        self._store.set(key, array.array("d", values).tobytes())
        self._mine.append(key)

    def _delete(self, keys):
        for key in keys:
            self._store.delete(key)


def _unpack(data):
    values = array.array("d")
    values.frombytes(data)
    return values.tolist()
