#!/usr/bin/env python3
"""Compares our builtins that are written in the dialect itself (crates/lang/src/python/prelude) with Warp's own.

    pip install warp-lang==1.19.0 numpy
    scripts/warp_prelude.py

The prelude is loaded in Warp under other names, and each function is called beside Warp's on random numbers. Prints the
largest difference, relative to values above 1, and fails where one is above the row's bound.
"""

import importlib.util
import pathlib
import re
import sys
import tempfile

import numpy as np
import warp as wp

PRELUDE = pathlib.Path(__file__).resolve().parent.parent / "crates/lang/src/python/prelude"
COUNT = 4000
DOUBLE = {"float": "wp.float64", "vec2": "wp.vec2d", "vec3": "wp.vec3d", "vec4": "wp.vec4d", "mat22": "wp.mat22d", "mat33": "wp.mat33d",
          "mat44": "wp.mat44d", "quat": "wp.quatd", "unit": "wp.quatd", "transform": "wp.transformd", "pose": "wp.transformd",
          "spatial_vector": "wp.spatial_vectord", "spatial_matrix": "wp.spatial_matrixd", "axis": "wp.vec3d", "sym": "wp.mat33d",
          "rot": "wp.mat33d", "rot44": "wp.mat44d"}
SINGLE = {name: ty.replace("float64", "float32").removesuffix("d") for name, ty in DOUBLE.items()}
SINGLE |= {"int": "int", "uint": "wp.uint32"}

# What is called, the kinds of its arguments, the kind of its result, bounds in f32 and f64 (None: f32 only).
E6, E14 = 2e-6, 4e-15
ROWS = [
    ("degrees(x)", "x:float", "float", E6, E14), ("radians(x)", "x:float", "float", E6, E14),
    ("frac(x * 10.0)", "x:float", "float", 0, None), ("nonzero(x)", "x:float", "float", 0, 0),
    ("smoothstep(a, b, x)", "a:float b:float x:float", "float", 1e-5, 1e-12),
    ("lerp(a, b, t)", "a:float b:float t:float", "float", E6, E14), ("lerp(a, b, t)", "a:vec3 b:vec3 t:float", "vec3", E6, E14),
    ("lerp(a, b, t)", "a:mat33 b:mat33 t:float", "mat33", E6, E14), ("lerp(a, b, t)", "a:quat b:quat t:float", "quat", E6, E14),
    ("lerp(a, b, t)", "a:transform b:transform t:float", "transform", E6, E14),
    ("erfinv(x)", "x:float", "float", 3e-6, 1e-13), ("erfcinv(1.0 + x)", "x:float", "float", 3e-6, None),
    ("length_sq(v)", "v:vec3", "float", E6, E14), ("length_sq(v)", "v:vec4", "float", E6, E14),
    ("argmin(v)", "v:vec4", "uint", 0, None), ("argmax(v)", "v:vec3", "uint", 0, None),
    ("norm_l1(v)", "v:vec3", "float", E6, None), ("norm_l2(v)", "v:vec3", "float", E6, E14),
    ("norm_huber(v, 0.7)", "v:vec3", "float", E6, None), ("norm_huber(v)", "v:vec3", "float", E6, None),
    ("norm_pseudo_huber(v, 0.7)", "v:vec3", "float", E6, None), ("smooth_normalize(v, 0.7)", "v:vec3", "vec3", E6, None),
    ("skew(v)", "v:vec3", "mat33", 0, 0), ("diag(v)", "v:vec2", "mat22", 0, 0), ("diag(v)", "v:vec3", "mat33", 0, 0),
    ("diag(v)", "v:vec4", "mat44", 0, 0), ("get_diag(m)", "m:mat22", "vec2", 0, 0), ("get_diag(m)", "m:mat33", "vec3", 0, 0),
    ("get_diag(m)", "m:mat44", "vec4", 0, 0), ("ddot(a, b)", "a:mat33 b:mat33", "float", E6, E14),
    ("determinant(m)", "m:mat22", "float", E6, E14), ("determinant(m)", "m:mat33", "float", E6, E14),
    ("determinant(m)", "m:mat44", "float", E6, E14),
    ("inverse(m) * wp.determinant(m)", "m:mat22", "mat22", 5e-6, 1e-14), ("inverse(m) * wp.determinant(m)", "m:mat33", "mat33", 2e-5, 2e-14),
    ("inverse(m) * wp.determinant(m)", "m:mat44", "mat44", 1e-3, 1e-11),
    ("inverse(m - m)", "m:mat33", "mat33", 0, 0), ("inverse(m - m)", "m:mat44", "mat44", 0, 0),
    ("mul(a, b)", "a:quat b:quat", "quat", E6, E14), ("quat_inverse(q)", "q:quat", "quat", 0, 0),
    ("quat_identity()", "x:float", "quat", 0, None), ("transform_identity()", "x:float", "transform", 0, None),
    ("quat_from_axis_angle(a, x)", "a:axis x:float", "quat", E6, E14),
    ("quat_to_axis_angle(q)[0]", "q:quat", "vec3", 1e-5, 1e-13), ("quat_to_axis_angle(q)[1]", "q:quat", "float", 1e-5, 1e-13),
    ("quat_rotate(q, v)", "q:quat v:vec3", "vec3", 5e-6, 1e-14), ("quat_rotate_inv(q, v)", "q:quat v:vec3", "vec3", 5e-6, 1e-14),
    ("quat_rpy(a, b, c)", "a:float b:float c:float", "quat", E6, E14), ("quat_to_rpy(q)", "q:unit", "vec3", 2e-3, None),
    ("quat_to_matrix(q)", "q:quat", "mat33", 5e-6, 1e-14), ("quat_from_matrix(m)", "m:rot", "quat", 5e-6, 1e-14),
    ("quat_from_matrix(m)", "m:rot44", "quat", 5e-6, 1e-14), ("quat_slerp(a, b, wp.abs(t))", "a:unit b:unit t:float", "quat", 1e-5, 1e-12),
    ("quat_twist(a, q)", "a:axis q:unit", "quat", 5e-5, None), ("quat_twist_angle(a, q)", "a:axis q:unit", "float", 4e-3, None),
    ("quat_twist_angle_signed(a, q)", "a:axis q:unit", "float", 1e-5, None),
    ("transform_get_translation(t)", "t:transform", "vec3", 0, 0), ("transform_get_rotation(t)", "t:transform", "quat", 0, 0),
    ("transform_multiply(a, b)", "a:transform b:transform", "transform", 5e-6, 1e-14), ("mul(a, b)", "a:pose b:pose", "transform", 5e-6, 1e-14),
    ("transform_inverse(t)", "t:transform", "transform", 5e-6, 1e-14), ("transform_point(t, v)", "t:transform v:vec3", "vec3", 5e-6, 1e-14),
    ("transform_point(t, v)", "t:mat44 v:vec3", "vec3", E6, E14), ("transform_vector(t, v)", "t:transform v:vec3", "vec3", 5e-6, 1e-14),
    ("transform_vector(t, v)", "t:mat44 v:vec3", "vec3", E6, E14), ("transform_compose(p, q, s)", "p:vec3 q:unit s:vec3", "mat44", E6, E14),
    ("transform_decompose(m)[0]", "m:mat44", "vec3", E6, E14), ("transform_decompose(m)[1]", "m:rot44", "quat", 5e-6, 1e-14),
    ("transform_decompose(m)[2]", "m:mat44", "vec3", E6, E14), ("transform_to_matrix(t)", "t:pose", "mat44", E6, E14),
    ("transform_from_matrix(m)", "m:rot44", "transform", 5e-6, 1e-14),
    ("spatial_top(a)", "a:spatial_vector", "vec3", 0, 0), ("spatial_bottom(a)", "a:spatial_vector", "vec3", 0, 0),
    ("spatial_dot(a, b)", "a:spatial_vector b:spatial_vector", "float", E6, E14),
    ("spatial_cross(a, b)", "a:spatial_vector b:spatial_vector", "spatial_vector", E6, E14),
    ("spatial_cross_dual(a, b)", "a:spatial_vector b:spatial_vector", "spatial_vector", E6, E14),
    ("spatial_adjoint(a, b)", "a:mat33 b:mat33", "spatial_matrix", 0, 0),
    ("velocity_at_point(a, v)", "a:spatial_vector v:vec3", "vec3", E6, None),
    ("transform_twist(t, a)", "t:pose a:spatial_vector", "spatial_vector", 5e-6, None),
    ("transform_wrench(t, a)", "t:pose a:spatial_vector", "spatial_vector", 5e-6, None),
    ("svd3(m)[1]", "m:mat33", "vec3", 1e-3, 1e-10), ("svd2(m)[1]", "m:mat22", "vec2", 1e-4, 1e-12),
    ("qr3(m)[0]", "m:mat33", "mat33", 5e-3, 1e-9), ("qr3(m)[1]", "m:mat33", "mat33", 1e-5, 1e-13),
    ("lower_bound(cdf, x)", "x:float", "int", 0, None), ("lower_bound(cdf, 3, 9, x)", "x:float", "int", 0, None),
    ("closest_point_edge_edge(a, b, c, d, 1.0e-6)", "a:vec3 b:vec3 c:vec3 d:vec3", "vec3", 1e-3, None),
    ("rand_init(n)", "n:int", "uint", 0, None), ("rand_init(n, 5)", "n:int", "uint", 0, None),
]
ROWS += [(f"quat_from_euler(v, {i}, {j}, {k})", "v:vec3", "quat", E6, None) for i, j, k in [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 0)]]
ROWS += [(f"quat_to_euler(q, {i}, {j}, {k})", "q:unit", "vec3", 5e-4, None)
         for i, j, k in [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0), (0, 2, 0), (2, 1, 2), (0, 1, 0)]]
# What draws: the state afterwards is compared too.
DRAWS = [(call, kind, bound) for call, kind, bound in [
    ("randi(s)", "int", 0), ("randi(s, -7, 90)", "int", 0), ("randu(s)", "uint", 0), ("randu(s, wp.uint32(3), wp.uint32(70))", "uint", 0),
    ("randf(s)", "float", 0), ("randf(s, -2.0, 5.0)", "float", 0), ("randn(s)", "float", 2e-6), ("sample_triangle(s)", "vec2", E6),
    ("sample_unit_ring(s)", "vec2", E6), ("sample_unit_disk(s)", "vec2", E6), ("sample_unit_sphere_surface(s)", "vec3", E6),
    ("sample_unit_sphere(s)", "vec3", E6), ("sample_unit_hemisphere_surface(s)", "vec3", E6), ("sample_unit_hemisphere(s)", "vec3", E6),
    ("sample_unit_square(s)", "vec2", 0), ("sample_unit_cube(s)", "vec3", 0), ("sample_cdf(s, cdf)", "int", 0)]]
NOISE = [("noise(s, x)", "x:float"), ("noise(s, x)", "x:vec2"), ("noise(s, x)", "x:vec3"), ("noise(s, x)", "x:vec4"),
         ("pnoise(s, x, 3)", "x:float"), ("pnoise(s, x, 3, 5)", "x:vec2"), ("pnoise(s, x, 3, 5, 4)", "x:vec3"), ("pnoise(s, x, 3, 5, 4, 2)", "x:vec4"),
         ("curlnoise(s, x)", "x:vec2"), ("curlnoise(s, x)", "x:vec3"), ("curlnoise(s, x)", "x:vec4"),
         ("curlnoise(s, x, wp.uint32(3), 2.0, 0.5)", "x:vec3")]
# Not unique: what is built of the parts is compared with the matrix, three times a unit matrix added for each that must be a rotation.
REBUILT = [
    ("svd", "mat33", "U, d, V = {}svd3(m)\n    out[i] = U * wp.diag(d) * wp.transpose(V) + (wp.transpose(U) * U + wp.transpose(V) * V) * m.dtype(3.0)\n", 1e-5, 1e-13),
    ("svd2", "mat22", "U, d, V = {}svd2(m)\n    out[i] = U * wp.diag(d) * wp.transpose(V) + (wp.transpose(U) * U + wp.transpose(V) * V) * m.dtype(3.0)\n", 1e-5, 1e-13),
    ("qr", "mat33", "Q, R = {}qr3(m)\n    out[i] = Q * R + wp.transpose(Q) * Q * m.dtype(3.0)\n", 1e-5, 1e-13),
    ("eig", "sym", "Q, d = {}eig3(m)\n    out[i] = Q * wp.diag(d) * wp.transpose(Q) + wp.transpose(Q) * Q * m.dtype(3.0)\n", 1e-5, 1e-13),
]


def prelude():
    """The prelude's text with every function under a name of its own, and which names there are."""
    texts = [path.read_text() for path in sorted(PRELUDE.glob("*.py"))]
    names = sorted({name for text in texts for name in re.findall(r"^def (\w+)\(", text, re.M)}, key=len, reverse=True)
    whole = "\n".join(texts)
    return re.sub(rf"\b(?:wp\.)?({'|'.join(names)})\(", r"ours_\1(", whole), set(names)


def numbers(kind, rng):
    def drawn(*shape):
        return rng.uniform(-1, 1, (COUNT, *shape))

    def unit(q):
        return q / np.linalg.norm(q, axis=-1, keepdims=True)

    def rotation():
        x, y, z, w = unit(drawn(4)).T
        return np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w), 2 * (x * y + z * w), 1 - 2 * (x * x + z * z),
                         2 * (y * z - x * w), 2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], -1).reshape(-1, 3, 3)

    if kind == "rot44":
        m = np.tile(np.eye(4), (COUNT, 1, 1))
        m[:, :3, :3], m[:, :3, 3] = rotation(), drawn(3)
        return m
    if kind == "pose":
        return np.concatenate([drawn(3), unit(drawn(4))], -1)
    shapes = {"float": (), "vec2": (2,), "vec3": (3,), "vec4": (4,), "mat22": (2, 2), "mat33": (3, 3), "mat44": (4, 4), "quat": (4,),
              "transform": (7,), "spatial_vector": (6,)}
    special = {"unit": lambda: unit(drawn(4)), "axis": lambda: unit(drawn(3)), "rot": rotation,
               "sym": lambda: (lambda m: m + m.transpose(0, 2, 1))(drawn(3, 3)),
               "int": lambda: rng.integers(-(2**31), 2**31, COUNT), "uint": lambda: rng.integers(0, 2**32, COUNT)}
    return special[kind]() if kind in special else drawn(*shapes[kind])


def kernels(names):
    """The text of a kernel for each row and width, and what goes in and out."""
    text, table = "", []

    def add(label, ins, out, body, bound, types):
        nonlocal text
        for whose, prefix in (("theirs", "wp."), ("ours", "ours_")):
            name = f"k{len(table)}_{whose}"
            params = "".join(f"{param}_in: wp.array[{types[kind]}], " for param, kind in ins)
            text += f"@wp.kernel\ndef {name}({params}cdf: wp.array[float], out: wp.array[{types[out]}], last: wp.array[wp.uint32]):\n    i = wp.tid()\n"
            shown = body[whose] if isinstance(body, dict) else body.format(prefix)
            text += "".join(f"    {param} = {param}_in[i]\n" for param, _ in ins) + f"    {shown}\n\n"
        table.append((label, ins, out, bound, types))

    for call, ins, out, single, double in ROWS:
        ins = [tuple(part.split(":")) for part in ins.split()]
        if call.split("(")[0] not in names:
            continue
        result = re.fullmatch(r"(.*)\[(\d)\]", call)
        if result:
            parts = {"svd3": 3, "svd2": 3, "transform_decompose": 3}.get(call.split("(")[0], 2)
            targets = ", ".join("abcdefg"[n] + "_part" for n in range(parts))
            body = f"{targets} = {{0}}{result[1]}\n    out[i] = {'abcdefg'[int(result[2])]}_part"
        else:
            body = f"out[i] = {{0}}{call}"
        for bound, types in ((single, SINGLE), (double, DOUBLE)):
            if bound is not None:
                add(f"{call} {'f64' if types is DOUBLE else 'f32'} {out}", ins, out, body, bound, types)
    for call, kind, bound in DRAWS:
        add(call, [("s", "uint")], kind, f"out[i] = {{0}}{call}\n    last[i] = s", bound, SINGLE)
    for call, ins in NOISE:
        if call.split("(")[0] in names:
            param, kind = ins.split(":")
            out = "float" if "curl" not in call else "vec2" if kind == "vec2" else "vec3"
            scaled = call.replace(" x", " x * 9.0" if call[0] != "p" else " x * 4.0 + x_add", 1)
            add(call + " " + kind, [("s", "uint"), ("x", kind)], out, f"x_add = {SINGLE[kind]}(4.0)\n    out[i] = {{0}}{scaled}", 5e-5, SINGLE)
    for label, kind, body, single, double in REBUILT:
        for bound, types in ((single, SINGLE), (double, DOUBLE)):
            out = "mat22" if kind == "mat22" else "mat33"
            units = 3.0 if label in ("qr", "eig") else 6.0
            exact = f"out[i] = m + wp.identity(n={out[-1]}, dtype={types['float']}) * m.dtype({units})"
            bodies = {"theirs": exact, "ours": body.format("ours_")}
            add(label + (" f64" if types is DOUBLE else " f32"), [("m", kind)], out, bodies, bound, types)
    return text, table


def main():
    wp.config.enable_backward = False
    ours, names = prelude()
    text, table = kernels(names)
    missing = names - {re.match(r"\w+", row[0])[0] for row in ROWS + DRAWS + NOISE}
    untested = sorted(name for name in missing if name in wp._src.context.builtin_functions)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "prelude_beside_warp.py"
        path.write_text(ours + "\n" + text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        rng, failed = np.random.default_rng(7), 0
        cdf = wp.array(np.cumsum(np.full(20, 0.05)), dtype=float, device="cpu")
        for n, (label, ins, out, bound, types) in enumerate(table):
            args = [wp.array(numbers(kind, rng), dtype=eval(types[kind]), device="cpu") for _, kind in ins]
            results = []
            for whose in ("theirs", "ours"):
                made = wp.zeros(COUNT, dtype=eval(types[out]), device="cpu")
                last = wp.zeros(COUNT, dtype=wp.uint32, device="cpu")
                wp.launch(getattr(module, f"k{n}_{whose}"), COUNT, inputs=[*args, cdf, made, last], device="cpu")
                results.append((made.numpy().astype(np.float64), last.numpy()))
            (theirs, last), (mine, my_last) = results
            off = np.abs(theirs - mine) / np.maximum(np.abs(theirs), 1)
            off = np.where((theirs == mine) | (np.isnan(theirs) & np.isnan(mine)), 0, off)
            wrong = not off.max() <= bound or (last != my_last).any()
            failed += wrong
            print(f"{'WRONG ' if wrong else 'right '}{label:45} {off.max():.3g} (bound {bound}), mean {off.mean():.3g}")
    print(f"{len(table)} comparisons, {failed} wrong; not compared: {', '.join(untested) or 'none'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
