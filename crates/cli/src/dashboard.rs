//! `bornite train --dashboard`: the report of the running training, served to this machine only.
//!
//! Pages are rendered from memory: no request reaches the file system. Requests must name this
//! server as their host, so that a web site whose name points here cannot read them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bornite_nn::train::TrainEvent;

use crate::note;
use crate::report::{Run, page};

/// Maximum size of a request's head.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Maximum time of a request, and maximum number of requests at a time.
const REQUEST_TIME: Duration = Duration::from_secs(5);
const MAX_REQUESTS: usize = 16;

/// The dashboard of a run, which starts with the training.
pub enum Dashboard {
    /// Not requested.
    Off,
    /// To be started for the run in a folder.
    Requested(u16, PathBuf),
    /// Serving.
    On(Server),
}

impl Dashboard {
    /// Starts the server, or updates what it serves.
    pub fn on_event(&mut self, event: &TrainEvent<'_>) {
        if let (Dashboard::Requested(port, folder), TrainEvent::Begin(_) | TrainEvent::BeginImages(_)) = (&*self, event)
        {
            match Server::start(*port, Run::resumed(folder)) {
                Ok(server) => {
                    note(&format!("dashboard: http://{}/", server.address));
                    *self = Dashboard::On(server);
                }
                Err(error) => {
                    note(&format!("dashboard: port {port} cannot be used ({error}); training continues without it"));
                    *self = Dashboard::Off;
                }
            }
        }
        let Dashboard::On(server) = self else { return };
        match event {
            TrainEvent::Step(metrics) => server.update(|run| run.add(**metrics)),
            TrainEvent::Sample { step, text } => {
                server.update(|run| run.samples = format!("step {step}\n{text}"));
            }
            _ => {}
        }
    }
}

/// State that clients see.
struct Shared {
    /// The run, and the number of its updates.
    run: Mutex<(Run, u64)>,
    stopping: AtomicBool,
    requests: AtomicUsize,
}

impl Shared {
    fn run(&self) -> MutexGuard<'_, (Run, u64)> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server on the loopback interface, until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server; port 0 selects a free one.
    fn start(port: u16, run: Run) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let (stopping, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
        let shared = Arc::new(Shared { run: Mutex::new((run, 0)), stopping, requests });
        let serving = shared.clone();
        let serve = move || {
            for stream in listener.incoming() {
                if serving.stopping.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                if serving.requests.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
                    serving.requests.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let shared = serving.clone();
                // A client that hangs or disconnects costs only its own thread.
                let answer = move || {
                    let _ = answer(stream, address, &shared);
                    shared.requests.fetch_sub(1, Ordering::Relaxed);
                };
                if thread::Builder::new().spawn(answer).is_err() {
                    serving.requests.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let thread = Some(thread::Builder::new().name("dashboard".into()).spawn(serve)?);
        Ok(Server { address, shared, thread })
    }

    fn update(&self, change: impl FnOnce(&mut Run)) {
        let (run, version) = &mut *self.shared.run();
        change(run);
        *version += 1;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a connection.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, address: SocketAddr, shared: &Shared) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    let (status, kind, body) = response(&head, address, shared);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes())
}

/// Reads a request up to the empty line.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let end = Instant::now() + REQUEST_TIME;
    stream.set_write_timeout(Some(REQUEST_TIME))?;
    let (mut head, mut part) = (vec![], [0; 1024]);
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_HEAD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend(&part[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Status, content type and body.
fn response(head: &str, address: SocketAddr, shared: &Shared) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain";
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let headers = lines.filter_map(|line| line.split_once(':'));
    let hosts: Vec<&str> =
        headers.filter(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.trim()).collect();
    let port = address.port();
    let is_this_host = |host: &str| {
        ["127.0.0.1", "localhost"].into_iter().any(|name| host.eq_ignore_ascii_case(&format!("{name}:{port}")))
    };
    if !matches!(hosts[..], [host] if is_this_host(host)) {
        return ("403 Forbidden", TEXT, "the dashboard answers only requests to this machine\n".into());
    }
    match request[..] {
        ["GET", "/", _] => {
            let (run, version) = &*shared.run();
            ("200 OK", "text/html", page(std::slice::from_ref(run)).live_html(*version))
        }
        ["GET", "/version", _] => ("200 OK", TEXT, shared.run().1.to_string()),
        ["GET", ..] => ("404 Not Found", TEXT, "the dashboard has one page: /\n".into()),
        _ => ("405 Method Not Allowed", TEXT, "only GET is supported\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use bornite_nn::train::StepMetrics;

    use super::*;

    fn metrics(step: u64) -> StepMetrics {
        StepMetrics {
            step,
            loss: Some(1.0 / step as f64),
            lr: 0.1,
            grad_norm: Some(1.0),
            tokens_per_second: Some(1.0),
            images_per_second: None,
            elapsed_seconds: step as f64,
            host_ms: Some(0.0),
            data_wait_ms: Some(0.0),
            gpu_idle_share: None,
            memory_bytes: 0,
            skipped: false,
            validation_loss: None,
            validation_accuracy: None,
        }
    }

    fn request(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(address: SocketAddr, path: &str) -> String {
        request(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
    }

    fn body(answer: &str) -> &str {
        answer.split_once("\r\n\r\n").unwrap().1
    }

    #[test]
    fn clients_see_all_updates_while_others_die() {
        const UPDATES: u64 = 1000;
        let server = Server::start(0, Run::empty("run")).unwrap();
        let address = server.address;
        let watch = move || {
            let (mut last, mut seen) = (0, 0);
            while last < UPDATES {
                let version: u64 = body(&get(address, "/version")).parse().unwrap();
                assert!(version >= last, "{version} after {last}");
                if version > last {
                    let page = get(address, "/");
                    let shown = page.split("data-version=\"").nth(1).unwrap().split('"').next().unwrap();
                    let shown: u64 = shown.parse().unwrap();
                    assert!(
                        shown >= version && page.contains(&format!("data-value=\"{shown}\"")),
                        "{version}: {shown}"
                    );
                    (last, seen) = (shown, seen + 1);
                }
            }
            (seen, body(&get(address, "/")).to_owned())
        };
        let watchers = [thread::spawn(watch), thread::spawn(watch)];
        // The third client sends half a request, and goes.
        let mut killed = TcpStream::connect(address).unwrap();
        killed.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        for step in 1..=UPDATES {
            server.update(|run| run.steps.push(metrics(step)));
            if step == UPDATES / 2 {
                let _ = killed.shutdown(std::net::Shutdown::Both);
            }
            thread::sleep(Duration::from_micros(100));
        }
        let mut complete = Run::empty("run");
        complete.steps.extend((1..=UPDATES).map(metrics));
        let expected = page(&[complete]).live_html(UPDATES);
        for watcher in watchers {
            let (seen, last) = watcher.join().unwrap();
            assert!(seen >= 1 && last == expected, "{seen} pages");
        }
        drop(server);
        assert!(TcpStream::connect(address).is_err(), "the server has ended");
    }

    #[test]
    fn only_this_host_and_known_paths_are_answered() {
        let server = Server::start(0, Run::empty("run")).unwrap();
        let (address, port) = (server.address, server.address.port());
        assert!(address.ip().is_loopback());
        let host = format!("Host: 127.0.0.1:{port}");
        for (text, status) in [
            (format!("GET / HTTP/1.1\r\nHost: LOCALHOST:{port}"), "200"),
            (format!("GET / HTTP/1.1\r\n{host}"), "200"),
            (format!("GET / HTTP/1.1\r\nHost: evil.example:{port}"), "403"),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1".into(), "403"),
            (format!("GET / HTTP/1.1\r\n{host}\r\nHost: evil.example"), "403"),
            ("GET / HTTP/1.1".into(), "403"),
            (format!("GET /../../etc/passwd HTTP/1.1\r\n{host}"), "404"),
            (format!("GET //etc/passwd HTTP/1.1\r\n{host}"), "404"),
            (format!("GET /?file=/etc/passwd HTTP/1.1\r\n{host}"), "404"),
            (format!("GET /metrics.jsonl HTTP/1.1\r\n{host}"), "404"),
            (format!("GET http://evil.example/ HTTP/1.1\r\n{host}"), "404"),
            (format!("POST / HTTP/1.1\r\n{host}"), "405"),
            (format!("\r\n{host}"), "405"),
        ] {
            let answer = request(address, &format!("{text}\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{text}: {answer}");
            assert!(!answer.contains("root:"), "{text}");
        }
        // A head that never ends is not read to its end.
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(&vec![b'x'; 1 << 20]);
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}
