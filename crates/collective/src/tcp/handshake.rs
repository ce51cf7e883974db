//! Mutual authentication of two ranks by the token of their job, over a connection that anyone may
//! have opened. Every message has a fixed length.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read, Write};

use sha2::{Digest, Sha256};

const MAGIC: [u8; 8] = *b"bornite1";
const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const HELLO_BYTES: usize = MAGIC.len() + 4 + 4 + 2 + NONCE_BYTES;
const REPLY_BYTES: usize = 4 + NONCE_BYTES + MAC_BYTES;

/// Random secret that the ranks of a job share.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token([u8; 32]);

/// First message of the rank that opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub rank: usize,
    pub size: usize,
    /// Port on which it accepts connections of higher ranks.
    pub port: u16,
}

impl Token {
    pub fn random() -> io::Result<Token> {
        Ok(Token(random_bytes()?))
    }

    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn from_hex(text: &str) -> Option<Token> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut token = [0; 32];
        for (slot, pair) in token.iter_mut().zip(text.as_bytes().chunks(2)) {
            *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Token(token))
    }

    /// Proof that a side of a connection knows the token. All inputs have fixed lengths, so a hash
    /// with the secret in front is sufficient.
    fn mac(&self, side: &[u8; 8], hello: &[u8], reply: &[u8]) -> [u8; MAC_BYTES] {
        let hash = Sha256::new().chain_update(self.0).chain_update(side).chain_update(hello).chain_update(reply);
        hash.finalize().into()
    }
}

/// Introduces this rank to the rank that accepts the connection; returns the number of that rank.
pub(super) fn initiate<S: Read + Write>(stream: &mut S, token: &Token, own: Hello) -> io::Result<usize> {
    let mut hello = MAGIC.to_vec();
    hello.extend((own.rank as u32).to_le_bytes());
    hello.extend((own.size as u32).to_le_bytes());
    hello.extend(own.port.to_le_bytes());
    hello.extend(random_bytes()?);
    stream.write_all(&hello)?;
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply)?;
    let (start, mac) = reply.split_at(REPLY_BYTES - MAC_BYTES);
    check(mac, token.mac(b"acceptor", &hello, start))?;
    stream.write_all(&token.mac(b"initiate", &hello, start))?;
    Ok(number(start, 0))
}

/// Accepts a connection as rank `rank` of `size`; returns the introduction of the other rank.
pub(super) fn accept<S: Read + Write>(stream: &mut S, token: &Token, rank: usize, size: usize) -> io::Result<Hello> {
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    if !hello.starts_with(&MAGIC) {
        return Err(Error::new(ErrorKind::InvalidData, "not a rank of a Bornite job of this version"));
    }
    let mut start = (rank as u32).to_le_bytes().to_vec();
    start.extend(random_bytes()?);
    let reply = [start.clone(), token.mac(b"acceptor", &hello, &start).to_vec()].concat();
    stream.write_all(&reply)?;
    let mut mac = [0; MAC_BYTES];
    stream.read_exact(&mut mac)?;
    check(&mac, token.mac(b"initiate", &hello, &start))?;
    let (other, other_size) = (number(&hello, MAGIC.len()), number(&hello, MAGIC.len() + 4));
    if other_size != size || other >= size || other == rank {
        let what = format!("rank {other} of {other_size} connected to rank {rank} of {size}");
        return Err(Error::new(ErrorKind::InvalidData, what));
    }
    let port = hello[MAGIC.len() + 8..].first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
    Ok(Hello { rank: other, size, port })
}

/// Compares all bytes, so that the time does not depend on where they differ.
fn check(found: &[u8], expected: [u8; MAC_BYTES]) -> io::Result<()> {
    let difference = found.iter().zip(expected).fold(0, |all, (found, expected)| all | (found ^ expected));
    match difference == 0 && found.len() == MAC_BYTES {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::PermissionDenied, "the other side does not have the token of this job")),
    }
}

/// The little-endian number of four bytes at an offset.
fn number(bytes: &[u8], offset: usize) -> usize {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
}

fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Bytes to read, and the bytes written.
    struct Recorded<'a>(&'a [u8], Vec<u8>);

    impl Read for Recorded<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Recorded<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn connect(initiator: &Token, acceptor: &Token, own: Hello) -> (io::Result<usize>, io::Result<Hello>) {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(move || accept(&mut other, acceptor, 0, 4));
            let initiated = initiate(&mut one, initiator, own);
            drop(one);
            (initiated, accepted.join().unwrap())
        })
    }

    #[test]
    fn only_holders_of_the_token_are_accepted() {
        let (token, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert!(Token::from_hex(&token.hex()).unwrap() == token && token != other);
        let own = Hello { rank: 3, size: 4, port: 4711 };
        let (initiated, accepted) = connect(&token, &token, own);
        assert_eq!((initiated.unwrap(), accepted.unwrap()), (0, own));
        let (initiated, accepted) = connect(&other, &token, own);
        assert!(initiated.is_err() && accepted.is_err());
        for (rank, size) in [(4, 4), (0, 4), (1, 3), (1, 5)] {
            let (_, accepted) = connect(&token, &token, Hello { rank, size, port: 1 });
            assert!(accepted.unwrap_err().to_string().contains("connected to rank 0 of 4"));
        }
    }

    /// Neither random nor changed messages are accepted, wherever they are cut off. Replayed ones
    /// are not either: every connection has another nonce.
    #[test]
    fn a_hundred_thousand_messages_without_the_token() {
        let token = Token::random().unwrap();
        let mut hello =
            [MAGIC.as_slice(), &1u32.to_le_bytes(), &4u32.to_le_bytes(), &[0; 34], &[0; MAC_BYTES]].concat();
        let mut state = 0x853c_49e6_748f_ea9bu64;
        for n in 0..100_000usize {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (state >> 32) as usize;
            let position = random % hello.len();
            hello[position] ^= (random >> 16) as u8;
            let len = if n % 4 == 0 { random % (hello.len() + 1) } else { hello.len() };
            assert!(accept(&mut Recorded(&hello[..len], vec![]), &token, 0, 4).is_err());
            let own = Hello { rank: 1, size: 4, port: 1 };
            assert!(initiate(&mut Recorded(&hello[..len], vec![]), &token, own).is_err());
            if n % 16 == 0 {
                hello[..MAGIC.len()].copy_from_slice(&MAGIC);
            }
        }
    }
}
