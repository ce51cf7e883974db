//! Included files. Headers of CUDA, of its libraries and of C++ are not read: what kernels use of
//! them is built in. A header that is not found is an error only where a kernel uses a name that no
//! other file declares.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{MAX_TOKENS, Preprocessor, TraceKind};
use crate::SourceSpan;
use crate::cuda::lex::{Token, TokenKind};
use crate::diagnostic::Source;

/// Maximum depth of includes in included files.
const MAX_DEPTH: usize = 64;
/// Maximum number of files read, with repetitions.
const MAX_INCLUDES: usize = 2000;
/// Maximum bytes of one header, and of all files of a source.
const MAX_HEADER_BYTES: u64 = 1 << 20;
const MAX_SOURCE_BYTES: usize = 16 << 20;

/// A header that was read.
pub struct IncludedHeader {
    pub path: PathBuf,
    tokens: Rc<Vec<Token>>,
    span: SourceSpan,
    /// True if it has `#pragma once`.
    once: bool,
}

/// A header that was not found, and the `#include` that names it.
#[derive(Clone, Debug)]
pub struct MissingHeader {
    pub name: String,
    pub span: SourceSpan,
}

/// Hint for a name that is not declared: the headers that were not found, or else `otherwise`.
pub fn undeclared_hint(missing: &[MissingHeader], source: &Source, span: SourceSpan, otherwise: &str) -> String {
    let named =
        |header: &MissingHeader| format!("'{}' ({})", header.name, source.line_in_words(header.span.start, span.start));
    match missing {
        [] => otherwise.into(),
        [one] => format!("header {} was not found; pass its folder with -I", named(one)),
        all => {
            let all: Vec<String> = all.iter().take(4).map(named).collect();
            format!("headers {} were not found; pass their folders with -I", all.join(", "))
        }
    }
}

impl Preprocessor<'_> {
    /// Processes `#include`; `line` is its operand.
    pub(super) fn include(&mut self, line: &[Token], word: &Token) {
        let Some((name, is_local)) = self.header_name(line) else {
            return self.fail(word, "this '#include' is not supported", Some("write '#include \"file.cuh\"'"));
        };
        match self.find_header(&name, is_local) {
            Some(path) => self.read_header(path, word),
            None if is_known_header(&name) => {}
            None => {
                // Part of a function or table, not a list of declarations.
                if self.is_inside_item() {
                    let what = format!("header '{name}' was not found");
                    let invalid = self.invalid(word, what, Some("pass its folder with -I"));
                    self.out.push(Token { starts_line: false, ..invalid });
                }
                self.missing_headers.push(MissingHeader { name, span: word.span });
            }
        }
    }

    /// Returns true if the output ends inside the braces of a function, struct or initializer.
    fn is_inside_item(&mut self) -> bool {
        for at in self.scanned..self.out.len() {
            match self.out[at].kind {
                TokenKind::Reserved("{") => {
                    let before = self.out[..at].iter().rev().map(|token| token.kind);
                    let mut before =
                        before.skip_while(|kind| matches!(kind, TokenKind::Name(_) | TokenKind::Reserved("::")));
                    let is_scope = matches!(before.next(), Some(TokenKind::Str(_) | TokenKind::Reserved("namespace")));
                    self.open_braces.push(is_scope);
                }
                TokenKind::Reserved("}") => {
                    self.open_braces.pop();
                }
                _ => {}
            }
        }
        self.scanned = self.out.len();
        self.open_braces.contains(&false)
    }

    /// Returns true if `__has_include` finds a header.
    pub(super) fn has_include(&mut self, operand: &[Token]) -> bool {
        let Some((name, is_local)) = self.header_name(operand) else { return false };
        self.find_header(&name, is_local).is_some() || is_known_header(&name)
    }

    /// Name of a header, and true if it is written in quotes.
    fn header_name(&mut self, line: &[Token]) -> Option<(String, bool)> {
        match line {
            [Token { kind: TokenKind::Str(name), .. }, ..] => Some((self.names.text(*name).into(), true)),
            [open @ Token { kind: TokenKind::Reserved("<"), .. }, rest @ ..] => {
                let close = rest.iter().rfind(|token| token.kind == TokenKind::Reserved(">"))?;
                // As written: a file name is no sequence of tokens.
                let name = SourceSpan { start: open.span.end, end: close.span.start };
                Some((self.source.text_of(name).trim().to_owned(), false))
            }
            [Token { kind: TokenKind::Name(_), .. }, ..] => {
                let mut expanded = vec![];
                self.expand(line, &[], &mut expanded);
                match expanded[..] {
                    [Token { kind: TokenKind::Str(name), .. }] => Some((self.names.text(name).into(), true)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Finds a header: beside the including file if it is written in quotes, then in the include
    /// folders.
    fn find_header(&self, name: &str, is_local: bool) -> Option<PathBuf> {
        let beside = self.open_files.last().and_then(|file| file.as_deref()?.parent()).filter(|_| is_local);
        let folders = beside.into_iter().chain(self.options.include_dirs.iter().map(PathBuf::as_path));
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    fn read_header(&mut self, path: PathBuf, word: &Token) {
        let name = path.display().to_string();
        if self.open_files.len() > MAX_DEPTH {
            let repeats = self.open_files.iter().flatten().any(|open| *open == path);
            let what = match repeats {
                true => format!("'{name}' includes itself"),
                false => format!("files are included more than {MAX_DEPTH} deep"),
            };
            return self.abort(word, what, Some("write '#pragma once' in headers"));
        }
        self.includes += 1;
        if self.includes > MAX_INCLUDES || self.out.len() > MAX_TOKENS || self.source.text.len() > MAX_SOURCE_BYTES {
            return self.abort(word, "the included files are too large", Some("write '#pragma once' in headers"));
        }
        let n = match self.headers.iter().position(|header| same_file(&header.path, &path)) {
            Some(n) => n,
            None => {
                let text = match read_text(&path) {
                    Ok(text) => text,
                    Err(error) => return self.fail(word, format!("{name}: {error}"), None),
                };
                let tokens = Rc::new(self.tokenize_file(&name, &text));
                let end = self.source.text.len();
                let span = SourceSpan { start: (end - text.len()) as u32, end: end as u32 };
                self.headers.push(IncludedHeader { path: path.clone(), tokens, span, once: false });
                self.headers.len() - 1
            }
        };
        if self.headers[n].once {
            return;
        }
        self.open_files.push(Some(path));
        let tokens = self.headers[n].tokens.clone();
        self.record(TraceKind::Enter(self.headers[n].span), &[]);
        self.file(&tokens);
        self.record(TraceKind::Leave, &[]);
        self.open_files.pop();
    }

    /// `#pragma once` in the file being read.
    pub(super) fn pragma_once(&mut self) {
        let Some(Some(path)) = self.open_files.last().filter(|_| self.open_files.len() > 1) else { return };
        if let Some(header) = self.headers.iter_mut().find(|header| same_file(&header.path, path)) {
            header.once = true;
        }
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Reads a header. Bytes that are not UTF-8, as in comments of older files, are replaced.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut bytes = vec![];
    std::fs::File::open(path)?.take(MAX_HEADER_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_HEADER_BYTES {
        let what = format!("the file is larger than {MAX_HEADER_BYTES} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Returns true for headers of CUDA, its libraries, C, C++ and the operating system.
fn is_known_header(name: &str) -> bool {
    const FOLDERS: &[&str] =
        &["cub/", "thrust/", "cuda/", "cooperative_groups/", "sys/", "nvtx3/", "curand", "cublas", "cusparse", "cufft"];
    const FILES: &[&str] = &[
        "cuda.h",
        "cuda_runtime.h",
        "cuda_runtime_api.h",
        "cuda_fp16.h",
        "cuda_fp16.hpp",
        "cuda_bf16.h",
        "cuda_fp8.h",
        "cuda_pipeline.h",
        "cuda_profiler_api.h",
        "device_launch_parameters.h",
        "device_functions.h",
        "device_atomic_functions.h",
        "math_constants.h",
        "math_functions.h",
        "vector_types.h",
        "vector_functions.h",
        "cooperative_groups.h",
        "mma.h",
        "sm_20_intrinsics.h",
        "texture_types.h",
        "nvToolsExt.h",
        "cusolverDn.h",
        "cudnn.h",
        "nccl.h",
        "nvrtc.h",
        "cuComplex.h",
        "driver_types.h",
        "omp.h",
        "mpi.h",
        "unistd.h",
        "getopt.h",
        "strings.h",
        "pthread.h",
        "fcntl.h",
        "malloc.h",
        "memory.h",
        "dirent.h",
        "libgen.h",
        "immintrin.h",
        "xmmintrin.h",
        "emmintrin.h",
        "x86intrin.h",
        "windows.h",
        "values.h",
        "endian.h",
        "termios.h",
        "dlfcn.h",
    ];
    // Headers of the C and C++ libraries: `<vector>`, `<cmath>`, `<stdio.h>`.
    const C: &[&str] = &[
        "assert",
        "complex",
        "ctype",
        "errno",
        "fenv",
        "float",
        "inttypes",
        "iso646",
        "limits",
        "locale",
        "math",
        "setjmp",
        "signal",
        "stdalign",
        "stdarg",
        "stdatomic",
        "stdbool",
        "stddef",
        "stdint",
        "stdio",
        "stdlib",
        "string",
        "tgmath",
        "time",
        "uchar",
        "wchar",
        "wctype",
    ];
    let is_cpp = !name.contains(['.', '/']) && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_cpp
        || FILES.contains(&name)
        || name.strip_suffix(".h").is_some_and(|name| C.contains(&name))
        || FOLDERS.iter().any(|folder| name.starts_with(folder))
}
