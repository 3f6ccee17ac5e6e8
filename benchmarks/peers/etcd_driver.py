"""A load generator for etcd in Python (gRPC, asyncio): `python etcd_driver.py PORT`, for `etcd_metadata.py`.

Its orders: `put OUTSTANDING SECONDS BYTES` and `read OUTSTANDING SECONDS BYTES` (operations a second, closed loop),
`put_p50 COUNT BYTES` and `read_p50 COUNT BYTES` (microseconds, one at a time). Reads are linearizable, as etcd's are
unless asked otherwise. The two messages are written out as bytes, so that no generated code is needed: field 1 is
the key, field 2 the value.
"""

import asyncio
import os
import statistics
import sys
import time

import grpc

KEYS = 1000  # Different ones, in turn.


def field(number: int, data: bytes) -> bytes:
    length, head = len(data), bytearray([number << 3 | 2])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + data


def key_of(number: int) -> bytes:
    return b"/bench/%05d" % (number % KEYS)


class Load:
    def __init__(self, port: int) -> None:
        # One connection for each eight outstanding: a single one is what limits this client otherwise.
        self.channels = [
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in range(8)
        ]
        self.puts = [channel.unary_unary("/etcdserverpb.KV/Put") for channel in self.channels]
        self.ranges = [channel.unary_unary("/etcdserverpb.KV/Range") for channel in self.channels]

    async def put(self, number: int, value: bytes) -> None:
        await self.puts[number % 8](field(1, key_of(number)) + field(2, value))

    async def read(self, number: int, value: bytes) -> None:
        await self.ranges[number % 8](field(1, key_of(number)))

    async def rate(self, act, outstanding: int, seconds: float, value: bytes) -> float:
        done, until, began = 0, time.perf_counter() + seconds, time.perf_counter()

        async def again(number: int) -> None:
            nonlocal done
            while time.perf_counter() < until:
                try:
                    await act(number, value)
                except (
                    grpc.aio.AioRpcError
                ) as error:  # Its leader changes on a busy machine; that costs what it costs.
                    print(error.details(), file=sys.stderr)
                    await asyncio.sleep(0.01)
                    continue
                number += outstanding
                done += 1

        await asyncio.gather(*(again(number) for number in range(outstanding)))
        return done / (time.perf_counter() - began)

    async def p50(self, act, count: int, value: bytes) -> float:
        times = []
        for number in range(count):
            began = time.perf_counter()
            await act(number, value)
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1e6


async def main() -> None:
    load = Load(int(sys.argv[1]))
    print("ready", flush=True)
    while words := (await asyncio.to_thread(sys.stdin.readline)).split():
        order, numbers = words[0], words[1:]
        act = load.put if order.startswith("put") else load.read
        value = os.urandom(int(numbers[-1])) if order.startswith("put") else b""
        if order.endswith("_p50"):
            told = await load.p50(act, int(numbers[0]), value)
        else:
            told = await load.rate(act, int(numbers[0]), float(numbers[1]), value)
        print(told, flush=True)


asyncio.run(main())
