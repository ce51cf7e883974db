"""Loops: unrolled, dynamic, while, break and continue."""

import warp as wp


@wp.kernel
def unrolled(x: wp.array2d[float], out: wp.array[float]):
    i = wp.tid()
    s = 0.0
    for k in range(8):
        s += x[i, k] * float(k)
    out[i] = s


@wp.kernel
def unrolled_continue(x: wp.array2d[float], out: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for k in range(8):
        if x[i, k] < 0.0:
            continue
        s += x[i, k]
    out[i] = s


@wp.kernel
def counted(x: wp.array2d[float], n: int, out: wp.array[float]):
    i = wp.tid()
    s = float(0.0)
    for k in range(n):
        s += x[i, k]
    for k in range(n - 1, -1, -2):
        s = s * 0.5 + x[i, k]
    for k in range(2, n):
        s -= x[i, k] * 0.25
    out[i] = s


@wp.kernel
def long_constant(out: wp.array[int]):
    i = wp.tid()
    s = int(0)
    for k in range(100):
        s += k * i
    out[i] = s


@wp.kernel
def collatz(out: wp.array[int]):
    i = wp.tid()
    n = i + 1
    steps = int(0)
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    out[i] = steps


@wp.kernel
def breaks(x: wp.array[int], n: int, out: wp.array2d[int]):
    i = wp.tid()
    first = int(-1)
    for k in range(n):
        if x[k] == i:
            first = k
            break
    odd = int(0)
    for k in range(n):
        if x[k] % 2 == 0:
            continue
        odd += x[k]
        if odd > 5 * i:
            break
    out[i, 0] = first
    out[i, 1] = odd


@wp.kernel
def while_breaks(x: wp.array[int], n: int, out: wp.array[int]):
    i = wp.tid()
    k = int(0)
    s = int(0)
    while True:
        k += 1
        if k >= n:
            break
        if x[k] < i:
            continue
        s += x[k]
    out[i] = s


@wp.kernel
def nested(n: int, out: wp.array[int]):
    i = wp.tid()
    count = int(0)
    for a in range(n):
        for b in range(a, n):
            if (a * a + b * b) % (i + 2) == 1:
                count += 1
            if b - a > 6:
                break
    out[i] = count


@wp.kernel
def newton(x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    guess = x[i]
    turns = int(0)
    while wp.abs(guess * guess - x[i]) > 1.0e-5 and turns < 30:
        guess = 0.5 * (guess + x[i] / guess)
        turns += 1
    out[i] = guess


@wp.kernel
def last_counter(n: int, out: wp.array[int]):
    i = wp.tid()
    for k in range(3):
        out[i] += k
    total = int(0)
    for j in range(n):
        total += j
    out[i] += total * 100 + n


@wp.kernel
def changed_bound(n: int, out: wp.array[int]):
    i = wp.tid()
    m = n
    turns = int(0)
    for _k in range(m):
        m = m + 1
        turns += 1
    out[i] = turns * 1000 + m + i


@wp.kernel
def primes(out: wp.array[int]):
    i = wp.tid()
    prime = int(1)
    if i < 2:
        prime = 0
    d = int(2)
    while d * d <= i:
        if i % d == 0:
            prime = 0
            break
        d += 1
    out[i] = prime


LAUNCHES = {
    "unrolled": {"dim": 16, "x": [(16, 8), -1, 1], "out": 16, "check": "exact"},
    "unrolled_continue": {"dim": 16, "x": [(16, 8), -1, 1], "out": 16, "check": "exact"},
    "counted": {"dim": 16, "x": [(16, 9), -1, 1], "n": 9, "out": 16, "check": "exact"},
    "long_constant": {"dim": 8, "out": 8, "check": "exact"},
    "collatz": {"dim": 64, "out": 64, "check": "exact"},
    "breaks": {"dim": 16, "x": [30, 0, 16], "n": 30, "out": (16, 2), "check": "exact"},
    "while_breaks": {"dim": 16, "x": [30, 0, 16], "n": 30, "out": 16, "check": "exact"},
    "nested": {"dim": 16, "n": 15, "out": 16, "check": "exact"},
    "newton": {"dim": 16, "x": [16, 0.5, 9], "out": 16, "check": "ulp 2"},
    "last_counter": {"dim": 4, "n": 5, "out": 4, "check": "exact"},
    "changed_bound": {"dim": 4, "n": 6, "out": 4, "check": "exact"},
    "primes": {"dim": 100, "out": 100, "check": "exact"},
}
