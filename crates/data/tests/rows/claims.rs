//! Claims in descriptions, each with a search for it in the kernel's text. `described.rs` parses
//! descriptions.

use crate::text::{Element, Kernel, find, tokens};

/// Searches for a claim in a kernel; the string is what `#` in its name stands for.
pub type Check = fn(&Kernel, &str) -> bool;

/// Every phrase that a description may begin with; `#` stands for a number. A longer phrase
/// precedes its prefixes.
pub const NAMES: &[(&str, Check)] = &[
    ("gather", |k, _| gathers(k)),
    ("scatter", |k, _| scatters(k)),
    ("matrix transpose", |k, _| transposes(k)),
    ("histogram", |k, _| binned(k, "atomic_add", true)),
    ("weighted histogram", |k, _| binned(k, "atomic_add", false)),
    ("sums by index", |k, _| by_index(k, "atomic_add")),
    ("maxima by bin", |k, _| binned(k, "atomic_max", false)),
    ("minima by bin", |k, _| binned(k, "atomic_min", false)),
    ("xor by bin", |k, _| binned(k, "atomic_xor", false)),
    ("or by bin", |k, _| binned(k, "atomic_or", false)),
    ("and by bin", |k, _| binned(k, "atomic_and", false)),
    ("negative sums by bin", |k, _| binned(k, "atomic_sub", false)),
    ("sum over # elements", |k, all| over_all(k, "atomic_add", all)),
    ("maximum over # elements", |k, all| over_all(k, "atomic_max", all)),
    ("minimum over # elements", |k, all| over_all(k, "atomic_min", all)),
    ("xor over # elements", |k, all| over_all(k, "atomic_xor", all)),
    ("or over # elements", |k, all| over_all(k, "atomic_or", all)),
    ("and over # elements", |k, all| over_all(k, "atomic_and", all)),
    ("negative sum over # elements", |k, all| over_all(k, "atomic_sub", all)),
    ("sums of interleaved elements", |k, _| interleaved(k, "atomic_add")),
    ("maxima of interleaved elements", |k, _| interleaved(k, "atomic_max")),
    ("minima of interleaved elements", |k, _| interleaved(k, "atomic_min")),
    ("xor of interleaved elements", |k, _| interleaved(k, "atomic_xor")),
    ("or of interleaved elements", |k, _| interleaved(k, "atomic_or")),
    ("and of interleaved elements", |k, _| interleaved(k, "atomic_and")),
    ("negative sums of interleaved elements", |k, _| interleaved(k, "atomic_sub")),
    ("# over segments", |k, of| reduces(k, of) && segments(k) && running(k).is_none()),
    ("exclusive running #", |k, of| reduces(k, of) && segments(k) && running(k) == Some(true)),
    ("running #", |k, of| reduces(k, of) && segments(k) && running(k) == Some(false)),
    ("sums over groups of #", |k, of| reduces(k, "sums") && grouped(k, of)),
    ("maxima over groups of #", |k, of| reduces(k, "maxima") && grouped(k, of)),
    ("minima over groups of #", |k, of| reduces(k, "minima") && grouped(k, of)),
    ("# over an inner dimension", |k, of| reduces(k, of) && k.grid.len() == 2),
    ("matrix product of transformed elements", |k, _| k.line("%1 += %2 * %3").is_some() && !product(k)),
    ("matrix product", |k, _| product(k)),
    ("product of a sparse matrix and a vector", |k, _| sparse(k) && product(k)),
    ("# over the rows of a sparse matrix", |k, of| sparse(k) && reduces(k, of) && !product(k)),
    ("2D convolution of transformed elements", |k, _| convolves(k) && !product(k)),
    ("2D convolution", |k, _| convolves(k) && product(k)),
    ("softmax over rows", |k, _| softmax(k)),
    ("layer norm over rows", |k, _| {
        k.line("%1 = wp.sqrt(%2 / %3 + %4)").is_some()
            && k.has("(%1 - mean) / dev")
            && k.line("mean = %1 / %2").is_some()
    }),
    ("RMS norm over rows", |k, _| {
        k.line("norm = wp.sqrt(total / %1 + %2)").is_some() && k.has("total += %1 * %1") && k.has("/ norm")
    }),
    ("norm by the mean magnitude over rows", |k, _| {
        k.line("norm = total / %1 + %2").is_some() && k.line("total += wp.abs(%1)").is_some() && k.has("/ norm")
    }),
    ("# over rows", |k, of| {
        reduces(k, of) && k.elements(&all(k)).iter().any(|e| e.at.len() == 3 && e.at[0] == k.grid[0])
    }),
    ("stencil", |k, _| distances(k) > 1),
    ("window sums", |k, _| {
        k.lines.iter().filter(|line| line.tokens.get(1).is_some_and(|op| op == "+=")).count() > 1 && distances(k) > 1
    }),
    ("reversal within segments", |k, _| k.has("%1 + (%2 - 1 - (%3 - %1))")),
    ("rotation within segments", |k, _| k.has("%1 + (%2 - %1 + %3) % %4")),
    ("broadcast of the first of every # elements", |k, of| {
        k.has(&format!("[{} // {of} * {of}]", k.grid[0])) || k.has(&format!("[({} // {of} * {of})]", k.grid[0]))
    }),
    ("exchange between lanes # apart", |k, of| {
        k.has(&format!("{} % 32", k.grid[0]))
            && (k.has(&format!("[{} + {of}]", k.grid[0])) || k.has(&format!("[{} - {of}]", k.grid[0])))
    }),
    ("bilinear interpolation", |k, _| mixes(k) >= 3),
    ("linear interpolation", |k, _| mixes(k) >= 1),
    ("dropout", |k, _| k.has("wp.where(%1 < %2, %3, 0.0)") || k.has("wp.where(%1 >= %2, %3, 0.0)")),
    ("count of random points in a circle", |k, _| k.has("if %1 * %1 + %2 * %2 <= %3 :")),
    ("random walk", |k, _| k.has("%1 = wp.randf(state)") && k.has("for %1 in range(%2):") && k.has("walk += %1")),
    ("pairwise interactions", |k, _| k.line("%1 = %2[j] - %3").is_some() && k.has("for j in range(%1):")),
    ("Euler steps of # state variables", |k, of| euler(k, of)),
    ("Euler steps of # state variable", |k, of| euler(k, of)),
    ("Euler step of # state variables", |k, of| euler(k, of)),
    ("Euler step of # state variable", |k, of| euler(k, of)),
    ("Adam step without bias correction", |k, _| {
        averages(k, "momentum") && averages(k, "variance") && k.has("/ (wp.sqrt(v_new) +")
    }),
    ("RMSprop step", |k, _| !averages(k, "momentum") && averages(k, "variance") && k.has("/ (wp.sqrt(v_new) +")),
    ("step along the signs of a momentum", |k, _| averages(k, "momentum") && k.has("wp.sign(m_new)")),
    ("momentum step", |k, _| averages(k, "momentum") && !averages(k, "variance") && !k.has("wp.sign(m_new)")),
    ("step along the signs of a gradient", |k, _| !averages(k, "momentum") && k.has("lr * wp.sign(%1)")),
    ("gradient descent step", |k, _| k.has("- lr * %1") || k.has("- (lr * %1 +")),
    ("weighted binary cross entropy", |k, _| k.has("cw * -") && entropy(k)),
    ("binary cross entropy", |k, _| entropy(k)),
    ("weighted Huber loss", |k, _| k.has("cw * wp.where(") && huber(k)),
    ("Huber loss", |k, _| huber(k)),
    ("weighted squared error", |k, _| k.has("cw * (d * d)") && square(k)),
    ("squared error", |k, _| square(k)),
    ("ReLU", |k, _| k.has("wp.max(%1, 0.0)")),
    ("leaky ReLU", |k, _| k.has("wp.where(%1 > 0.0, %1, %2 * %1)")),
    ("SiLU", |k, _| k.has("%1 * (1.0 / (1.0 + wp.exp(-%1)))")),
    ("sigmoid", |k, _| k.has("1.0 / (1.0 + wp.exp(-%1))")),
    ("GELU by tanh", |k, _| k.has("0.5 * %1 * (1.0 + wp.tanh(0.7978846 * (%1 + 0.044715 * (%1 * %1 * %1))))")),
    ("GELU by erf", |k, _| k.has("0.5 * %1 * (1.0 + wp.erf(%1 * %2))")),
    ("ELU", |k, _| k.has("wp.where(%1 > 0.0, %1, %2 * (wp.exp(%1) - 1.0))")),
    ("softplus", |k, _| k.has("wp.log(1.0 + wp.exp(%1))")),
    ("hard swish", |k, _| k.has("%1 * wp.clamp(%1 + 3.0, 0.0, 6.0) / 6.0")),
];

/// Phrases that may follow a name, each with a search.
pub const SUFFIXES: &[(&str, Check)] = &[
    (" with a transformed gradient", |k, _| k.has("g_mod = %1")),
    (" and its derivative", |k, _| {
        let grad = k.lines.iter().filter_map(|line| k.store(line)).find(|(to, _)| to.array == "grad");
        grad.is_some_and(|(_, value)| {
            let resolved = k.resolved(&value);
            let is = |template: &str| find(&resolved, &tokens(template)).is_some();
            is("(%1 - %2) / (%1 * (1.0 - %1))")
                || is("wp.clamp((%1 - %2), -%3, %3)")
                || is("wp.clamp(%1 - %2, -%3, %3)")
                || is("2.0 * (%1 - %2)")
        })
    }),
];

/// Tokens of all lines.
pub fn all(k: &Kernel) -> Vec<String> {
    k.lines.iter().flat_map(|line| line.tokens.clone()).collect()
}

/// Elements that are read: all except those that a line stores to.
fn loads(k: &Kernel) -> Vec<Element> {
    let mut all = vec![];
    for line in &k.lines {
        match k.store(line) {
            Some((to, value)) => {
                all.extend(k.elements(&value));
                all.extend(k.elements(&to.at));
            }
            None => all.extend(k.elements(&line.tokens)),
        }
    }
    all
}

pub fn gathers(k: &Kernel) -> bool {
    loads(k).iter().any(|element| k.is_element(&element.at))
}

pub fn scatters(k: &Kernel) -> bool {
    k.lines.iter().filter_map(|line| k.store(line)).any(|(to, _)| k.is_element(&to.at))
}

pub fn transposes(k: &Kernel) -> bool {
    let [i, j] = &k.grid[..] else { return false };
    let (own, transposed) = (tokens(&format!("{i}, {j}")), tokens(&format!("{j}, {i}")));
    let reads = loads(k).iter().any(|element| element.at == own);
    reads && k.lines.iter().filter_map(|line| k.store(line)).any(|(to, _)| to.at == transposed)
}

/// Atomic updates of a kind: resolved index, value, depth.
fn atomics(k: &Kernel, kind: &str) -> Vec<(Vec<String>, Vec<String>, usize)> {
    let wanted = format!("wp.{kind}");
    let calls = k.lines.iter().filter_map(|line| Some((k.call(line)?, line.depth)));
    calls
        .filter(|((name, args), _)| *name == wanted && args.len() == 3)
        .map(|((_, args), depth)| (k.resolved(&args[1]), args[2].clone(), depth))
        .collect()
}

pub fn binned(k: &Kernel, kind: &str, counts: bool) -> bool {
    atomics(k, kind).iter().any(|(at, value, _)| {
        !k.is_element(at) && !k.elements(at).is_empty() && (kind != "atomic_add" || (value[..] == ["1"]) == counts)
    })
}

pub fn by_index(k: &Kernel, kind: &str) -> bool {
    atomics(k, kind).iter().any(|(at, ..)| k.is_element(at))
}

fn over_all(k: &Kernel, kind: &str, which: &str) -> bool {
    atomics(k, kind).iter().any(|(at, _, depth)| at[..] == ["0"] && (*depth == 0) == (which == "all"))
}

fn interleaved(k: &Kernel, kind: &str) -> bool {
    atomics(k, kind).iter().any(|(at, ..)| k.elements(at).is_empty() && (at[..] != ["0"]))
}

/// True if a loop combines values with the named reduction.
fn reduces(k: &Kernel, of: &str) -> bool {
    let within = |template: &str| {
        let template = tokens(template);
        k.lines.iter().any(|line| line.depth > 0 && find(&line.tokens, &template).is_some())
    };
    k.has("for %1 in range(%2):") | k.has("for %1 in range(%2, %3):")
        && match of {
            "sums" => within("%1 += %2"),
            "maxima" => within("%1 = wp.max(%1, %2)"),
            "minima" => within("%1 = wp.min(%1, %2)"),
            "xor" => within("%1 ^= %2"),
            "or" => within("%1 |= %2"),
            _ => false,
        }
}

fn segments(k: &Kernel) -> bool {
    let Some(begin) = k.line("begin = %1 * %2") else { return false };
    let end = format!("end = wp.min(begin + {}, %1)", begin["%2"].join(" "));
    begin["%1"] == k.grid && k.line(&end).is_some() && k.has("for %1 in range(begin, end):")
}

/// True if a loop stores its running value before each update; `None` if it does not store it.
fn running(k: &Kernel) -> Option<bool> {
    let stored = k
        .lines
        .iter()
        .position(|line| line.depth > 0 && k.store(line).is_some_and(|(_, value)| value == ["running"]))?;
    let updated = k.lines.iter().position(|line| line.depth > 0 && line.tokens[0] == "running")?;
    Some(stored < updated)
}

fn grouped(k: &Kernel, size: &str) -> bool {
    k.line(&format!("begin = {} // {size} * {size}", k.grid[0])).is_some() && k.has("range(begin, end)")
}

/// True if a loop sums products of two elements.
fn product(k: &Kernel) -> bool {
    k.lines.iter().any(|line| {
        let [_, op, value @ ..] = &line.tokens[..] else { return false };
        let elements = k.elements(value);
        let split = value
            .iter()
            .enumerate()
            .any(|(n, token)| token == "*" && k.is_element(&value[..n]) && k.is_element(&value[n + 1..]));
        op == "+=" && line.depth > 0 && elements.len() >= 2 && split
    })
}

fn sparse(k: &Kernel) -> bool {
    let begin = k.line("begin = %1[%2]");
    begin.is_some_and(|b| k.line(&format!("end = {}[{} + 1]", b["%1"].join(" "), b["%2"].join(" "))).is_some())
        && gathers(k)
}

fn convolves(k: &Kernel) -> bool {
    k.has("for dy in range(%1):") && k.has("for dx in range(%1):") && k.has("* kernel_weights[dy, dx]")
}

pub fn softmax(k: &Kernel) -> bool {
    k.line("top = wp.max(top, %1)").is_some_and(|top| {
        let e = top["%1"].join(" ");
        k.line(&format!("total += wp.exp({e} - top)")).is_some() && k.has(&format!("wp.exp({e} - top) / total"))
    })
}

/// Number of distinct indices at which one array is read, at least one of them not the instance's
/// own.
fn distances(k: &Kernel) -> usize {
    let own = tokens(&k.grid.join(", "));
    let all = loads(k);
    let mut max = 0;
    for array in &k.arrays {
        let mut indices: Vec<&Vec<String>> = all.iter().filter(|e| e.array == *array).map(|e| &e.at).collect();
        indices.sort();
        indices.dedup();
        if indices.iter().any(|at| **at != own && k.grid.iter().any(|i| at.contains(i))) {
            max = max.max(indices.len());
        }
    }
    max
}

/// Number of linear interpolations between two values.
fn mixes(k: &Kernel) -> usize {
    let templates = ["wp.lerp(%1, %2, shift)", "%1 + shift * (%2 - %1)"].map(tokens);
    let mixes = |line: &[String]| templates.iter().any(|template| find(line, template).is_some()) as usize;
    k.lines.iter().map(|line| mixes(&line.tokens)).sum::<usize>() + k.has("lerp(%1[%2], %1[%3], %4)") as usize
}

fn euler(k: &Kernel, states: &str) -> bool {
    let updated = k.lines.iter().filter(|line| {
        k.store(line).is_some_and(|(to, value)| value.len() == 1 && loads(k).iter().any(|e| e.array == to.array))
    });
    updated.count().to_string() == states && k.has("* dt")
}

fn averages(k: &Kernel, array: &str) -> bool {
    k.has(&format!("beta * {array}[%1] + (1.0 - beta) * %2"))
}

fn entropy(k: &Kernel) -> bool {
    k.has("-(%1 * wp.log(%2) + (1.0 - %1) * wp.log(1.0 - %2))")
}

fn huber(k: &Kernel) -> bool {
    k.has("wp.where(size_val <= %1, 0.5 * d * d, %1 * (size_val - %2))") && k.line("size_val = wp.abs(d)").is_some()
}

fn square(k: &Kernel) -> bool {
    let of_elements = ["%5", "%5, %6", "%5, %6, %7"].iter().any(|at| {
        let d = format!("(%1[{at}] - %2[{at}])");
        k.has(&format!("{d} * {d}"))
    });
    of_elements || k.has("d * d") && k.line("d = p - y").is_some()
}
