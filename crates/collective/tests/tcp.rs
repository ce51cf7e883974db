//! Ranks that are connected by TCP: collectives, clients without the token, files of earlier jobs,
//! ranks that fail and end.
#![allow(missing_docs)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bornite_collective::{Communicator, Error, FailureKind, TcpJob, TcpRanks};

mod checks;

use checks::{MESSAGE_ELEMENTS, check_all, on_threads};

const TIMEOUT: Duration = Duration::from_secs(30);

fn rendezvous(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rendezvous-{name}"));
    let _ = std::fs::remove_file(&path);
    path
}

fn job(name: &str, rank: usize, size: usize) -> TcpJob {
    let rendezvous = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rendezvous-{name}"));
    TcpJob { rank, size, host: "127.0.0.1".into(), id: name.into(), rendezvous }
}

/// Communicators of all ranks of a job, connected by threads.
fn connect(name: &str, size: usize) -> Vec<Communicator> {
    std::thread::scope(|scope| {
        let connect = |rank| scope.spawn(move || TcpRanks::connect(&job(name, rank, size), TIMEOUT).unwrap());
        let threads: Vec<_> = (0..size).map(connect).collect();
        let ranks = threads.into_iter().map(|thread| thread.join().unwrap());
        ranks.map(|rank| Communicator::new(rank).max_message_elements(MESSAGE_ELEMENTS)).collect()
    })
}

#[test]
fn tcp_matches_one_process() {
    for size in [1, 2, 3, 5] {
        let file = rendezvous("healthy");
        let comms = connect("healthy", size);
        assert!(!file.exists(), "rank 0 removes the file");
        for outcome in on_threads(comms, check_all) {
            outcome.unwrap();
        }
    }
}

/// More bytes than a receiver holds wait at the sender, and arrive.
#[test]
fn large_messages_arrive() {
    rendezvous("large");
    let comms: Vec<Communicator> =
        connect("large", 2).into_iter().map(|comm| comm.max_message_elements(1 << 22)).collect();
    let sums = on_threads(comms, |comm| {
        let mut values = vec![comm.rank() as f64; 1 << 24];
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
        comm.broadcast(&mut values, 0).unwrap();
        values.iter_mut().for_each(|value| *value += comm.rank() as f64);
        comm.all_reduce(&mut values).unwrap();
        values.iter().all(|value| *value == 1.0)
    });
    assert_eq!(sums, [true, true]);
}

/// The port of rank 0, as its file says.
fn port(file: &Path) -> u16 {
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(port) = text.lines().find_map(|line| line.strip_prefix("port ")?.parse().ok()) {
            return port;
        }
        assert!(started.elapsed() < TIMEOUT, "no rendezvous");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Clients that send nothing, noise or a handshake without the token do not keep the ranks apart.
#[test]
fn clients_without_the_token_are_ignored() {
    let file = rendezvous("clients");
    let ranks = std::thread::scope(|scope| {
        let first = scope.spawn(|| TcpRanks::connect(&job("clients", 0, 2), TIMEOUT));
        let port = port(&file);
        let mut greeting = b"bornite1".to_vec();
        greeting.extend([1, 0, 0, 0, 2, 0, 0, 0]);
        greeting.extend([7; 34]);
        let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        for n in 0..200usize {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let noise: Vec<u8> = (0..n).map(|byte| (byte * n) as u8).collect();
            let _ = stream.write_all(if n % 2 == 0 { &noise } else { &greeting });
            if n % 4 == 1 {
                // Rank 0 proves that it has the token; the client cannot, even by repeating its message.
                let mut reply = [0; 68];
                stream.read_exact(&mut reply).unwrap();
                let _ = stream.write_all(&reply[36..]);
                assert_eq!(stream.read(&mut reply).unwrap_or(0), 0);
            }
        }
        let started = Instant::now();
        let second = TcpRanks::connect(&job("clients", 1, 2), TIMEOUT).unwrap();
        assert!(started.elapsed() < Duration::from_secs(4), "clients delay the job by {:?}", started.elapsed());
        drop(silent);
        vec![first.join().unwrap().unwrap(), second]
    });
    for outcome in on_threads(ranks.into_iter().map(Communicator::new).collect(), check_all) {
        outcome.unwrap();
    }
}

/// The file of a job that died, whose port is closed or has another owner, is replaced.
#[test]
fn files_of_earlier_jobs_do_not_matter() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [1, other.local_addr().unwrap().port()] {
        let file = rendezvous("stale");
        let token = "ab".repeat(32);
        let text = format!("bornite rendezvous 1\njob stale\nhost 127.0.0.1\nport {port}\ntoken {token}\n");
        std::fs::write(&file, text).unwrap();
        let ranks = std::thread::scope(|scope| {
            let second = scope.spawn(|| TcpRanks::connect(&job("stale", 1, 2), TIMEOUT).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            let first = TcpRanks::connect(&job("stale", 0, 2), TIMEOUT).unwrap();
            vec![first, second.join().unwrap()]
        });
        for outcome in on_threads(ranks.into_iter().map(Communicator::new).collect(), check_all) {
            outcome.unwrap();
        }
    }
}

#[test]
fn missing_ranks_are_named() {
    let short = Duration::from_millis(300);
    let file = rendezvous("missing");
    let error = TcpRanks::connect(&job("missing", 0, 3), short).err().unwrap().to_string();
    assert!(error.contains("rank 0 waited for the connection of rank 1, 2"), "{error}");
    assert!(!file.exists());
    let error = TcpRanks::connect(&job("missing", 2, 3), short).err().unwrap().to_string();
    assert!(error.contains("rank 2 did not find rank 0") && error.contains("has not written"), "{error}");
    let unknown = TcpJob { host: "no-such-host.invalid".into(), ..job("missing", 0, 2) };
    let error = TcpRanks::connect(&unknown, short).err().unwrap().to_string();
    assert!(error.contains("'no-such-host.invalid' (MASTER_ADDR)"), "{error}");
    assert!(TcpRanks::connect(&job("missing", 3, 3), short).is_err());
}

/// Failures and ended ranks are errors of all ranks at once, not after the timeout.
#[test]
fn failed_and_ended_ranks_are_errors() {
    for ends in [false, true] {
        rendezvous("ending");
        let mut comms: Vec<Option<Communicator>> = connect("ending", 3).into_iter().map(Some).collect();
        let victim = comms[1].take().unwrap();
        let started = Instant::now();
        let errors: Vec<Error> = std::thread::scope(|scope| {
            let wait = |comm: &'_ Communicator| comm.all_reduce(&mut [1.0f32; 10]).unwrap_err();
            let waiting: Vec<_> = comms.iter().flatten().map(|comm| scope.spawn(move || wait(comm))).collect();
            std::thread::sleep(Duration::from_millis(50));
            match ends {
                true => drop(victim),
                false => victim.abort(FailureKind::Stopped, "the disk is full"),
            }
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        for error in &errors {
            match (ends, error) {
                (true, Error::ConnectionLost { lost: 1, .. }) => {}
                // Reported by the rank that noticed first.
                (true, Error::RankFailed { kind: FailureKind::RankLost, message, .. })
                    if message.contains("rank 1") => {}
                (false, Error::RankFailed { rank: 1, kind: FailureKind::Stopped, message })
                    if message == "the disk is full" => {}
                _ => panic!("ends: {ends}: {error}"),
            }
        }
    }
}
