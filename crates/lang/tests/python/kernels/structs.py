"""Structs: fields, nested ones, arrays of them, copies."""

import warp as wp


@wp.struct
class Particle:
    x: wp.vec3
    v: wp.vec3
    mass: float
    kind: int


@wp.struct
class Box:
    low: wp.vec3
    high: wp.vec3


@wp.struct
class Body:
    frame: wp.transform
    box: Box
    id: int


@wp.struct
class Narrow:
    a: wp.int8
    b: wp.float64
    c: wp.uint16
    d: wp.bool
    e: wp.float16


@wp.kernel
def step(p: wp.array[Particle], dt: float):
    i = wp.tid()
    one = p[i]
    one.v = one.v + wp.vec3(0.0, -9.81, 0.0) * dt
    one.x = one.x + one.v * dt
    one.kind += 1
    p[i] = one


@wp.kernel
def fields_in_memory(p: wp.array[Particle], out: wp.array[float]):
    i = wp.tid()
    p[i].mass = p[i].mass * 2.0
    p[i].x = p[i].v
    p[i].v[1] = 5.0
    out[i] = p[i].mass + p[i].x[0]


@wp.func
def moved(p: Particle, by: wp.vec3):
    p.x = p.x + by
    return p


@wp.kernel
def by_value(p: wp.array[Particle], out: wp.array[Particle]):
    i = wp.tid()
    one = p[i]
    two = moved(one, wp.vec3(1.0, 2.0, 3.0))
    three = one
    three.mass = two.x[2]
    out[i] = three


@wp.func
def grown(box: Box, p: wp.vec3):
    made = Box()
    made.low = wp.min(box.low, p)
    made.high = wp.max(box.high, p)
    return made


@wp.kernel
def nested(bodies: wp.array[Body], p: wp.array[wp.vec3], out: wp.array[wp.vec3]):
    i = wp.tid()
    body = bodies[i]
    body.box = grown(body.box, p[i])
    body.box.low[0] = -7.0
    body.id = body.id * 2
    out[i] = body.box.high - body.box.low + wp.transform_get_translation(body.frame)
    bodies[i] = body


@wp.kernel
def constructed(out: wp.array[Particle]):
    i = wp.tid()
    p = Particle()
    p.mass = float(i)
    q = Particle(x=wp.vec3(1.0, 2.0, 3.0), v=wp.vec3(0.0), mass=p.mass + 0.5, kind=i)
    out[i] = q


@wp.kernel
def passed(p: Particle, out: wp.array[float]):
    i = wp.tid()
    out[i] = p.mass * float(i) + p.x[1] + p.v[2] + float(p.kind)


@wp.kernel
def narrow(p: wp.array[Narrow], out: wp.array[wp.float64]):
    i = wp.tid()
    s = p[i]
    n = s.b + wp.float64(s.a) + wp.float64(s.c) + wp.float64(s.e)
    if s.d:
        n = -n
    out[i] = n
    s.a = wp.int8(3)
    s.e = wp.float16(0.25)
    p[i] = s


LAUNCHES = {
    "step": {"dim": 16, "p": [16, -4, 4], "dt": 0.01, "check": "exact"},
    "fields_in_memory": {"dim": 16, "p": [16, -4, 4], "out": 16, "check": "exact"},
    "by_value": {"dim": 16, "p": [16, -4, 4], "out": 16, "check": "exact"},
    "nested": {"dim": 16, "bodies": [16, -4, 4], "p": [16, -6, 6], "out": 16, "check": "exact"},
    "constructed": {"dim": 8, "out": 8, "check": "exact"},
    "passed": {"dim": 8, "p": (1, 2, 3, 4, 5, 6, 0.5, 7), "out": 8, "check": "exact"},
    "narrow": {"dim": 16, "p": [16, 0, 99], "out": 16, "check": "exact"},
}
