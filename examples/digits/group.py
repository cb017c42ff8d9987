"""Collective operations, built from the worker store's SET, WAIT, GET, ADD, DELETE_KEY and MULTI_GET."""

import array


class Group:
    """The worker group of a job, as one of its workers uses it.

    Every worker must call the same operations in the same order. Values are lists of floats, sent as 8-byte doubles
    without loss of precision.
    """

    def __init__(self, store, rank, world_size):
        self.rank = rank
        self.world_size = world_size
        self._store = store
        self._operations = 0
        self._mine = []  # keys that this worker wrote and other workers may still read

    def broadcast(self, values=None):
        """Returns rank 0's values on every rank. Other ranks pass no values."""
        key = f"{self._next()}/broadcast"
        if self.rank == 0:
            self._publish(key, values)
            return values
        return _unpack(self._store.get(key))

    def all_reduce(self, values):
        """Returns the element-wise sum over all workers, added in rank order: every worker gets the same bits."""
        operation = self._next()
        stale, self._mine = self._mine, []
        self._publish(f"{operation}/{self.rank}", values)
        parts = self._store.multi_get([f"{operation}/{rank}" for rank in range(self.world_size)])
        # All workers have entered this operation, so none still reads the keys of earlier ones. Deleting them keeps
        # the store small.
        self._delete(stale)
        return list(map(sum, zip(*map(_unpack, parts))))

    def finish(self):
        """Waits until every worker has called finish, then deletes the keys of the last operation."""
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
