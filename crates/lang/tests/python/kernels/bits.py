"""Bits of integers of all widths."""

import warp as wp


@wp.kernel
def operators(x: wp.array[int], y: wp.array[int], out: wp.array2d[int]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = a & b
    out[i, 1] = a | b
    out[i, 2] = a ^ b
    out[i, 3] = ~a
    out[i, 4] = a << (b & 7)
    out[i, 5] = a >> (b & 7)
    out[i, 6] = wp.bit_count(a)


@wp.kernel
def unsigned(x: wp.array[wp.uint32], y: wp.array[wp.uint32], out: wp.array2d[wp.uint32]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = a + b
    out[i, 1] = a - b
    out[i, 2] = a * b
    out[i, 3] = a / b
    out[i, 4] = a % b
    out[i, 5] = a >> wp.uint32(5)
    out[i, 6] = ~a
    out[i, 7] = wp.min(a, b)


@wp.kernel
def wide(x: wp.array[wp.int64], y: wp.array[wp.int64], out: wp.array2d[wp.int64]):
    i = wp.tid()
    a = x[i]
    b = y[i]
    out[i, 0] = a * b
    out[i, 1] = a // b
    out[i, 2] = a % b
    out[i, 3] = a ^ b
    out[i, 4] = a >> wp.int64(9)
    out[i, 5] = a << wp.int64(7)


@wp.kernel
def bytes_and_shorts(a: wp.array[wp.int8], b: wp.array[wp.uint8], c: wp.array[wp.int16], d: wp.array[wp.uint16],
                     out: wp.array2d[int]):
    i = wp.tid()
    out[i, 0] = int(a[i] + a[i])
    out[i, 1] = int(b[i] * b[i])
    out[i, 2] = int(c[i] * wp.int16(300))
    out[i, 3] = int(d[i] - wp.uint16(60000))
    out[i, 4] = int(a[i] >> wp.int8(2))
    out[i, 5] = int(b[i] >> wp.uint8(2))
    out[i, 6] = int(~d[i])


@wp.func
def mixed(h: wp.uint32):
    h ^= h >> wp.uint32(16)
    h *= wp.uint32(0x7FEB352D)
    h ^= h >> wp.uint32(15)
    h *= wp.uint32(0x846CA68B)
    h ^= h >> wp.uint32(16)
    return h


@wp.kernel
def hashes(out: wp.array[wp.uint32]):
    i = wp.tid()
    out[i] = mixed(wp.uint32(i) * wp.uint32(2654435769))


@wp.kernel
def splitmix(seed: wp.uint64, out: wp.array[wp.uint64]):
    i = wp.tid()
    z = seed + wp.uint64(i + 1) * wp.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> wp.uint64(30))) * wp.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> wp.uint64(27))) * wp.uint64(0x94D049BB133111EB)
    out[i] = z ^ (z >> wp.uint64(31))


@wp.kernel
def morton(x: wp.array[int], y: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    code = int(0)
    for bit in range(12):
        code |= ((x[i] >> bit) & 1) << (2 * bit)
        code |= ((y[i] >> bit) & 1) << (2 * bit + 1)
    out[i] = code


@wp.kernel
def population(x: wp.array[wp.uint32], out: wp.array[int]):
    i = wp.tid()
    rest = x[i]
    count = int(0)
    while rest != wp.uint32(0):
        rest = rest & (rest - wp.uint32(1))
        count += 1
    out[i] = count


LAUNCHES = {
    "operators": {"dim": 32, "x": [32, -2000000000, 2000000000], "y": [32, -2000000000, 2000000000], "out": (32, 7),
                  "check": "exact"},
    "unsigned": {"dim": 32, "x": [32, 0, 4294967295], "y": [32, 1, 70000], "out": (32, 8), "check": "exact"},
    "wide": {"dim": 32, "x": [32, -9e15, 9e15], "y": [32, 1, 9e9], "out": (32, 6), "check": "exact"},
    "bytes_and_shorts": {"dim": 32, "a": [32, -128, 128], "b": [32, 0, 256], "c": [32, -32768, 32768],
                         "d": [32, 0, 65536], "out": (32, 7), "check": "exact"},
    "hashes": {"dim": 64, "out": 64, "check": "exact"},
    "splitmix": {"dim": 64, "seed": 1234567, "out": 64, "check": "exact"},
    "morton": {"dim": 64, "x": [64, 0, 4096], "y": [64, 0, 4096], "out": 64, "check": "exact"},
    "population": {"dim": 64, "x": [64, 0, 4294967295], "out": 64, "check": "exact"},
}
