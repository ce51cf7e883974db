"""All scalar types: arithmetic in them, casts between them."""

import warp as wp


@wp.kernel
def halves(a: wp.array[wp.float16], b: wp.array[wp.float16], out: wp.array2d[wp.float16]):
    i = wp.tid()
    out[i, 0] = a[i] + b[i]
    out[i, 1] = a[i] * b[i]
    out[i, 2] = a[i] - b[i]
    out[i, 3] = a[i] / b[i]
    out[i, 4] = wp.max(a[i], b[i])
    out[i, 5] = wp.float16(float(a[i]) * 3.0)
    out[i, 6] = -a[i]


@wp.kernel
def brain_floats(a: wp.array[wp.bfloat16], b: wp.array[wp.bfloat16], out: wp.array2d[wp.bfloat16]):
    i = wp.tid()
    out[i, 0] = a[i] + b[i]
    out[i, 1] = a[i] * b[i]
    out[i, 2] = a[i] - b[i]
    out[i, 3] = wp.min(a[i], b[i])
    out[i, 4] = wp.bfloat16(float(a[i]) * 3.0)


@wp.kernel
def doubles(a: wp.array[wp.float64], b: wp.array[wp.float64], out: wp.array2d[wp.float64]):
    i = wp.tid()
    out[i, 0] = a[i] + b[i]
    out[i, 1] = a[i] * b[i]
    out[i, 2] = a[i] / b[i]
    out[i, 3] = wp.clamp(a[i], wp.float64(-0.5), wp.float64(0.5))
    out[i, 4] = wp.float64(0.1) + wp.float64(a[i])
    out[i, 5] = wp.floor(a[i] * wp.float64(10.0))


@wp.kernel
def to_integers(a: wp.array[float], out: wp.array2d[wp.int64]):
    i = wp.tid()
    x = a[i]
    out[i, 0] = wp.int64(int(x))
    out[i, 1] = wp.int64(wp.int8(int(x)))
    out[i, 2] = wp.int64(wp.uint8(int(x)))
    out[i, 3] = wp.int64(wp.int16(int(x)))
    out[i, 4] = wp.int64(wp.uint16(int(x)))
    out[i, 5] = wp.int64(wp.uint32(int(x)))
    out[i, 6] = wp.int64(x)
    out[i, 7] = wp.int64(wp.bool(int(x)))


@wp.kernel
def to_floats(a: wp.array[wp.int64], out: wp.array2d[float], wide: wp.array[wp.float64]):
    i = wp.tid()
    out[i, 0] = float(a[i])
    out[i, 1] = float(wp.int32(a[i]))
    out[i, 2] = float(wp.uint8(a[i]))
    out[i, 3] = wp.float32(wp.uint64(a[i]))
    out[i, 4] = float(wp.float16(float(wp.int8(a[i]))))
    wide[i] = wp.float64(a[i])


@wp.kernel
def between_floats(a: wp.array[wp.float64], f: wp.array[float], h: wp.array[wp.float16], b: wp.array[wp.bfloat16],
                   back: wp.array[wp.float64]):
    i = wp.tid()
    f[i] = wp.float32(a[i])
    h[i] = wp.float16(a[i])
    b[i] = wp.bfloat16(float(a[i]))
    back[i] = wp.float64(h[i]) + wp.float64(f[i])


@wp.kernel
def same_bits(a: wp.array[float], n: wp.array[int], out: wp.array[int], back: wp.array[float]):
    i = wp.tid()
    out[i] = wp.cast(a[i], int)
    back[i] = wp.cast(n[i], float)


@wp.kernel
def wrapping(out: wp.array2d[int]):
    i = wp.tid()
    big = 2147483647 - i
    out[i, 0] = big + 5
    out[i, 1] = big * 3
    out[i, 2] = -big - 10
    out[i, 3] = int(wp.uint8(250 + i))
    out[i, 4] = int(wp.int8(120 + i * 3))


@wp.kernel
def literals(out: wp.array[float], d: wp.array[wp.float64], n: wp.array[wp.int64]):
    out[0] = 0.1
    out[1] = 1e-8 + 1.0
    out[2] = 16777217.0
    out[3] = 1e30
    out[4] = 123456789.0
    d[0] = wp.float64(0.1)
    d[1] = wp.float64(3)
    n[0] = wp.int64(3000000000)
    n[1] = wp.int64(-7)
    n[2] = wp.int64(0xFF)
    n[3] = wp.int64(1_000_000)


LAUNCHES = {
    "halves": {"dim": 32, "a": [32, -8, 8], "b": [32, 0.1, 9], "out": (32, 7), "check": "exact"},
    "brain_floats": {"dim": 32, "a": [32, -8, 8], "b": [32, 0.1, 9], "out": (32, 5), "check": "exact"},
    "doubles": {"dim": 32, "a": [32, -1, 1], "b": [32, 0.1, 9], "out": (32, 6), "check": "exact"},
    "to_integers": {"dim": 32, "a": [32, -70000, 70000], "out": (32, 8), "check": "exact"},
    "to_floats": {"dim": 32, "a": [32, 0, 9e15], "out": (32, 5), "wide": 32, "check": "exact"},
    "between_floats": {"dim": 32, "a": [32, -900, 900], "f": 32, "h": 32, "b": 32, "back": 32, "check": "exact"},
    "same_bits": {"dim": 16, "a": [16, -9, 9], "n": [16, 1000000000, 1100000000], "out": 16, "back": 16, "check": "exact"},
    "wrapping": {"dim": 8, "out": (8, 5), "check": "exact"},
    "literals": {"dim": 1, "out": 5, "d": 2, "n": 4, "check": "exact"},
}
