"""Branches, early returns, truth values of numbers, short-circuit evaluation."""

import warp as wp


@wp.kernel
def ladder(x: wp.array[float], out: wp.array[int]):
    i = wp.tid()
    a = x[i]
    if a < -0.5:
        out[i] = 1
    elif a < 0.0:
        out[i] = 2
    elif a < 0.5:
        if a < 0.25:
            out[i] = 3
        else:
            out[i] = 4
    else:
        out[i] = 5


@wp.kernel
def early_return(x: wp.array[float], n: int, out: wp.array[float]):
    i = wp.tid()
    if i >= n:
        return
    if x[i] < 0.0:
        out[i] = -1.0
        return
    out[i] = wp.sqrt(x[i])


@wp.kernel
def short_circuit(x: wp.array[int], n: int, out: wp.array[int]):
    i = wp.tid()
    count = int(0)
    if i + 1 < n and x[i + 1] > x[i]:
        count += 1
    if i + 1 >= n or x[i + 1] == 3:
        count += 2
    if not (i > 3 and i < 7):
        count += 4
    out[i] = count


@wp.kernel
def truth(x: wp.array[int], out: wp.array[int]):
    i = wp.tid()
    n = int(0)
    if x[i]:
        n += 1
    if not x[i]:
        n += 2
    flag = x[i] > 1
    if flag:
        n += 4
    both = flag and x[i] < 3
    if both:
        n += 8
    out[i] = n


@wp.kernel
def defined_in_branches(x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    if x[i] > 0.0:
        y = x[i] * 2.0
        z = 1.0
    else:
        y = -x[i]
        z = 2.0
    out[i] = y + z


@wp.func
def classify(x: float):
    if x < 0.0:
        return -1
    if x == 0.0:
        return 0
    return 1


@wp.kernel
def returns_in_branches(x: wp.array[float], out: wp.array[int]):
    i = wp.tid()
    out[i] = classify(x[i]) * 10 + classify(0.0)


@wp.kernel
def nested_choices(x: wp.array[float], out: wp.array[float]):
    i = wp.tid()
    a = x[i]
    out[i] = (1.0 if a < -0.5 else 2.0) if a < 0.0 else (3.0 if a < 0.5 else 4.0)


@wp.kernel
def flags(x: wp.array[wp.bool], y: wp.array[wp.bool], out: wp.array[wp.bool], n: wp.array[int]):
    i = wp.tid()
    out[i] = (x[i] and not y[i]) or (y[i] and not x[i])
    n[i] = int(x[i]) + 2 * int(y[i])


LAUNCHES = {
    "ladder": {"dim": 32, "x": [32, -1, 1], "out": 32, "check": "exact"},
    "early_return": {"dim": 32, "x": [32, -1, 1], "n": 20, "out": 32, "check": "exact"},
    "short_circuit": {"dim": 16, "x": [16, 0, 5], "n": 16, "out": 16, "check": "exact"},
    "truth": {"dim": 16, "x": [16, 0, 5], "out": 16, "check": "exact"},
    "defined_in_branches": {"dim": 16, "x": [16, -1, 1], "out": 16, "check": "exact"},
    "returns_in_branches": {"dim": 16, "x": [16, -1, 1], "out": 16, "check": "exact"},
    "nested_choices": {"dim": 16, "x": [16, -1, 1], "out": 16, "check": "exact"},
    "flags": {"dim": 16, "x": [16, 0, 2], "y": [16, 0, 2], "out": 16, "n": 16, "check": "exact"},
}
