"""Has the statements for which Python's compiler makes tables of lines that are not simple. It is only compiled."""


def statements(a, b, *args, c=1, **names):
    for x in a:
        try:
            with b as f, \
                    open(a) as g:
                yield x
        except (
            KeyError,
            ValueError,
        ) as e:
            raise RuntimeError from e
        else:
            continue
        finally:
            del x
    else:
        return

    while a and \
            b:
        if (
            a
            or b
        ): break
        elif not a: pass
        assert a, (
            "text"
        )
    return [
        (y, z)
        for y in a
        if y
        for z in {
            k: v for k, v in b
        }
    ]


async def coroutines(a):
    async with a as b:
        async for c in b:
            await c
    return [d async for d in a]


class Class(dict, metaclass=type):
    attribute: int = 3

    @property
    def value(self): return lambda: self

    @value.setter
    def value(self, v):
        global a
        a = f"{self!r}" \
            f"{v:>{v}}"
        a[v:
          1] = self(
            1,
            *v,
        )
