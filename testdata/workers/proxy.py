"""A TCP proxy for tests: proxy.py HOST:PORT TARGET-HOST:PORT. It forwards bytes until it is killed."""

import asyncio
import sys


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def main(listen, target):
    def split(address):
        host, port = address.rsplit(":", 1)
        return host, int(port)

    async def serve(reader, writer):
        try:
            target_reader, target_writer = await asyncio.open_connection(*split(target))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, target_writer), copy(target_reader, writer))

    server = await asyncio.start_server(serve, *split(listen))
    print("listening", flush=True)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
