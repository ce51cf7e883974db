//! Connections between all ranks of a job: every rank meets rank 0, which tells it where the others
//! are; of two other ranks, the higher one connects to the lower one.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::TcpJob;
use super::handshake::{self, Hello, Token};
use super::rendezvous::Rendezvous;
use crate::{Error, Result};

const PAUSE: Duration = Duration::from_millis(5);
/// Longest time for one connection and its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections whose handshake has not ended; more are closed.
const MAX_PENDING: usize = 256;
const ADDRESS_BYTES: usize = 16 + 2;

/// Accepts connections of ranks that have the token.
struct Acceptor {
    listener: TcpListener,
    token: Token,
    rank: usize,
    size: usize,
}

type Accepted = (Hello, TcpStream);

impl Acceptor {
    /// Waits for connections of the given ranks.
    fn accept(&self, ranks: std::ops::Range<usize>, deadline: Instant) -> Result<BTreeMap<usize, Accepted>> {
        let mut accepted = BTreeMap::new();
        let (sender, receiver) = mpsc::channel();
        let pending = Arc::new(AtomicUsize::new(0));
        while accepted.len() < ranks.len() {
            if let Ok((hello, stream)) = receiver.try_recv() {
                let Hello { rank, .. } = hello;
                if ranks.contains(&rank) {
                    // A rank that gave up its first connection comes again.
                    accepted.insert(rank, (hello, stream));
                }
                continue;
            }
            if Instant::now() > deadline {
                let missing: Vec<String> =
                    ranks.filter(|rank| !accepted.contains_key(rank)).map(|rank| rank.to_string()).collect();
                return Err(Error::Rendezvous(format!(
                    "rank {} waited for the connection of rank {}, which did not start, has another --out folder, or \
                     cannot reach this host",
                    self.rank,
                    missing.join(", ")
                )));
            }
            match self.listener.accept() {
                Ok((stream, _)) if pending.load(Ordering::SeqCst) < MAX_PENDING => {
                    self.start_handshake(stream, sender.clone(), pending.clone());
                }
                Ok(_) => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(accepted)
    }

    /// Runs the handshake in a thread, since the other side may be slow or of no job.
    fn start_handshake(&self, mut stream: TcpStream, sender: mpsc::Sender<Accepted>, pending: Arc<AtomicUsize>) {
        let (token, rank, size) = (self.token.clone(), self.rank, self.size);
        pending.fetch_add(1, Ordering::SeqCst);
        let left = pending.clone();
        let handshake = move || {
            let hello =
                prepare(&stream, HANDSHAKE_TIMEOUT).and_then(|()| handshake::accept(&mut stream, &token, rank, size));
            left.fetch_sub(1, Ordering::SeqCst);
            if let Ok(hello) = hello {
                let _ = sender.send((hello, stream));
            }
        };
        if std::thread::Builder::new().name("bornite-handshake".into()).spawn(handshake).is_err() {
            pending.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Connects to a rank and introduces this one.
fn dial(address: SocketAddr, token: &Token, own: Hello, to: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, HANDSHAKE_TIMEOUT)?;
    prepare(&stream, HANDSHAKE_TIMEOUT)?;
    match handshake::initiate(&mut stream, token, own)? {
        found if found == to => Ok(stream),
        found => Err(io::Error::other(format!("{address} is rank {found}"))),
    }
}

fn prepare(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// Connects all ranks; returns a stream to each other rank.
pub(super) fn connect(job: &TcpJob, timeout: Duration) -> Result<BTreeMap<usize, TcpStream>> {
    let deadline = Instant::now() + timeout;
    let failed = |error: io::Error| Error::Rendezvous(format!("rank {}: {error}", job.rank));
    // A listener on the loopback interface cannot be reached from other machines.
    let bound = match resolve(&job.host, 0).map_err(|error| unresolved(&job.host, &error))?.ip() {
        ip if ip.is_loopback() => ip,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let listener = TcpListener::bind((bound, 0)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let acceptor = |token: &Token| Acceptor { listener, token: token.clone(), rank: job.rank, size: job.size };
    if job.rank == 0 {
        let token = Token::random().map_err(failed)?;
        let rendezvous = Rendezvous { job: job.id.clone(), host: job.host.clone(), port, token: token.clone() };
        let _file = rendezvous.write(&job.rendezvous)?;
        let accepted = acceptor(&token).accept(1..job.size, deadline)?;
        return share_addresses(accepted).map_err(failed);
    }
    let own = Hello { rank: job.rank, size: job.size, port };
    let (token, mut first) = find_rank_0(job, own, deadline)?;
    let addresses = read_addresses(&mut first, job.size, deadline).map_err(failed)?;
    let mut streams = BTreeMap::from([(0, first)]);
    for (to, address) in addresses.iter().enumerate().take(job.rank).skip(1) {
        let stream = dial(*address, &token, own, to).map_err(|error| {
            Error::Rendezvous(format!("rank {} cannot connect to rank {to} at {address}: {error}", job.rank))
        })?;
        streams.insert(to, stream);
    }
    let higher = acceptor(&token).accept(job.rank + 1..job.size, deadline)?;
    streams.extend(higher.into_iter().map(|(rank, (_, stream))| (rank, stream)));
    Ok(streams)
}

/// Looks for rank 0 until the deadline.
fn find_rank_0(job: &TcpJob, own: Hello, deadline: Instant) -> Result<(Token, TcpStream)> {
    loop {
        let met = Rendezvous::read(&job.rendezvous, &job.id).and_then(|found| {
            let address =
                resolve(&found.host, found.port).map_err(|error| unresolved(&found.host, &error).to_string())?;
            let stream = dial(address, &found.token, own, 0);
            Ok((found.token, stream.map_err(|error| format!("rank 0 at {address}: {error}"))?))
        });
        match met {
            Ok(met) => return Ok(met),
            Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(reason) => {
                return Err(Error::Rendezvous(format!(
                    "rank {} did not find rank 0: {reason}; all ranks need the same --out folder and a network route to {}",
                    job.rank, job.host
                )));
            }
        }
    }
}

/// Sends every rank the addresses of all.
fn share_addresses(accepted: BTreeMap<usize, Accepted>) -> io::Result<BTreeMap<usize, TcpStream>> {
    // Rank 0 is reached already.
    let mut table = vec![0; ADDRESS_BYTES];
    for (hello, stream) in accepted.values() {
        let ip = match stream.peer_addr()?.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        table.extend(ip.octets());
        table.extend(hello.port.to_le_bytes());
    }
    let send = |(rank, (_, mut stream)): (usize, Accepted)| stream.write_all(&table).map(|()| (rank, stream));
    accepted.into_iter().map(send).collect()
}

/// Reads the addresses of all ranks from rank 0, which sends them once all are there.
fn read_addresses(stream: &mut TcpStream, size: usize, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let left = deadline.saturating_duration_since(Instant::now()).max(HANDSHAKE_TIMEOUT);
    stream.set_read_timeout(Some(left))?;
    let rank_0 = stream.peer_addr()?.ip();
    let mut addresses = Vec::with_capacity(size);
    for _ in 0..size {
        let mut entry = [0; ADDRESS_BYTES];
        stream.read_exact(&mut entry)?;
        let ip = entry.first_chunk::<16>().map_or(Ipv6Addr::UNSPECIFIED, |octets| Ipv6Addr::from(*octets));
        let port = entry.last_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
        // A rank that reaches rank 0 by the loopback interface is on its machine.
        let ip = Some(ip.to_canonical()).filter(|ip| !ip.is_loopback()).unwrap_or(rank_0);
        addresses.push(SocketAddr::new(ip, port));
    }
    Ok(addresses)
}

/// The first address of a host, of IPv4 if it has one.
fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first());
    first.copied().ok_or_else(|| io::Error::other("no address"))
}

fn unresolved(host: &str, error: &io::Error) -> Error {
    Error::Rendezvous(format!("the address of host '{host}' (MASTER_ADDR) cannot be found: {error}"))
}
