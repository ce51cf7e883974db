"""Geometry that needs no mesh."""

import warp as wp


# Ericson, "Real-Time Collision Detection", 5.1.9: the closest points of the lines, clamped to the edges.
@wp.func
def closest_point_edge_edge(p1: wp.vec3, q1: wp.vec3, p2: wp.vec3, q2: wp.vec3, epsilon: float):
    d1 = q1 - p1
    d2 = q2 - p2
    r = p1 - p2
    a = wp.dot(d1, d1)
    e = wp.dot(d2, d2)
    f = wp.dot(d2, r)
    s = float(0.0)
    t = float(0.0)
    if a <= epsilon and e <= epsilon:
        s = 0.0
    elif a <= epsilon:
        t = wp.clamp(f / e, 0.0, 1.0)
    else:
        c = wp.dot(d1, r)
        if e <= epsilon:
            s = wp.clamp(-c / a, 0.0, 1.0)
        else:
            b = wp.dot(d1, d2)
            parallel = a * e - b * b
            if parallel != 0.0:
                s = wp.clamp((b * f - c * e) / parallel, 0.0, 1.0)
            t = (b * s + f) / e
            if t < 0.0:
                t = 0.0
                s = wp.clamp(-c / a, 0.0, 1.0)
            elif t > 1.0:
                t = 1.0
                s = wp.clamp((b - c) / a, 0.0, 1.0)
    return wp.vec3(s, t, wp.length(p1 + d1 * s - (p2 + d2 * t)))
